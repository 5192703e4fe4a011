/* What a launch consists of, in any form. The block kernel's launches become kernel nodes, whose
 * rows are parameters that change from launch to launch; the plain form's kernels are put on a
 * stream, which runs them or captures them. Nothing here looks at a batch: only at its bucket and
 * draft length.
 */
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

struct plain_launch {
	struct plain_kernel kernel;
	unsigned grid;
	size_t shared_bytes;
};

struct launcher {
	struct draft_head head;
	struct draft_columns *columns; /* pinned; what head.columns is copied from. They, the tokens
					  and the flags are those of the launch that is made now */
	uint32_t max_rows, max_steps;
	unsigned ctas;  /* of the block kernel: the same on all shards, with ids or without */
	bool has_block; /* the block kernel runs here */
	struct block_launch block[BLOCK_SHAPES]; /* block form */
	struct block_launch step[BLOCK_SHAPES];  /* step form */
	struct plain_launch plain[2];            /* passes of 8 and of 64 rows */
};

/* Makes `launcher`, whose head, columns, limits and ctas are set, ready. Without room for the block
 * kernel it is left out and `ret_why_not` says so (else NULL). */
int launcher_prepare(struct launcher *launcher, const struct cuda_device *device,
	const struct cuda_tables *tables, const struct cuda_options *options,
	const char **ret_why_not, struct error_text *error);

/* Passes of the block kernel that so many rows take. */
uint32_t launcher_passes(uint32_t rows);

/* One launch of the block kernel in a bucket: fills `plan` and the parameters of its node, which
 * point into `plan`, `rows` and the launcher. */
struct block_node {
	struct block_plan plan;
	void *parameters[4];
	struct cudaKernelNodeParams node;
};

void launcher_block_node(const struct launcher *launcher, bool by_step, uint32_t bucket,
	uint32_t pass, struct block_pass *rows, struct block_node *ret);

/* The plain form: the columns are copied, then each step, then the end. Between a step and what
 * comes after it several shards gather their keys. */
int launcher_enqueue_columns(const struct launcher *launcher, uint32_t bucket, cudaStream_t stream,
	struct error_text *error);
int launcher_enqueue_plain_step(const struct launcher *launcher, uint32_t bucket, uint32_t step,
	cudaStream_t stream, struct error_text *error);
int launcher_enqueue_plain_end(
	const struct launcher *launcher, cudaStream_t stream, struct error_text *error);

/* A launch of the step form. */
int launcher_enqueue_node(
	const struct block_node *node, cudaStream_t stream, struct error_text *error);

#endif
