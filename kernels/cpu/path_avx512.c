/* The vector paths for AVX-512 (F, BW, DQ, VL), and for processors that also have its BF16 products
 * (avx512bf16). */
#ifdef __x86_64__
#include "kernels/cpu/loops.h"

#include <immintrin.h>

#define LANES          16
#define GROUP_ROWS     4 /* whose chains fit the registers */
#define BROADCAST(x)   _mm512_set1_ps(x)
#define LARGER(a, b)   (vi) _mm512_max_epi32((__m512i)(a), (__m512i)(b))
#define FUSED(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "kernels/cpu/tile.h"

const struct path path_avx512 = {
	.name = "avx512",
	.screen = screen,
	.exact = exact,
	.mix = mix,
	.multiply = multiply,
	.bound = bound,
};

/* ---- a screen with two products an instruction ---- */

#define WITH_BF16 __attribute__((target("avx512bf16")))

/* The processor's own sum of two products: however it rounds them, twice at most, to nearest. Sums
 * of products in range are multiples of 2^-114, so its flushing of subnormal numbers never shows.
 * Four chains of four terms, as in screen_rows(). */
INLINE WITH_BF16 void screen_pairs(const uint32_t *tile, uint32_t blocks, const unsigned rows,
	const struct embedding *const *embeddings, struct tile_sums *const *ret)
{
	vf total[SCREEN_ROWS], reach[SCREEN_ROWS];

	for (unsigned r = 0; r < rows; r++)
		total[r] = reach[r] = (vf){0};
	for (uint32_t block = 0; block < blocks; block++) {
		const uint32_t *words = tile + block * PAIRS * TILE_IDS;
		vf chain[SCREEN_ROWS][4];

#pragma GCC unroll 8
		for (unsigned pair = 0; pair < PAIRS; pair++) {
			__m512bh word = (__m512bh)load_words(words + pair * TILE_IDS);

#pragma GCC unroll 4
			for (unsigned r = 0; r < rows; r++) {
				uint32_t e = embeddings[r]->pairs[block * PAIRS + pair];
				vf before = pair < 4 ? (vf){0} : chain[r][pair % 4];

				chain[r][pair % 4] = _mm512_dpbf16_ps(
					before, word, (__m512bh)_mm512_set1_epi32((int)e));
			}
		}
#pragma GCC unroll 4
		for (unsigned r = 0; r < rows; r++) {
			total[r] += (chain[r][0] + chain[r][1]) + (chain[r][2] + chain[r][3]);
			reach[r] += (vf)((vi)total[r] & ~SIGN_MASK);
		}
	}
	for (unsigned r = 0; r < rows; r++) {
		store_floats(ret[r]->sum, total[r]);
		store_floats(ret[r]->reach, reach[r]);
	}
}

static WITH_BF16 void screen_bf16(const uint32_t *tile, uint32_t blocks, unsigned rows,
	const struct embedding *const *embeddings, struct tile_sums *const *ret)
{
	unsigned r = 0;

	for (; rows - r >= GROUP_ROWS; r += GROUP_ROWS)
		screen_pairs(tile, blocks, GROUP_ROWS, embeddings + r, ret + r);
	for (; r < rows; r++)
		screen_pairs(tile, blocks, 1, embeddings + r, ret + r);
}

const struct path path_avx512bf16 = {
	.name = "avx512bf16",
	.screen = screen_bf16,
	.exact = exact,
	.mix = mix,
	.multiply = multiply,
	.bound = bound,
};
#endif
