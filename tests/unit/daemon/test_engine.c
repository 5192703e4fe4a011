/* One replica on a backend that the test holds in its hands (engine_fixture.h): a lost device and a
 * launch that is caught in the middle can't be had from the CPU. */
#include "engine_fixture.h"

#include "kernels/clock.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

Suite *engine_suite(void);

static void setup(void)
{
	engine_set_up(1, 0);
}

static void setup_spinning(void)
{
	engine_set_up(1, SPIN_US);
}

START_TEST(a_draft_comes_back_with_its_tokens)
{
	struct request *request = submit(7, 3, STEPS);

	sem_wait(&gates[0].launched);
	let_end(0);
	collect(1);
	check_tokens(request);
	ck_assert_uint_eq(request->draft.generation, 1);
	ck_assert_uint_eq(request->draft.launch_rows, 3);
	ck_assert_uint_eq(gates[0].steps, STEPS);
}
END_TEST

/* While one launch runs, others gather; the next takes all that fit, each with its own rows. */
START_TEST(a_busy_device_lets_requests_gather)
{
	struct request *a = submit(1, 1, STEPS), *b, *c, *d;

	sem_wait(&gates[0].launched);
	b = submit(2, 2, STEPS);
	c = submit(3, 2, STEPS);
	d = submit(4, 1, STEPS);
	ck_assert_uint_eq(engine_queue_depth(engine), 3);
	let_end(0);
	sem_wait(&gates[0].launched);
	ck_assert_uint_eq(gates[0].rows, 4);
	let_end(0);
	sem_wait(&gates[0].launched);
	ck_assert_uint_eq(gates[0].rows, 1);
	let_end(0);
	collect(4);
	check_tokens(a);
	check_tokens(b);
	check_tokens(c);
	check_tokens(d);
	ck_assert_uint_eq(b->draft.launch_rows, 4);
	ck_assert_uint_eq(c->draft.launch_rows, 0); /* counted once */
}
END_TEST

/* Of requests whose regions differ. */
START_TEST(each_row_says_what_memory_it_lies_in)
{
	struct request *plain = make(2, 1, STEPS), *mixed = make(3, 2, STEPS);

	submit(1, 1, STEPS);
	sem_wait(&gates[0].launched);
	mixed->draft.base.memory = MEMORY_DEVICE;
	mixed->draft.logits.memory = MEMORY_PINNED;
	ck_assert_int_eq(engine_submit(engine, &flow, plain), 0);
	ck_assert_int_eq(engine_submit(engine, &flow, mixed), 0);
	let_end(0);
	sem_wait(&gates[0].launched);
	ck_assert_uint_eq(gates[0].rows, 3);
	ck_assert_int_eq(gates[0].base[0], MEMORY_PLAIN);
	ck_assert_int_eq(gates[0].logits[0], MEMORY_PLAIN);
	for (uint32_t row = 1; row < 3; row++) {
		ck_assert_int_eq(gates[0].base[row], MEMORY_DEVICE);
		ck_assert_int_eq(gates[0].logits[row], MEMORY_PINNED);
	}
	let_end(0);
	collect(3);
}
END_TEST

START_TEST(cancel_takes_back_what_waits_and_nothing_else)
{
	struct request *running = submit(1, 1, STEPS), *waiting;

	sem_wait(&gates[0].launched);
	waiting = submit(2, 1, STEPS);
	ck_assert(!engine_cancel(engine, running));
	ck_assert(engine_cancel(engine, waiting));
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
	let_end(0);
	collect(1);
	check_tokens(running);
	ck_assert(!engine_cancel(engine, running)); /* done */
	request_free(waiting);
	/* The thread went to sleep with nothing to do and still hears the next one. */
	submit(3, 1, STEPS);
	sem_wait(&gates[0].launched);
	let_end(0);
	collect(1);
}
END_TEST

