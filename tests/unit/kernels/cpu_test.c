/* Every path of the CPU backend that this processor has, against golden cases and the scalar
 * reference. */
#include "kernels/cpu/path.h"
#include "kernels/markov.h"
#include "kernels/reference.h"
#include "tests/unit/kernels/golden_case.h"
#include "tests/unit/kernels/random_case.h"
#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct markov_head *open_head(
	const struct checkpoint *checkpoint, const char *path, uint32_t threads)
{
	struct markov_options options = {
		.backend = MARKOV_CPU, .max_rows = 64, .max_steps = 8, .threads = threads};
	struct markov_head *head = NULL;
	struct error_text error;

	setenv("DRAFTD_CPU_PATH", path, 1);
	ck_assert_msg(markov_open(&options, checkpoint, NULL, NULL, &head, &error) == 0, "%s",
		error.text);
	unsetenv("DRAFTD_CPU_PATH");
	ck_assert_str_eq(markov_facts(head)->variant, path);
	return head;
}

static void run(struct markov_head *head, const struct markov_batch *batch)
{
	struct error_text error;

	ck_assert_msg(markov_launch(head, batch, &error) == 0, "%s", error.text);
	ck_assert_msg(markov_wait(head, &error) == 0, "%s", error.text);
}

START_TEST(golden_cases_come_back_on_every_path)
{
	struct golden_case golden;

	golden_open(&golden, golden_names[_i]);
	for (const struct path *const *path = path_list(); *path; path++) {
		for (uint32_t threads = 1; threads <= 3; threads += 2) {
			struct markov_head *head =
				open_head(&golden.checkpoint, (*path)->name, threads);
			struct markov_batch quiet = golden.batch;

			golden_clear(&golden);
			run(head, &golden.batch);
			golden_compare(&golden, true, (*path)->name);
			golden_clear(&golden);
			quiet.trace_bias = NULL;
			run(head, &quiet);
			golden_compare(&golden, false, (*path)->name);
			quiet.trace_values = NULL;
			golden_clear(&golden);
			run(head, &quiet);
			golden_compare(&golden, false, (*path)->name);
			markov_close(head);
		}
	}
	golden_close(&golden);
}
END_TEST

/* Runs the case on a head and compares it with the reference's outcome, with traces and without. */
static void compare_head(struct markov_head *head, struct random_case *test,
	const struct outcome *wanted, const char *who)
{
	for (int traces = 0; traces < 2; traces++) {
		struct outcome got;

		outcome_prepare(&got, test, traces);
		run(head, &test->batch);
		outcome_keep(&got, test);
		outcome_compare(&got, wanted, test, who);
		outcome_done(&got);
	}
}

static void reference_outcome(struct random_case *test, struct outcome *ret)
{
	struct error_text error;

	outcome_prepare(ret, test, true);
	ck_assert_int_eq(reference_run(&test->checkpoint, &test->batch, &error), 0);
	outcome_keep(ret, test);
}

