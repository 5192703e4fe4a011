/* The special-function unit against the functions that it approximates, over every mantissa. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/mufu_table.h"
#include "kernels/cpu/sfu.h"
#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <math.h>

#define MANTISSAS (1u << 23)

/* From one mantissa to the next that is tried. */
static uint32_t mantissa_stride(void)
{
	return slow_tool() ? 61 : 1;
}

/* The vendor's bound for the instruction is one unit in the last place. */
START_TEST(rcp_is_within_an_ulp_everywhere)
{
	const uint32_t stride = mantissa_stride();
	double largest = 0;

	for (uint32_t m = 0; m < MANTISSAS; m += stride) {
		float x = float_of(0x3f800000 | m), y = sfu_rcp(x);
		double error = fabs((double)y - 1.0 / (double)x) * 0x1p24;

		if (error > largest)
			largest = error;
		REQUIRE(y > 0.5f || m > MANTISSAS - 3, "%a", (double)x);
	}
	REQUIRE(largest < 1.0, "%.3f ulp", largest);
	ck_assert(sfu_rcp(1.0f) == 1.0f);
}
END_TEST

START_TEST(rcp_scales_and_flushes)
{
	for (uint32_t m = 1; m < MANTISSAS; m += 9973) {
		float x = float_of(0x3f800000 | m), y = sfu_rcp(x);

		for (int e = -125; e <= 125; e += 25) {
			ck_assert(sfu_rcp(ldexpf(x, e)) == ldexpf(y, -e));
			ck_assert(sfu_rcp(-ldexpf(x, e)) == -ldexpf(y, -e));
		}
	}
	ck_assert(sfu_rcp(0.0f) == INFINITY && sfu_rcp(-0.0f) == -INFINITY);
	ck_assert(sfu_rcp(0x1p-130f) == INFINITY && sfu_rcp(-0x1p-149f) == -INFINITY);
	ck_assert_uint_eq(float_bits(sfu_rcp(INFINITY)), 0);
	ck_assert_uint_eq(float_bits(sfu_rcp(-INFINITY)), 0x80000000);
	ck_assert_uint_eq(float_bits(sfu_rcp(0x1.8p127f)), 0); /* a subnormal result */
	ck_assert(isnan(sfu_rcp(NAN)));
}
END_TEST

START_TEST(ex2_is_within_two_ulp_everywhere)
{
	const uint32_t stride = mantissa_stride();
	double largest = 0;
	float before = 0;

	for (uint32_t m = 0; m < MANTISSAS; m += stride) {
		float x = (float)m * 0x1p-23f, y = sfu_ex2(x);
		double error = fabs((double)y - exp2((double)x)) * 0x1p23;

		if (error > largest)
			largest = error;
		REQUIRE(y >= before - 0x1p-23f, "%a", (double)x); /* falls by one step at most */
		before = y;
	}
	REQUIRE(largest < 2.0, "%.3f ulp", largest);
	ck_assert(sfu_ex2(0.0f) == 1.0f && sfu_ex2(10.0f) == 1024.0f);
	ck_assert(sfu_ex2(3.5f) == 8 * sfu_ex2(0.5f));
}
END_TEST

/* Each row continues where the one before ends. */
START_TEST(tables_have_no_seams)
{
	for (uint32_t row = 1; row < 128; row++) {
		float below = sfu_rcp(float_of(0x3f800000 | ((row << 16) - 1)));
		float at = sfu_rcp(float_of(0x3f800000 | row << 16));

		ck_assert(below - at >= -0x1p-23f && below - at < 0x1p-22f);
	}
	for (int row = 1; row < 64; row++) {
		float at = (float)row / 64, below = at - 0x1p-23f;

		ck_assert(sfu_ex2(at) - sfu_ex2(below) >= -0x1p-23f);
		ck_assert(sfu_ex2(at) - sfu_ex2(below) < 0x1p-21f);
	}
	ck_assert_int_eq(mufu_rcp[0].c0, 67108862);
	ck_assert_int_eq(mufu_ex2[63].c2, 980);
}
END_TEST

/* div.full: two units in the last place over its full range. */
START_TEST(division_is_within_two_ulp)
{
	static const float divisors[] = {
		1.0f, 0.7f, 3.0f, 0x1.8p126f, 0x1.fffffep127f, 0x1p-126f, 0x1.8p-130f, 0x1p-149f};

	for (unsigned d = 0; d < sizeof(divisors) / sizeof(divisors[0]); d++) {
		struct divisor divisor = sfu_divisor(divisors[d]);

		for (float a = 0.25f; a < 100.0f; a *= 1.37f) {
			double wanted = (double)a / (double)divisors[d];
			double got = (double)sfu_divide(a, divisor);

			if (wanted > 3.5e38)
				ck_assert(isinf(got));
			else if (wanted > 0x1p-120 && wanted < 3.4e38)
				REQUIRE(fabs(got - wanted) <= wanted * 0x1p-22, "%a / %a",
					(double)a, (double)divisors[d]);
			ck_assert(sfu_divide(-a, divisor) == -sfu_divide(a, divisor));
		}
	}
	ck_assert(sfu_divide(5.0f, sfu_divisor(INFINITY)) == 0.0f);
	ck_assert(isnan(sfu_divide(5.0f, sfu_divisor(NAN))));
	ck_assert(sfu_divide(-5.0f, sfu_divisor(2.0f)) == -2.5f);
}
END_TEST

START_TEST(tanh_is_close_and_odd)
{
	for (float z = 0x1p-20f; z < 30.0f; z *= 1.0009f) {
		double error = fabs((double)sfu_tanh(z) - tanh((double)z));

		REQUIRE(error < 5e-7, "tanh(%a) is off by %g", (double)z, error);
		REQUIRE(sfu_tanh(-z) == -sfu_tanh(z) && sfu_tanh(z) <= 1.0f, "tanh(%a)", (double)z);
	}
	ck_assert(sfu_tanh(INFINITY) == 1.0f && sfu_tanh(-INFINITY) == -1.0f);
	ck_assert(isnan(sfu_tanh(NAN)));
	ck_assert_uint_eq(float_bits(sfu_tanh(-0.0f)), 0x80000000);
	ck_assert_uint_eq(float_bits(sfu_tanh(0x1p-140f)), 0); /* flushed */
}
END_TEST

Suite *sfu_suite(void)
{
	Suite *suite = suite_create("sfu");
	TCase *tests = tcase_create("sfu");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, rcp_is_within_an_ulp_everywhere);
	tcase_add_test(tests, rcp_scales_and_flushes);
	tcase_add_test(tests, ex2_is_within_two_ulp_everywhere);
	tcase_add_test(tests, tables_have_no_seams);
	tcase_add_test(tests, division_is_within_two_ulp);
	tcase_add_test(tests, tanh_is_close_and_odd);
	suite_add_tcase(suite, tests);
	return suite;
}