START_TEST(submit_and_cancel_race)
{
	unsigned running = 0;

	for (unsigned i = 0; i < 500; i++) {
		struct request *request = submit(1, 1, STEPS);

		if (engine_cancel(engine, request)) {
			request_free(request);
		} else {
			running++;
			let_end(0);
			collect(1);
			check_tokens(request);
		}
	}
	ck_assert_uint_le(running, 500);
	submit(2, 1, STEPS);
	let_end(0);
	collect(1);
}
END_TEST

START_TEST(max_queue_and_one_more)
{
	struct request *surplus = make(99, 1, STEPS);

	submit(1, 4, STEPS);
	sem_wait(&gates[0].launched);
	for (uint32_t i = 0; i < MAX_QUEUE; i++)
		submit(10 + i, 4, STEPS);
	ck_assert_int_eq(engine_submit(engine, &flow, surplus), -ENOBUFS);
	request_free(surplus);
	for (uint32_t i = 0; i < MAX_QUEUE + 1; i++)
		let_end(0);
	collect(MAX_QUEUE + 1);
}
END_TEST

START_TEST(an_expired_request_is_not_launched)
{
	struct request *running = submit(1, 1, STEPS), *expired;

	sem_wait(&gates[0].launched);
	expired = make(2, 1, STEPS);
	expired->draft.deadline_us = 1; /* long ago */
	ck_assert_int_eq(engine_submit(engine, &flow, expired), 0);
	let_end(0);
	collect(2);
	check_tokens(running);
	ck_assert_int_eq(expired->draft.error, ERROR_DEADLINE_EXCEEDED);
	ck_assert_int_ne(sem_trywait(&gates[0].launched), 0);
}
END_TEST

START_TEST(a_failed_launch_fails_its_requests_only)
{
	struct request *request = submit(1, 1, STEPS);
	struct engine_report report;

	gates[0].result = -EINVAL;
	let_end(0);
	report = collect(1);
	ck_assert_int_eq(request->draft.error, ERROR_INTERNAL);
	ck_assert(!report.lost);
	ck_assert_str_eq(report.reason.text, "as the test wanted");
	gates[0].result = 0;
	request = submit(2, 1, STEPS);
	let_end(0);
	collect(1);
	check_tokens(request);
}
END_TEST

START_TEST(a_lost_device_loses_everything)
{
	struct request *running = submit(1, 1, STEPS), *waiting, *late;
	struct engine_report report;

	sem_wait(&gates[0].launched);
	waiting = submit(2, 1, STEPS);
	gates[0].result = -EIO;
	let_end(0);
	report = collect(2);
	ck_assert(report.lost);
	ck_assert_int_eq(running->draft.error, ERROR_DEVICE_LOST);
	ck_assert_int_eq(waiting->draft.error, ERROR_DEVICE_LOST);
	ck_assert_int_eq(waiting->draft.state, REQUEST_DONE);
	late = make(3, 1, STEPS);
	ck_assert_int_eq(engine_submit(engine, &flow, late), -EIO);
	request_free(late);
}
END_TEST

START_TEST(a_swap_waits_for_the_launch_and_precedes_the_next)
{
	struct request *before = submit(1, 1, STEPS), *after;
	struct engine_report report;

	sem_wait(&gates[0].launched);
	engine_swap(engine, next_heads, 2);
	after = submit(2, 1, STEPS);
	ck_assert(!heads[0]->closed);
	let_end(0);
	sem_wait(&gates[0].launched);
	ck_assert_int_eq(gates[0].generation, 2);
	ck_assert(heads[0]->closed);
	let_end(0);
	report = collect(2);
	ck_assert(report.swapped);
	ck_assert_uint_eq(before->draft.generation, 1);
	ck_assert_uint_eq(after->draft.generation, 2);
}
END_TEST

START_TEST(an_idle_engine_swaps_at_once)
{
	struct engine_report report;

	engine_swap(engine, next_heads, 2);
	sem_wait(&woken);
	engine_collect(engine, &report);
	ck_assert(report.swapped);
	ck_assert(heads[0]->closed);
	ck_assert(!next_heads[0]->closed);
}
END_TEST

