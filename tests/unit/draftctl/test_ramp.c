/* The search on loads whose p99 is known: a bound kept up to a certain rate. */
#include "client/draftctl/ramp.h"
#include "tests/unit/draftctl/suites.h"

#include <stdlib.h>

#define BOUND_US 500

/* A second at a rate; the p99 is half the bound up to `limit`, and twice it beyond. */
static void make_result(double rate, double limit, struct load_result *result)
{
	*result = (struct load_result){.requests = (uint64_t)rate, .seconds = 1};
	for (int i = 0; i < 200; i++)
		histogram_add(&result->total, rate <= limit ? BOUND_US * 500 : BOUND_US * 2000);
}

/* Every `hiccup`-th step breaks the bound whatever its rate is; 0: none does. */
static double search(double first, double limit, unsigned hiccup, unsigned *ret_count)
{
	struct load_result *result = malloc(sizeof(*result));
	struct ramp ramp = ramp_start(BOUND_US, first);

	while (!ramp_over(&ramp)) {
		bool broken = hiccup != 0 && ramp.count % hiccup == hiccup - 1;
		double rate = ramp.rate;

		make_result(rate, broken ? 0 : limit, result);
		ck_assert(ramp_note(&ramp, result) == (rate <= limit && !broken));
		ck_assert_double_eq(ramp.steps[ramp.count - 1].rate, rate);
		ck_assert_uint_le(ramp.count, RAMP_STEPS_MAX);
	}
	free(result);
	*ret_count = ramp.count;
	return ramp.kept;
}

START_TEST(finds_the_rate)
{
	static const double limits[] = {1.5, 99, 100, 101, 12345, 3e6, 9.9e6};
	static const double firsts[] = {1, 100, 70000, 1e7};
	unsigned count;

	for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
		for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++) {
			double kept = search(firsts[f], limits[l], 0, &count);

			ck_assert_double_le(kept, limits[l]);
			ck_assert_double_ge(kept, limits[l] / RAMP_CLOSE);
			ck_assert_uint_le(count, RAMP_STEPS_MAX - 1);
		}
	}
}
END_TEST

START_TEST(a_hiccup_decides_nothing)
{
	unsigned count;

	for (unsigned hiccup = 3; hiccup < 9; hiccup++) {
		double kept = search(100, 12345, hiccup, &count);

		ck_assert_double_le(kept, 12345);
		ck_assert_double_ge(kept, 12345 / RAMP_CLOSE);
	}
}
END_TEST

START_TEST(ends_of_the_range)
{
	unsigned count;

	ck_assert_double_eq(search(100, 0.5, 0, &count), 0);
	ck_assert_double_eq(search(100, 1e9, 0, &count), RAMP_RATE_MAX);
}
END_TEST

START_TEST(unsent_requests_break_it)
{
	struct load_result *result = malloc(sizeof(*result));
	struct ramp ramp = ramp_start(BOUND_US, 1000);

	make_result(1000, 1e9, result);
	result->unsent = 10;
	ck_assert(ramp_note(&ramp, result)); /* 10 of 1010 */
	result->unsent = 11;
	ck_assert(!ramp_note(&ramp, result));
	*result = (struct load_result){0}; /* nothing was answered at all */
	ck_assert(!ramp_note(&ramp, result));
	free(result);
}
END_TEST

Suite *ramp_suite(void)
{
	Suite *suite = suite_create("ramp");
	TCase *tests = tcase_create("ramp");

	tcase_add_test(tests, finds_the_rate);
	tcase_add_test(tests, a_hiccup_decides_nothing);
	tcase_add_test(tests, ends_of_the_range);
	tcase_add_test(tests, unsent_requests_break_it);
	suite_add_tcase(suite, tests);
	return suite;
}
