/* w1, and a shard's rows of w2, on a device: rows padded with zeros to a multiple of TABLE_CHUNK
 * columns, so that the copy engine can read any rank. Owned by the head. */
#ifndef KERNELS_CUDA_TABLES_H
#define KERNELS_CUDA_TABLES_H

#include "device.h"

#include <cuda.h>

struct cuda_tables {
	void *w1, *w2;
	uint32_t rank; /* padded */
	uint64_t bytes;
};

/* Copies w1 and rows `first` to `first` + `rows` - 1 of w2 to this thread's GPU; blocks until they
 * are there. */
int cuda_tables_load(const struct checkpoint *checkpoint, uint32_t first, uint32_t rows,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct cuda_tables *ret, struct error_text *error);
void cuda_tables_free(struct cuda_tables *tables);

/* Describes w2 to the copy engine, in boxes of `stage_chunks` chunks of TILE_ROWS rows; what lies
 * outside reads as zeros. */
int cuda_tables_map(const struct cuda_tables *tables, uint32_t rows, uint32_t stage_chunks,
	CUtensorMap *ret, struct error_text *error);

#endif
