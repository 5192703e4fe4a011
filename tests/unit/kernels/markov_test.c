/* The seam: options, order of calls, limits at N and N + 1, facts. */
#include "kernels/markov.h"
#include "tests/unit/kernels/random_case.h"
#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const struct random_shape shape = {
	100, 16, 50, 4, 3, OPERAND_NEAR, OPERAND_NEAR, OPERAND_NEAR, 0.5f, 30.0f, true};
static struct random_case test;
static struct outcome outcome;
static struct error_text error;

static void set_up(void)
{
	random_case_init(&test, &shape, 1);
	outcome_prepare(&outcome, &test, false);
}

static void tear_down(void)
{
	outcome_done(&outcome);
	random_case_done(&test);
}

static struct markov_head *open_head(enum markov_backend backend)
{
	struct markov_options options = {.backend = backend, .max_rows = 4, .max_steps = 3};
	struct markov_head *head = NULL;

	ck_assert_msg(markov_open(&options, &test.checkpoint, NULL, NULL, &head, &error) == 0, "%s",
		error.text);
	return head;
}

START_TEST(facts_say_what_was_opened)
{
	struct markov_head *head = open_head(MARKOV_AUTO);
	const struct markov_facts *facts = markov_facts(head);

	ck_assert_str_eq(facts->backend, "cpu");
	ck_assert_str_eq(facts->bias_order, "mma16");
	ck_assert_ptr_nonnull(strstr(facts->choice, "no CUDA backend"));
	ck_assert(facts->vocab == 100 && facts->rank == 16 && facts->target_vocab == 50);
	ck_assert(facts->multiplier == 0.5f && facts->soft_cap == 30.0f);
	ck_assert(facts->max_rows == 4 && facts->max_steps == 3);
	ck_assert_uint_eq(facts->batches_max, 1);
	ck_assert(facts->tensor_parallel == 1 && facts->device_count == 1);
	ck_assert_str_eq(facts->devices[0].uuid, "CPU");
	ck_assert_uint_gt(facts->devices[0].memory_bytes, 0);
	ck_assert_uint_ge(facts->table_bytes, 100 * 16 * 2 + 50 * 16 * 2);
	markov_close(head);
	head = open_head(MARKOV_CPU);
	ck_assert_ptr_nonnull(strstr(markov_facts(head)->choice, "asked for"));
	markov_close(head);
	markov_close(NULL);
}
END_TEST

START_TEST(cuda_is_refused_with_a_way_out)
{
	struct markov_options options = {.backend = MARKOV_CUDA, .max_rows = 1, .max_steps = 1};
	struct markov_head *head = NULL;

	ck_assert_int_eq(
		markov_open(&options, &test.checkpoint, NULL, NULL, &head, &error), -ENODEV);
	ck_assert_ptr_nonnull(strstr(error.text, "'cpu'"));
	ck_assert_ptr_null(head);
}
END_TEST

START_TEST(option_limits)
{
	static const struct {
		uint32_t rows, steps, threads;
		int result;
	} cases[] = {{1, 1, 1, 0}, {4096, 1, 1, 0}, {4097, 1, 1, -EINVAL}, {0, 1, 1, -EINVAL},
		{1, 4096, 1, 0}, {1, 4097, 1, -EINVAL}, {1, 0, 1, -EINVAL}, {1, 1, 257, -EINVAL}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct markov_options options = {.backend = MARKOV_CPU,
			.max_rows = cases[i].rows,
			.max_steps = cases[i].steps,
			.threads = cases[i].threads};
		struct markov_head *head = NULL;

		ck_assert_int_eq(markov_open(&options, &test.checkpoint, NULL, NULL, &head, &error),
			cases[i].result);
		markov_close(head);
	}
}
END_TEST

