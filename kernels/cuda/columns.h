/* What the host hands to the kernels: the head, the same from open to close, and the columns, new
 * in every launch. Shared by C and CUDA; addresses are those of the device. */
#ifndef KERNELS_CUDA_COLUMNS_H
#define KERNELS_CUDA_COLUMNS_H

#include <stdint.h>

/* A row of a batch. A padding row has temperature 0, seed 0 and no logits. */
struct draft_row {
	uint64_t base;        /* of step 0's V logits, BF16 */
	uint64_t base_stride; /* bytes from step i to i + 1 */
	uint64_t logits;      /* where step 0's V draft logits go, or 0 */
	uint64_t logits_stride;
	int64_t position; /* of step 0 */
	int64_t seed;
	uint32_t anchor;
	float temperature;
};

/* A batch: this, then its rows. Rows past `rows` are not looked at. The plain form's kernels read
 * it from device memory; the block kernel gets its passes as parameters. */
struct draft_columns {
	uint32_t rows;
	uint32_t steps;
	uint64_t trace_bias;   /* [rows, steps, V] BF16, or 0 */
	uint64_t trace_values; /* [rows, steps, V] FP32, or 0 */
};

/* Status words that the kernels write and the host reads when the launch is over. */
enum draft_status { DRAFT_STATUS_FINE = 0, DRAFT_STATUS_EXCHANGE_TIMED_OUT = 1 };

#define DRAFT_FLAG_NAN  1   /* MARKOV_FLAG_NAN */
#define DRAFT_STEPS_MAX 16u /* CUDA_STEPS_MAX */

/* Of one of the `shards` GPUs that share a vocabulary. Its ids lie together; everywhere but in
 * noise, keys and tokens they count from 0. */
struct draft_head {
	uint32_t vocab;    /* ids of this shard; 0: none */
	uint32_t first_id; /* the id in the whole vocabulary of this shard's 0: a multiple of 64 */
	uint32_t shards, shard;
	uint32_t target_vocab;
	uint32_t rank; /* columns of the tables on the device: a multiple of 64, zeros past R */
	float multiplier, soft_cap, inverse_soft_cap;
	const void *w1;                      /* [target_vocab, rank] BF16 */
	const void *w2;                      /* [vocab, rank] BF16 */
	const struct draft_columns *columns; /* followed by struct draft_row[] */
	uint32_t *tokens;                    /* pinned host memory: [rows, steps] */
	uint8_t *flags;                      /* pinned host memory: [rows], zero at launch */
	uint32_t *status;                    /* pinned host memory */
	void *exchange;                      /* struct exchange of exchange.cuh, zeroed at open */
	unsigned long long *step_keys;       /* step forms: [steps_max, shards, rows_max] winners
						so far; this shard's are zero between blocks */
	uint32_t step_keys_pitch;            /* rows_max */
	uint64_t spin_bound_ns;              /* of waiting for another multiprocessor */
};

#define BLOCK_ROWS_MAX 64 /* of one pass */

/* What a launch of the block kernel computes, as the host fills it: steps `begin` to `end` - 1 of a
 * pass, all of them in the block form. A kernel for N rows takes the first N. */
struct block_pass {
	int32_t rows, steps; /* 0 rows: nothing to do */
	int32_t begin,
		end; /* step form: end - 1, or both `steps` in the launch that ends a block */
	uint64_t first_number; /* of step 0's packets; one more a step; no number is used twice */
	struct draft_row row[BLOCK_ROWS_MAX];
};

/* What the block kernel adds. */
struct block_plan {
	uint32_t first_row; /* of this pass: a multiple of BLOCK_ROWS_MAX */
	int stages;         /* of the ring in shared memory */
	int resident;       /* tiles that stay in shared memory for the whole block, at most */
	int pinned;         /* streamed tiles a multiprocessor keeps in L2 */
	int keep;           /* they stay there after the block */
	int by_step;        /* step form: winners go through step_keys, from launch to launch */
};

#endif
