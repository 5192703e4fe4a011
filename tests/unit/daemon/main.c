/* Runs every suite of the daemon. */
#include <check.h>
#include <stdlib.h>

/* One a line, in alphabetical order. */
#define SUITES                                                                                     \
	SUITE(ahead)                                                                               \
	SUITE(config)                                                                              \
	SUITE(engine)                                                                              \
	SUITE(event)                                                                               \
	SUITE(histogram)                                                                           \
	SUITE(listener)                                                                            \
	SUITE(load)                                                                                \
	SUITE(log)                                                                                 \
	SUITE(model)                                                                               \
	SUITE(notify)                                                                              \
	SUITE(outbox)                                                                              \
	SUITE(placement)                                                                           \
	SUITE(refusal)                                                                             \
	SUITE(region)                                                                              \
	SUITE(replicas)                                                                            \
	SUITE(request)                                                                             \
	SUITE(scheduler)                                                                           \
	SUITE(stats)                                                                               \
	SUITE(user)                                                                                \
	SUITE(watchdog)

#define SUITE(name) Suite *name##_suite(void);
SUITES
#undef SUITE

int main(void)
{
	SRunner *runner = srunner_create(NULL);
	int failed;

#define SUITE(name) srunner_add_suite(runner, name##_suite());
	SUITES
#undef SUITE
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
