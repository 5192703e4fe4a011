/* The tests that need a GPU, in the order given: `sharing` (only as the first), `golden FOLDER`,
 * `large`, `large=SHAPE`, `odd`, `ahead`, `memory`, `regions PROGRAMS FOLDER` (PROGRAMS has draftd
 * and draftctl, FOLDER the golden cases), `cycles PROGRAMS`, `cycles=COUNT PROGRAMS`, `bench`,
 * `bench=SHAPE`, `sweep` (bench with the tuning options), `figures=SHAPE` (for bench_gpu.py).
 * `devices=0,1` runs what follows on these GPUs together, `devices=0,0,0,0` as so many shards of
 * one; `group` and `group=CYCLES` are what only several GPUs have. */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CYCLES       10000
#define GROUP_CYCLES 100

static bool gpu_is_there(void)
{
	struct error_text error;
	if (cuda_probe(NULL, &error) == 0)
		return true;
	test_waived(error.text);
	return false;
}

static int operands(const char *test)
{
	if (!strcmp(test, "regions"))
		return 2;
	return !strcmp(test, "golden") || !strncmp(test, "cycles", 6);
}

static void run(char **words)
{
	const char *test = words[0];
	if (!strcmp(test, "golden"))
		golden_tests(words[1]);
	else if (!strcmp(test, "large"))
		large_tests(NULL);
	else if (!strncmp(test, "large=", 6))
		large_tests(test + 6);
	else if (!strncmp(test, "devices=", 8))
		use_devices(test + 8);
	else if (!strcmp(test, "group"))
		group_tests(GROUP_CYCLES);
	else if (!strncmp(test, "group=", 6))
		group_tests((unsigned)strtoul(test + 6, NULL, 10));
	else if (!strcmp(test, "odd"))
		odd_tests();
	else if (!strcmp(test, "ahead"))
		ahead_tests();
	else if (!strcmp(test, "memory"))
		memory_tests();
	else if (!strcmp(test, "regions"))
		region_tests(words[1], words[2]);
	else if (!strcmp(test, "cycles"))
		cycle_tests(words[1], CYCLES);
	else if (!strncmp(test, "cycles=", 7))
		cycle_tests(words[1], (unsigned)strtoul(test + 7, NULL, 10));
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
	if (argc == 3 && !strcmp(argv[1], "dying-client"))
		return dying_client(argv[2]);
	/* It forks, and a process that has initialized CUDA can't. */
	const bool sharing = argc > 1 && !strcmp(argv[1], "sharing");
	if (sharing)
		sharing_tests();
	if (argc > 1 + sharing && gpu_is_there()) {
		for (int i = 1 + sharing; i < argc; i += 1 + operands(argv[i])) {
			if (i + operands(argv[i]) >= argc)
				die("%s lacks an operand", argv[i]);
			run(argv + i);
		}
	}
	printf("passed %u, failed %u, waived %u\n", tests_passed, tests_failed, tests_waived);
	return tests_failed != 0;
}
