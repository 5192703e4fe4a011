/* A replica whose head takes a launch behind the one under way (engine_fixture.h): when the engine
 * makes use of it, and what becomes of both when something fails. */
#include "engine_fixture.h"

#include "kernels/clock.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

Suite *ahead_suite(void);

/* A launch takes so long here that a test has done what it wants before the next one is due. */
#define LAUNCH_US 300000

static void setup(void)
{
	batches_max = MARKOV_BATCHES_MAX;
	engine_set_up(1, 0);
}

static void teardown(void)
{
	engine_tear_down();
	batches_max = 1;
}

/* From then on the engine knows what a launch takes. */
static void learn_time(void)
{
	submit(1, MAX_ROWS, STEPS);
	sem_wait(&gates[0].launched);
	usleep(LAUNCH_US);
	let_end(0);
	collect(1);
	free_all(&got);
}

static struct request *begin(uint32_t id)
{
	struct request *request = submit(id, MAX_ROWS, STEPS);

	sem_wait(&gates[0].launched);
	return request;
}

/* Until it is taken, whether the head has it or not. */
static struct request *submit_taken(uint32_t id)
{
	struct request *request = submit(id, MAX_ROWS, STEPS);

	while (engine_queue_depth(engine))
		sched_yield();
	return request;
}

static uint64_t start_us(const struct request *request)
{
	return request->draft.arrival_us + request->draft.queue_us;
}

START_TEST(a_full_launch_is_put_behind_the_one_under_way)
{
	struct request *a, *b, *c;

	learn_time();
	a = begin(2);
	b = begin(3); /* so a has not ended */
	ck_assert_int_eq(sem_trywait(&woken), -1);
	ck_assert(!engine_cancel(engine, b));
	let_end(0);
	collect(1);
	check_tokens(a);
	ck_assert_ptr_eq(link_pop(&got), &a->queue);
	c = begin(4); /* behind b */
	let_end(0);
	collect(1);
	check_tokens(b);
	let_end(0);
	collect(1);
	check_tokens(c);
	/* Each has the device from the end of the one before. */
	ck_assert_uint_ge(start_us(b), start_us(a) + a->draft.device_us);
	ck_assert_uint_ge(start_us(c), start_us(b) + b->draft.device_us);
	ck_assert_uint_eq(b->draft.launch_rows, MAX_ROWS);
	request_free(a);
}
END_TEST

/* More of it could come. */
START_TEST(less_than_a_full_launch_waits_for_the_end)
{
	struct request *a, *b;

	learn_time();
	a = begin(2);
	b = submit(3, MAX_ROWS - 1, STEPS);
	usleep(LAUNCH_US * 3 / 2);
	ck_assert_int_eq(sem_trywait(&gates[0].launched), -1);
	ck_assert(engine_cancel(engine, b));
	ck_assert_int_eq(engine_submit(engine, &flow, b), 0);
	let_end(0);
	sem_wait(&gates[0].launched);
	let_end(0);
	collect(2);
	check_tokens(a);
	check_tokens(b);
}
END_TEST

START_TEST(what_fills_a_launch_late_is_still_put_behind)
{
	struct request *b;

	learn_time();
	begin(2);
	b = submit(3, MAX_ROWS - 1, STEPS);
	usleep(LAUNCH_US * 5 / 4);
	submit(4, 1, STEPS); /* the engine looks for it now */
	sem_wait(&gates[0].launched);
	ck_assert_uint_eq(gates[0].rows, MAX_ROWS);
	let_end(0);
	let_end(0);
	collect(3);
	check_tokens(b);
}
END_TEST

START_TEST(nothing_is_put_behind_before_a_time_is_known)
{
	begin(2);
	submit(3, MAX_ROWS, STEPS);
	usleep(LAUNCH_US);
	ck_assert_int_eq(sem_trywait(&gates[0].launched), -1);
	let_end(0);
	sem_wait(&gates[0].launched);
	let_end(0);
	collect(2);
}
END_TEST

/* As when the replica's thread had to wait for a core: the second would seem to take no time, and
 * from then on everything would be taken ahead at once. */
START_TEST(an_end_that_was_seen_late_says_nothing_about_the_next_launch)
{
	struct request *b, *c;
	uint64_t begin_us;

	learn_time();
	begin(2);
	gates[0].holds = true;
	b = submit_taken(3);
	usleep(LAUNCH_US / 2); /* so long is it on its way, as far as the engine can tell */
	let_end(0);
	let_end(0);
	sem_post(&gates[0].may_begin);
	collect(2);
	sem_wait(&gates[0].launched);
	check_tokens(b);
	gates[0].holds = false;
	begin_us = clock_us();
	begin(4);
	c = submit(5, MAX_ROWS, STEPS);
	usleep(LAUNCH_US / 4);
	if (engine_cancel(engine, c)) { /* not taken yet */
		request_free(c);
	} else {
		ck_assert_uint_gt(clock_us(), begin_us + LAUNCH_US / 2); /* a busy machine */
		let_end(0);
		collect(1);
	}
	let_end(0);
	collect(1);
}
END_TEST

/* As a batch is whose rows have to be copied. */
START_TEST(what_the_head_refuses_is_launched_after_the_end)
{
	struct request *a, *b;

	learn_time();
	a = begin(2);
	gates[0].refuses = -EBUSY;
	b = submit_taken(3);
	ck_assert_int_eq(sem_trywait(&gates[0].launched), -1);
	let_end(0);
	sem_wait(&gates[0].launched);
	let_end(0);
	collect(2);
	check_tokens(a);
	check_tokens(b);
}
END_TEST

