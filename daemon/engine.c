/* One pass of the thread: ask the events of held drafts, sleep until there is work, take a launch,
 * gather the rows of its requests into columns, launch, wait, scatter, hand back. What can fail: a
 * launch (its requests get INTERNAL) and the device (everything gets DEVICE_LOST, now and later).
 */
#include "engine.h"

#include "bell.h"
#include "clock.h"
#include "held.h"
#include "scheduler.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct columns { /* of the largest launch; engine thread only */
	uint32_t *anchors;
	int64_t *positions, *seeds, *slots;
	float *temperatures;
	const void **base;
	uint64_t *base_strides;
	void **logits;
	uint64_t *logits_strides;
	enum memory_kind *base_memory, *logits_memory;
	uint32_t *tokens;
	uint8_t *flags;
};

struct engine {
	struct engine_options options;
	pthread_t thread;
	struct columns columns;
	struct markov_head *head; /* engine thread only */
	uint64_t generation;      /* engine thread only */
	bool watched;             /* loop thread only */

	/* Each on a cache line of its own: one thread may look at one all the while. */
	_Alignas(64) struct bell work; /* heard by the engine thread */
	_Alignas(64) struct bell news; /* heard by the loop thread */

	_Alignas(64)
		pthread_mutex_t lock; /* guards what follows, and the state of queued requests */
	struct scheduler scheduler;
	struct held held;
	struct link finished;
	struct error_text reason;
	struct markov_head *next_head;
	uint64_t next_generation;
	uint64_t launched_us;     /* 0: no launch under way */
	uint64_t launch_limit_us; /* of the launch under way: what it may take */
	uint64_t look_until_us;   /* with something held: looks again and again; then it naps */
	bool swapped, lost, stop;
};

static void columns_done(struct columns *columns)
{
	free(columns->anchors);
	free(columns->positions);
	free(columns->seeds);
	free(columns->slots);
	free(columns->temperatures);
	free(columns->base);
	free(columns->base_strides);
	free(columns->logits);
	free(columns->logits_strides);
	free(columns->base_memory);
	free(columns->logits_memory);
	free(columns->tokens);
	free(columns->flags);
	*columns = (struct columns){0};
}

static int columns_init(struct columns *columns, size_t rows, size_t steps)
{
	*columns = (struct columns){
		.anchors = calloc(rows, sizeof(*columns->anchors)),
		.positions = calloc(rows, sizeof(*columns->positions)),
		.seeds = calloc(rows, sizeof(*columns->seeds)),
		.slots = calloc(rows, sizeof(*columns->slots)),
		.temperatures = calloc(rows, sizeof(*columns->temperatures)),
		.base = calloc(rows, sizeof(*columns->base)),
		.base_strides = calloc(rows, sizeof(*columns->base_strides)),
		.logits = calloc(rows, sizeof(*columns->logits)),
		.logits_strides = calloc(rows, sizeof(*columns->logits_strides)),
		.base_memory = calloc(rows, sizeof(*columns->base_memory)),
		.logits_memory = calloc(rows, sizeof(*columns->logits_memory)),
		.tokens = calloc(rows * steps, sizeof(*columns->tokens)),
		.flags = calloc(rows, sizeof(*columns->flags)),
	};
	if (columns->anchors && columns->positions && columns->seeds && columns->slots &&
		columns->temperatures && columns->base && columns->base_strides &&
		columns->logits && columns->logits_strides && columns->base_memory &&
		columns->logits_memory && columns->tokens && columns->flags)
		return 0;
	columns_done(columns);
	return -ENOMEM;
}

static void gather(struct columns *columns, uint32_t at, const struct draft *draft)
{
	memcpy(columns->anchors + at, draft->anchors, draft->rows * sizeof(*draft->anchors));
	memcpy(columns->positions + at, draft->positions, draft->rows * sizeof(*draft->positions));
	memcpy(columns->seeds + at, draft->seeds, draft->rows * sizeof(*draft->seeds));
	memcpy(columns->slots + at, draft->slots, draft->rows * sizeof(*draft->slots));
	memcpy(columns->temperatures + at, draft->temperatures,
		draft->rows * sizeof(*draft->temperatures));
	for (uint32_t row = 0; row < draft->rows; row++) {
		columns->base[at + row] = request_base_at(draft, row);
		columns->base_strides[at + row] = draft->base.step_stride;
		columns->logits[at + row] = request_logits_at(draft, row);
		columns->logits_strides[at + row] = draft->logits.step_stride;
		columns->base_memory[at + row] = draft->base.memory;
		columns->logits_memory[at + row] = draft->logits.memory;
	}
}

