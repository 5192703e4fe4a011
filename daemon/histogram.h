/* A latency histogram with log-linear buckets: four to each power of two, so that a bucket is at
 * most a quarter wider than its lower end. Microseconds; values above the last bucket's end count
 * in the last. One thread; no allocation. */
#ifndef DAEMON_HISTOGRAM_H
#define DAEMON_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 128 /* up to 2^33 - 1 us, over two hours */

struct histogram {
	uint64_t buckets[HISTOGRAM_BUCKETS];
	uint64_t count, sum_us, max_us;
};

void histogram_add(struct histogram *histogram, uint64_t us);

/* The largest value of bucket `index`. */
uint64_t histogram_upper_us(unsigned index);

/* An upper bound of the smallest value that at least `permille` of a thousand values do not exceed:
 * its bucket's upper end, or the largest value seen if that is less. 0 without values. */
uint64_t histogram_quantile_us(const struct histogram *histogram, unsigned permille);

/* How many values are at most 2^exponent - 1 us (exponent 2 to 33): buckets end there, so the count
 * is exact. */
uint64_t histogram_below_power(const struct histogram *histogram, unsigned exponent);

#endif
