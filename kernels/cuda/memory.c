/* Pinned memory, for every GPU of the daemon at once. */
#include "memory.h"

#include "device.h"

#include <errno.h>
#include <stdlib.h>

struct cuda_memory {
	int ordinal; /* of the first device: whose context the calls work in */
};

static int memory_open(const struct markov_facts *facts, void **ret_state, struct error_text *error)
{
	struct cuda_device device;
	const int r = cuda_device_choose(facts->devices[0].uuid, &device, error);
	if (r)
		return r;
	struct cuda_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return error_text_set(error, ENOMEM, "out of memory");
	memory->ordinal = device.ordinal;
	*ret_state = memory;
	return 0;
}

static void memory_close(void *state)
{
	free(state);
}

/* Whether nothing works any longer. What a failed call was, its result doesn't tell; what is lost
 * fails every call. */
static bool lost(void)
{
	size_t free_bytes, all_bytes;
	const cudaError_t result = cudaMemGetInfo(&free_bytes, &all_bytes);
	cudaGetLastError();
	return result != cudaSuccess;
}

static int pin(void *state, void *address, size_t bytes, struct error_text *error)
{
	const struct cuda_memory *memory = state;
	int r = CUDA_CALL(error, cudaSetDevice(memory->ordinal));
	if (r)
		return -EIO;
	r = CUDA_CALL(error, cudaHostRegister(address, bytes,
				     cudaHostRegisterPortable | cudaHostRegisterMapped));
	if (!r)
		return 0;
	return lost() ? -EIO : -ENOMEM;
}

static void unpin(void *state, void *address)
{
	const struct cuda_memory *memory = state;
	cudaSetDevice(memory->ordinal);
	cudaHostUnregister(address);
	cudaGetLastError(); /* of a lost context: it is reported where it is used */
}

const struct memory_backend cuda_memory_backend = {
	.open = memory_open,
	.close = memory_close,
	.pin = pin,
	.unpin = unpin,
};
