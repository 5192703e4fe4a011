/* Percentiles against sorted arrays of the same values. */
#include "client/draftctl/histogram.h"
#include "tests/unit/draftctl/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_COUNT 100000

static const double fractions[] = {0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};

static uint64_t state = 88172645463325252ull;

static double uniform(void) /* 0 to 1; xorshift, apart from draftctl's own generator */
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (double)(state >> 11) * 0x1p-53;
}

static int compare_values(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void check_against_sorted(uint64_t *values, size_t count)
{
	struct histogram *h = calloc(1, sizeof(*h));
	double sum = 0;

	for (size_t i = 0; i < count; i++) {
		histogram_add(h, values[i]);
		sum += (double)values[i];
	}
	qsort(values, count, sizeof(*values), compare_values);
	ck_assert_uint_eq(h->count, count);
	ck_assert_uint_eq(h->min, values[0]);
	ck_assert_uint_eq(h->max, values[count - 1]);
	ck_assert_double_eq_tol(histogram_mean(h), sum / (double)count, sum / (double)count * 1e-9);
	for (size_t i = 0; i < sizeof(fractions) / sizeof(fractions[0]); i++) {
		size_t rank = (size_t)ceil(fractions[i] * (double)count);
		double exact = (double)values[rank == 0 ? 0 : rank - 1];
		double got = (double)histogram_at(h, fractions[i]);

		ck_assert_msg(fabs(got - exact) <= 0.01 * exact, "at %g: %g for %g", fractions[i],
			got, exact);
	}
	free(h);
}

START_TEST(percentiles_of_sorted_arrays)
{
	uint64_t *values = calloc(VALUE_COUNT, sizeof(*values));

	for (size_t i = 0; i < VALUE_COUNT; i++) /* 1 us to 60 s, equal ratios equally likely */
		values[i] = (uint64_t)(1e3 * pow(6e7, uniform()));
	check_against_sorted(values, VALUE_COUNT);
	for (size_t i = 0; i < VALUE_COUNT; i++) /* uniform */
		values[i] = 1000 + (uint64_t)(uniform() * 59e9);
	check_against_sorted(values, VALUE_COUNT);
	for (size_t i = 0; i < VALUE_COUNT; i++) /* exponential around 200 us */
		values[i] = 1000 + (uint64_t)(-log(1 - uniform()) * 2e5);
	check_against_sorted(values, VALUE_COUNT);
	for (size_t i = 0; i < VALUE_COUNT; i++) /* two peaks far apart */
		values[i] = uniform() < 0.99 ? 50000 : 40000000000;
	check_against_sorted(values, VALUE_COUNT);
	free(values);
}
END_TEST

START_TEST(few_values)
{
	uint64_t one[] = {123456789};
	uint64_t two[] = {5000, 60000000000};
	uint64_t small[] = {0, 1, 2, 3, 250, 255};

	check_against_sorted(one, 1);
	check_against_sorted(two, 2);
	check_against_sorted(small, 6);
}
END_TEST

START_TEST(single_values_within_one_percent)
{
	struct histogram *h = calloc(1, sizeof(*h));

	/* Every edge of an octave, and a walk between; two neighbours, so that min and max do not
	 * tell. */
	for (double value = 1000; value <= 60e9; value *= 1.00037) {
		uint64_t v = (uint64_t)value;

		memset(h, 0, sizeof(*h));
		histogram_add(h, v / 2);
		histogram_add(h, v);
		histogram_add(h, v * 2);
		ck_assert_double_le(
			fabs((double)histogram_at(h, 0.5) - (double)v), 0.01 * (double)v);
	}
	free(h);
}
END_TEST

START_TEST(merged_equals_added)
{
	struct histogram *all = calloc(1, sizeof(*all));
	struct histogram *parts = calloc(3, sizeof(*parts));
	struct histogram *merged = calloc(1, sizeof(*merged));

	for (size_t i = 0; i < 30000; i++) {
		uint64_t value = (uint64_t)(1e3 * pow(6e7, uniform()));

		histogram_add(all, value);
		histogram_add(&parts[i % 2], value); /* the third stays empty */
	}
	for (size_t i = 0; i < 3; i++)
		histogram_merge(merged, &parts[i]);
	ck_assert_mem_eq(all, merged, sizeof(*all));
	free(all);
	free(parts);
	free(merged);
}
END_TEST

START_TEST(outside_of_the_range)
{
	struct histogram *h = calloc(1, sizeof(*h));

	ck_assert_uint_eq(histogram_at(h, 0.5), 0);
	ck_assert_double_eq(histogram_mean(h), 0);
	histogram_add(h, UINT64_MAX / 2);
	histogram_add(h, 0);
	ck_assert_uint_eq(h->max, UINT64_MAX / 2);
	ck_assert_uint_eq(histogram_at(h, 1), UINT64_MAX / 2);
	ck_assert_uint_eq(histogram_at(h, 0.5), 0);
	free(h);
}
END_TEST

START_TEST(counts_between)
{
	struct histogram *h = calloc(1, sizeof(*h));

	histogram_add(h, 10);
	histogram_add(h, 20);
	histogram_add(h, 20);
	histogram_add(h, 1u << 20); /* powers of two are bounds of buckets */
	ck_assert_uint_eq(histogram_between(h, 0, 10), 0);
	ck_assert_uint_eq(histogram_between(h, 10, 20), 1);
	ck_assert_uint_eq(histogram_between(h, 10, 21), 3);
	ck_assert_uint_eq(histogram_between(h, 1u << 19, 1u << 20), 0);
	ck_assert_uint_eq(histogram_between(h, 1u << 20, 1u << 21), 1);
	ck_assert_uint_eq(histogram_between(h, 0, UINT64_MAX), 4);
	free(h);
}
END_TEST

Suite *histogram_suite(void)
{
	Suite *suite = suite_create("histogram");
	TCase *tests = tcase_create("histogram");

	tcase_add_test(tests, percentiles_of_sorted_arrays);
	tcase_add_test(tests, few_values);
	tcase_add_test(tests, single_values_within_one_percent);
	tcase_add_test(tests, merged_equals_added);
	tcase_add_test(tests, outside_of_the_range);
	tcase_add_test(tests, counts_between);
	suite_add_tcase(suite, tests);
	return suite;
}
