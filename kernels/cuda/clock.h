/* What waits of the host are bounded by: CLOCK_MONOTONIC in microseconds. Any thread. */
#ifndef KERNELS_CUDA_CLOCK_H
#define KERNELS_CUDA_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

#endif
