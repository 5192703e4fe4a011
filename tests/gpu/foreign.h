/* What another user of the same GPU does: the tests' own kernels, which have nothing to do with
 * drafting. */
#ifndef TESTS_GPU_FOREIGN_H
#define TESTS_GPU_FOREIGN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `bytes` of device memory `times` times over, and returns the microseconds it took, or less
 * than 0. */
float foreign_read(const void *memory, size_t bytes, int times);

/* Keeps every multiprocessor busy for that long, kernel after kernel. 0, or not when CUDA fails. */
int foreign_load(unsigned milliseconds);

/* Takes every thread of this thread's GPU for about that long, and returns at once. 0, or not when
 * CUDA fails. */
int foreign_hold(unsigned milliseconds);

#ifdef __cplusplus
}
#endif

#endif
