/* The scalar reference against every golden case. */
#include "kernels/reference.h"
#include "tests/unit/kernels/golden_case.h"
#include "tests/unit/kernels/suites.h"

#include <check.h>

START_TEST(golden_cases_come_back_bit_for_bit)
{
	struct golden_case golden;
	struct error_text error;

	golden_open(&golden, golden_names[_i]);
	ck_assert_int_eq(reference_run(&golden.checkpoint, &golden.batch, &error), 0);
	golden_compare(&golden, true, "reference");
	golden_close(&golden);
}
END_TEST

Suite *reference_suite(void)
{
	Suite *suite = suite_create("reference");
	TCase *golden = tcase_create("golden");

	tcase_set_timeout(golden, 60);
	tcase_add_loop_test(golden, golden_cases_come_back_bit_for_bit, 0, (int)golden_count);
	suite_add_tcase(suite, golden);
	return suite;
}
