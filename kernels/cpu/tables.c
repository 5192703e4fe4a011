#include "kernels/cpu/tables.h"

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/bias.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE     (2u << 20)
#define PROGRESS_EACH 1024u /* tiles between two reports */

/* Large pages spare the page walks of a table that is read from end to end every step. */
static void *allocate(size_t byte_count)
{
	size_t rounded = (byte_count + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	void *memory = aligned_alloc(byte_count < HUGE_PAGE ? 64 : HUGE_PAGE,
		byte_count < HUGE_PAGE ? (byte_count + 63) / 64 * 64 : rounded);

	if (memory && byte_count >= HUGE_PAGE)
		madvise(memory, rounded, MADV_HUGEPAGE);
	return memory;
}

void range_add(struct range *range, uint16_t value)
{
	unsigned field = value >> 7 & 0xff;
	int exponent = (int)field - 127;

	if ((value & 0x7fff) == 0)
		return;
	if (field == 0 || field == 0xff) {
		*range = RANGE_WILD;
		return;
	}
	if (exponent < range->low)
		range->low = (int16_t)exponent;
	if (exponent > range->high)
		range->high = (int16_t)exponent;
}

static struct tile_bounds bound_tile(const uint32_t *tile, uint32_t blocks, uint16_t *column)
{
	struct tile_bounds bounds = {0, 0, RANGE_NONE};

	for (unsigned lane = 0; lane < TILE_IDS; lane++) {
		double squares = 0, largest = 0;

		tile_column(tile, blocks, lane, column);
		for (uint32_t k = 0; k < blocks * BIAS_BLOCK; k++) {
			double value = (double)fabsf(bf16_widen(column[k]));

			range_add(&bounds.range, column[k]);
			squares += value * value;
			largest = value > largest ? value : largest;
		}
		/* Rounded up by more than the sum and the conversions can lose. Infinite or NaN in
		 * a wild tile, where nobody reads them. */
		bounds.norm = fmaxf(bounds.norm, (float)(sqrt(squares) * 1.0001));
		bounds.largest = fmaxf(bounds.largest, (float)(largest * 1.0001));
	}
	return bounds;
}

static void fill_tile(uint32_t *tile, const struct checkpoint *checkpoint, uint32_t first_id)
{
	uint32_t ids =
		checkpoint->vocab - first_id < TILE_IDS ? checkpoint->vocab - first_id : TILE_IDS;
	uint32_t rank = checkpoint->rank;

	for (uint32_t lane = 0; lane < ids; lane++) {
		const char *row =
			(const char *)checkpoint->w2 + (size_t)(first_id + lane) * rank * 2;

		for (uint32_t k = 0; k < rank; k++) {
			uint16_t value;

			memcpy(&value, row + (size_t)k * 2, sizeof(value));
			tile[k / 2 * TILE_IDS + lane] |= (uint32_t)value << (k % 2 * 16);
		}
	}
}

int tables_init(struct tables *tables, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error)
{
	uint32_t blocks = (checkpoint->rank + BIAS_BLOCK - 1) / BIAS_BLOCK;
	uint32_t tiles = (checkpoint->vocab - 1) / TILE_IDS + 1;
	size_t tile_words = (size_t)blocks * 8 * TILE_IDS;
	size_t w2_bytes = tiles * tile_words * sizeof(uint32_t);
	size_t w1_bytes = (size_t)checkpoint->target_vocab * checkpoint->rank * sizeof(uint16_t);
	size_t bounds_bytes = tiles * sizeof(struct tile_bounds);
	uint16_t *column = malloc((size_t)blocks * BIAS_BLOCK * sizeof(*column));

	*tables = (struct tables){
		.vocab = checkpoint->vocab,
		.rank = checkpoint->rank,
		.target_vocab = checkpoint->target_vocab,
		.blocks = blocks,
		.tiles = tiles,
		.w2 = allocate(w2_bytes),
		.bounds = malloc(bounds_bytes),
		.w1 = allocate(w1_bytes),
		.byte_count = w2_bytes + w1_bytes + bounds_bytes,
	};
	if (!column || !tables->w2 || !tables->bounds || !tables->w1) {
		free(column);
		tables_done(tables);
		return error_text_set(error, ENOMEM,
			"no memory for the tables: %zu bytes are needed; free some or use a "
			"smaller model",
			w2_bytes + w1_bytes + bounds_bytes);
	}
	memcpy(tables->w1, checkpoint->w1, w1_bytes);
	for (uint32_t t = 0; t < tiles; t++) {
		uint32_t *tile = tables->w2 + t * tile_words;

		memset(tile, 0, tile_words * sizeof(*tile));
		fill_tile(tile, checkpoint, t * TILE_IDS);
		tables->bounds[t] = bound_tile(tile, blocks, column);
		if (progress && t % PROGRESS_EACH == 0)
			progress(user, "loading the tables", (double)t / tiles);
	}
	if (progress)
		progress(user, "loading the tables", 1.0);
	free(column);
	return 0;
}

void tables_done(struct tables *tables)
{
	free(tables->w1);
	free(tables->bounds);
	free(tables->w2);
	*tables = (struct tables){0};
}