static const struct random_shape shapes[] = {
	{1000, 64, 1000, 17, 3, OPERAND_NEAR, OPERAND_NEAR, OPERAND_NEAR, 1.0f, 0.0f, false},
	{999, 100, 50, 17, 3, OPERAND_SPREAD, OPERAND_SPREAD, OPERAND_SPREAD, 0.3f, 0.0f, false},
	{513, 16, 700, 40, 2, OPERAND_LARGEST, OPERAND_LARGEST, OPERAND_NEAR, -2.0f, 0.0f, false},
	{700, 33, 9, 17, 3, OPERAND_TIED, OPERAND_TIED, OPERAND_TIED, 1.0f, 25.0f, false},
	{600, 48, 600, 13, 2, OPERAND_EXTREME, OPERAND_NEAR, OPERAND_EXTREME, 1.0f, 0.0f, false},
	{600, 48, 600, 13, 2, OPERAND_NEAR, OPERAND_EXTREME, OPERAND_NEAR, 1.0f, 2.0f, false},
	{530, 40, 600, 13, 3, OPERAND_ANY, OPERAND_ANY, OPERAND_ANY, 1.0f, 0.0f, false},
	{530, 40, 600, 13, 3, OPERAND_NEAR, OPERAND_NEAR, OPERAND_ANY, 0.0f, 0.0f, false},
	{1, 1, 1, 3, 3, OPERAND_NEAR, OPERAND_NEAR, OPERAND_NEAR, 1.0f, 0.0f, false},
	{17, 2, 1, 16, 2, OPERAND_TIED, OPERAND_TIED, OPERAND_TIED, 1.0f, 0.0f, false},
	{40, 9000, 8, 5, 2, OPERAND_NEAR, OPERAND_NEAR, OPERAND_NEAR, 1.0f, 0.0f, false},
	{20000, 32, 300, 5, 2, OPERAND_NEAR, OPERAND_SPREAD, OPERAND_TIED, 1.0f, 0.0f, false},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

START_TEST(random_heads_match_the_reference_on_every_path)
{
	struct random_case test;
	struct outcome wanted;

	random_case_init(&test, &shapes[_i], (uint64_t)_i + 3);
	reference_outcome(&test, &wanted);
	for (const struct path *const *path = path_list(); *path; path++) {
		for (uint32_t threads = 1; threads <= 3; threads += 2) {
			struct markov_head *head =
				open_head(&test.checkpoint, (*path)->name, threads);

			compare_head(head, &test, &wanted, (*path)->name);
			markov_close(head);
		}
	}
	outcome_done(&wanted);
	random_case_done(&test);
}
END_TEST

/* A row alone, at another place, in a smaller batch, with fewer steps: the same bits (NUMERICS
 * section 7.3). */
START_TEST(rows_do_not_see_their_batch)
{
	struct random_case test;
	struct outcome all, part;
	struct markov_head *head;
	size_t row_bytes;

	random_case_init(&test, &shapes[_i], 77);
	row_bytes = (size_t)test.logits_strides[0] * test.batch.steps;
	head = open_head(&test.checkpoint, path_list()[1] ? path_list()[1]->name : "scalar", 2);
	outcome_prepare(&all, &test, false);
	run(head, &test.batch);
	outcome_keep(&all, &test);
	for (uint32_t r = 0; r < test.batch.rows; r++) {
		struct markov_batch one;

		outcome_prepare(&part, &test, false);
		one = test.batch;
		one.rows = 1;
		one.steps = 1 + r % test.batch.steps;
		one.anchors += r;
		one.positions += r;
		one.seeds += r;
		one.temperatures += r;
		one.slots += r;
		one.base += r;
		one.base_strides += r;
		one.logits += r;
		one.logits_strides += r;
		run(head, &one);
		for (uint32_t step = 0; step < one.steps; step++)
			ck_assert_uint_eq(
				part.tokens[step], all.tokens[r * test.batch.steps + step]);
		if (one.steps == test.batch.steps) {
			ck_assert_uint_eq(part.flags[0], all.flags[r]);
			ck_assert_int_eq(memcmp(test.logits + 2 + r * row_bytes,
						 all.logits + 2 + r * row_bytes, row_bytes),
				0);
		}
		outcome_done(&part);
	}
	markov_close(head);
	outcome_done(&all);
	random_case_done(&test);
}
END_TEST

/* The shape of a real model. With DRAFTD_SLOW_TESTS seven steps instead of two; under a slow
 * tool one row of one, which reaches as far into the tables. */
START_TEST(a_real_shape_matches_the_reference)
{
	const uint32_t rows = slow_tool() ? 1 : 2;
	const uint32_t steps = getenv("DRAFTD_SLOW_TESTS") ? 7 : rows;
	struct random_shape shape = {151936, 256, 2000, rows, steps, OPERAND_NEAR, OPERAND_NEAR,
		OPERAND_SPREAD, 0.5f, 0.0f, true};
	struct random_case test;
	struct outcome wanted;

	random_case_init(&test, &shape, 11);
	reference_outcome(&test, &wanted);
	for (const struct path *const *path = path_list() + 1; *path; path++) {
		struct markov_head *head = open_head(&test.checkpoint, (*path)->name, 0);

		compare_head(head, &test, &wanted, (*path)->name);
		markov_close(head);
	}
	outcome_done(&wanted);
	random_case_done(&test);
}
END_TEST

static struct random_case *one_row(uint32_t vocab, float temperature, const uint16_t *base)
{
	struct random_shape shape = {
		vocab, 16, 4, 1, 1, OPERAND_NEAR, OPERAND_NEAR, OPERAND_NEAR, 1.0f, 0.0f, true};
	struct random_case *test = malloc(sizeof(*test));

	random_case_init(test, &shape, 5);
	memset(test->w1, 0, (4 * 16 + 1) * 2); /* no bias: the base logits are the logits */
	test->bases[0] = base;
	test->temperatures[0] = temperature;
	return test;
}

/* The winners of NUMERICS section 6, told by hand. */
START_TEST(winners_by_hand)
{
	static const struct {
		float temperature;
		int at[3];
		uint16_t value[3], rest;
		uint32_t winner;
		uint8_t flags;
	} cases[] = {
		{0, {5, 900, 999}, {0x4000, 0x4000, 0x3f80}, 0, 5, 0}, /* the lowest of equals */
		{0, {5, 900, 999}, {0x4000, 0x4001, 0x4001}, 0, 900, 0},
		{0, {999, 3, 4}, {0x3f80, 0, 0}, 0xff80, 999, 0},       /* the last id */
		{0, {1, 2, 3}, {0xff80, 0xff80, 0xff80}, 0xff80, 0, 0}, /* all -inf */
		{1, {1, 2, 3}, {0xff80, 0xff80, 0xff80}, 0xff80, 0, 0},
		{0, {600, 601, 10}, {0x7fc0, 0xffc1, 0x7f80}, 0x3f80, 600, 1}, /* the first NaN */
		{1, {600, 601, 10}, {0x7fc0, 0xffc1, 0x7f80}, 0x3f80, 600, 1},
		{0, {7, 8, 9}, {0x8000, 0x0000, 0x0000}, 0xbf80, 7, 0},  /* -0 equals +0 */
		{1, {700, 20, 900}, {0x7f80, 0x7f80, 0x7f80}, 0, 20, 0}, /* infinities tie */
		{1, {444, 2, 3}, {0x4348, 0, 0}, 0, 444, 0},             /* 200 beats any noise */
	};

	for (const struct path *const *path = path_list(); *path; path++) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			uint16_t base[1000];
			struct random_case *test;
			struct markov_head *head;
			struct outcome got;

			for (int v = 0; v < 1000; v++)
				base[v] = cases[i].rest;
			for (int k = 0; k < 3; k++)
				base[cases[i].at[k]] = cases[i].value[k];
			test = one_row(1000, cases[i].temperature, base);
			head = open_head(&test->checkpoint, (*path)->name, 2);
			outcome_prepare(&got, test, false);
			run(head, &test->batch);
			REQUIRE(got.tokens[0] == cases[i].winner && got.flags[0] == cases[i].flags,
				"%s, case %zu: %u, flags %u", (*path)->name, i, got.tokens[0],
				got.flags[0]);
			outcome_done(&got);
			markov_close(head);
			random_case_done(test);
			free(test);
		}
	}
}
END_TEST

