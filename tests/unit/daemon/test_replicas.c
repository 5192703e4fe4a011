/* Several replicas behind one queue: who takes what, who is woken, what one replica's end means for
 * the others. The backend is the test's (engine_fixture.h). */
#include "engine_fixture.h"

#include "kernels/clock.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

Suite *replicas_suite(void);

#define REPLICAS 3

static void setup(void)
{
	engine_set_up(REPLICAS, 0);
}

static void setup_spinning(void)
{
	engine_set_up(REPLICAS, SPIN_US);
}

/* Waits until one of those that are not in `known` (bits) launches; its index. */
static unsigned wait_for_launch(unsigned known)
{
	for (;;) {
		for (unsigned i = 0; i < REPLICAS; i++)
			if (!(known & 1u << i) && sem_trywait(&gates[i].launched) == 0)
				return i;
		sched_yield();
	}
}

/* One request of its own for each, which all of them launch and none ends. Which is whose. */
static void occupy_all(struct request *running[REPLICAS])
{
	unsigned known = 0;

	for (uint32_t i = 0; i < REPLICAS; i++) {
		struct request *request = submit(1 + i, 1, STEPS);
		unsigned replica = wait_for_launch(known);

		running[replica] = request;
		known |= 1u << replica;
	}
}

static bool nobody_launches(void)
{
	for (unsigned i = 0; i < REPLICAS; i++)
		if (sem_trywait(&gates[i].launched) == 0)
			return false;
	return true;
}

static void end_all(void)
{
	for (unsigned i = 0; i < REPLICAS; i++)
		let_end(i);
}

/* Each request finds an idle replica, while the others' launches go on. */
START_TEST(requests_go_to_idle_replicas)
{
	struct request *running[REPLICAS];

	ck_assert(!engine_busy(engine));
	occupy_all(running);
	ck_assert(engine_busy(engine));
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
	end_all();
	collect(REPLICAS);
	for (unsigned i = 0; i < REPLICAS; i++) {
		check_tokens(running[i]);
		ck_assert_uint_eq(running[i]->draft.replica, i);
		ck_assert_uint_eq(running[i]->draft.launch_rows, 1);
	}
	ck_assert(!engine_busy(engine));
}
END_TEST

/* When all are busy, requests gather, and the first that is free takes them. */
START_TEST(the_first_that_is_free_takes_what_waits)
{
	struct request *running[REPLICAS], *a, *b;
	const unsigned first = (unsigned)_i;

	occupy_all(running);
	a = submit(10, 2, STEPS);
	b = submit(11, 2, STEPS);
	ck_assert_uint_eq(engine_queue_depth(engine), 2);
	let_end(first);
	sem_wait(&gates[first].launched);
	ck_assert_uint_eq(gates[first].rows, 4);
	ck_assert(nobody_launches());
	collect(1);
	check_tokens(running[first]);
	ck_assert(engine_busy(engine));
	let_end(first);
	collect(2);
	check_tokens(a);
	check_tokens(b);
	ck_assert_uint_eq(a->draft.replica, first);
	end_all();
	collect(REPLICAS - 1);
}
END_TEST

/* The order of a connection's drafts is that of their beginnings. */
START_TEST(launches_begin_in_the_order_of_the_queue)
{
	struct request *running[REPLICAS], *waiting[REPLICAS];

	occupy_all(running);
	for (uint32_t i = 0; i < REPLICAS; i++)
		waiting[i] = submit(10 + i, MAX_ROWS, STEPS);
	for (unsigned i = 0; i < REPLICAS; i++) {
		let_end(i);
		sem_wait(&gates[i].launched);
		ck_assert_uint_eq(engine_queue_depth(engine), REPLICAS - 1 - i);
	}
	end_all();
	collect(2 * REPLICAS);
	for (unsigned i = 0; i < REPLICAS; i++)
		ck_assert_uint_eq(waiting[i]->draft.replica, i);
}
END_TEST