/* The head is one of the CPU's: a launch may take longer by its rows * K * vocab * rank. */
START_TEST(a_launch_is_overdue_by_its_size)
{
	const uint64_t may_us =
		LIMIT_LAUNCH_US + 3ull * STEPS * 1000 * 500 / LIMIT_LAUNCH_CPU_PER_US;
	uint64_t before, after;

	ck_assert_uint_eq(engine_overdue_us(engine, UINT64_MAX), 0);
	ck_assert(!engine_busy(engine));
	before = clock_us();
	submit(1, 3, STEPS);
	sem_wait(&gates[0].launched);
	after = clock_us();
	ck_assert(engine_busy(engine));
	ck_assert_uint_eq(engine_overdue_us(engine, before + may_us), 0);
	ck_assert_uint_gt(engine_overdue_us(engine, after + may_us + 1), may_us);
	let_end(0);
	collect(1);
	ck_assert_uint_eq(engine_overdue_us(engine, UINT64_MAX), 0);
	ck_assert(!engine_busy(engine));
}
END_TEST

static void wait_for_news(void)
{
	while (!engine_has_news(engine))
		sched_yield();
}

START_TEST(a_loop_that_watches_is_not_woken)
{
	struct engine_report report;

	ck_assert(!engine_has_news(engine));
	engine_watch(engine, true);
	submit(1, 1, STEPS);
	let_end(0);
	wait_for_news();
	engine_collect(engine, &report);
	ck_assert(!link_alone(&report.finished));
	link_splice(&got, &report.finished);
	ck_assert(!engine_has_news(engine));
	ck_assert_int_ne(sem_trywait(&woken), 0);

	/* What comes before it stops to watch is there to be asked for; what comes after wakes. */
	submit(2, 1, STEPS);
	let_end(0);
	wait_for_news();
	engine_watch(engine, false);
	ck_assert(engine_has_news(engine));
	engine_collect(engine, &report);
	ck_assert(!link_alone(&report.finished));
	link_splice(&got, &report.finished);
	ck_assert_int_ne(sem_trywait(&woken), 0);
	submit(3, 1, STEPS);
	let_end(0);
	collect(1);
}
END_TEST

/* Two that come back promptly are waited for, but a launch begins although one stays away. */
START_TEST(nobody_waits_for_ever_for_one_that_stays_away)
{
	const unsigned rounds = 100;

	for (unsigned i = 0; i < 3 * rounds; i++)
		let_end(0);
	for (unsigned i = 0; i < rounds; i++) {
		submit(1, 1, STEPS);
		ck_assert_int_eq(engine_submit(engine, &other, make(2, 1, STEPS)), 0);
		collect(2);
		submit(3, 1, STEPS);
		collect(1);
		free_all(&got);
	}
}
END_TEST

/* engine_tear_down() stops the engine with one running, one waiting. */
START_TEST(stop_hands_back_what_is_left)
{
	submit(1, 1, STEPS);
	sem_wait(&gates[0].launched);
	submit(2, 1, STEPS);
	let_end(0);
	let_end(0);
}
END_TEST

/* ---- events ---- */

START_TEST(a_held_draft_is_passed_and_launched_when_its_event_has_fired)
{
	struct request *held = make_held(1, 0), *passing;

	held->draft.arrival_us -= 5000;
	ck_assert_int_eq(engine_submit(engine, &flows[0], held), 0);
	wait_for_look(0);
	ck_assert_uint_eq(engine_queue_depth(engine), 1);
	ck_assert_int_ne(sem_trywait(&gates[0].launched), 0);
	passing = submit(2, 1, STEPS);
	let_end(0);
	collect(1);
	check_tokens(passing);
	wait_for_look(0);
	ck_assert_int_eq(engine_cancel(engine, passing), false); /* done; the other one is not */
	fire(0);
	sem_wait(&gates[0].launched);
	let_end(0);
	collect(1);
	check_tokens(held);
	ck_assert_uint_ge(held->draft.queue_us, 5000);
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
}
END_TEST

