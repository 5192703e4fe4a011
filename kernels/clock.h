/* The one clock of the daemon and of the waits below it: CLOCK_MONOTONIC in microseconds. Any
 * thread.
 */
#ifndef KERNELS_CLOCK_H
#define KERNELS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

#endif