/* Runs a launch to its end and writes each request's outcome. Returns what the backend said. */
static int run_launch(
	struct engine *engine, struct scheduler_batch *batch, struct error_text *error)
{
	struct columns *columns = &engine->columns;
	struct markov_batch launch = {
		.rows = batch->rows,
		.steps = batch->steps,
		.anchors = columns->anchors,
		.positions = columns->positions,
		.seeds = columns->seeds,
		.temperatures = columns->temperatures,
		.slots = columns->slots,
		.base = columns->base,
		.base_strides = columns->base_strides,
		.logits = columns->logits,
		.logits_strides = columns->logits_strides,
		.base_memory = columns->base_memory,
		.logits_memory = columns->logits_memory,
		.tokens = columns->tokens,
		.flags = columns->flags,
	};
	uint64_t start_us, device_us;
	uint32_t at = 0;
	bool first = true;
	int r;

	for (struct link *link = batch->requests.next; link != &batch->requests;
		link = link->next) {
		struct draft *draft = &LINK_OWNER(link, struct request, queue)->draft;

		gather(columns, at, draft);
		at += draft->rows;
	}

	start_us = clock_us();
	r = markov_launch(engine->head, &launch, error);
	if (r == 0)
		r = markov_wait(engine->head, error);
	device_us = clock_us() - start_us;

	at = 0;
	for (struct link *link = batch->requests.next; link != &batch->requests;
		link = link->next) {
		struct draft *draft = &LINK_OWNER(link, struct request, queue)->draft;

		draft->generation = engine->generation;
		draft->queue_us = start_us > draft->arrival_us ? start_us - draft->arrival_us : 0;
		draft->device_us = device_us;
		draft->launch_rows = first ? batch->rows : 0;
		draft->error = r == 0 ? ERROR_NONE : r == -EIO ? ERROR_DEVICE_LOST : ERROR_INTERNAL;
		if (r == 0) {
			memcpy(draft->tokens, columns->tokens + (size_t)at * draft->steps,
				(size_t)draft->rows * draft->steps * sizeof(*draft->tokens));
			memcpy(draft->flags, columns->flags + at,
				draft->rows * sizeof(*draft->flags));
		}
		at += draft->rows;
		first = false;
	}
	return r;
}

static void finish_all(struct link *requests)
{
	for (struct link *link = requests->next; link != requests; link = link->next)
		LINK_OWNER(link, struct request, queue)->draft.state = REQUEST_DONE;
}

/* Under the lock: nothing runs any more, so everything that waits is told so. */
static void lose_device(struct engine *engine)
{
	struct link waiting;

	link_init(&waiting);
	scheduler_take_all(&engine->scheduler, &waiting);
	held_take_all(&engine->held, &engine->scheduler, &waiting);
	for (struct link *link = waiting.next; link != &waiting; link = link->next)
		LINK_OWNER(link, struct request, queue)->draft.error = ERROR_DEVICE_LOST;
	finish_all(&waiting);
	link_splice(&engine->finished, &waiting);
	engine->lost = true;
}

/* Tells the loop thread, outside the lock: or it would wake only to wait for it. */
static void tell_loop(struct engine *engine)
{
	pthread_mutex_unlock(&engine->lock);
	if (bell_ring(&engine->news))
		engine->options.wake(engine->options.user);
	pthread_mutex_lock(&engine->lock);
}

/* Under the lock, which is released meanwhile: closing frees whole tables. */
static void swap_heads(struct engine *engine)
{
	struct markov_head *old = engine->head;

	engine->head = engine->next_head;
	engine->generation = engine->next_generation;
	engine->next_head = NULL;
	pthread_mutex_unlock(&engine->lock);
	markov_close(old);
	pthread_mutex_lock(&engine->lock);
	engine->swapped = true;
	scheduler_forget_times(&engine->scheduler);
	tell_loop(engine);
}