START_TEST(cancel_takes_back_what_waits_for_all)
{
	struct request *running[REPLICAS], *waiting;

	occupy_all(running);
	waiting = submit(10, 1, STEPS);
	for (unsigned i = 0; i < REPLICAS; i++)
		ck_assert(!engine_cancel(engine, running[i]));
	ck_assert(engine_cancel(engine, waiting));
	request_free(waiting);
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
	end_all();
	collect(REPLICAS);
	ck_assert(nobody_launches());
}
END_TEST

/* Requests come from one thread while the replicas launch and end as fast as they can: each comes
 * back once, and nobody sleeps over one. */
START_TEST(no_wake_up_is_lost)
{
	const unsigned rounds = 2000;

	for (unsigned i = 0; i < REPLICAS; i++)
		for (unsigned n = 0; n < 4 * rounds; n++) /* enough for one that has it all */
			let_end(i);
	for (unsigned round = 0; round < rounds; round++) {
		unsigned count = 1 + round % 4;

		for (uint32_t i = 0; i < count; i++)
			ck_assert_int_eq(
				engine_submit(engine, i % 2 ? &flow : &other,
					make(1 + i, 1 + (round + i) % MAX_ROWS, 1 + i % STEPS)),
				0);
		collect(count);
		for (struct link *link = got.next; link != &got; link = link->next)
			check_tokens(LINK_OWNER(link, struct request, queue));
		free_all(&got);
	}
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
}
END_TEST

START_TEST(a_failed_launch_fails_its_own_requests)
{
	struct request *running[REPLICAS];
	struct engine_report report;

	occupy_all(running);
	gates[1].result = -EINVAL;
	end_all();
	report = collect(REPLICAS);
	ck_assert(!report.lost);
	ck_assert_str_eq(report.reason.text, "replica 1 (GPU-x): as the test wanted");
	check_tokens(running[0]);
	ck_assert_int_eq(running[1]->draft.error, ERROR_INTERNAL);
	check_tokens(running[2]);
}
END_TEST

/* A replica that loses its device ends all; what the others have under way is right, and is handed
 * back. */
START_TEST(one_lost_device_loses_the_engine)
{
	struct request *running[REPLICAS], *waiting, *late;
	struct engine_report report;

	occupy_all(running);
	waiting = submit(10, 1, STEPS);
	gates[2].result = -EIO;
	let_end(2);
	report = collect(2);
	ck_assert(report.lost);
	ck_assert_str_eq(report.reason.text, "replica 2 (GPU-x): as the test wanted");
	ck_assert_int_eq(running[2]->draft.error, ERROR_DEVICE_LOST);
	ck_assert_int_eq(waiting->draft.error, ERROR_DEVICE_LOST);
	late = make(11, 1, STEPS);
	ck_assert_int_eq(engine_submit(engine, &flow, late), -EIO);
	request_free(late);
	let_end(0);
	let_end(1);
	collect(2);
	check_tokens(running[0]);
	check_tokens(running[1]);
	ck_assert(nobody_launches());
}
END_TEST

/* Whichever hangs. */
START_TEST(one_hung_replica_is_overdue)
{
	struct request *running[REPLICAS], *more;
	uint64_t later_us;

	occupy_all(running);
	for (unsigned i = 0; i < REPLICAS; i++)
		if (i != (unsigned)_i)
			let_end(i);
	collect(REPLICAS - 1);
	/* The others serve on, and that hides nothing. */
	more = submit(10, 1, STEPS);
	let_end(wait_for_launch(1u << _i));
	collect(1);
	check_tokens(more);
	later_us = clock_us() + LIMIT_LAUNCH_US +
		   1ull * STEPS * 1000 * 500 / LIMIT_LAUNCH_CPU_PER_US + 1;
	ck_assert(engine_busy(engine));
	ck_assert_uint_eq(engine_overdue_us(engine, clock_us()), 0);
	ck_assert_uint_ge(engine_overdue_us(engine, later_us), LIMIT_LAUNCH_US);
	let_end((unsigned)_i);
	collect(1);
	ck_assert_uint_eq(engine_overdue_us(engine, UINT64_MAX), 0);
}
END_TEST

