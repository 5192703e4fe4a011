/* Results of threads, merged: every figure of each is in the sum. */
#include "client/draftctl/load_private.h"
#include "tests/unit/draftctl/suites.h"

#include <stdlib.h>

#define HISTOGRAMS 7

static void list_histograms(struct load_result *result, struct histogram *list[HISTOGRAMS])
{
	struct histogram *all[HISTOGRAMS] = {&result->total, &result->waited, &result->served,
		&result->queue, &result->device, &result->wire, &result->around};

	for (int i = 0; i < HISTOGRAMS; i++)
		list[i] = all[i];
}

/* `scale` tells the results apart; histogram i gets scale values of (i + 1) * 1000 * scale. */
static struct load_result *make_result(unsigned scale)
{
	struct load_result *result = calloc(1, sizeof(*result));
	struct histogram *list[HISTOGRAMS];

	list_histograms(result, list);
	for (unsigned i = 0; i < HISTOGRAMS; i++)
		for (unsigned n = 0; n < scale; n++)
			histogram_add(list[i], (i + 1) * 1000 * scale);
	histogram_add(&result->kinds[MIX_KINDS_MAX - 1], scale);
	result->requests = scale;
	result->rows = 10 * scale;
	result->tokens = 100 * scale;
	result->nan_rows = 2 * scale;
	result->late = 3 * scale;
	result->unsent = 4 * scale;
	result->missed = scale;
	result->seconds = scale;
	load_result_count(result, -DRAFT_E_DEADLINE_EXCEEDED, 2 * scale, "late");
	return result;
}

START_TEST(merges_everything)
{
	struct load_result *a = make_result(1), *b = make_result(2);
	struct histogram *list[HISTOGRAMS];

	load_result_count(b, -DRAFT_E_DRAINING, 5, "stops");
	b->interrupted = true;
	load_result_merge(a, b);
	ck_assert_uint_eq(a->requests, 3);
	ck_assert_uint_eq(a->rows, 30);
	ck_assert_uint_eq(a->tokens, 300);
	ck_assert_uint_eq(a->nan_rows, 6);
	ck_assert_uint_eq(a->late, 9);
	ck_assert_uint_eq(a->unsent, 12);
	ck_assert_uint_eq(a->missed, 3);
	ck_assert_double_eq(a->seconds, 2); /* they ran at the same time */
	ck_assert(a->interrupted);
	list_histograms(a, list);
	for (unsigned i = 0; i < HISTOGRAMS; i++) {
		ck_assert_uint_eq(list[i]->count, 3);
		ck_assert_uint_eq(list[i]->min, (i + 1) * 1000);
		ck_assert_uint_eq(list[i]->sum, (i + 1) * 5000);
	}
	ck_assert_uint_eq(a->kinds[MIX_KINDS_MAX - 1].count, 2);
	ck_assert_uint_eq(a->error_kinds, 2);
	ck_assert_uint_eq(a->errors[0].count, 6);
	ck_assert_int_eq(a->errors[1].code, -DRAFT_E_DRAINING);
	ck_assert_uint_eq(a->errors[1].count, 5);
	ck_assert_str_eq(a->errors[1].text, "stops");
	ck_assert_uint_eq(load_error_count(a), 6 + 5 - 3);
	ck_assert_uint_eq(load_planned_count(a), 3 + 12 + 6 + 5);
	free(a);
	free(b);
}
END_TEST

START_TEST(a_hundredth_may_be_unsent)
{
	struct load_result *result = calloc(1, sizeof(*result));

	ck_assert(load_kept_its_plan(result));
	result->requests = 900;
	load_result_count(result, -DRAFT_E_DEADLINE_EXCEEDED, 90, "late");
	result->missed = 90;
	result->unsent = 10;
	ck_assert(load_kept_its_plan(result));
	result->unsent = 11;
	ck_assert(!load_kept_its_plan(result));
	free(result);
}
END_TEST

START_TEST(more_kinds_of_errors_than_there_are)
{
	struct load_result *result = make_result(1);

	for (int i = 1; i <= 2 * LOAD_ERROR_KINDS; i++)
		load_result_count(result, -i, 1, "some");
	ck_assert_uint_eq(result->error_kinds, LOAD_ERROR_KINDS);
	ck_assert_uint_eq(load_error_count(result), 2 * LOAD_ERROR_KINDS + 2 - 1);
	free(result);
}
END_TEST

Suite *load_result_suite(void)
{
	Suite *suite = suite_create("load_result");
	TCase *tests = tcase_create("load_result");

	tcase_add_test(tests, merges_everything);
	tcase_add_test(tests, a_hundredth_may_be_unsent);
	tcase_add_test(tests, more_kinds_of_errors_than_there_are);
	suite_add_tcase(suite, tests);
	return suite;
}
