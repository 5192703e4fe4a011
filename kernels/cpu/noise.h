/* The Gumbel noise of a sampled row: a hash of seed, step, position and vocabulary id, and two
 * logarithms in FP32. Pure functions; any thread. NUMERICS.md section 4. */
#ifndef KERNELS_CPU_NOISE_H
#define KERNELS_CPU_NOISE_H

#include "kernels/cpu/bf16.h"

#include <stdint.h>

/* The hash after the words that a whole row of ids shares. */
uint32_t noise_prefix(int64_t seed, int64_t first_position, uint32_t step);

#define NOISE_MIX_A 0xcc9e2d51u
#define NOISE_MIX_B 0x1b873593u

static inline uint32_t noise_rotate(uint32_t value, unsigned by)
{
	return value << by | value >> (32 - by);
}

static inline uint32_t noise_word(uint32_t h, uint32_t word)
{
	h ^= noise_rotate(word * NOISE_MIX_A, 15) * NOISE_MIX_B;
	return noise_rotate(h, 13) * 5 + 0xe6546b64u;
}

/* The hash of id `v`: branch-free, so that a loop over ids becomes vector code. */
static inline uint32_t noise_hash(uint32_t prefix, uint32_t v)
{
	uint32_t h = noise_word(prefix, v) ^ 16;

	h = (h ^ h >> 16) * 0x85ebca6bu;
	h = (h ^ h >> 13) * 0xc2b2ae35u;
	return h ^ h >> 16;
}

/* G: what is subtracted from the tempered logit. */
float noise_gumbel(uint32_t hash);

/* At least -G of that hash, and finite; it costs no logarithm. With u in [2^-E, 2^(1-E)), E >= 1:
 *     -G = -log(-log(1 - u)) <= -log(u) <= E ln 2,
 * and the FP32 logarithms are off by less than 1e-5 where 0.6932 E is above E ln 2 by 5e-5 E. hash
 * >> 8 is exact in FP32, and its exponent field is 151 - E, or 0 for no bit at all, which makes the
 * bound larger than it need be. */
static inline float noise_bound(uint32_t hash)
{
	float top = (float)(int32_t)(hash >> 8);

	return 0.6932f * (float)(int32_t)(151 - (float_bits(top) >> 23));
}

#endif
