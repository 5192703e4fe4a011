/* Puts a launch on a stream, in either form: the copy of the columns, then the kernels. The same call runs a batch and
 * is captured into a graph, so nothing of a batch may be looked at here: only its bucket and draft length. */
#ifndef KERNELS_CUDA_LAUNCHER_H
#define KERNELS_CUDA_LAUNCHER_H

#include "columns.h"
#include "cuda_backend.h"
#include "device.h"
#include "kernels.h"
#include "tables.h"

#define BLOCK_SHAPES 4 /* tiles of 8, 16, 32 and 64 rows */

struct block_launch {
	struct block_kernel kernel;
	struct block_plan plan;
	CUtensorMap w2;
	unsigned grid;
	size_t shared_bytes;
};

struct step_launch {
	struct step_kernel kernel;
	unsigned grid;
	size_t shared_bytes;
};

struct launcher {
	struct draft_head head;
	struct draft_columns *columns; /* pinned; what head.columns is copied from */
	uint32_t max_rows, max_steps;
	bool has_block; /* the block form runs here */
	struct block_launch block[BLOCK_SHAPES];
	struct step_launch step[2]; /* passes of 8 and of 64 rows */
};

/* Makes `launcher`, whose head, columns and limits are set, ready. Without room for the block form it is left out and
 * `ret_why_not` says so (else NULL). */
int launcher_prepare(struct launcher *launcher, const struct cuda_device *device, const struct cuda_tables *tables,
	const struct cuda_options *options, const char **ret_why_not, struct error_text *error);

/* Passes that a bucket takes: how far a launch raises the sequence. */
uint32_t launcher_passes(uint32_t bucket);

int launcher_enqueue(const struct launcher *launcher, enum cuda_form form, uint32_t bucket, uint32_t steps,
	cudaStream_t stream, struct error_text *error);

#endif
