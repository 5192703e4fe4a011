/* One pass of a replica's thread: ask the events of held drafts, if it is its turn; sleep until
 * there is work; take a launch; gather the rows of its requests into columns, launch, wait,
 * scatter, hand back. While it waits, and the head can, a full launch is put behind the one under
 * way shortly before that one ends, so that the device does not wait for this thread. What can
 * fail: a launch (its requests get INTERNAL) and a device (everything gets DEVICE_LOST, now and
 * later, whichever replica lost it: the daemon starts anew with all).
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
	for (unsigned i = 0; !found && i < engine->replica_count; i++)
		if (engine->replicas[i].follows && scheduler_is_full(&engine->scheduler))
			found = &engine->replicas[i];
	if (found)
		found->idle = found->follows = false;
	return found;
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
	if (reason && !engine->report.reason.text[0]) /* the first says what began it */
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

/* Under the lock, which is released meanwhile: it waits for a launch now, and who is free looks at
 * what is held. */
static void leave_turn(struct replica *replica)
{
	struct replica *other = find_successor(replica);

	if (!other)
		return;
	pthread_mutex_unlock(&replica->engine->lock);
	bell_ring_and_wake(&other->work);
	pthread_mutex_lock(&replica->engine->lock);
}

static struct flight *flight_at(struct replica *replica, unsigned index)
{
	return &replica->flights[(replica->oldest + index) % MARKOV_BATCHES_MAX];
}

static void gather(struct flight *flight)
{
	struct scheduler_batch *batch = &flight->batch;
	uint32_t at = 0;

	for (struct link *link = batch->requests.next; link != &batch->requests;
		link = link->next) {
		struct draft *draft = &LINK_OWNER(link, struct request, queue)->draft;

		columns_gather(&flight->columns, at, draft);
		at += draft->rows;
	}
	flight->rows = columns_batch(&flight->columns, batch->rows, batch->steps);
}

/* One that can't be put behind another waits until that is over. */
static void hand_over(struct replica *replica, struct flight *flight)
{
	flight->begun_us = clock_us();
	flight->result = markov_launch(replica->head, &flight->rows, &flight->error);
	flight->handed_over = flight->result != -EBUSY;
}

/* Writes each request's outcome. */
static void scatter(const struct replica *replica, const struct flight *flight, uint64_t end_us)
{
	const struct scheduler_batch *batch = &flight->batch;
	const int r = flight->result;
	uint32_t at = 0;
	bool first = true;

	for (struct link *link = batch->requests.next; link != &batch->requests;
		link = link->next) {
		struct draft *draft = &LINK_OWNER(link, struct request, queue)->draft;

		draft->generation = replica->generation;
		draft->queue_us = flight->begun_us > draft->arrival_us
					  ? flight->begun_us - draft->arrival_us
					  : 0;
		draft->device_us = end_us - flight->begun_us;
		draft->replica = replica->index;
		draft->launch_rows = first ? batch->rows : 0;
		draft->error = r == 0 ? ERROR_NONE : r == -EIO ? ERROR_DEVICE_LOST : ERROR_INTERNAL;
		if (r == 0)
			columns_scatter(&flight->columns, at, draft);
		at += draft->rows;
		first = false;
	}
}

/* Under the lock: which launch is under way. */
static void note_oldest(struct replica *replica)
{
	const struct flight *flight = flight_at(replica, 0);

	replica->launched_us = 0;
	if (!replica->flight_count)
		return;
	replica->launched_us = flight->begun_us;
	replica->launch_limit_us =
		launch_limit_us(replica->head, flight->batch.rows, flight->batch.steps);
}

/* Under the lock, which is released meanwhile: takes a launch, if there is one, and begins it. */
static void take_off(struct replica *replica, uint64_t now_us)
{
	struct engine *engine = replica->engine;
	struct flight *flight = flight_at(replica, replica->flight_count);
	struct scheduler_batch *batch = &flight->batch;
	struct replica *other;
	bool expired;

	scheduler_take(&engine->scheduler, replica->index, now_us, batch);
	expired = !link_alone(&batch->expired);
	if (expired)
		report(engine, &batch->expired, NULL);
	if (link_alone(&batch->requests)) {
		if (expired)
			tell_loop(engine);
		return;
	}
	other = find_successor(replica);
	flight->begun_us = now_us;
	if (replica->flight_count++ == 0)
		note_oldest(replica);
	pthread_mutex_unlock(&engine->lock);
	if (other)
		bell_ring_and_wake(&other->work);
	if (expired)
		ring_loop(engine);
	gather(flight);
	hand_over(replica, flight);
	pthread_mutex_lock(&engine->lock);
}

