/* The kernels as the host sees them: entry points and how much each needs. */
#ifndef KERNELS_CUDA_KERNELS_H
#define KERNELS_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "columns.h"

#include <stddef.h>
#include <stdint.h>

#define BLOCK_STAGES_MAX   16
#define BLOCK_RESIDENT_MAX 4
#define BLOCK_CTAS_MAX     160 /* multiprocessors that the exchange has packets for */
#define TILE_ROWS          64  /* rows of w2, ids of the vocabulary */
#define TABLE_CHUNK        64  /* columns; the tables are padded to a multiple */
#define SHARDS_MAX         32  /* GPUs that share a vocabulary */

/* One block of threads a multiprocessor, in the block form launched cooperatively; parameters
 * (CUtensorMap of w2 with boxes of 64 columns x 64 rows x stage_chunks, struct draft_head, struct
 * block_plan, struct block_pass). */
struct block_kernel {
	const void *function;
	uint32_t rows; /* of its tile */
	uint32_t threads;
	uint32_t stage_chunks;
	uint32_t stage_bytes;
};

/* The one that computes up to `rows` rows in a pass; more than 64 take several passes. */
void block_kernel_for(uint32_t rows, struct block_kernel *ret);
size_t block_kernel_shared_bytes(
	const struct block_kernel *kernel, uint32_t rank, int stages, int resident);
/* Of struct exchange: all of it; the hints, with which it begins, to be cleared when the lower half
 * of the packets' numbers wraps; and where the addresses of all shards' exchanges are. */
size_t block_kernel_exchange_bytes(uint32_t shards);
size_t block_kernel_hint_bytes(void);
size_t block_kernel_peers_offset(void);

/* The plain form: one launch a step and one after the last. Parameters (struct draft_head,
 * first_row, step). */
struct plain_kernel {
	const void *function;
	uint32_t rows; /* of a pass */
	uint32_t threads;
};

void plain_kernel_for(uint32_t rows, struct plain_kernel *ret);
size_t plain_kernel_shared_bytes(const struct plain_kernel *kernel, uint32_t rank);
/* Parameters (struct draft_head): one block of PLAIN_FINISH_THREADS. */
const void *plain_finish_kernel(void);
#define PLAIN_FINISH_THREADS 256

#ifdef __cplusplus
}
#endif

#endif
