#include "memory.h"

#include "backend.h"
#include "cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int markov_memory_open(
	const struct markov_facts *facts, struct markov_memory **ret, struct error_text *error)
{
	struct markov_memory *memory = calloc(1, sizeof(*memory));
	int r = 0;

	if (!memory)
		return error_text_set(error, ENOMEM, "out of memory");
	if (strcmp(facts->backend, "cuda") == 0)
		memory->backend = cuda_backend.memory;
	if (memory->backend)
		r = memory->backend->open(facts, &memory->state, error);
	if (r < 0)
		free(memory);
	else
		*ret = memory;
	return r;
}

void markov_memory_close(struct markov_memory *memory)
{
	if (!memory)
		return;
	if (memory->backend)
		memory->backend->close(memory->state);
	free(memory);
}

bool markov_memory_pins(const struct markov_memory *memory)
{
	return memory->backend != NULL;
}

int markov_memory_pin(
	struct markov_memory *memory, void *address, size_t bytes, struct error_text *error)
{
	return memory->backend->pin(memory->state, address, bytes, error);
}

void markov_memory_unpin(struct markov_memory *memory, void *address)
{
	memory->backend->unpin(memory->state, address);
}

uint64_t markov_memory_granularity(const struct markov_memory *memory)
{
	return memory->backend ? memory->backend->granularity(memory->state) : 0;
}

static int no_device(struct error_text *error)
{
	return error_text_set(error, ENOTSUP, "there is no device memory to share");
}

int markov_memory_create(struct markov_memory *memory, const char *uuid, uint64_t bytes,
	struct device_memory *ret, int *ret_fd, struct error_text *error)
{
	if (!markov_memory_granularity(memory))
		return no_device(error);
	return memory->backend->create(memory->state, uuid, bytes, ret, ret_fd, error);
}

int markov_memory_import(struct markov_memory *memory, const char *uuid, int fd, uint64_t bytes,
	struct device_memory *ret, struct error_text *error)
{
	if (!markov_memory_granularity(memory))
		return no_device(error);
	return memory->backend->import(memory->state, uuid, fd, bytes, ret, error);
}

void markov_memory_free(struct markov_memory *memory, struct device_memory *device)
{
	memory->backend->free(memory->state, device);
}
