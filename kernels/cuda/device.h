/* The GPUs that a head runs on, and how results of the CUDA runtime become -errno and one sentence.
 */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include "kernels/markov.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

struct cuda_device {
	int ordinal;
	int major, minor; /* compute capability */
	int multiprocessors;
	int shared_bytes; /* a block of threads may have */
	int l2_bytes;
	bool cooperative;
	const char *variant; /* "sm_90", "sm_100" */
	struct markov_device facts;
};

/* 0, or -errno: -ENOMEM for exhausted memory, -ENODEV when there is no usable GPU or driver, else
 * -EIO. Clears what the runtime remembers of the failure, so that the next call starts clean unless
 * the context is lost. */
int cuda_result(cudaError_t result, const char *call, struct error_text *error);
#define CUDA_CALL(error, call) cuda_result((call), #call, (error))

/* Device memory of this thread's GPU, zeroed; the caller's, for cudaFree(). Blocks. */
int cuda_zeroed(void **ret, size_t bytes, struct error_text *error);

/* The UUID of the GPU `ordinal`, as nvidia-smi -L prints it. False if it can't be told. */
bool cuda_device_uuid(int ordinal, char *ret, size_t size);

/* The GPUs that `devices` names: indices and UUIDs with commas between; NULL for 0. Checks that
 * there is code for each, and unless `repeats` that none is named twice. `ret` has room for
 * MARKOV_DEVICES_MAX. Returns 0; -ENXIO: no visible GPU has such a name; or as cuda_result(). */
int cuda_devices_choose(const char *devices, bool repeats, struct cuda_device *ret,
	uint32_t *ret_count, struct error_text *error);

#endif
