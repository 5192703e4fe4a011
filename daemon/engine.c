/* The loop thread's side of the engine: queue, cancel, swap, collect, and the beginning and end of
 * the replicas' threads. What they do is in replica.c. */
#include "engine.h"

#include "kernels/clock.h"
#include "replica.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void engine_free(struct engine *engine)
{
	if (!engine)
		return;
	for (unsigned i = 0; i < engine->replica_count; i++) {
		markov_close(engine->replicas[i].next_head);
		markov_close(engine->replicas[i].head);
		for (unsigned n = 0; n < MARKOV_BATCHES_MAX; n++)
			columns_done(&engine->replicas[i].flights[n].columns);
	}
	pthread_mutex_destroy(&engine->lock);
	pthread_mutex_destroy(&engine->report_lock);
	free(engine);
}

static void call_all(struct engine *engine)
{
	for (unsigned i = 0; i < engine->replica_count; i++)
		bell_ring_and_wake(&engine->replicas[i].work);
}

static bool has_ended(struct replica *replica)
{
	bool ended;

	pthread_mutex_lock(&replica->engine->lock);
	ended = replica->ended;
	pthread_mutex_unlock(&replica->engine->lock);
	return ended;
}

/* Ends the threads that were started. 0 or -ETIMEDOUT. By the daemon's clock: that of
 * pthread_timedjoin_np() may be set meanwhile. */
static int stop_threads(struct engine *engine)
{
	const uint64_t until_us = clock_us() + LIMIT_STOP_TIMEOUT_US;

	pthread_mutex_lock(&engine->lock);
	engine->stop = true;
	pthread_mutex_unlock(&engine->lock);
	call_all(engine);
	for (unsigned i = 0; i < engine->replica_count; i++) {
		struct replica *replica = &engine->replicas[i];

		if (!replica->started)
			continue;
		while (!has_ended(replica)) {
			if (clock_us() >= until_us)
				return -ETIMEDOUT;
			bell_wait(&engine->end, 0, until_us);
		}
		pthread_join(replica->thread, NULL);
		replica->started = false;
	}
	return 0;
}

static int start_thread(struct replica *replica, struct error_text *error)
{
	const struct engine_options *options = &replica->engine->options;
	int r = 0;

	for (unsigned n = 0; r == 0 && n < MARKOV_BATCHES_MAX; n++)
		r = columns_init(
			&replica->flights[n].columns, options->max_rows, options->max_steps);
	if (r < 0)
		return error_text_set(error, ENOMEM, "out of memory for the columns of %u row%s",
			options->max_rows, sentence_s(options->max_rows));
	r = -pthread_create(&replica->thread, NULL, replica_main, replica);
	if (r < 0)
		return error_text_set(error, -r,
			"the engine's thread can't be started: %s" ERROR_TEXT_MORE_THREADS,
			strerror(-r));
	replica->started = true;
	return 0;
}

int engine_start(const struct engine_options *options, struct markov_head *const *heads,
	uint64_t generation, struct engine **ret, struct error_text *error)
{
	const unsigned count = options->replicas;
	struct engine *engine;
	int r = 0;

	engine = aligned_alloc(
		_Alignof(struct engine), sizeof(*engine) + count * sizeof(engine->replicas[0]));
	if (!engine) {
		for (unsigned i = 0; i < count; i++)
			markov_close(heads[i]);
		return error_text_set(error, ENOMEM, "out of memory for the engine");
	}
	*engine = (struct engine){.options = *options, .replica_count = count};
	pthread_mutex_init(&engine->lock, NULL);
	pthread_mutex_init(&engine->report_lock, NULL);
	bell_silence(&engine->news, BELL_SLEEPS); /* the loop thread does not watch yet */
	scheduler_init(&engine->scheduler, count, options->max_queue, options->max_rows);
	held_init(&engine->held);
	link_init(&engine->report.finished);
	for (unsigned i = 0; i < count; i++)
		engine->replicas[i] = (struct replica){
			.engine = engine, .index = i, .head = heads[i], .generation = generation};
	for (unsigned i = 0; r == 0 && i < count; i++)
		r = start_thread(&engine->replicas[i], error);
	if (r < 0) {
		if (stop_threads(engine) == 0) /* they have nothing to do */
			engine_free(engine);
		return r;
	}
	*ret = engine;
	return 0;
}

int engine_stop(struct engine *engine, struct link *left)
{
	int r = stop_threads(engine);

	if (r < 0)
		return r;
	scheduler_take_all(&engine->scheduler, left);
	held_take_all(&engine->held, &engine->scheduler, left);
	link_splice(left, &engine->report.finished);
	engine_free(engine);
	return 0;
}

