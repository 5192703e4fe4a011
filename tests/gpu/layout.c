#include "layout.h"

#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

struct markov_memory *gpu_memory(void)
{
	static struct markov_memory *memory;
	struct error_text error;
	struct markov_facts facts = {.backend = "cuda"};
	struct cuda_device chosen[MARKOV_DEVICES_MAX];
	if (memory)
		return memory;
	if (cuda_devices_choose(NULL, false, chosen, &facts.device_count, &error))
		die("%s", error.text);
	facts.devices[0] = chosen[0].facts;
	if (markov_memory_open(&facts, &memory, &error))
		die("%s", error.text);
	return memory;
}

void pin(void *address, size_t bytes)
{
	struct error_text error;
	if (markov_memory_pin(gpu_memory(), address, bytes, &error))
		die("%s", error.text);
}

void unpin(void *address)
{
	markov_memory_unpin(gpu_memory(), address);
}

static void elements_new(struct elements *e, enum memory_kind memory, size_t count)
{
	*e = (struct elements){.memory = memory, .bytes = count * 2, .host = room(count, 2)};
	for (size_t i = 0; i < count; i++)
		e->host[i] = POISON;
	if (memory == MEMORY_PINNED)
		pin(e->host, e->bytes);
	if (memory == MEMORY_DEVICE)
		next_device();
	if (memory == MEMORY_DEVICE && cudaMalloc(&e->device, e->bytes) != cudaSuccess)
		die("no device memory for %zu bytes", e->bytes);
}

void elements_to_device(struct elements *e)
{
	/* A copy from memory that is not pinned returns before the data is there, and the heads'
	 * streams don't wait for the default one. */
	if (e->device &&
		(cudaMemcpy(e->device, e->host, e->bytes, cudaMemcpyHostToDevice) != cudaSuccess ||
			cudaStreamSynchronize(cudaStreamLegacy) != cudaSuccess))
		die("a copy failed");
}

void elements_from_device(struct elements *e)
{
	if (e->device &&
		cudaMemcpy(e->host, e->device, e->bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
		die("a copy failed");
}

char *elements_address(const struct elements *e)
{
	return e->device ? e->device : (char *)e->host;
}

static void elements_free(struct elements *e)
{
	if (e->memory == MEMORY_PINNED)
		unpin(e->host);
	cudaFree(e->device);
	free(e->host);
}

void layout_new(struct layout *l, const struct manner *m, unsigned shift, size_t count)
{
	*l = (struct layout){.mixed = m->mixed, .shift = shift, .memory = m->memory};
	for (unsigned kind = 0; kind < MEMORY_KINDS; kind++)
		if (m->mixed || kind == m->memory)
			elements_new(&l->of[kind], (enum memory_kind)kind, count);
}

enum memory_kind layout_kind(const struct layout *l, uint32_t row)
{
	return l->mixed ? (enum memory_kind)((row + l->shift) % MEMORY_KINDS) : l->memory;
}

void layout_free(struct layout *l)
{
	for (unsigned kind = 0; kind < MEMORY_KINDS; kind++)
		elements_free(&l->of[kind]);
}