/* ---- swaps ---- */

/* Closing the old heads may take a little longer than the first launches on the new ones. */
static void wait_for_swap(struct engine_report report)
{
	while (!report.swapped) {
		sem_wait(&woken);
		engine_collect(engine, &report);
	}
}

static bool all_closed(void)
{
	for (unsigned i = 0; i < REPLICAS; i++)
		if (!heads[i]->closed || next_heads[i]->closed)
			return false;
	return true;
}

START_TEST(idle_replicas_swap_at_once)
{
	struct engine_report report;
	struct request *running[REPLICAS];

	engine_swap(engine, next_heads, 2);
	sem_wait(&woken);
	engine_collect(engine, &report);
	ck_assert(report.swapped);
	ck_assert(all_closed());
	occupy_all(running);
	end_all();
	collect(REPLICAS);
	for (unsigned i = 0; i < REPLICAS; i++) {
		ck_assert_uint_eq(running[i]->draft.generation, 2);
		ck_assert_int_eq(gates[i].generation, 2);
	}
}
END_TEST

/* Replicas that are free wait for the others' launches: what begins later is never older. */
START_TEST(no_new_launch_begins_beside_an_old_one)
{
	struct request *running[REPLICAS], *after;
	struct engine_report report;
	unsigned last = (unsigned)_i;

	occupy_all(running);
	engine_swap(engine, next_heads, 2);
	after = submit(10, 1, STEPS);
	for (unsigned i = 0; i < REPLICAS; i++)
		if (i != last)
			let_end(i);
	report = collect(REPLICAS - 1);
	ck_assert(!report.swapped);
	ck_assert(nobody_launches());
	for (unsigned i = 0; i < REPLICAS; i++)
		ck_assert(!heads[i]->closed);
	ck_assert_uint_eq(engine_queue_depth(engine), 1);
	let_end(last);
	let_end(wait_for_launch(0));
	report = collect(2);
	ck_assert_uint_eq(after->draft.generation, 2);
	for (unsigned i = 0; i < REPLICAS; i++)
		ck_assert_uint_eq(running[i]->draft.generation, 1);
	wait_for_swap(report);
	ck_assert(all_closed());
}
END_TEST

/* Under load, with launches that end at any time: generations never go back, in the order in which
 * replies come. */
START_TEST(generations_only_rise)
{
	const unsigned rounds = 500;
	uint64_t last = 1;
	bool swapped = false;
	unsigned in_flight = 0;

	for (unsigned i = 0; i < REPLICAS; i++)
		for (unsigned n = 0; n < (rounds + 10) * MAX_QUEUE; n++)
			let_end(i);
	for (unsigned round = 0; round < rounds || !swapped; round++) {
		struct engine_report report;
		struct link *link;

		for (; in_flight < MAX_QUEUE; in_flight++)
			submit(1 + in_flight, MAX_ROWS, STEPS);
		if (round == 100)
			engine_swap(engine, next_heads, 2);
		sem_wait(&woken);
		engine_collect(engine, &report);
		swapped |= report.swapped;
		while ((link = link_pop(&report.finished))) {
			struct request *request = LINK_OWNER(link, struct request, queue);

			check_tokens(request);
			ck_assert_uint_ge(request->draft.generation, last);
			last = request->draft.generation;
			request_free(request);
			in_flight--;
		}
	}
	ck_assert_uint_eq(last, 2);
}
END_TEST

/* ---- events ---- */

