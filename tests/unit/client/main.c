#include "tests/unit/client/suites.h"

#include <stdlib.h>

int main(void)
{
	SRunner *runner = srunner_create(connection_suite());
	int failed;

	srunner_add_suite(runner, request_suite());
	srunner_add_suite(runner, transport_suite());
	srunner_add_suite(runner, region_suite());
	srunner_add_suite(runner, event_suite());
	srunner_add_suite(runner, service_suite());
	srunner_add_suite(runner, device_suite()); /* last: its libcuda stays */
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
