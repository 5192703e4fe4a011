/* One pass of a replica's thread: ask the events of held drafts, if it is its turn; sleep until
 * there is work; take a launch; gather the rows of its requests into columns, launch, wait,
 * scatter, hand back. What can fail: a launch (its requests get INTERNAL) and a device (everything
 * gets DEVICE_LOST, now and later, whichever replica lost it: the daemon starts anew with all).
 *
 * No wake-up is lost: who finds that a launch could begin and does not begin it, be it because it
 * is the loop thread, because it has just taken another one or because it waits for others itself,
 * calls an idle replica that may. None is called twice before it has looked. */
#include "replica.h"

#include "kernels/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* Now, and something to launch. */
static bool may_begin(const struct engine *engine, unsigned replica)
{
	const uint64_t now_us = clock_us();

	return scheduler_begin_us(&engine->scheduler, replica, now_us) <= now_us;
}

struct replica *replica_call(struct engine *engine, bool any)
{
	struct replica *found = NULL;

	/* The clock is read under the lock, so that this reading and a replica's, by which it goes
	 * to sleep, follow each other as the two do; and only for one that sleeps or is about to.
	 */
	for (unsigned i = 0; i < engine->replica_count; i++) {
		struct replica *replica = &engine->replicas[i];

		if (replica->idle && (!found || replica->free_us > found->free_us) &&
			(any || may_begin(engine, i)))
			found = replica;
	}
	if (found)
		found->idle = false;
	return found;
}

/* Runs a launch to its end and writes each request's outcome. Returns what the backend said. */
static int run_launch(
	struct replica *replica, struct scheduler_batch *batch, struct error_text *error)
{
	struct columns *columns = &replica->columns;
	struct markov_batch launch = columns_batch(columns, batch->rows, batch->steps);
	uint64_t start_us, device_us;
	uint32_t at = 0;
	bool first = true;
	int r;

	for (struct link *link = batch->requests.next; link != &batch->requests;
		link = link->next) {
		struct draft *draft = &LINK_OWNER(link, struct request, queue)->draft;

		columns_gather(columns, at, draft);
		at += draft->rows;
	}

	start_us = clock_us();
	r = markov_launch(replica->head, &launch, error);
	if (r == 0)
		r = markov_wait(replica->head, error);
	device_us = clock_us() - start_us;