/* Whoever looks after the events is not the one that a launch takes away. */
START_TEST(events_are_asked_while_others_launch)
{
	struct request *running[REPLICAS], *held = submit_held(20, 0);
	unsigned last;

	wait_for_look(0);
	occupy_all(running);
	last = (unsigned)_i;
	let_end(last);
	collect(1);
	wait_for_look(0); /* by the only one that is free */
	fire(0);
	sem_wait(&gates[last].launched);
	let_end(last);
	collect(1);
	check_tokens(held);
	ck_assert_uint_eq(held->draft.replica, last);
	end_all();
	collect(REPLICAS - 1);
}
END_TEST

START_TEST(the_turn_to_look_is_passed_on)
{
	struct request *running[REPLICAS - 1], *held = submit_held(20, 0);
	unsigned known = 0;

	/* One after the other launches; those that are left go on asking. */
	for (unsigned i = 0; i < REPLICAS - 1; i++) {
		wait_for_look(0);
		running[i] = submit(1 + i, 1, STEPS);
		known |= 1u << wait_for_launch(known);
	}
	wait_for_look(0);
	fire(0);
	known |= 1u << wait_for_launch(known);
	ck_assert_uint_eq(known, (1u << REPLICAS) - 1);
	end_all();
	collect(REPLICAS);
	check_tokens(held);
	for (unsigned i = 0; i < REPLICAS - 1; i++)
		check_tokens(running[i]);
}
END_TEST

/* One event for drafts that can't share a launch: who finds it fired begins one, and calls others
 * to what it leaves. */
START_TEST(what_a_launch_leaves_is_begun_by_another)
{
	struct request *held[REPLICAS];
	unsigned known = 0;

	for (uint32_t i = 0; i < REPLICAS; i++) {
		held[i] = make(20 + i, MAX_ROWS, STEPS);
		held[i]->draft.event = &events[0];
		held[i]->draft.event_until_us = UINT64_MAX;
		ck_assert_int_eq(engine_submit(engine, &flows[0], held[i]), 0);
	}
	wait_for_look(0);
	ck_assert(nobody_launches());
	fire(0);
	for (unsigned i = 0; i < REPLICAS; i++)
		known |= 1u << wait_for_launch(known);
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
	end_all();
	collect(REPLICAS);
	for (unsigned i = 0; i < REPLICAS; i++)
		check_tokens(held[i]);
}
END_TEST

/* A question that the driver doesn't answer holds no launch up, and counts as a hang. */
START_TEST(a_question_that_hangs_is_overdue)
{
	struct request *held, *passing;

	atomic_store(&answers[0].gated, true);
	held = submit_held(20, 0);
	sem_wait(&asking);
	passing = submit(1, 1, STEPS);
	let_end(wait_for_launch(0));
	collect(1);
	check_tokens(passing);
	ck_assert(!engine_busy(engine));
	ck_assert_uint_eq(engine_overdue_us(engine, clock_us()), 0);
	ck_assert_uint_gt(
		engine_overdue_us(engine, clock_us() + LIMIT_LAUNCH_US + 1), LIMIT_LAUNCH_US);
	atomic_store(&answers[0].gated, false);
	fire(0);
	sem_post(&may_answer);
	let_end(wait_for_launch(0));
	collect(1);
	check_tokens(held);
	ck_assert_uint_eq(engine_overdue_us(engine, UINT64_MAX), 0);
}
END_TEST

/* What is being asked when another replica loses its device is lost with the rest, whatever the
 * answer. */
START_TEST(what_is_being_asked_is_lost_too)
{
	struct request *held, *running;
	unsigned replica;

	atomic_store(&answers[0].gated, true);
	held = submit_held(20, 0);
	sem_wait(&asking);
	running = submit(1, 1, STEPS);
	replica = wait_for_launch(0);
	gates[replica].result = -EIO;
	let_end(replica);
	ck_assert(collect(1).lost);
	ck_assert_int_eq(running->draft.error, ERROR_DEVICE_LOST);
	atomic_store(&answers[0].now, _i);
	sem_post(&may_answer);
	collect(1);
	ck_assert_int_eq(held->draft.error, ERROR_DEVICE_LOST);
	ck_assert(nobody_launches());
}
END_TEST

