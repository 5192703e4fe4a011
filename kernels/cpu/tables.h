/* The tables of a head as the processor wants them. w2 is stored once, in tiles of 16 ids, so that
 * one vector register holds the same k of neighbouring ids:
 *
 *     tile t: for each pair of k (2p, 2p + 1): 16 words, one an id: w2[16 t + lane][2p] | w2[16 t +
 * lane][2p + 1] << 16
 *
 * k is filled with zeros to a multiple of 16, ids to a multiple of 16. Written at open, then
 * read-only; any thread. */
#ifndef KERNELS_CPU_TABLES_H
#define KERNELS_CPU_TABLES_H

#include "kernels/checkpoint.h"
#include "kernels/error_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TILE_IDS 16u

/* What the values of some operands allow. Exponents are of the non-zero ones; a subnormal, an
 * infinity or a NaN among them widens the range so far that only the reference takes them
 * (range_fits()). */
struct range {
	int16_t low, high;
};

#define RANGE_NONE ((struct range){300, -300}) /* all zeros: fits everything but a wild one */
#define RANGE_WILD ((struct range){-1000, 1000})

/* What the screen (path.h) must know of a tile. */
struct tile_bounds {
	float norm;    /* at least sqrt(sum over k of w[v,k]^2) of each id of the tile */
	float largest; /* at least |w[v,k]| of each */
	struct range range;
};

struct tables {
	uint32_t vocab, rank, target_vocab;
	uint32_t blocks;            /* of 16 k */
	uint32_t tiles;             /* of 16 ids */
	uint32_t *w2;               /* [tiles, blocks * 8, 16] */
	struct tile_bounds *bounds; /* [tiles] */
	uint16_t *w1;               /* [target_vocab, rank] */
	size_t byte_count;          /* of all three */
};

/* Copies and retiles. 0 or -ENOMEM. */
int tables_init(struct tables *tables, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error);
void tables_done(struct tables *tables); /* of a zeroed one: nothing */

static inline const uint32_t *tables_tile(const struct tables *tables, uint32_t tile)
{
	return tables->w2 + (size_t)tile * tables->blocks * 8 * TILE_IDS;
}

/* Whether products of the two operands stay where FP32 multiplies them exactly and sums of 65,536
 * of them, and the units they are cut to, stay normal numbers: 2^-100 to 2^101 for the power of two
 * under each product. */
static inline bool range_fits(struct range a, struct range b)
{
	return a.low + b.low >= -100 && a.high + b.high <= 100;
}

/* Widens `range` by one BF16 value. */
void range_add(struct range *range, uint16_t value);

/* Takes one id's k values back out of a tile. */
static inline void tile_column(const uint32_t *tile, uint32_t blocks, unsigned lane, uint16_t *ret)
{
	for (uint32_t pair = 0; pair < blocks * 8; pair++) {
		uint32_t word = tile[pair * TILE_IDS + lane];

		ret[2 * pair] = (uint16_t)word;
		ret[2 * pair + 1] = (uint16_t)(word >> 16);
	}
}

#endif