START_TEST(an_event_that_has_fired_holds_nothing_up)
{
	struct request *request;

	fire(0);
	request = submit_held(1, 0);
	sem_wait(&gates[0].launched);
	let_end(0);
	collect(1);
	check_tokens(request);
	ck_assert_uint_eq(atomic_load(&answers[0].asked), 1);
}
END_TEST

START_TEST(held_drafts_run_in_the_order_of_their_events)
{
	struct request *first = submit_held(1, 0), *second = submit_held(2, 1);

	wait_for_look(1);
	fire(1);
	let_end(0);
	collect(1);
	check_tokens(second);
	ck_assert_uint_eq(engine_queue_depth(engine), 1);
	fire(0);
	let_end(0);
	collect(1);
	check_tokens(first);
}
END_TEST

/* While a launch runs nobody asks. */
START_TEST(cancel_takes_back_what_is_held)
{
	struct request *running = submit(1, 1, STEPS), *held;

	sem_wait(&gates[0].launched);
	held = submit_held(2, 0);
	ck_assert_uint_eq(engine_queue_depth(engine), 1);
	ck_assert(engine_cancel(engine, held));
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
	ck_assert_uint_eq(flows[0].waiting, 0);
	request_free(held);
	let_end(0);
	collect(1);
	check_tokens(running);
	ck_assert_uint_eq(atomic_load(&answers[0].asked), 0);
}
END_TEST

/* Its event is in the driver's hands just then, and so the draft is the engine's for that moment;
 * its flow may go at once. Whatever the answer is, it is not launched. */
START_TEST(cancel_while_the_event_is_being_asked)
{
	struct request *held;

	atomic_store(&answers[0].gated, true);
	held = submit_held(1, 0);
	sem_wait(&asking);
	ck_assert(!engine_cancel(engine, held));
	ck_assert(!engine_cancel(engine, held));
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
	ck_assert_uint_eq(flows[0].waiting, 0);
	memset(&flows[0], 0xff, sizeof(flows[0]));
	atomic_store(&answers[0].now, _i);
	sem_post(&may_answer);
	collect(1);
	ck_assert_int_eq(held->draft.state, REQUEST_DONE);
	ck_assert_int_eq(held->draft.error, ERROR_CANCELLED);
	ck_assert_int_ne(sem_trywait(&gates[0].launched), 0);
}
END_TEST

START_TEST(cancel_and_event_race)
{
	for (unsigned i = 0; i < 500; i++) {
		struct request *request;

		atomic_store(&answers[0].now, 0);
		request = submit_held(1, 0);
		if (i % 2)
			sched_yield();
		fire(0);
		if (engine_cancel(engine, request)) {
			request_free(request);
			continue;
		}
		let_end(0);
		collect(1);
		if (request->draft.error == ERROR_CANCELLED)
			ck_assert_int_eq(sem_trywait(&gates[0].may_end), 0);
		else
			check_tokens(request);
		free_all(&got);
	}
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
}
END_TEST

START_TEST(a_deadline_passes_while_a_draft_is_held)
{
	struct request *held = make_held(1, 0);

	held->draft.deadline_us = held->draft.arrival_us + 2000;
	ck_assert_int_eq(engine_submit(engine, &flow, held), 0);
	collect(1);
	ck_assert_uint_ge(clock_us(), held->draft.deadline_us);
	ck_assert_int_eq(held->draft.error, ERROR_DEADLINE_EXCEEDED);
	ck_assert_ptr_null(held->draft.reason);
	ck_assert_uint_eq(flow.waiting, 0);
}
END_TEST

