/* The tests that need a GPU, in the order given: `sharing` (only as the first), `golden FOLDER`,
 * `large`, `large=SHAPE`, `odd`, `memory`, `bench`, `bench=SHAPE`, `sweep` (bench with the tuning
 * options), `figures=SHAPE` (for bench_gpu.py). */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool gpu_is_there(void)
{
	struct error_text error;
	if (cuda_probe(NULL, &error) == 0)
		return true;
	test_waived(error.text);
	return false;
}

static void run(const char *test, const char *argument)
{
	if (!strcmp(test, "golden"))
		golden_tests(argument ? argument : "tests/golden");
	else if (!strcmp(test, "large"))
		large_tests(NULL);
	else if (!strncmp(test, "large=", 6))
		large_tests(test + 6);
	else if (!strcmp(test, "odd"))
		odd_tests();
	else if (!strcmp(test, "memory"))
		memory_tests();
	else if (!strcmp(test, "bench"))
		bench(NULL, false);
	else if (!strncmp(test, "bench=", 6))
		bench(test + 6, false);
	else if (!strncmp(test, "figures=", 8))
		figures(test + 8);
	else if (!strcmp(test, "sweep"))
		bench(NULL, true);
	else
		die("unknown test %s", test);
}

int main(int argc, char **argv)
{
	/* It forks, and a process that has initialized CUDA can't. */
	const bool sharing = argc > 1 && !strcmp(argv[1], "sharing");
	if (sharing)
		sharing_tests();
	if (argc > 1 + sharing && gpu_is_there()) {
		for (int i = 1 + sharing; i < argc; i++) {
			const bool takes_one = !strcmp(argv[i], "golden");
			run(argv[i], takes_one ? argv[i + 1] : NULL);
			i += takes_one;
		}
	}
	printf("passed %u, failed %u, waived %u\n", tests_passed, tests_failed, tests_waived);
	return tests_failed != 0;
}
