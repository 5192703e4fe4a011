#include "memory.h"

#include "device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_RANGES_MAX 65536u

struct range {
	uintptr_t begin, end;
	enum memory_kind kind; /* pinned: by us */
};

struct cuda_memory {
	struct range *ranges; /* by address, none overlap */
	size_t count, room;
};

int cuda_memory_new(const char *devices, struct cuda_memory **ret, struct error_text *error)
{
	struct cuda_device device;
	const int r = cuda_device_choose(devices, &device, error);
	if (r)
		return r;
	struct cuda_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return error_text_set(error, ENOMEM, "out of memory");
	*ret = memory;
	return 0;
}

void cuda_memory_free(struct cuda_memory *memory)
{
	if (!memory)
		return;
	for (size_t i = 0; i < memory->count; i++)
		if (memory->ranges[i].kind == MEMORY_PINNED)
			cudaHostUnregister((void *)memory->ranges[i].begin);
	free(memory->ranges);
	free(memory);
}

/* The first range that ends behind `at`. */
static size_t position_of(const struct cuda_memory *memory, uintptr_t at)
{
	size_t low = 0, high = memory->count;
	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		if (memory->ranges[middle].end > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int check_range(
	struct cuda_memory *memory, const void *address, size_t bytes, struct error_text *error)
{
	const uintptr_t begin = (uintptr_t)address;
	if (!bytes || begin + bytes < begin)
		return error_text_set(error, EINVAL,
			"a range of %zu bytes at %p can't be announced", bytes, address);
	const size_t at = position_of(memory, begin);
	if (at < memory->count && memory->ranges[at].begin < begin + bytes)
		return error_text_set(error, EEXIST,
			"%zu bytes at %p overlap a range that is announced already", bytes,
			address);
	if (memory->count >= MEMORY_RANGES_MAX)
		return error_text_set(error, ENOSPC, "%u ranges are announced, which is the limit",
			MEMORY_RANGES_MAX);
	if (memory->count == memory->room) {
		const size_t room = memory->room ? memory->room * 2 : 16;
		struct range *ranges = realloc(memory->ranges, room * sizeof(*ranges));
		if (!ranges)
			return error_text_set(error, ENOMEM, "out of memory");
		memory->ranges = ranges;
		memory->room = room;
	}
	return 0;
}

static void insert(struct cuda_memory *memory, struct range range)
{
	const size_t at = position_of(memory, range.begin);
	memmove(memory->ranges + at + 1, memory->ranges + at, (memory->count - at) * sizeof(range));
	memory->ranges[at] = range;
	memory->count++;
}

int cuda_memory_add_host(
	struct cuda_memory *memory, void *address, size_t bytes, struct error_text *error)
{
	int r = check_range(memory, address, bytes, error);
	if (!r)
		r = CUDA_CALL(error, cudaHostRegister(address, bytes, cudaHostRegisterPortable));
	if (!r)
		insert(memory, (struct range){(uintptr_t)address, (uintptr_t)address + bytes,
				       MEMORY_PINNED});
	return r;
}

int cuda_memory_add_device(
	struct cuda_memory *memory, void *address, size_t bytes, struct error_text *error)
{
	const int r = check_range(memory, address, bytes, error);
	if (!r)
		insert(memory, (struct range){(uintptr_t)address, (uintptr_t)address + bytes,
				       MEMORY_DEVICE});
	return r;
}

void cuda_memory_remove(struct cuda_memory *memory, const void *address)
{
	const size_t at = position_of(memory, (uintptr_t)address);
	if (at == memory->count || memory->ranges[at].begin != (uintptr_t)address)
		return;
	if (memory->ranges[at].kind == MEMORY_PINNED)
		cudaHostUnregister((void *)memory->ranges[at].begin);
	memory->count--;
	memmove(memory->ranges + at, memory->ranges + at + 1,
		(memory->count - at) * sizeof(*memory->ranges));
}

enum memory_kind cuda_memory_kind(
	const struct cuda_memory *memory, const void *address, uint64_t bytes)
{
	const uintptr_t begin = (uintptr_t)address;
	if (!memory)
		return MEMORY_PLAIN;
	const size_t at = position_of(memory, begin);
	if (at == memory->count)
		return MEMORY_PLAIN;
	const struct range *range = &memory->ranges[at];
	if (begin < range->begin || bytes > range->end - begin)
		return MEMORY_PLAIN;
	return range->kind;
}

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
	const int r = arena->kind == MEMORY_DEVICE
			      ? CUDA_CALL(error, cudaMalloc(&memory, size))
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