	at = 0;
	for (struct link *link = batch->requests.next; link != &batch->requests;
		link = link->next) {
		struct draft *draft = &LINK_OWNER(link, struct request, queue)->draft;

		draft->generation = replica->generation;
		draft->queue_us = start_us > draft->arrival_us ? start_us - draft->arrival_us : 0;
		draft->device_us = device_us;
		draft->replica = replica->index;
		draft->launch_rows = first ? batch->rows : 0;
		draft->error = r == 0 ? ERROR_NONE : r == -EIO ? ERROR_DEVICE_LOST : ERROR_INTERNAL;
		if (r == 0)
			columns_scatter(columns, at, draft);
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

/* Under the lock: nothing is launched any more, so everything that waits is told so, too. */
static void lose_device(struct engine *engine, struct link *finished)
{
	struct link waiting;

	link_init(&waiting);
	scheduler_take_all(&engine->scheduler, &waiting);
	held_take_all(&engine->held, &engine->scheduler, &waiting);
	for (struct link *link = waiting.next; link != &waiting; link = link->next)
		LINK_OWNER(link, struct request, queue)->draft.error = ERROR_DEVICE_LOST;
	finish_all(&waiting);
	link_splice(finished, &waiting);
	engine->lost = true;
}

/* Under the lock: `finished` and why a launch failed, or NULL, and whether a device is lost go into
 * the report as one. */
static void report(struct engine *engine, struct link *finished, const struct error_text *reason)
{
	pthread_mutex_lock(&engine->report_lock);
	link_splice(&engine->report.finished, finished);
	if (reason)
		engine->report.reason = *reason;
	engine->report.lost = engine->lost;
	pthread_mutex_unlock(&engine->report_lock);
}

/* Outside the lock: or the loop thread would wake only to wait for it. */
static void ring_loop(struct engine *engine)
{
	if (bell_ring(&engine->news))
		engine->options.wake(engine->options.user);
}

/* Under the lock, which is released meanwhile. */
static void tell_loop(struct engine *engine)
{
	pthread_mutex_unlock(&engine->lock);
	ring_loop(engine);
	pthread_mutex_lock(&engine->lock);
}

/* With several replicas a reason says which one's it is. */
static void name_replica(const struct replica *replica, struct error_text *reason)
{
	const struct error_text said = *reason;

	if (replica->engine->replica_count > 1)
		error_text_set(reason, EIO, "replica %u (%s): %.*s", replica->index,
			markov_facts(replica->head)->devices[0].uuid, CUT(400, said.text));
}

/* ---- another model ---- */

/* Under the lock: a launch is under way on a head that is to be replaced. */
static bool old_launches(const struct engine *engine)
{
	for (unsigned i = 0; i < engine->replica_count; i++)
		if (engine->replicas[i].next_head && engine->replicas[i].launched_us)
			return true;
	return false;
}

/* Under the lock: they look whether they may swap now. */
static void call_to_swap(struct engine *engine)
{
	for (unsigned i = 0; i < engine->replica_count; i++)
		if (engine->replicas[i].next_head)
			bell_ring_and_wake(&engine->replicas[i].work);
}

/* Under the lock, which is released meanwhile: swaps, or waits a little. No launch on a new head
 * begins before all those on old ones have ended, so that generations only rise. */
static void swap_heads(struct replica *replica)
{
	struct engine *engine = replica->engine;
	struct markov_head *old = replica->head;

	if (old_launches(engine)) {
		pthread_mutex_unlock(&engine->lock);
		bell_wait(&replica->work, engine->options.spin_us, UINT64_MAX);
		pthread_mutex_lock(&engine->lock);
		return;
	}
	replica->head = replica->next_head;
	replica->generation = engine->next_generation;
	replica->next_head = NULL;
	pthread_mutex_unlock(&engine->lock);
	markov_close(old); /* frees whole tables */
	pthread_mutex_lock(&engine->lock);
	if (--engine->to_swap > 0)
		return;
	scheduler_forget_times(&engine->scheduler);
	pthread_mutex_lock(&engine->report_lock);
	engine->report.swapped = true;
	pthread_mutex_unlock(&engine->report_lock);
	tell_loop(engine);
}

/* ---- waiting ---- */

/* Under the lock, which is released meanwhile. */
static void look_at_held(struct replica *replica)
{
	struct engine *engine = replica->engine;
	struct error_text reason;
	struct held_look look;
	struct link over;
	int r;

	if (engine->looker && engine->looker != replica)
		return;
	if (!held_any(&engine->held)) {
		engine->looker = NULL;
		return;
	}
	link_init(&over);
	engine->looker = replica;
	replica->asked_us = clock_us();
	held_begin_look(&engine->held, &look);
	pthread_mutex_unlock(&engine->lock);
	held_ask(&look);
	pthread_mutex_lock(&engine->lock);
	replica->asked_us = 0;
	r = held_end_look(&engine->held, &look, &engine->scheduler, clock_us(), &over);
	if (r < 0)
		error_text_set(&reason, EIO, "a client's event can't be asked");
	if (r < 0 || engine->lost)
		lose_device(engine, &over); /* what was being asked meanwhile, too */
	if (!link_alone(&over) || engine->lost) {
		report(engine, &over, r < 0 ? &reason : NULL);
		tell_loop(engine);
	}
}

/* Under the lock, which is released meanwhile: until there is something to do, or sooner. No event
 * rings the bell: with something held, whose turn it is comes back for the next look. */
static void wait_for_work(struct replica *replica, uint64_t now_us, uint64_t until_us)
{
	struct engine *engine = replica->engine;
	struct replica *other = replica_call(engine, false);
	uint64_t spin_us = engine->options.spin_us;
	uint64_t look_us = UINT64_MAX;

	if (engine->looker == replica && held_any(&engine->held)) {
		if (now_us >= engine->look_until_us)
			spin_us = 0;
		look_us = now_us + (spin_us ? 1 : LIMIT_HELD_NAP_US);
	}
	replica->idle = true;
	pthread_mutex_unlock(&engine->lock);
	if (other)
		bell_ring_and_wake(&other->work);
	bell_wait(&replica->work, spin_us, look_us < until_us ? look_us : until_us);
	pthread_mutex_lock(&engine->lock);
	replica->idle = false;
}

/* ---- launching ---- */

/* From here on a launch counts as a hang. */
static uint64_t launch_limit_us(const struct markov_head *head, uint32_t rows, uint32_t steps)
{
	const struct markov_facts *facts = markov_facts(head);

	if (strcmp(facts->backend, "cpu") != 0)
		return LIMIT_LAUNCH_US;
	return LIMIT_LAUNCH_US +
	       (uint64_t)rows * steps * facts->vocab / LIMIT_LAUNCH_CPU_PER_US * facts->rank;
}

/* Under the lock, before a launch: who begins what this one leaves, or takes its turn to look. */
static struct replica *find_successor(struct replica *replica)
{
	struct engine *engine = replica->engine;
	bool looks = false;

	if (engine->looker == replica) {
		engine->looker = NULL;
		looks = held_any(&engine->held);
	}
	return replica_call(engine, looks);
}

/* Under the lock, which is released meanwhile. */
static void launch(struct replica *replica, struct scheduler_batch *batch, uint64_t now_us)
{
	struct engine *engine = replica->engine;
	struct replica *other = find_successor(replica);
	bool expired = !link_alone(&batch->expired);
	struct error_text error;
	uint64_t end_us;
	int r;

	if (expired)
		report(engine, &batch->expired, NULL);
	replica->launched_us = now_us;
	replica->launch_limit_us = launch_limit_us(replica->head, batch->rows, batch->steps);
	pthread_mutex_unlock(&engine->lock);
	if (other)
		bell_ring_and_wake(&other->work);
	if (expired)
		ring_loop(engine);

	r = run_launch(replica, batch, &error);

	end_us = clock_us();
	pthread_mutex_lock(&engine->lock);
	replica->launched_us = 0;
	replica->free_us = end_us;
	engine->look_until_us = end_us + engine->options.spin_us;
	scheduler_ended(&engine->scheduler, replica->index, r == 0 ? end_us - now_us : 0, end_us);
	finish_all(&batch->requests);
	if (r == -EIO)
		lose_device(engine, &batch->requests);
	if (r < 0)
		name_replica(replica, &error);
	report(engine, &batch->requests, r < 0 ? &error : NULL);
	if (replica->next_head)
		call_to_swap(engine);
	tell_loop(engine);
}

void *replica_main(void *user)
{
	struct replica *replica = user;
	struct engine *engine = replica->engine;
	struct scheduler_batch batch;
	uint64_t now_us, begin_us;
	char name[16];

	snprintf(name, sizeof(name), "replica-%u", replica->index); /* for top -H */
	prctl(PR_SET_NAME, name);
	prctl(PR_SET_TIMERSLACK, 1000); /* ns; naps of 50 us would take twice as long */
	pthread_mutex_lock(&engine->lock);
	while (!engine->stop) {
		if (replica->next_head) {
			swap_heads(replica);
			continue;
		}
		look_at_held(replica);
		if (engine->stop || replica->next_head)
			continue; /* since the lock was released */
		now_us = clock_us();
		begin_us = scheduler_begin_us(&engine->scheduler, replica->index, now_us);
		if (begin_us > now_us) {
			wait_for_work(replica, now_us, begin_us);
			continue;
		}
		scheduler_take(&engine->scheduler, replica->index, now_us, &batch);
		if (!link_alone(&batch.requests)) {
			launch(replica, &batch, now_us);
		} else if (!link_alone(&batch.expired)) {
			report(engine, &batch.expired, NULL);
			tell_loop(engine);
		}
	}
	replica->ended = true;
	pthread_mutex_unlock(&engine->lock);
	bell_ring_and_wake(&engine->end);
	return NULL;
}
