/* The inner loops of the CPU backend, once for each instruction set. All paths return the same
 * bits; the scalar one leaves every bias to the reference. Pure functions; any thread. */
#ifndef KERNELS_CPU_PATH_H
#define KERNELS_CPU_PATH_H

#include "kernels/cpu/sfu.h"
#include "kernels/cpu/tables.h"
#include "kernels/error_text.h"

#include <stdbool.h>
#include <stdint.h>

#define SCREEN_ROWS 4u /* rows that share the widening of a tile */

/* An FP32 sum of each id of a tile, in any order, and the sum of its running totals' magnitudes
 * after each block: what the distance to the exact rule's result is bounded with (NUMERICS.md, "How
 * the CPU backend gets there"). */
struct tile_sums {
	float sum[TILE_IDS];
	float reach[TILE_IDS];
};

/* The distance of a row's sums from the exact rule is at most
 *     reach * SLACK_REACH + |sum| * SLACK_SUM + fixed
 * where `fixed` belongs to row and tile. */
#define SLACK_REACH (1.02f * 23 * 0x1p-25f)
#define SLACK_SUM   (1.02f * 0x1p-23f)
#define SLACK_NORM  (1.02f * 5 * 0x1p-24f)
#define SLACK_PEAK  (1.02f * 17 * 0x1p-25f)

/* A row of w1, filled with zeros to whole blocks, in the forms that the paths want. */
struct embedding {
	float *values;   /* [blocks * 16] */
	float *powers;   /* the power of two under each magnitude; 0 under 0 */
	uint16_t *bits;  /* BF16 */
	uint32_t *pairs; /* [blocks * 8] BF16 of k = 2p | of 2p + 1 << 16 */
};

/* How values come from logits in one row and step. */
struct tempering {
	bool sampled; /* else the value is the logit */
	struct divisor divisor;
	uint32_t prefix; /* of the noise */
	uint32_t first_id;
};

struct path {
	const char *name;

	/* The screen: fast FP32 sums of up to SCREEN_ROWS rows over one tile. NULL: there is none.
	 * Operands in range only. */
	void (*screen)(const uint32_t *tile, uint32_t blocks, unsigned rows,
		const struct embedding *const *embeddings, struct tile_sums *const *ret);

	/* The exact rule over one tile. NULL with `screen`. Operands in range only. */
	void (*exact)(const uint32_t *tile, uint32_t blocks, const struct embedding *embedding,
		float ret[TILE_IDS]);

	/* Adds biases to `tiles` * 16 base logits. Where both ends of the interval that the exact
	 * sum lies in give the same x, that is x; `ret_doubt` is non-zero where they don't. Returns
	 * whether any is. */
	bool (*mix)(const struct tile_sums *sums, const float *fixed, uint32_t tiles,
		const uint16_t *base, uint16_t *ret_x, uint16_t *ret_doubt);

	/* logit = bf16(multiplier * x). */
	void (*multiply)(const uint16_t *x, uint32_t count, float multiplier, uint16_t *ret_logits);

	/* Bounds of the values that the argmax compares: at least each value, NaN for NaN. Returns
	 * whether any is not <= best. */
	bool (*bound)(const uint16_t *logits, uint32_t count, const struct tempering *tempering,
		float best, float *ret_bounds);
};

extern const struct path path_scalar, path_sse2, path_avx2, path_avx512, path_avx512bf16;

/* The paths that this processor has, slowest first, ending in NULL. */
const struct path *const *path_list(void);

/* The fastest, or the one that the environment variable DRAFTD_CPU_PATH names. 0 or -EINVAL. */
int path_choose(const struct path **ret, struct error_text *error);

#endif
