#include "random.h"

#include <string.h>

#define WEYL 0x9E3779B97F4A7C15ull /* 2^64 over the golden ratio, odd */

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return x ^ (x >> 31);
}

struct random random_start(uint64_t seed, uint64_t stream)
{
	return (struct random){mix(mix(seed + WEYL) ^ (stream * WEYL))};
}

/* SplitMix64: a counter that steps by an odd constant, and a mixer. */
uint64_t random_next(struct random *random)
{
	return mix(random->state += WEYL);
}

uint32_t random_below(struct random *random, uint32_t bound)
{
	/* A product's high half; its bias is below bound / 2^32 and harms nothing here. */
	return (uint32_t)(((random_next(random) >> 32) * bound) >> 32);
}

/* The ones among 64 fair bits have mean 32 and variance 16; a uniform of width 1 beside them fills
 * the gaps between the counts and adds 1/12. The sum is a bell to beyond four deviations (it ends
 * at eight), and costs no logarithm, whose last bit would differ from one libm to the next. */
#define BELL_VARIANCE (16.0 + 1.0 / 12.0)
#define BELL_SCALE    0.24935149f /* 1 / sqrt(BELL_VARIANCE) */

void random_bf16_normal(struct random *random, float scale, uint16_t *out, size_t count)
{
	uint64_t fractions = 0;

	for (size_t i = 0; i < count; i++) {
		int ones = __builtin_popcountll(random_next(random));
		float bell;

		if (i % 4 == 0)
			fractions = random_next(random);
		/* In units of 2^-17: below 2^23, so the conversion is exact. */
		bell = (float)((ones - 32) * 131072 + (int)(fractions & 0xFFFF) * 2 - 65535) *
		       0x1p-17f;
		fractions >>= 16;
		out[i] = bf16_from_float(bell * BELL_SCALE * scale);
	}
}

uint16_t bf16_from_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if ((bits & 0x7FFFFFFF) > 0x7F800000)
		return 0x7FFF;
	return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float bf16_to_float(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return value;
}
