#include "histogram.h"

#include <math.h>

static unsigned bucket_of(uint64_t value)
{
	unsigned octave;

	if (value < (1u << HISTOGRAM_LINEAR_BITS))
		return (unsigned)value;
	if (value >> HISTOGRAM_VALUE_BITS != 0)
		return HISTOGRAM_BUCKETS - 1;
	/* The leading HISTOGRAM_LINEAR_BITS bits, of which the first is a one, name the bucket in
	 * its octave. */
	octave = 64 - (unsigned)__builtin_clzll(value) - HISTOGRAM_LINEAR_BITS;
	return octave * HISTOGRAM_OCTAVE + (unsigned)(value >> octave);
}

static uint64_t bucket_low(unsigned bucket)
{
	unsigned octave;

	if (bucket < (1u << HISTOGRAM_LINEAR_BITS))
		return bucket;
	octave = bucket / HISTOGRAM_OCTAVE - 1;
	return (uint64_t)(bucket - octave * HISTOGRAM_OCTAVE) << octave;
}

static uint64_t bucket_middle(unsigned bucket)
{
	uint64_t low = bucket_low(bucket);

	return low + (bucket_low(bucket + 1) - low) / 2;
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
	histogram->counts[bucket_of(ns)]++;
	histogram->sum += ns;
	if (histogram->count == 0 || ns < histogram->min)
		histogram->min = ns;
	if (histogram->count == 0 || ns > histogram->max)
		histogram->max = ns;
	histogram->count++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	if (from->count == 0)
		return;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->counts[i] += from->counts[i];
	if (into->count == 0 || from->min < into->min)
		into->min = from->min;
	if (into->count == 0 || from->max > into->max)
		into->max = from->max;
	into->sum += from->sum;
	into->count += from->count;
}

uint64_t histogram_at(const struct histogram *histogram, double fraction)
{
	uint64_t rank, seen = 0;

	if (histogram->count == 0)
		return 0;
	rank = fraction <= 0 ? 1 : (uint64_t)ceil(fraction * (double)histogram->count);
	if (rank < 1)
		rank = 1;
	if (rank >= histogram->count)
		return histogram->max;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->counts[i];
		if (seen >= rank) {
			uint64_t value = bucket_middle(i);

			if (value < histogram->min)
				return histogram->min;
			return value > histogram->max ? histogram->max : value;
		}
	}
	return histogram->max;
}

uint64_t histogram_between(const struct histogram *histogram, uint64_t low, uint64_t high)
{
	uint64_t count = 0;

	for (unsigned i = bucket_of(low); i < HISTOGRAM_BUCKETS && bucket_low(i) < high; i++)
		count += histogram->counts[i];
	return count;
}

double histogram_mean(const struct histogram *histogram)
{
	return histogram->count == 0 ? 0 : (double)histogram->sum / (double)histogram->count;
}
