/* One suite a module of kernels/. */
#ifndef TESTS_UNIT_KERNELS_SUITES_H
#define TESTS_UNIT_KERNELS_SUITES_H

#include <check.h>

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