/* Under the lock, which is released meanwhile. */
static void look_at_held(struct engine *engine)
{
	struct held_look look;
	struct link over;
	int r;

	if (!held_any(&engine->held))
		return;
	link_init(&over);
	held_begin_look(&engine->held, &look);
	pthread_mutex_unlock(&engine->lock);
	held_ask(&look);
	pthread_mutex_lock(&engine->lock);
	r = held_end_look(&engine->held, &look, &engine->scheduler, clock_us(), &over);
	if (r < 0) {
		error_text_set(&engine->reason, EIO, "a client's event can't be asked");
		lose_device(engine);
	}
	if (!link_alone(&over)) {
		link_splice(&engine->finished, &over);
		tell_loop(engine);
	}
}

/* Under the lock, which is released meanwhile: until there is something to do, or sooner. No event
 * rings the bell: with something held, it comes back for the next look. */
static void wait_for_work(struct engine *engine, uint64_t now_us, uint64_t until_us)
{
	uint64_t spin_us = engine->options.spin_us;
	uint64_t look_us = UINT64_MAX;

	if (held_any(&engine->held)) {
		if (now_us >= engine->look_until_us)
			spin_us = 0;
		look_us = now_us + (spin_us ? 1 : LIMIT_HELD_NAP_US);
	}
	pthread_mutex_unlock(&engine->lock);
	bell_wait(&engine->work, spin_us, look_us < until_us ? look_us : until_us);
	pthread_mutex_lock(&engine->lock);
}

/* From here on a launch counts as a hang. */
static uint64_t launch_limit_us(const struct markov_head *head, uint32_t rows, uint32_t steps)
{
	const struct markov_facts *facts = markov_facts(head);

	if (strcmp(facts->backend, "cpu") != 0)
		return LIMIT_LAUNCH_US;
	return LIMIT_LAUNCH_US +
	       (uint64_t)rows * steps * facts->vocab / LIMIT_LAUNCH_CPU_PER_US * facts->rank;
}

static void *engine_main(void *user)
{
	struct engine *engine = user;
	struct scheduler_batch batch;
	struct error_text error;
	uint64_t now_us, begin_us, end_us;
	int r;

	prctl(PR_SET_TIMERSLACK, 1000); /* ns; naps of 50 us would take twice as long */
	pthread_mutex_lock(&engine->lock);
	while (!engine->stop) {
		if (engine->next_head)
			swap_heads(engine);
		look_at_held(engine);
		now_us = clock_us();
		begin_us = scheduler_begin_us(&engine->scheduler, now_us);
		if (begin_us > now_us) {
			wait_for_work(engine, now_us, begin_us);
			continue;
		}
		scheduler_take(&engine->scheduler, now_us, &batch);
		if (!link_alone(&batch.expired)) {
			link_splice(&engine->finished, &batch.expired);
			tell_loop(engine);
		}
		if (link_alone(&batch.requests))
			continue;
		engine->launched_us = now_us;
		engine->launch_limit_us = launch_limit_us(engine->head, batch.rows, batch.steps);
		pthread_mutex_unlock(&engine->lock);

		r = run_launch(engine, &batch, &error);

		end_us = clock_us();
		pthread_mutex_lock(&engine->lock);
		engine->launched_us = 0;
		engine->look_until_us = end_us + engine->options.spin_us;
		scheduler_ended(&engine->scheduler, r == 0 ? end_us - now_us : 0, end_us);
		if (r < 0)
			engine->reason = error;
		finish_all(&batch.requests);
		link_splice(&engine->finished, &batch.requests);
		if (r == -EIO)
			lose_device(engine);
		tell_loop(engine);
	}
	pthread_mutex_unlock(&engine->lock);
	return NULL;
}

static void engine_free(struct engine *engine)
{
	if (!engine)
		return;
	markov_close(engine->next_head);
	markov_close(engine->head);
	columns_done(&engine->columns);
	pthread_mutex_destroy(&engine->lock);
	free(engine);
}

