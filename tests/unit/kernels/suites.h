/* One suite a module of kernels/. */
#ifndef TESTS_UNIT_KERNELS_SUITES_H
#define TESTS_UNIT_KERNELS_SUITES_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

/* Whether ThreadSanitizer or valgrind watches (the Makefile says so). They look at threads and
 * memory, which the millionth of equal turns uses as the first one did: where every number is tried
 * in turn, they need few of them. The plain run tries all, and so does UndefinedBehaviorSanitizer,
 * to which the numbers matter. */
static inline bool slow_tool(void)
{
	return getenv("DRAFTD_SLOW_TOOL") != NULL;
}

/* For loops of millions: Check writes to a file at each of its own assertions, whether it holds or
 * not. */
#define REQUIRE(condition, ...)                                                                    \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg(__VA_ARGS__);                                                 \
	} while (0)

Suite *bias_suite(void);
Suite *checkpoint_suite(void);
Suite *cpu_suite(void);
Suite *markov_suite(void);
Suite *noise_suite(void);
Suite *pool_suite(void);
Suite *reference_suite(void);
Suite *safetensors_suite(void);
Suite *sfu_suite(void);

#endif
