/* Where a batch's base and draft logits lie, as the device sees it: ranges that the caller has announced are used in
 * place, anything else is copied through pinned memory. */
#ifndef KERNELS_CUDA_MEMORY_H
#define KERNELS_CUDA_MEMORY_H

#include "cuda_backend.h"

#include <cuda_runtime_api.h>

/* The device address of [address, address + bytes) when one announced range holds it whole. `memory` may be NULL. */
bool cuda_memory_find(const struct cuda_memory *memory, const void *address, uint64_t bytes, uint64_t *ret_device);

/* Pinned host memory handed out from its start, and taken back all at once. */
struct arena {
	char *host;
	uint64_t device;
	size_t size, used;
};

/* Makes room for `size` bytes and takes everything back. What was there is gone. */
int arena_reset(struct arena *arena, size_t size, struct error_text *error);
/* The offset of `bytes` more, aligned to 256. The caller has made room. */
size_t arena_take(struct arena *arena, size_t bytes);
void arena_done(struct arena *arena);
/* What arena_take() uses up of the room. */
size_t arena_rounded(size_t bytes);

#endif