START_TEST(unknown_path_is_refused)
{
	struct markov_options options = {.backend = MARKOV_CPU, .max_rows = 1, .max_steps = 1};
	struct golden_case golden;
	struct markov_head *head = NULL;
	struct error_text error;

	golden_open(&golden, "greedy_small");
	setenv("DRAFTD_CPU_PATH", "mmx", 1);
	ck_assert_int_lt(markov_open(&options, &golden.checkpoint, NULL, NULL, &head, &error), 0);
	unsetenv("DRAFTD_CPU_PATH");
	ck_assert_ptr_nonnull(strstr(error.text, "'mmx'"));
	ck_assert_ptr_null(head);
	golden_close(&golden);
}
END_TEST

Suite *cpu_suite(void)
{
	Suite *suite = suite_create("cpu");
	TCase *golden = tcase_create("golden"), *random = tcase_create("random");

	tcase_set_timeout(golden, 60);
	tcase_add_loop_test(golden, golden_cases_come_back_on_every_path, 0, (int)golden_count);
	suite_add_tcase(suite, golden);
	tcase_set_timeout(random, 300);
	tcase_add_loop_test(random, random_heads_match_the_reference_on_every_path, 0, (int)SHAPES);
	tcase_add_loop_test(random, rows_do_not_see_their_batch, 0, (int)SHAPES);
	tcase_add_test(random, a_real_shape_matches_the_reference);
	tcase_add_test(random, winners_by_hand);
	tcase_add_test(random, unknown_path_is_refused);
	suite_add_tcase(suite, random);
	return suite;
}
