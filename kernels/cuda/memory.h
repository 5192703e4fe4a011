/* Where a batch's base and draft logits lie: in device memory that was announced (used in place),
 * in pinned host memory (copied by the GPU), or anywhere (copied through pinned memory); and room
 * for such copies. */
#ifndef KERNELS_CUDA_MEMORY_H
#define KERNELS_CUDA_MEMORY_H

#include "cuda_backend.h"

#include <cuda_runtime_api.h>

enum memory_kind { MEMORY_PLAIN, MEMORY_PINNED, MEMORY_DEVICE };

/* What one announced range, holding [address, address + bytes) whole, is; else plain. `memory` may
 * be NULL. */
enum memory_kind cuda_memory_kind(
	const struct cuda_memory *memory, const void *address, uint64_t bytes);

/* Memory of one kind, handed out from its start, and taken back all at once. */
struct arena {
	enum memory_kind kind; /* pinned or device */
	char *memory;
	size_t size, used;
};

/* Makes room for `size` bytes and takes everything back. What was there is gone. */
int arena_reset(struct arena *arena, size_t size, struct error_text *error);
/* `bytes` more, aligned to 256. The caller has made room. */
void *arena_take(struct arena *arena, size_t bytes);
void arena_done(struct arena *arena);
/* What arena_take() uses up of the room. */
size_t arena_rounded(size_t bytes);

#endif
