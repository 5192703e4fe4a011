#include "histogram.h"

#define SUB_BITS 2
#define SUBS     (1u << SUB_BITS)

/* 0 to 3 have buckets of their own; above, the power of two and the two bits below it choose. */
static unsigned bucket_of(uint64_t us)
{
	unsigned power, index;

	if (us < SUBS)
		return (unsigned)us;
	power = 63u - (unsigned)__builtin_clzll(us);
	index = (power - SUB_BITS + 1) * SUBS + (unsigned)((us >> (power - SUB_BITS)) & (SUBS - 1));
	return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

void histogram_add(struct histogram *histogram, uint64_t us)
{
	histogram->buckets[bucket_of(us)]++;
	histogram->count++;
	histogram->sum_us += us;
	if (us > histogram->max_us)
		histogram->max_us = us;
}

uint64_t histogram_upper_us(unsigned index)
{
	unsigned shift;

	if (index < SUBS)
		return index;
	shift = index / SUBS - 1;
	return ((uint64_t)(SUBS + index % SUBS + 1) << shift) - 1;
}

uint64_t histogram_quantile_us(const struct histogram *histogram, unsigned permille)
{
	uint64_t wanted = (histogram->count * permille + 999) / 1000;
	uint64_t seen = 0;

	if (!histogram->count)
		return 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->buckets[i];
		if (seen >= wanted && seen) {
			uint64_t upper = histogram_upper_us(i);

			return upper < histogram->max_us ? upper : histogram->max_us;
		}
	}
	return histogram->max_us;
}

uint64_t histogram_below_power(const struct histogram *histogram, unsigned exponent)
{
	unsigned end = (exponent - SUB_BITS + 1) * SUBS;
	uint64_t below = 0;

	for (unsigned i = 0; i < end && i < HISTOGRAM_BUCKETS; i++)
		below += histogram->buckets[i];
	return below;
}
