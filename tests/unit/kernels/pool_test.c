/* The pool: every job runs, on the caller at least; helpers neither run a job twice nor touch one
 * that is over. */
#include "kernels/cpu/pool.h"
#include "kernels/markov.h"
#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define PIECES 64

struct job {
	atomic_uint next, done;
	atomic_uint lanes[MARKOV_THREADS_MAX];
};

static void work(void *user, unsigned lane)
{
	struct job *job = user;

	atomic_fetch_add(&job->lanes[lane], 1);
	while (atomic_fetch_add(&job->next, 1) < PIECES)
		atomic_fetch_add(&job->done, 1);
}

START_TEST(jobs_are_done_once_by_each_thread)
{
	struct error_text error;
	struct pool *pool;

	ck_assert_int_eq(pool_start((unsigned)_i, &pool, &error), 0);
	ck_assert_uint_eq(pool_threads(pool), (unsigned)_i);
	for (int n = 0; n < 2000; n++) {
		struct job job = {0};

		pool_run(pool, work, &job);
		/* The job is on this stack frame: a helper that came late would write into the next
		 * one. */
		REQUIRE(job.done == PIECES && job.lanes[0] == 1, "job %d: %u pieces", n, job.done);
		for (int lane = 1; lane < _i; lane++)
			REQUIRE(job.lanes[lane] <= 1, "job %d ran twice on lane %d", n, lane);
	}
	pool_stop(pool);
}
END_TEST

static double processor_seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

START_TEST(idle_threads_use_no_processor_time)
{
	struct timespec pause = {0, 200000000}; /* what is measured, not a wait for something */
	struct error_text error;
	struct job job = {0};
	struct pool *pool;
	double before;

	ck_assert_int_eq(pool_start(4, &pool, &error), 0);
	pool_run(pool, work, &job);
	before = processor_seconds();
	nanosleep(&pause, NULL);
	ck_assert(processor_seconds() - before < 0.02);
	pool_stop(pool);
}
END_TEST

START_TEST(thread_limits)
{
	struct error_text error;
	struct pool *pool = NULL;

	ck_assert_int_lt(pool_start(0, &pool, &error), 0);
	ck_assert_int_lt(pool_start(MARKOV_THREADS_MAX + 1, &pool, &error), 0);
	ck_assert_ptr_nonnull(strstr(error.text, "256"));
	ck_assert_ptr_null(pool);
	ck_assert_int_eq(pool_start(MARKOV_THREADS_MAX, &pool, &error), 0);
	pool_stop(pool);
	pool_stop(NULL);
	ck_assert_uint_ge(pool_usable_threads(), 1);
}
END_TEST

Suite *pool_suite(void)
{
	Suite *suite = suite_create("pool");
	TCase *tests = tcase_create("pool");

	tcase_set_timeout(tests, 60);
	tcase_add_loop_test(tests, jobs_are_done_once_by_each_thread, 1, 5);
	tcase_add_test(tests, idle_threads_use_no_processor_time);
	tcase_add_test(tests, thread_limits);
	suite_add_tcase(suite, tests);
	return suite;
}