/* Under the lock, which is released meanwhile: until the oldest launch is over; then the next one,
 * if there is one, counts as begun, and the requests are handed back. */
static void land(struct replica *replica)
{
	struct engine *engine = replica->engine;
	struct flight *flight = flight_at(replica, 0), *next = flight_at(replica, 1);
	uint64_t end_us;

	pthread_mutex_unlock(&engine->lock);
	if (flight->result == 0)
		flight->result = markov_wait(replica->head, &flight->error);
	end_us = clock_us();
	if (replica->flight_count > 1 && !next->handed_over)
		hand_over(replica, next);
	else if (replica->flight_count > 1 && next->begun_us < end_us)
		next->begun_us = end_us;
	scatter(replica, flight, end_us);
	if (flight->result < 0)
		name_replica(replica, &flight->error);

	pthread_mutex_lock(&engine->lock);
	replica->oldest = (replica->oldest + 1) % MARKOV_BATCHES_MAX;
	replica->flight_count--;
	note_oldest(replica);
	replica->free_us = end_us;
	engine->look_until_us = end_us + engine->options.spin_us;
	scheduler_ended(&engine->scheduler, replica->index, &flight->batch,
		flight->result == 0 ? end_us - flight->begun_us : 0, end_us);
	finish_all(&flight->batch.requests);
	if (flight->result == -EIO)
		lose_device(engine, &flight->batch.requests);
	report(engine, &flight->batch.requests, flight->result < 0 ? &flight->error : NULL);
	if (replica->next_head)
		call_to_swap(engine);
	tell_loop(engine);
}

/* Under the lock, which is released meanwhile: until the launch under way is over, or about to end
 * with a full one waiting, which may be put behind it: true. So late, since until then the queue's
 * order may still change. */
static bool await_follower(struct replica *replica)
{
	struct engine *engine = replica->engine;
	const struct flight *flight = flight_at(replica, 0);
	const uint64_t expect_us =
		scheduler_expect_us(&engine->scheduler, flight->batch.rows, flight->batch.steps);
	uint64_t from_us = flight->begun_us;
	bool full, over, may;

	if (markov_facts(replica->head)->batches_max == 1 || flight->result < 0 || !expect_us)
		return false;
	from_us += expect_us > LIMIT_AHEAD_US ? expect_us - LIMIT_AHEAD_US : 0;
	pthread_mutex_unlock(&engine->lock);
	do
		over = markov_is_over(replica->head);
	while (!over && clock_us() < from_us);
	for (;;) {
		bell_silence(&replica->work, BELL_QUIET);
		pthread_mutex_lock(&engine->lock);
		full = scheduler_is_full(&engine->scheduler);
		may = !over && !engine->stop && !replica->next_head;
		replica->follows = may && !full;
		if (!replica->follows)
			return may;
		pthread_mutex_unlock(&engine->lock);
		do
			over = markov_is_over(replica->head);
		while (!over && !bell_has_rung(&replica->work));
	}
}

/* Under the lock, which is released meanwhile: a launch, and all that follow on it without a
 * pause. */
static void fly(struct replica *replica, uint64_t now_us)
{
	take_off(replica, now_us);
	while (replica->flight_count) {
		if (replica->flight_count == 1 && await_follower(replica))
			take_off(replica, clock_us());
		land(replica);
		if (replica->flight_count) {
			look_at_held(replica);
			leave_turn(replica);
		}
	}
}

void *replica_main(void *user)
{
	struct replica *replica = user;
	struct engine *engine = replica->engine;
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
		fly(replica, now_us);
	}
	replica->ended = true;
	pthread_mutex_unlock(&engine->lock);
	bell_ring_and_wake(&engine->end);
	return NULL;
}