/* One that looks while the others swap does not launch on its old head afterwards. */
START_TEST(who_looks_swaps_before_it_launches)
{
	struct request *held, *after;
	struct engine_report report;
	bool swapped;

	atomic_store(&answers[0].gated, true);
	held = submit_held(20, 0);
	sem_wait(&asking);
	engine_swap(engine, next_heads, 2);
	after = submit(1, 1, STEPS);
	let_end(wait_for_launch(0));
	swapped = collect(1).swapped;
	ck_assert_uint_eq(after->draft.generation, 2);
	atomic_store(&answers[0].gated, false);
	fire(0);
	sem_post(&may_answer);
	let_end(wait_for_launch(0));
	report = collect(1);
	report.swapped |= swapped;
	ck_assert_uint_eq(held->draft.generation, 2);
	wait_for_swap(report);
	ck_assert(all_closed());
}
END_TEST

/* ---- the end ---- */

static void *let_end_later(void *user)
{
	sem_wait(user);
	end_all();
	end_all(); /* the one that waits may still be launched */
	return NULL;
}

START_TEST(stop_waits_for_all_launches)
{
	struct request *running[REPLICAS];
	pthread_t thread;
	struct link left;
	unsigned count = 0;
	sem_t go;

	occupy_all(running);
	submit(10, 1, STEPS);
	sem_init(&go, 0, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_end_later, &go), 0);
	link_init(&left);
	sem_post(&go);
	ck_assert_int_eq(engine_stop(engine, &left), 0);
	pthread_join(thread, NULL);
	for (struct link *link = left.next; link != &left; link = link->next)
		count++;
	ck_assert_uint_eq(count, REPLICAS + 1);
	for (unsigned i = 0; i < REPLICAS; i++) {
		check_tokens(running[i]);
		ck_assert(heads[i]->closed);
	}
	free_all(&left);
	setup();
}
END_TEST

static TCase *make_case(const char *name, void (*set)(void))
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, events_set_up, events_tear_down);
	tcase_add_checked_fixture(tcase, set, engine_tear_down);
	tcase_add_test(tcase, requests_go_to_idle_replicas);
	tcase_add_loop_test(tcase, the_first_that_is_free_takes_what_waits, 0, REPLICAS);
	tcase_add_test(tcase, launches_begin_in_the_order_of_the_queue);
	tcase_add_test(tcase, cancel_takes_back_what_waits_for_all);
	tcase_add_test(tcase, no_wake_up_is_lost);
	tcase_add_test(tcase, a_failed_launch_fails_its_own_requests);
	tcase_add_test(tcase, one_lost_device_loses_the_engine);
	tcase_add_loop_test(tcase, one_hung_replica_is_overdue, 0, REPLICAS);
	tcase_add_test(tcase, idle_replicas_swap_at_once);
	tcase_add_loop_test(tcase, no_new_launch_begins_beside_an_old_one, 0, REPLICAS);
	tcase_add_test(tcase, generations_only_rise);
	tcase_add_loop_test(tcase, events_are_asked_while_others_launch, 0, REPLICAS);
	tcase_add_test(tcase, the_turn_to_look_is_passed_on);
	tcase_add_test(tcase, what_a_launch_leaves_is_begun_by_another);
	tcase_add_test(tcase, a_question_that_hangs_is_overdue);
	tcase_add_loop_test(tcase, what_is_being_asked_is_lost_too, 0, 2);
	tcase_add_test(tcase, who_looks_swaps_before_it_launches);
	tcase_add_test(tcase, stop_waits_for_all_launches);
	return tcase;
}

Suite *replicas_suite(void)
{
	Suite *suite = suite_create("replicas");

	suite_add_tcase(suite, make_case("sleeping", setup));
	suite_add_tcase(suite, make_case("spinning", setup_spinning));
	return suite;
}
