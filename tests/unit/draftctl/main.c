#include "tests/unit/draftctl/suites.h"

#include <stdlib.h>

int main(void)
{
	SRunner *runner = srunner_create(arrival_suite());
	int failed;

	srunner_add_suite(runner, base_file_suite());
	srunner_add_suite(runner, case_file_suite());
	srunner_add_suite(runner, file_suite());
	srunner_add_suite(runner, histogram_suite());
	srunner_add_suite(runner, load_result_suite());
	srunner_add_suite(runner, mix_suite());
	srunner_add_suite(runner, number_suite());
	srunner_add_suite(runner, options_suite());
	srunner_add_suite(runner, ramp_suite());
	srunner_add_suite(runner, random_suite());
	srunner_add_suite(runner, text_suite());
	srunner_add_suite(runner, top_view_suite());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
