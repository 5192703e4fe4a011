/* The happy path: pin host memory of the daemon; create or import an allocation, map it for every
 * device of the head. What fails: the driver's limits, a client's descriptor, a device that is gone
 * or out of reach, each with its own code; and a lost context, which makes every call fail. */
#include "memory.h"

#include "device.h"
#include "event.h"

#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDLE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

/* Functions of the driver, by name at run time, so that the program starts where there is none. */
struct driver {
	__typeof__(cuGetErrorName) *error_name;
	__typeof__(cuMemGetAllocationGranularity) *granularity;
	__typeof__(cuMemCreate) *create;
	__typeof__(cuMemRelease) *release;
	__typeof__(cuMemExportToShareableHandle) *export;
	__typeof__(cuMemImportFromShareableHandle) *import;
	__typeof__(cuMemGetAllocationPropertiesFromHandle) *properties;
	__typeof__(cuMemAddressReserve) *reserve;
	__typeof__(cuMemAddressFree) *unreserve;
	__typeof__(cuMemMap) *map;
	__typeof__(cuMemUnmap) *unmap;
	__typeof__(cuMemSetAccess) *set_access;
};

struct cuda_memory {
	struct driver driver;
	size_t granularity;              /* 0: this driver can't share memory */
	int devices[MARKOV_DEVICES_MAX]; /* of the head; calls work in the first one's context */
	uint32_t device_count;
	char uuids[MARKOV_DEVICES_MAX][64]; /* of all that are visible, by ordinal */
	int visible_count;
};

static bool find_functions(struct driver *driver)
{
	const struct {
		const char *name;
		void *at;
	} functions[] = {
		{"cuGetErrorName", &driver->error_name},
		{"cuMemGetAllocationGranularity", &driver->granularity},
		{"cuMemCreate", &driver->create},
		{"cuMemRelease", &driver->release},
		{"cuMemExportToShareableHandle", &driver->export},
		{"cuMemImportFromShareableHandle", &driver->import},
		{"cuMemGetAllocationPropertiesFromHandle", &driver->properties},
		{"cuMemAddressReserve", &driver->reserve},
		{"cuMemAddressFree", &driver->unreserve},
		{"cuMemMap", &driver->map},
		{"cuMemUnmap", &driver->unmap},
		{"cuMemSetAccess", &driver->set_access},
	};
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		enum cudaDriverEntryPointQueryResult found;
		void *function = NULL;
		if (cudaGetDriverEntryPointByVersion(functions[i].name, &function, 12000,
			    cudaEnableDefault, &found) != cudaSuccess ||
			!function) {
			cudaGetLastError();
			return false;
		}
		memcpy(functions[i].at, &function, sizeof(function));
	}
	return true;
}

static CUmemAllocationProp properties_on(int ordinal)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = HANDLE,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
	};
}

