/* One step of a batch over a run of neighbouring tiles, for all rows: bias, logits, values, the
 * best of them. This is what a thread does at a time; a step is all its chunks, in any order and on
 * any threads. NUMERICS.md section 2. */
#ifndef KERNELS_CPU_CHUNK_H
#define KERNELS_CPU_CHUNK_H

#include "kernels/cpu/path.h"

#include <stdbool.h>
#include <stdint.h>

#define CHUNK_TILES_MAX 64u          /* 1024 ids: the arrays of one row stay in the first cache */
#define CHUNK_BYTES_MAX (512u << 10) /* of w2: a second look finds it in the second cache */
#define CHUNK_ROWS      16u

/* A row in one step. */
struct row_step {
	struct embedding embedding;
	struct range range;
	double slack_norm, slack_peak; /* times a tile's norm and largest: its share of the slack */
	struct tempering tempering;    /* first_id is the chunk's to fill */
	const unsigned char *base;     /* V logits; may change while we read: each is read once */
	unsigned char *logits;         /* or NULL */
	uint16_t *trace_bias;          /* or NULL */
	float *trace_values;           /* or NULL */
};

/* What a head computes with: the same for every row, step and thread. */
struct model {
	struct tables tables;
	const struct path *path;
	float multiplier;
	uint16_t *logit_of; /* with a soft cap: the logit of each of the 65,536 x; else NULL */
};

/* The best value that a thread has seen of a row in a step. */
struct winner {
	float value;
	uint32_t id; /* UINT32_MAX: none yet */
};

/* Memory of one thread. */
struct scratch {
	struct tile_sums (*sums)[CHUNK_TILES_MAX]; /* [CHUNK_ROWS] */
	float (*fixed)[CHUNK_TILES_MAX];           /* [CHUNK_ROWS] */
	uint32_t *packed;                          /* a tile of doubtful ids */
	uint16_t *column;                          /* [blocks * 16], for the reference */
	struct winner *winners;                    /* [max_rows] */
};

int scratch_init(struct scratch *scratch, const struct tables *tables, uint32_t max_rows);
void scratch_done(struct scratch *scratch); /* of a zeroed one: nothing */

/* Chunks of one thread must come with rising tiles: a tie goes to the value that the thread holds.
 */
void chunk_run(const struct model *model, const struct row_step *rows, uint32_t row_count,
	uint32_t first_tile, uint32_t tiles, struct scratch *scratch);

/* Keeps the better of the two, by the total order of NUMERICS section 6. */
void winner_merge(struct winner *winner, struct winner other);

#endif