/* And the engine sleeps between its looks, but for the time that it spins anyway. */
START_TEST(an_event_that_never_fires_fails_its_draft_alone)
{
	struct request *held = make_held(1, 0), *other_one = submit_held(2, 1);
	uint64_t took_us;

	held->draft.event_until_us = held->draft.arrival_us + 20000;
	ck_assert_int_eq(engine_submit(engine, &flow, held), 0);
	collect(1);
	took_us = clock_us() - held->draft.arrival_us;
	ck_assert_uint_ge(took_us, 20000);
	ck_assert_int_eq(held->draft.error, ERROR_DEADLINE_EXCEEDED);
	ck_assert_ptr_nonnull(strstr(held->draft.reason, "event_timeout"));
	ck_assert_uint_le(
		atomic_load(&answers[0].asked), took_us / LIMIT_HELD_NAP_US + SPIN_US + 2);
	fire(1);
	let_end(0);
	collect(1);
	check_tokens(other_one);
}
END_TEST

START_TEST(an_event_that_was_given_up_fails_its_draft_alone)
{
	struct request *held = submit_held(1, 0), *other_one = submit_held(2, 1);
	struct engine_report report;

	wait_for_look(0);
	atomic_store(&answers[0].now, -EINVAL);
	report = collect(1);
	ck_assert(!report.lost);
	ck_assert_int_eq(held->draft.error, ERROR_BAD_REQUEST);
	ck_assert_ptr_nonnull(strstr(held->draft.reason, "given up"));
	fire(1);
	let_end(0);
	collect(1);
	check_tokens(other_one);
}
END_TEST

START_TEST(a_device_that_an_event_finds_lost_loses_everything)
{
	struct request *held, *other_one, *late = make(3, 1, STEPS);
	struct engine_report report;

	other_one = submit_held(2, 1);
	held = submit_held(1, 0);
	wait_for_look(0);
	atomic_store(&answers[0].now, -EIO);
	report = collect(2);
	ck_assert(report.lost);
	ck_assert_str_ne(report.reason.text, "");
	ck_assert_int_eq(held->draft.error, ERROR_DEVICE_LOST);
	ck_assert_int_eq(other_one->draft.error, ERROR_DEVICE_LOST);
	ck_assert_int_eq(engine_submit(engine, &flow, late), -EIO);
	request_free(late);
}
END_TEST

START_TEST(a_launch_that_loses_the_device_loses_what_is_held)
{
	struct request *running = submit(1, 1, STEPS), *held;

	sem_wait(&gates[0].launched);
	held = submit_held(2, 0);
	gates[0].result = -EIO;
	let_end(0);
	ck_assert(collect(2).lost);
	ck_assert_int_eq(running->draft.error, ERROR_DEVICE_LOST);
	ck_assert_int_eq(held->draft.error, ERROR_DEVICE_LOST);
}
END_TEST

START_TEST(a_swap_passes_what_is_held)
{
	struct request *held = submit_held(1, 0);
	struct engine_report report;

	wait_for_look(0);
	engine_swap(engine, next_heads, 2);
	sem_wait(&woken);
	engine_collect(engine, &report);
	ck_assert(report.swapped);
	fire(0);
	let_end(0);
	collect(1);
	check_tokens(held);
	ck_assert_uint_eq(held->draft.generation, 2);
	ck_assert_int_eq(gates[0].generation, 2);
}
END_TEST

START_TEST(held_drafts_count_in_max_queue)
{
	struct request *surplus = make(99, 1, STEPS), *held_surplus = make_held(98, 1);

	for (uint32_t i = 0; i < MAX_QUEUE; i++)
		submit_held(10 + i, 0);
	ck_assert_uint_eq(engine_queue_depth(engine), MAX_QUEUE);
	ck_assert_int_eq(engine_submit(engine, &flows[0], surplus), -ENOBUFS);
	ck_assert_int_eq(engine_submit(engine, &flows[0], held_surplus), -ENOBUFS);
	ck_assert_int_eq(engine_submit(engine, &other, surplus), 0); /* a newcomer's first */
	let_end(0);
	collect(1);
	request_free(held_surplus);
	for (unsigned i = 0; i < MAX_QUEUE; i++)
		let_end(0);
	fire(0);
	collect(MAX_QUEUE);
	ck_assert_uint_eq(engine_queue_depth(engine), 0);
}
END_TEST

