#include "client/draftctl/random.h"
#include "tests/unit/draftctl/suites.h"

#include <math.h>
#include <stdlib.h>

/* The published first outputs of SplitMix64 from state 1234567. */
START_TEST(is_splitmix64)
{
	static const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u,
		9817491932198370423u, 4593380528125082431u, 16408922859458223821u};
	struct random random = {1234567};

	for (size_t i = 0; i < 5; i++)
		ck_assert_uint_eq(random_next(&random), expected[i]);
}
END_TEST

START_TEST(streams_differ)
{
	struct random a = random_start(1, 1), b = random_start(1, 2), c = random_start(2, 1),
		      again = random_start(1, 1);
	uint64_t first = random_next(&a);

	ck_assert_uint_ne(first, random_next(&b));
	ck_assert_uint_ne(first, random_next(&c));
	ck_assert_uint_eq(first, random_next(&again));
}
END_TEST

START_TEST(below_covers_its_range)
{
	struct random random = random_start(3, 0);
	unsigned seen[5] = {0};

	for (unsigned i = 0; i < 10000; i++) {
		uint32_t value = random_below(&random, 5);

		ck_assert_uint_lt(value, 5);
		seen[value]++;
	}
	for (unsigned i = 0; i < 5; i++) /* 2000 expected, deviation 40 */
		ck_assert(seen[i] > 1760 && seen[i] < 2240);
	ck_assert_uint_eq(random_below(&random, 1), 0);
}
END_TEST

START_TEST(bell_has_its_shape)
{
	size_t count = 400000, inside[4] = {0};
	struct random random = random_start(7, 0);
	uint16_t *values = malloc(count * sizeof(*values));
	double sum = 0, squares = 0;

	random_bf16_normal(&random, 4.0f, values, count);
	for (size_t i = 0; i < count; i++) {
		double x = (double)bf16_to_float(values[i]) / 4;

		sum += x;
		squares += x * x;
		for (unsigned k = 1; k <= 3; k++)
			inside[k] += fabs(x) < k;
	}
	/* Deviations of these figures are near 0.002; BF16 moves the bounds by up to 0.2%. */
	ck_assert_double_eq_tol(sum / (double)count, 0, 0.008);
	ck_assert_double_eq_tol(squares / (double)count, 1, 0.012);
	ck_assert_double_eq_tol((double)inside[1] / (double)count, 0.6827, 0.01);
	ck_assert_double_eq_tol((double)inside[2] / (double)count, 0.9545, 0.005);
	ck_assert_double_eq_tol((double)inside[3] / (double)count, 0.9973, 0.002);
	free(values);
}
END_TEST

START_TEST(bf16_rounds_to_even)
{
	ck_assert_uint_eq(bf16_from_float(1.0f), 0x3F80);
	ck_assert_uint_eq(bf16_from_float(-2.0f), 0xC000);
	ck_assert_uint_eq(bf16_from_float(0.0f), 0x0000);
	ck_assert_uint_eq(bf16_from_float(-0.0f), 0x8000);
	/* 1 + 2^-8 lies half way between 1 and 1 + 2^-7: to the even one; 1 + 3 * 2^-8 goes up to
	 * even. */
	ck_assert_uint_eq(bf16_from_float(1.00390625f), 0x3F80);
	ck_assert_uint_eq(bf16_from_float(1.01171875f), 0x3F82);
	ck_assert_uint_eq(bf16_from_float(nextafterf(1.00390625f, 2)), 0x3F81);
	ck_assert_uint_eq(bf16_from_float(INFINITY), 0x7F80);
	ck_assert_uint_eq(bf16_from_float(3.4e38f), 0x7F80);
	ck_assert_uint_eq(bf16_from_float(-NAN), 0x7FFF);
	ck_assert_float_eq(bf16_to_float(0x3F81), 1.0078125f);
}
END_TEST

Suite *random_suite(void)
{
	Suite *suite = suite_create("random");
	TCase *tests = tcase_create("random");

	tcase_add_test(tests, is_splitmix64);
	tcase_add_test(tests, streams_differ);
	tcase_add_test(tests, below_covers_its_range);
	tcase_add_test(tests, bell_has_its_shape);
	tcase_add_test(tests, bf16_rounds_to_even);
	suite_add_tcase(suite, tests);
	return suite;
}
