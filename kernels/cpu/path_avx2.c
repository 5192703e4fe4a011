/* The vector path for AVX2 and FMA. */
#ifdef __x86_64__
#include "kernels/cpu/loops.h"

#include <immintrin.h>

#define LANES          8
#define GROUP_ROWS     2 /* whose chains fit the registers */
#define BROADCAST(x)   _mm256_set1_ps(x)
#define FUSED(a, b, c) _mm256_fmadd_ps(a, b, c)
#define LARGER(a, b)   (vi) _mm256_max_epi32((__m256i)(a), (__m256i)(b))
#include "kernels/cpu/tile.h"

const struct path path_avx2 = {
	.name = "avx2",
	.screen = screen,
	.exact = exact,
	.mix = mix,
	.multiply = multiply,
	.bound = bound,
};
#endif