/* More events than are asked in one look: the last one has its turn. */
START_TEST(every_event_has_its_turn)
{
	struct request *last = NULL;

	for (uint32_t i = 0; i < ANSWERS; i++)
		last = submit_held(i, i);
	fire(ANSWERS - 1);
	let_end(0);
	collect(1);
	check_tokens(last);
	ck_assert_uint_eq(engine_queue_depth(engine), ANSWERS - 1);
}
END_TEST

START_TEST(stop_hands_back_what_is_held)
{
	struct link left;
	unsigned count = 0;

	submit_held(1, 0);
	submit_held(2, 1);
	link_init(&left);
	ck_assert_int_eq(engine_stop(engine, &left), 0);
	for (struct link *link = left.next; link != &left; link = link->next)
		count++;
	ck_assert_uint_eq(count, 2);
	free_all(&left);
	setup();
}
END_TEST

static TCase *make_event_case(const char *name, void (*set)(void))
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, events_set_up, events_tear_down);
	tcase_add_checked_fixture(tcase, set, engine_tear_down);
	tcase_add_test(tcase, a_held_draft_is_passed_and_launched_when_its_event_has_fired);
	tcase_add_test(tcase, an_event_that_has_fired_holds_nothing_up);
	tcase_add_test(tcase, held_drafts_run_in_the_order_of_their_events);
	tcase_add_test(tcase, cancel_takes_back_what_is_held);
	tcase_add_loop_test(tcase, cancel_while_the_event_is_being_asked, 0, 2);
	tcase_add_test(tcase, cancel_and_event_race);
	tcase_add_test(tcase, a_deadline_passes_while_a_draft_is_held);
	tcase_add_test(tcase, an_event_that_never_fires_fails_its_draft_alone);
	tcase_add_test(tcase, an_event_that_was_given_up_fails_its_draft_alone);
	tcase_add_test(tcase, a_device_that_an_event_finds_lost_loses_everything);
	tcase_add_test(tcase, a_launch_that_loses_the_device_loses_what_is_held);
	tcase_add_test(tcase, a_swap_passes_what_is_held);
	tcase_add_test(tcase, held_drafts_count_in_max_queue);
	tcase_add_test(tcase, every_event_has_its_turn);
	tcase_add_test(tcase, stop_hands_back_what_is_held);
	return tcase;
}

static TCase *make_case(const char *name, void (*set)(void))
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, set, engine_tear_down);
	tcase_add_test(tcase, a_draft_comes_back_with_its_tokens);
	tcase_add_test(tcase, a_busy_device_lets_requests_gather);
	tcase_add_test(tcase, each_row_says_what_memory_it_lies_in);
	tcase_add_test(tcase, cancel_takes_back_what_waits_and_nothing_else);
	tcase_add_test(tcase, submit_and_cancel_race);
	tcase_add_test(tcase, max_queue_and_one_more);
	tcase_add_test(tcase, an_expired_request_is_not_launched);
	tcase_add_test(tcase, a_failed_launch_fails_its_requests_only);
	tcase_add_test(tcase, a_lost_device_loses_everything);
	tcase_add_test(tcase, a_swap_waits_for_the_launch_and_precedes_the_next);
	tcase_add_test(tcase, an_idle_engine_swaps_at_once);
	tcase_add_test(tcase, a_launch_is_overdue_by_its_size);
	tcase_add_test(tcase, a_loop_that_watches_is_not_woken);
	tcase_add_test(tcase, nobody_waits_for_ever_for_one_that_stays_away);
	tcase_add_test(tcase, stop_hands_back_what_is_left);
	return tcase;
}

Suite *engine_suite(void)
{
	Suite *suite = suite_create("engine");

	suite_add_tcase(suite, make_case("sleeping", setup));
	suite_add_tcase(suite, make_case("spinning", setup_spinning));
	suite_add_tcase(suite, make_event_case("events, sleeping", setup));
	suite_add_tcase(suite, make_event_case("events, spinning", setup_spinning));
	return suite;
}