START_TEST(a_launch_that_fails_behind_another_fails_alone)
{
	struct request *a, *b;
	struct engine_report report;

	learn_time();
	a = begin(2);
	gates[0].refuses = -EINVAL;
	b = submit_taken(3);
	let_end(0);
	report = collect(2);
	check_tokens(a);
	ck_assert_int_eq(b->draft.error, ERROR_INTERNAL);
	ck_assert_str_eq(report.reason.text, "not behind another");
	ck_assert(!report.lost);
	gates[0].refuses = 0;
	b = begin(4);
	let_end(0);
	collect(1);
	check_tokens(b);
}
END_TEST

START_TEST(a_lost_device_takes_both)
{
	struct request *a, *b;
	struct engine_report report;

	learn_time();
	a = begin(2);
	b = begin(3);
	gates[0].result = -EIO;
	let_end(0);
	let_end(0);
	report = collect(2);
	ck_assert(report.lost);
	ck_assert_str_eq(report.reason.text, "as the test wanted");
	ck_assert_int_eq(a->draft.error, ERROR_DEVICE_LOST);
	ck_assert_int_eq(b->draft.error, ERROR_DEVICE_LOST);
	ck_assert(!engine_busy(engine));
}
END_TEST

/* Else a busy daemon would never have it. */
START_TEST(nothing_is_put_behind_where_another_model_waits)
{
	struct request *a, *b;

	learn_time();
	a = begin(2);
	engine_swap(engine, next_heads, 2);
	b = submit(3, MAX_ROWS, STEPS);
	usleep(LAUNCH_US * 3 / 2);
	ck_assert_int_eq(sem_trywait(&gates[0].launched), -1);
	let_end(0);
	sem_wait(&gates[0].launched);
	ck_assert_int_eq(gates[0].generation, 2);
	let_end(0);
	collect(2);
	check_tokens(a);
	check_tokens(b);
	ck_assert_uint_eq(a->draft.generation, 1);
	ck_assert_uint_eq(b->draft.generation, 2);
}
END_TEST

START_TEST(both_end_before_the_engine_does)
{
	learn_time();
	begin(2);
	begin(3);
	let_end(0);
	let_end(0); /* engine_tear_down() stops it */
}
END_TEST

static void setup_two(void)
{
	batches_max = MARKOV_BATCHES_MAX;
	engine_set_up(2, 0);
	events_set_up();
}

static void teardown_two(void)
{
	teardown();
	events_tear_down();
}

/* Or a draft whose event has fired would wait for the end of that one's launch. */
START_TEST(an_idle_replica_looks_at_what_is_held_while_another_goes_on)
{
	unsigned ahead, freed;
	struct request *held;

	submit_taken(1);
	submit(2, MAX_ROWS, STEPS);
	sem_wait(&gates[0].launched);
	sem_wait(&gates[1].launched);
	usleep(LAUNCH_US);
	let_end(0);
	let_end(1);
	collect(2);

	submit_taken(3);
	submit(4, MAX_ROWS, STEPS);
	sem_wait(&gates[0].launched);
	sem_wait(&gates[1].launched);
	submit_taken(5); /* behind one of them */
	held = submit_held(6, 0);
	for (ahead = 0; sem_trywait(&gates[ahead].launched) < 0; ahead = 1 - ahead)
		sched_yield();
	freed = 1 - ahead;
	let_end(ahead);
	collect(1); /* and looks at what is held */
	while (!atomic_load(&answers[0].asked))
		sched_yield();
	let_end(freed);
	collect(1);
	fire(0);
	sem_wait(&gates[freed].launched); /* not after the other one's launch, which goes on */
	let_end(freed);
	let_end(ahead);
	collect(2);
	check_tokens(held);
}
END_TEST

Suite *ahead_suite(void)
{
	Suite *suite = suite_create("ahead");
	TCase *one = tcase_create("one replica");
	TCase *two = tcase_create("two replicas");

	tcase_set_timeout(one, 120);
	tcase_add_checked_fixture(one, setup, teardown);
	tcase_add_test(one, a_full_launch_is_put_behind_the_one_under_way);
	tcase_add_test(one, less_than_a_full_launch_waits_for_the_end);
	tcase_add_test(one, what_fills_a_launch_late_is_still_put_behind);
	tcase_add_test(one, nothing_is_put_behind_before_a_time_is_known);
	tcase_add_test(one, what_the_head_refuses_is_launched_after_the_end);
	tcase_add_test(one, a_launch_that_fails_behind_another_fails_alone);
	tcase_add_test(one, a_lost_device_takes_both);
	tcase_add_test(one, nothing_is_put_behind_where_another_model_waits);
	tcase_add_test(one, both_end_before_the_engine_does);
	tcase_add_test(one, an_end_that_was_seen_late_says_nothing_about_the_next_launch);
	suite_add_tcase(suite, one);
	tcase_set_timeout(two, 120);
	tcase_add_checked_fixture(two, setup_two, teardown_two);
	tcase_add_test(two, an_idle_replica_looks_at_what_is_held_while_another_goes_on);
	suite_add_tcase(suite, two);
	return suite;
}
