/* Latencies, counted log-linearly: 128 buckets an octave of nanoseconds, so a value read back is
 * off by less than 0.4%; below 256 ns it is exact, and 68 s and beyond share the last bucket.
 * Smallest, largest and sum are kept exactly.
 *
 * A plain value of its user's: one thread at a time, no memory behind it; merging adds another
 * thread's. */
#ifndef DRAFTCTL_HISTOGRAM_H
#define DRAFTCTL_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_LINEAR_BITS 8  /* values below 2^8 have a bucket each */
#define HISTOGRAM_VALUE_BITS  36 /* values from 2^36 on (68.7 s) share the last bucket */
#define HISTOGRAM_OCTAVE      (1u << (HISTOGRAM_LINEAR_BITS - 1))
#define HISTOGRAM_BUCKETS     (HISTOGRAM_OCTAVE * (HISTOGRAM_VALUE_BITS - HISTOGRAM_LINEAR_BITS + 2))

struct histogram { /* zeroed: empty */
	uint64_t counts[HISTOGRAM_BUCKETS];
	uint64_t count;
	uint64_t sum;
	uint64_t min, max; /* meaningless while empty */
};

void histogram_add(struct histogram *histogram, uint64_t ns);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value that a share `fraction` (0 to 1) of the values does not exceed: the smallest value of
 * rank ceil(fraction * count), within a bucket's half width. 0 when empty. */
uint64_t histogram_at(const struct histogram *histogram, double fraction);

/* How many values lie in low <= value < high, where the bounds are rounded to buckets. */
uint64_t histogram_between(const struct histogram *histogram, uint64_t low, uint64_t high);

double histogram_mean(const struct histogram *histogram);

#endif
