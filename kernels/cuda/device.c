#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuda_result(cudaError_t result, const char *call, struct error_text *error)
{
	if (result == cudaSuccess)
		return 0;
	cudaGetLastError();
	int code = EIO;
	if (result == cudaErrorMemoryAllocation)
		code = ENOMEM;
	else if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver ||
		 result == cudaErrorInvalidDevice || result == cudaErrorNoKernelImageForDevice ||
		 result == cudaErrorSystemDriverMismatch || result == cudaErrorStubLibrary)
		code = ENODEV;
	return error_text_set(error, code, "%.*s: %s (%s)", (int)strcspn(call, "("), call,
		cudaGetErrorString(result), cudaGetErrorName(result));
}

/* "GPU-" and 8-4-4-4-12 hexadecimal digits, as nvidia-smi -L prints it. */
static void format_uuid(const cudaUUID_t *uuid, char *ret, size_t size)
{
	const unsigned char *b = (const unsigned char *)uuid->bytes;
	snprintf(ret, size,
		"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		b[14], b[15]);
}

bool cuda_device_uuid(int ordinal, char *ret, size_t size)
{
	struct cudaDeviceProp properties;
	if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
		cudaGetLastError();
		return false;
	}
	format_uuid(&properties.uuid, ret, size);
	return true;
}

static int find_ordinal(const char *name, int count, int *ret, struct error_text *error)
{
	char *end;
	const long index = strtol(name, &end, 10);
	if (*name && !*end) {
		if (index < 0 || index >= count)
			return error_text_set(error, ENXIO,
				"devices: \"%s\" is not below %d, the count of visible GPUs", name,
				count);
		*ret = (int)index;
		return 0;
	}
	for (int i = 0; i < count; i++) {
		char uuid[64];
		if (cuda_device_uuid(i, uuid, sizeof(uuid)) && !strcmp(uuid, name)) {
			*ret = i;
			return 0;
		}
	}
	return error_text_set(error, ENXIO, "devices: no visible GPU has the UUID \"%s\"", name);
}

/* Says what to do about a driver that is missing or too old, which the runtime's own words don't.
 */
static int check_driver(struct error_text *error)
{
	int driver = 0;
	const int r = CUDA_CALL(error, cudaDriverGetVersion(&driver));
	if (r)
		return r;
	if (!driver)
		return error_text_set(error, ENODEV, "this machine has no NVIDIA driver");
	if (driver / 1000 < CUDART_VERSION / 1000)
		return error_text_set(error, ENODEV,
			"the NVIDIA driver supports CUDA %d.%d, this build needs %d.0: install a "
			"newer driver",
			driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000);
	return 0;
}

int cuda_zeroed(void **ret, size_t bytes, struct error_text *error)
{
	void *memory = NULL;
	int r = CUDA_CALL(error, cudaMalloc(&memory, bytes));
	if (!r)
		r = CUDA_CALL(error, cudaMemset(memory, 0, bytes));
	if (!r) /* the heads' streams do not wait for the default one */
		r = CUDA_CALL(error, cudaStreamSynchronize(cudaStreamLegacy));
	if (r)
		cudaFree(memory);
	else
		*ret = memory;
	return r;
}

static int describe(int ordinal, struct cuda_device *ret, struct error_text *error)
{
	struct cuda_device device = {.ordinal = ordinal};
	struct cudaDeviceProp properties;
	int r = CUDA_CALL(error, cudaSetDevice(ordinal));
	if (!r)
		r = CUDA_CALL(error, cudaGetDeviceProperties(&properties, ordinal));
	if (r)
		return r;
	if (properties.major * 10 + properties.minor != 90 && properties.major != 10)
		return error_text_set(error, ENODEV,
			"%s has compute capability %d.%d; this build has code for 9.0 (H100, H200, "
			"GH200) and 10.x (B200, B300)",
			properties.name, properties.major, properties.minor);
	device.major = properties.major;
	device.minor = properties.minor;
	device.multiprocessors = properties.multiProcessorCount;
	device.shared_bytes = (int)properties.sharedMemPerBlockOptin;
	device.l2_bytes = properties.l2CacheSize;
	device.cooperative = properties.cooperativeLaunch != 0;
	device.variant = properties.major == 9 ? "sm_90" : "sm_100";
	snprintf(device.facts.name, sizeof(device.facts.name), "%.*s", CUT(127, properties.name));
	format_uuid(&properties.uuid, device.facts.uuid, sizeof(device.facts.uuid));
	device.facts.memory_bytes = properties.totalGlobalMem;
	*ret = device;
	return 0;
}

static int add_device(const char *name, int visible, bool repeats, struct cuda_device *devices,
	uint32_t *count, struct error_text *error)
{
	int ordinal = 0;
	if (*count == MARKOV_DEVICES_MAX)
		return error_text_set(
			error, EINVAL, "devices: more than %d GPUs are named", MARKOV_DEVICES_MAX);
	int r = find_ordinal(name, visible, &ordinal, error);
	for (uint32_t i = 0; !r && !repeats && i < *count; i++)
		if (devices[i].ordinal == ordinal)
			r = error_text_set(error, EINVAL,
				"devices: \"%s\" is a GPU that was named before", name);
	if (!r)
		r = describe(ordinal, &devices[*count], error);
	if (!r)
		++*count;
	return r;
}

int cuda_devices_choose(const char *devices, bool repeats, struct cuda_device *ret,
	uint32_t *ret_count, struct error_text *error)
{
	int visible = 0;
	/* A kernel that is loaded when it is first launched may wait for one that waits for it on
	 * another GPU. Unless the operator says otherwise, and before the driver starts. */
	if (devices && strchr(devices, ','))
		setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	int r = check_driver(error);
	if (r)
		return r;
	const cudaError_t counted = cudaGetDeviceCount(&visible);
	if (counted == cudaErrorNoDevice || (counted == cudaSuccess && !visible))
		return error_text_set(error, ENODEV, "no NVIDIA GPU is visible");
	r = cuda_result(counted, "cudaGetDeviceCount", error);
	if (r)
		return r;
	char *names = strdup(devices && *devices ? devices : "0");
	if (!names)
		return error_text_set(error, ENOMEM, "out of memory");
	uint32_t count = 0;
	char *rest = names;
	for (char *name; !r && (name = strsep(&rest, ",")) != NULL;)
		r = add_device(name, visible, repeats, ret, &count, error);
	free(names);
	if (!r)
		*ret_count = count;
	return r;
}
