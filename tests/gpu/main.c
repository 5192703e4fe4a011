/* The tests that need a GPU: `check golden FOLDER`, `check large`, `check odd`, `check bench` (or
 * `bench=SHAPE`, or `sweep` for the tuning options too), or several; `sharing` only as the first.
 */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct error_text error;
	/* It forks, and a process that has initialized CUDA can't. */
	const bool sharing = argc > 1 && !strcmp(argv[1], "sharing");
	if (sharing)
		sharing_tests();
	else if (cuda_backend_probe(NULL, &error) == -ENODEV) {
		printf("waived: %s\n", error.text);
		return 0;
	}
	for (int i = 1 + sharing; i < argc; i++) {
		if (!strcmp(argv[i], "golden") && i + 1 < argc)
			golden_tests(argv[++i]);
		else if (!strcmp(argv[i], "large"))
			large_tests();
		else if (!strcmp(argv[i], "odd"))
			odd_tests();
		else if (!strcmp(argv[i], "bench"))
			bench(NULL, false);
		else if (!strncmp(argv[i], "bench=", 6))
			bench(argv[i] + 6, false);
		else if (!strcmp(argv[i], "sweep"))
			bench(NULL, true);
		else
			die("unknown test %s", argv[i]);
	}
	printf("passed %u, failed %u, waived %u\n", tests_passed, tests_failed, tests_waived);
	return tests_failed != 0;
}