START_TEST(batches_outside_the_limits_write_nothing)
{
	struct markov_head *head = open_head(MARKOV_CPU);
	struct markov_batch batch = test.batch;
	const void *bases[4];

	batch.rows = 5;
	ck_assert_int_eq(markov_launch(head, &batch, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "1 to 4"));
	batch.rows = 0;
	ck_assert_int_eq(markov_launch(head, &batch, &error), -EINVAL);
	batch = test.batch;
	batch.steps = 4;
	ck_assert_int_eq(markov_launch(head, &batch, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "1 to 3"));
	batch = test.batch;
	batch.seeds = NULL;
	ck_assert_int_eq(markov_launch(head, &batch, &error), -EINVAL);
	batch = test.batch;
	memcpy(bases, batch.base, sizeof(bases));
	bases[2] = NULL;
	batch.base = bases;
	ck_assert_int_eq(markov_launch(head, &batch, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "row 2"));
	ck_assert_int_eq(markov_wait(head, &error), 0);
	for (size_t i = 0; i < test.logits_bytes; i++)
		REQUIRE(test.logits[i] == 0x5a, "byte %zu was written", i);
	ck_assert_uint_eq(outcome.tokens[0], 0x5a5a5a5a);
	markov_close(head);
}
END_TEST

START_TEST(one_batch_at_a_time)
{
	struct markov_head *head = open_head(MARKOV_CPU);

	ck_assert(markov_is_over(head));
	ck_assert_int_eq(markov_launch(head, &test.batch, &error), 0);
	ck_assert_int_eq(markov_launch(head, &test.batch, &error), -EBUSY);
	ck_assert(markov_is_over(head)); /* the wait computes it */
	ck_assert_int_eq(markov_wait(head, &error), 0);
	ck_assert_uint_lt(outcome.tokens[11], 100);
	ck_assert_int_eq(markov_launch(head, &test.batch, &error), 0);
	outcome.tokens[0] = UINT32_MAX;
	markov_close(head); /* waits for it */
	ck_assert_uint_lt(outcome.tokens[0], 100);
}
END_TEST

static void count(void *user, const char *what, double done)
{
	double *last = user;

	ck_assert_ptr_nonnull(what);
	ck_assert(done >= *last && done <= 1.0);
	*last = done;
}

START_TEST(progress_ends_at_one)
{
	struct markov_options options = {.backend = MARKOV_CPU, .max_rows = 1, .max_steps = 1};
	struct markov_head *head;
	double last = 0;

	ck_assert_int_eq(markov_open(&options, &test.checkpoint, count, &last, &head, &error), 0);
	ck_assert(last == 1.0);
	markov_close(head);
}
END_TEST

static void note_first(void *user, const char *what, double done)
{
	char *first = user;

	if (first[0] == '\0' && done == 0)
		strcpy(first, what);
}

/* Before the driver is asked, which may take its time to answer; not where nobody asks it. */
START_TEST(looking_for_gpus_is_told)
{
	struct markov_options options = {.max_rows = 1, .max_steps = 1};
	struct markov_head *head;
	char first[64];

	for (options.backend = MARKOV_AUTO; options.backend <= MARKOV_CPU; options.backend++) {
		first[0] = '\0';
		ck_assert_int_eq(
			markov_open(&options, &test.checkpoint, note_first, first, &head, &error),
			0);
		ck_assert_int_eq(
			strcmp(first, "opening the GPUs") == 0, options.backend == MARKOV_AUTO);
		markov_close(head);
	}
}
END_TEST

Suite *markov_suite(void)
{
	Suite *suite = suite_create("markov");
	TCase *tests = tcase_create("markov");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, facts_say_what_was_opened);
	tcase_add_test(tests, cuda_is_refused_with_a_way_out);
	tcase_add_test(tests, option_limits);
	tcase_add_test(tests, batches_outside_the_limits_write_nothing);
	tcase_add_test(tests, one_batch_at_a_time);
	tcase_add_test(tests, progress_ends_at_one);
	tcase_add_test(tests, looking_for_gpus_is_told);
	suite_add_tcase(suite, tests);
	return suite;
}