/* Under the lock. */
static int hold(struct engine *engine, struct scheduler_flow *flow, struct request *request)
{
	int r = scheduler_admit(&engine->scheduler, flow, request);

	if (r < 0)
		return r;
	held_add(&engine->held, request);
	engine->look_until_us = clock_us() + engine->options.spin_us;
	return 0;
}

int engine_submit(struct engine *engine, struct scheduler_flow *flow, struct request *request)
{
	struct replica *called = NULL;
	int r;

	pthread_mutex_lock(&engine->lock);
	if (engine->lost)
		r = -EIO;
	else if (request->draft.event)
		r = hold(engine, flow, request);
	else
		r = scheduler_add(&engine->scheduler, flow, request);
	if (r == 0)
		called = request->draft.event && engine->looker
				 ? engine->looker
				 : replica_call(engine, request->draft.event);
	pthread_mutex_unlock(&engine->lock);
	if (called)
		bell_ring_and_wake(&called->work);
	return r;
}

bool engine_cancel(struct engine *engine, struct request *request)
{
	enum request_state state;

	pthread_mutex_lock(&engine->lock);
	state = request->draft.state;
	if (state == REQUEST_HELD || state == REQUEST_ASKED || state == REQUEST_QUEUED)
		scheduler_remove(&engine->scheduler, request);
	pthread_mutex_unlock(&engine->lock);
	return state == REQUEST_HELD || state == REQUEST_QUEUED;
}

void engine_swap(struct engine *engine, struct markov_head *const *heads, uint64_t generation)
{
	pthread_mutex_lock(&engine->lock);
	for (unsigned i = 0; i < engine->replica_count; i++)
		engine->replicas[i].next_head = heads[i];
	engine->next_generation = generation;
	engine->to_swap = engine->replica_count;
	pthread_mutex_unlock(&engine->lock);
	call_all(engine);
}

void engine_collect(struct engine *engine, struct engine_report *ret)
{
	struct engine_report *report = &engine->report;

	link_init(&ret->finished);
	bell_silence(&engine->news, engine->watched ? BELL_QUIET : BELL_SLEEPS);
	pthread_mutex_lock(&engine->report_lock);
	link_splice(&ret->finished, &report->finished);
	ret->swapped = report->swapped;
	ret->lost = report->lost;
	ret->reason = report->reason;
	report->swapped = false;
	report->reason.text[0] = '\0';
	pthread_mutex_unlock(&engine->report_lock);
}

void engine_watch(struct engine *engine, bool on)
{
	engine->watched = on;
	if (on)
		bell_change(&engine->news, BELL_SLEEPS, BELL_QUIET);
	else
		bell_change(&engine->news, BELL_QUIET, BELL_SLEEPS);
}

bool engine_has_news(struct engine *engine)
{
	return bell_has_rung(&engine->news);
}

uint32_t engine_queue_depth(struct engine *engine)
{
	uint32_t depth;

	pthread_mutex_lock(&engine->lock);
	depth = scheduler_depth(&engine->scheduler);
	pthread_mutex_unlock(&engine->lock);
	return depth;
}

bool engine_busy(struct engine *engine)
{
	bool busy = false;

	pthread_mutex_lock(&engine->lock);
	for (unsigned i = 0; i < engine->replica_count; i++)
		busy |= engine->replicas[i].launched_us != 0;
	pthread_mutex_unlock(&engine->lock);
	return busy;
}

/* Of what began at `since_us`, or has not begun (0): its age if that is more than it may take. */
static uint64_t overdue_us(uint64_t since_us, uint64_t limit_us, uint64_t now_us)
{
	return since_us && now_us > since_us && now_us - since_us > limit_us ? now_us - since_us
									     : 0;
}

uint64_t engine_overdue_us(struct engine *engine, uint64_t now_us)
{
	uint64_t longest_us = 0;

	pthread_mutex_lock(&engine->lock);
	for (unsigned i = 0; i < engine->replica_count; i++) {
		const struct replica *replica = &engine->replicas[i];
		const uint64_t ages_us[] = {
			overdue_us(replica->launched_us, replica->launch_limit_us, now_us),
			overdue_us(replica->asked_us, LIMIT_LAUNCH_US, now_us),
		};

		for (unsigned n = 0; n < 2; n++)
			if (ages_us[n] > longest_us)
				longest_us = ages_us[n];
	}
	pthread_mutex_unlock(&engine->lock);
	return longest_us;
}
