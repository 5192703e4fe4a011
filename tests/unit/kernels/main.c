#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <stdlib.h>

int main(void)
{
	SRunner *runner = srunner_create(safetensors_suite());
	int failed;

	srunner_add_suite(runner, checkpoint_suite());
	srunner_add_suite(runner, bias_suite());
	srunner_add_suite(runner, sfu_suite());
	srunner_add_suite(runner, noise_suite());
	srunner_add_suite(runner, reference_suite());
	srunner_add_suite(runner, pool_suite());
	srunner_add_suite(runner, cpu_suite());
	srunner_add_suite(runner, markov_suite());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
