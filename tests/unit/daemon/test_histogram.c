#include "daemon/histogram.h"

#include <check.h>

Suite *histogram_suite(void);

START_TEST(buckets_are_whole_and_ordered)
{
	uint64_t before = 0;

	ck_assert_uint_eq(histogram_upper_us(0), 0);
	for (unsigned i = 1; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t upper = histogram_upper_us(i);

		ck_assert_uint_gt(upper, before);
		ck_assert_uint_le(upper - before, before / 4 + 1); /* a quarter wide at most */
		before = upper;
	}
	ck_assert_uint_eq(before, (UINT64_C(1) << 33) - 1);
}
END_TEST

/* A value counts in the bucket whose upper end is the first that is not below it. */
START_TEST(values_land_in_their_bucket)
{
	for (unsigned i = 1; i < HISTOGRAM_BUCKETS; i++) {
		struct histogram histogram = {0};

		histogram_add(&histogram, histogram_upper_us(i));
		histogram_add(&histogram, histogram_upper_us(i - 1) + 1);
		ck_assert_uint_eq(histogram.buckets[i], 2);
	}
}
END_TEST

START_TEST(huge_values_count_in_the_last)
{
	struct histogram histogram = {0};

	histogram_add(&histogram, UINT64_MAX);
	histogram_add(&histogram, UINT64_C(1) << 33);
	ck_assert_uint_eq(histogram.buckets[HISTOGRAM_BUCKETS - 1], 2);
	ck_assert_uint_eq(histogram.max_us, UINT64_MAX);
}
END_TEST

START_TEST(quantiles)
{
	struct histogram histogram = {0};

	ck_assert_uint_eq(histogram_quantile_us(&histogram, 500), 0);
	histogram_add(&histogram, 1);
	histogram_add(&histogram, 2);
	histogram_add(&histogram, 3);
	ck_assert_uint_eq(histogram_quantile_us(&histogram, 500), 2); /* one of three is not half */
	histogram = (struct histogram){0};
	for (uint64_t us = 1; us <= 1000; us++)
		histogram_add(&histogram, us);
	ck_assert_uint_eq(histogram.count, 1000);
	ck_assert_uint_eq(histogram.sum_us, 500500);
	/* 500 lies in 448..511, 990 in 896..1023, of which no value is above 1000 */
	ck_assert_uint_eq(histogram_quantile_us(&histogram, 500), 511);
	ck_assert_uint_eq(histogram_quantile_us(&histogram, 990), 1000);
	ck_assert_uint_eq(histogram_quantile_us(&histogram, 1000), 1000);
	ck_assert_uint_eq(histogram_quantile_us(&histogram, 1), 1);
}
END_TEST

START_TEST(counts_below_powers_are_exact)
{
	struct histogram histogram = {0};

	for (uint64_t us = 0; us < 5000; us++)
		histogram_add(&histogram, us);
	for (unsigned power = 2; power <= 12; power++)
		ck_assert_uint_eq(histogram_below_power(&histogram, power), UINT64_C(1) << power);
	ck_assert_uint_eq(histogram_below_power(&histogram, 13), 5000);
}
END_TEST

Suite *histogram_suite(void)
{
	Suite *suite = suite_create("histogram");
	TCase *tcase = tcase_create("histogram");

	tcase_add_test(tcase, buckets_are_whole_and_ordered);
	tcase_add_test(tcase, values_land_in_their_bucket);
	tcase_add_test(tcase, huge_values_count_in_the_last);
	tcase_add_test(tcase, quantiles);
	tcase_add_test(tcase, counts_below_powers_are_exact);
	suite_add_tcase(suite, tcase);
	return suite;
}
