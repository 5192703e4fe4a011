#include "arena.h"

#include "device.h"

size_t arena_rounded(size_t bytes)
{
	return (bytes + 255) & ~(size_t)255;
}

int arena_reset(struct arena *arena, size_t size, struct error_text *error)
{
	void *memory = NULL;
	arena->used = 0;
	if (size <= arena->size)
		return 0;
	arena_done(arena);
	size += size / 2; /* so that slowly growing batches do not each allocate */
	/* Zeroed for the sake of tools: the last piece of 16 bytes of an odd row is only read in
	 * part, which they can't see. */
	const int r = arena->kind == MEMORY_DEVICE
			      ? cuda_zeroed(&memory, size, error)
			      : CUDA_CALL(error, cudaMallocHost(&memory, size));
	if (r)
		return r;
	arena->memory = memory;
	arena->size = size;
	return 0;
}

void *arena_take(struct arena *arena, size_t bytes)
{
	char *at = arena->memory + arena->used;
	arena->used += arena_rounded(bytes);
	return at;
}

void arena_done(struct arena *arena)
{
	if (arena->memory && arena->kind == MEMORY_DEVICE)
		cudaFree(arena->memory);
	else if (arena->memory)
		cudaFreeHost(arena->memory);
	arena->memory = NULL;
	arena->size = arena->used = 0;
}
