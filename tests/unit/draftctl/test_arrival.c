/* Planned times: exact for a constant rate, exponential gaps for Poisson, and the workers' shares
 * put together. */
#include "client/draftctl/arrival.h"
#include "tests/unit/draftctl/suites.h"

#include <math.h>
#include <stdlib.h>

START_TEST(constant_is_exact)
{
	struct arrival whole = arrival_start(ARRIVAL_CONSTANT, 3, NULL, 1, 0, 1);
	struct arrival shares[2] = {
		arrival_start(ARRIVAL_CONSTANT, 3, NULL, 1, 0, 2),
		arrival_start(ARRIVAL_CONSTANT, 3, NULL, 1, 1, 2),
	};
	int64_t at, same;

	for (int i = 0; i < 30000; i++) {
		ck_assert(arrival_next(&whole, &at));
		ck_assert(arrival_next(&shares[i % 2], &same));
		ck_assert_int_eq(at, same);
		if (i % 3 == 0)
			ck_assert_int_eq(at, i / 3 * INT64_C(1000000000));
	}
}
END_TEST

/* Gaps of a Poisson process: mean and deviation 1 / rate, and a share e^-1 above the mean. */
static void check_gaps(uint32_t workers, int count)
{
	int64_t next[4], last = 0;
	struct arrival shares[4];
	double sum = 0, squares = 0;
	int above = 0, backwards = 0;

	for (uint32_t w = 0; w < workers; w++) {
		shares[w] = arrival_start(ARRIVAL_POISSON, 1000, NULL, 7, w, workers);
		ck_assert(arrival_next(&shares[w], &next[w]));
	}
	for (int i = 0; i < count; i++) {
		uint32_t first = 0;
		double gap;

		for (uint32_t w = 1; w < workers; w++)
			first = next[w] < next[first] ? w : first;
		backwards += next[first] < last;
		gap = (double)(next[first] - last) / 1e6;
		sum += gap;
		squares += gap * gap;
		above += gap > 1;
		last = next[first];
		arrival_next(&shares[first], &next[first]);
	}
	ck_assert_int_eq(backwards, 0);
	/* Four deviations of each estimate. */
	ck_assert_double_eq_tol(sum / count, 1, 4 / sqrt(count));
	ck_assert_double_eq_tol(squares / count, 2, 4 * sqrt(20.0 / count));
	ck_assert_double_eq_tol((double)above / count, exp(-1), 4 * 0.5 / sqrt(count));
}

START_TEST(poisson_gaps)
{
	check_gaps(1, 200000);
	check_gaps(4, 200000);
}
END_TEST

START_TEST(schedule_is_dealt_out)
{
	int64_t times[] = {0, 5, 5, 70, 90};
	struct schedule schedule = {.count = 5, .at_ns = times};
	struct arrival first = arrival_start(ARRIVAL_CONSTANT, 0, &schedule, 1, 0, 2);
	struct arrival second = arrival_start(ARRIVAL_CONSTANT, 0, &schedule, 1, 1, 2);
	int64_t at;

	for (int i = 0; i < 5; i++) {
		ck_assert(arrival_next(i % 2 == 0 ? &first : &second, &at));
		ck_assert_int_eq(at, times[i]);
	}
	ck_assert(!arrival_next(&first, &at));
	ck_assert(!arrival_next(&second, &at));
}
END_TEST

Suite *arrival_suite(void)
{
	Suite *suite = suite_create("arrival");
	TCase *tests = tcase_create("arrival");

	tcase_add_test(tests, constant_is_exact);
	tcase_add_test(tests, poisson_gaps);
	tcase_add_test(tests, schedule_is_dealt_out);
	suite_add_tcase(suite, tests);
	return suite;
}