/* The largest of all devices', so that it serves for each. */
static size_t find_granularity(const struct cuda_memory *memory)
{
	size_t largest = 0;
	for (int i = 0; i < memory->visible_count; i++) {
		const CUmemAllocationProp properties = properties_on(i);
		size_t one = 0;
		if (memory->driver.granularity(&one, &properties,
			    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS &&
			one > largest)
			largest = one;
	}
	return largest;
}

static int find_device(const struct cuda_memory *memory, const char *uuid)
{
	for (int i = 0; i < memory->visible_count; i++)
		if (!strcmp(memory->uuids[i], uuid))
			return i;
	return -1;
}

int cuda_memory_ordinal(const void *state, const char *uuid, struct error_text *error)
{
	const struct cuda_memory *memory = state;
	if (!*uuid)
		return memory->devices[0];
	const int ordinal = find_device(memory, uuid);
	for (uint32_t i = 0; i < memory->device_count; i++)
		if (ordinal >= 0 && memory->devices[i] == ordinal)
			return ordinal;
	if (ordinal < 0)
		return error_text_set(
			error, ENODEV, "device is \"%s\", this host has no such GPU", uuid);
	return error_text_set(error, EXDEV,
		"device is \"%s\", draftd takes events of the devices of hello only: let a stream "
		"of one of those wait for the work, and record the event there",
		uuid);
}

static int memory_open(const struct markov_facts *facts, void **ret_state, struct error_text *error)
{
	struct cuda_memory *memory = calloc(1, sizeof(*memory));
	if (!memory)
		return error_text_set(error, ENOMEM, "out of memory");
	int r = CUDA_CALL(error, cudaGetDeviceCount(&memory->visible_count));
	if (memory->visible_count > MARKOV_DEVICES_MAX)
		memory->visible_count = MARKOV_DEVICES_MAX;
	for (int i = 0; !r && i < memory->visible_count; i++)
		if (!cuda_device_uuid(i, memory->uuids[i], sizeof(memory->uuids[i])))
			memory->uuids[i][0] = '\0';
	for (uint32_t i = 0; !r && i < facts->device_count; i++) {
		const int ordinal = find_device(memory, facts->devices[i].uuid);
		if (ordinal < 0)
			r = error_text_set(error, ENODEV, "the GPU %s is not among the first %d",
				facts->devices[i].uuid, memory->visible_count);
		memory->devices[memory->device_count++] = ordinal;
	}
	if (!r && find_functions(&memory->driver))
		memory->granularity = find_granularity(memory);
	if (r)
		free(memory);
	else
		*ret_state = memory;
	return r;
}

static void memory_close(void *state)
{
	free(state);
}

/* Each thread has a device of its own. */
static int enter(const struct cuda_memory *memory, struct error_text *error)
{
	return CUDA_CALL(error, cudaSetDevice(memory->devices[0])) ? -EIO : 0;
}

bool cuda_memory_lost(void)
{
	size_t free_bytes, all_bytes;
	const cudaError_t result = cudaMemGetInfo(&free_bytes, &all_bytes);
	cudaGetLastError();
	return result != cudaSuccess;
}

static int pin(void *state, void *address, size_t bytes, struct error_text *error)
{
	int r = enter(state, error);
	if (!r)
		r = CUDA_CALL(error, cudaHostRegister(address, bytes,
					     cudaHostRegisterPortable | cudaHostRegisterMapped));
	if (!r)
		return 0;
	return cuda_memory_lost() ? -EIO : -ENOMEM;
}

static void unpin(void *state, void *address)
{
	struct error_text ignored;
	enter(state, &ignored);
	cudaHostUnregister(address);
	cudaGetLastError(); /* of a lost context: it is reported where it is used */
}

/* ---- device memory ---- */

static uint64_t granularity(const void *state)
{
	return ((const struct cuda_memory *)state)->granularity;
}

/* `code` is what a failure means here, unless memory is short or the device lost. */
static int result_of(const struct cuda_memory *memory, CUresult result, int code, const char *what,
	struct error_text *error)
{
	const char *name = "unknown error";
	if (result == CUDA_SUCCESS)
		return 0;
	memory->driver.error_name(result, &name);
	if (cuda_memory_lost())
		code = EIO;
	else if (result == CUDA_ERROR_OUT_OF_MEMORY)
		code = ENOMEM;
	return error_text_set(error, code, "%s (%s)", what, name);
}

/* Every device of the head must reach the memory of `ordinal`: over NVLink or PCIe, in place. */
static int check_reach(const struct cuda_memory *memory, int ordinal, struct error_text *error)
{
	for (uint32_t i = 0; i < memory->device_count; i++) {
		int can = memory->devices[i] == ordinal;
		if (!can && cudaDeviceCanAccessPeer(&can, memory->devices[i], ordinal))
			cudaGetLastError();
		if (!can)
			return error_text_set(error, EXDEV,
				"draftd's %s can't reach memory of %s: use memory of a device of "
				"hello, or host memory",
				memory->uuids[memory->devices[i]], memory->uuids[ordinal]);
	}
	return 0;
}

/* Maps an allocation, which is only possible whole. Its handle may be released then. */
static int map(const struct cuda_memory *memory, CUmemGenericAllocationHandle handle,
	uint64_t bytes, void **ret, struct error_text *error)
{
	const struct driver *driver = &memory->driver;
	CUmemAccessDesc access[MARKOV_DEVICES_MAX];
	CUdeviceptr at = 0;
	bool mapped = false;

	for (uint32_t i = 0; i < memory->device_count; i++)
		access[i] = (CUmemAccessDesc){
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->devices[i]},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	int r = result_of(memory, driver->reserve(&at, bytes, 0, 0, 0), ENOMEM,
		"there is no address space left", error);
	if (r)
		return r;
	r = result_of(memory, driver->map(at, bytes, 0, handle, 0), ERANGE,
		"the allocation has another size", error);
	mapped = !r;
	if (!r)
		r = result_of(memory, driver->set_access(at, bytes, access, memory->device_count),
			EXDEV, "draftd's devices can't reach the memory", error);
	if (!r) {
		*ret = (void *)at;
		return 0;
	}
	if (mapped)
		driver->unmap(at, bytes);
	driver->unreserve(at, bytes);
	return r;
}

static void unmap(void *state, struct device_memory *device)
{
	const struct cuda_memory *memory = state;
	struct error_text ignored;
	enter(memory, &ignored);
	memory->driver.unmap((CUdeviceptr)device->address, device->bytes);
	memory->driver.unreserve((CUdeviceptr)device->address, device->bytes);
	device->address = NULL;
}

/* What it held before may be another client's. */
static int clear(void *address, uint64_t bytes, struct error_text *error)
{
	int r = CUDA_CALL(error, cudaMemsetAsync(address, 0, bytes, cudaStreamPerThread));
	if (!r)
		r = CUDA_CALL(error, cudaStreamSynchronize(cudaStreamPerThread));
	return r && cuda_memory_lost() ? -EIO : r;
}

static int export_fd(const struct cuda_memory *memory, CUmemGenericAllocationHandle handle,
	int *ret, struct error_text *error)
{
	int fd = -1;
	const int r = result_of(memory, memory->driver.export(&fd, handle, HANDLE, 0), ENOTSUP,
		"the driver does not share the memory", error);
	if (r)
		return r;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret = fd;
	return 0;
}

static int create(void *state, const char *uuid, uint64_t bytes, struct device_memory *ret,
	int *ret_fd, struct error_text *error)
{
	const struct cuda_memory *memory = state;
	const int ordinal = *uuid ? find_device(memory, uuid) : memory->devices[0];
	if (ordinal < 0)
		return error_text_set(
			error, ENODEV, "device is \"%s\", this host has no such GPU", uuid);
	int r = enter(memory, error);
	if (!r)
		r = check_reach(memory, ordinal, error);
	if (r)
		return r;
	const CUmemAllocationProp properties = properties_on(ordinal);
	struct device_memory device = {.bytes = bytes};
	CUmemGenericAllocationHandle handle;
	r = result_of(memory, memory->driver.create(&handle, bytes, &properties, 0), ENOTSUP,
		"the device does not give the memory", error);
	if (r)
		return r;
	memcpy(device.uuid, memory->uuids[ordinal], sizeof(device.uuid));
	r = map(memory, handle, bytes, &device.address, error);
	if (!r)
		r = clear(device.address, bytes, error);
	if (!r)
		r = export_fd(memory, handle, ret_fd, error);
	memory->driver.release(handle); /* the mapping keeps the memory */
	if (!r)
		*ret = device;
	else if (device.address)
		unmap(state, &device);
	return r;
}

static int import(void *state, const char *uuid, int fd, uint64_t bytes, struct device_memory *ret,
	struct error_text *error)
{
	const struct cuda_memory *memory = state;
	struct device_memory device = {0};
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;

	if (bytes > UINT64_MAX - memory->granularity)
		return error_text_set(error, ERANGE, "the allocation has another size");
	device.bytes =
		(bytes + memory->granularity - 1) / memory->granularity * memory->granularity;
	int r = enter(memory, error);
	if (!r)
		r = result_of(memory,
			memory->driver.import(&handle, (void *)(uintptr_t)(unsigned)fd, HANDLE),
			EINVAL, "the descriptor is no CUDA allocation of this host", error);
	if (r)
		return r;
	r = result_of(memory, memory->driver.properties(&properties, handle), EINVAL,
		"the allocation does not say where it lies", error);
	if (!r && (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
			  properties.location.id < 0 ||
			  properties.location.id >= memory->visible_count))
		r = error_text_set(error, EINVAL, "the allocation is no memory of a GPU");
	if (!r) {
		const char *own = memory->uuids[properties.location.id];
		memcpy(device.uuid, own, sizeof(device.uuid));
		if (*uuid && strcmp(uuid, own) != 0)
			r = error_text_set(error, EINVAL,
				"device is \"%s\", the allocation lies on %s", uuid, own);
	}
	if (!r)
		r = check_reach(memory, properties.location.id, error);
	if (!r)
		r = map(memory, handle, device.bytes, &device.address, error);
	memory->driver.release(handle); /* the mapping keeps the memory */
	if (!r)
		*ret = device;
	return r;
}

const struct memory_backend cuda_memory_backend = {
	.open = memory_open,
	.close = memory_close,
	.pin = pin,
	.unpin = unpin,
	.granularity = granularity,
	.create = create,
	.import = import,
	.free = unmap,
	.event_open = cuda_event_open,
	.event_query = cuda_event_query,
	.event_close = cuda_event_close,
};
