/* The vector path for SSE2. */
#ifdef __x86_64__
#include "kernels/cpu/loops.h"

#include <emmintrin.h>

#define LANES          4
#define GROUP_ROWS     2 /* whose chains fit the registers */
#define BROADCAST(x)   _mm_set1_ps(x)
#define FUSED(a, b, c) ((a) * (b) + (c))
#define LARGER(a, b)   choose((a) > (b), a, b)
#include "kernels/cpu/tile.h"

const struct path path_sse2 = {
	.name = "sse2",
	.screen = screen,
	.exact = exact,
	.mix = mix,
	.multiply = multiply,
	.bound = bound,
};
#endif