int engine_start(const struct engine_options *options, struct markov_head *head,
	uint64_t generation, struct engine **ret, struct error_text *error)
{
	struct engine *engine;
	int r;

	engine = aligned_alloc(_Alignof(struct engine), sizeof(*engine));
	if (!engine) {
		markov_close(head);
		return error_text_set(error, ENOMEM, "out of memory for the engine");
	}
	*engine = (struct engine){.options = *options, .head = head, .generation = generation};
	pthread_mutex_init(&engine->lock, NULL);
	bell_silence(&engine->news, BELL_SLEEPS); /* the loop thread does not watch yet */
	scheduler_init(&engine->scheduler, options->max_queue, options->max_rows);
	held_init(&engine->held);
	link_init(&engine->finished);

	r = columns_init(&engine->columns, options->max_rows, options->max_steps);
	if (r < 0) {
		error_text_set(error, ENOMEM, "out of memory for the columns of %u rows",
			options->max_rows);
		goto fail;
	}
	r = -pthread_create(&engine->thread, NULL, engine_main, engine);
	if (r < 0) {
		error_text_set(error, -r,
			"the engine's thread can't be started: %s; raise RLIMIT_NPROC (ulimit -u, "
			"TasksMax=) or the limit of memory",
			strerror(-r));
		goto fail;
	}
	*ret = engine;
	return 0;
fail:
	engine_free(engine);
	return r;
}

int engine_stop(struct engine *engine, struct link *left)
{
	struct timespec until;
	int r;

	pthread_mutex_lock(&engine->lock);
	engine->stop = true;
	pthread_mutex_unlock(&engine->lock);
	bell_ring_and_wake(&engine->work);

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)(LIMIT_STOP_TIMEOUT_US / 1000000u);
	r = pthread_timedjoin_np(engine->thread, NULL, &until);
	if (r)
		return -r;
	scheduler_take_all(&engine->scheduler, left);
	held_take_all(&engine->held, &engine->scheduler, left);
	link_splice(left, &engine->finished);
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
	bool begins = false;
	uint64_t now_us;
	int r;

	pthread_mutex_lock(&engine->lock);
	if (engine->lost)
		r = -EIO;
	else if (request->draft.event)
		r = hold(engine, flow, request);
	else
		r = scheduler_add(&engine->scheduler, flow, request);
	if (r == 0 && request->draft.event) {
		begins = true; /* its event is to be asked */
	} else if (r == 0) {
		/* The clock is read under the lock, so that this reading and the engine's, by which
		 * it goes to sleep, follow each other as the two do. */
		now_us = clock_us();
		begins = scheduler_begin_us(&engine->scheduler, now_us) <= now_us;
	}
	pthread_mutex_unlock(&engine->lock);
	if (begins)
		bell_ring_and_wake(&engine->work);
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

void engine_swap(struct engine *engine, struct markov_head *head, uint64_t generation)
{
	pthread_mutex_lock(&engine->lock);
	engine->next_head = head;
	engine->next_generation = generation;
	pthread_mutex_unlock(&engine->lock);
	bell_ring_and_wake(&engine->work);
}

void engine_collect(struct engine *engine, struct engine_report *ret)
{
	link_init(&ret->finished);
	bell_silence(&engine->news, engine->watched ? BELL_QUIET : BELL_SLEEPS);
	pthread_mutex_lock(&engine->lock);
	link_splice(&ret->finished, &engine->finished);
	ret->swapped = engine->swapped;
	ret->lost = engine->lost;
	ret->reason = engine->reason;
	engine->swapped = false;
	engine->reason.text[0] = '\0';
	pthread_mutex_unlock(&engine->lock);
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
	bool busy;

	pthread_mutex_lock(&engine->lock);
	busy = engine->launched_us != 0;
	pthread_mutex_unlock(&engine->lock);
	return busy;
}

uint64_t engine_overdue_us(struct engine *engine, uint64_t now_us)
{
	uint64_t age = 0;

	pthread_mutex_lock(&engine->lock);
	if (engine->launched_us && now_us > engine->launched_us)
		age = now_us - engine->launched_us;
	if (age <= engine->launch_limit_us)
		age = 0;
	pthread_mutex_unlock(&engine->lock);
	return age;
}
