/* The driver's interface is stable, so the few functions and structs that this needs stand here: no
 * header of CUDA is needed to build libdraft. */
#include "client/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS          0
#define OUT_OF_MEMORY    2
#define POSIX_DESCRIPTOR 1 /* of handle types */
#define ON_DEVICE        1 /* of location types */
#define READ_AND_WRITE   3 /* of access flags */
#define UUID_TEXT_BYTES  41

struct access {
	struct {
		int type;
		int id;
	} location;
	int flags;
};

struct driver {
	void *library;
	int (*init)(unsigned flags);
	int (*error_name)(int result, const char **ret);
	int (*device_count)(int *ret);
	int (*device_get)(int *ret, int ordinal);
	int (*device_uuid)(unsigned char ret[16], int device);
	int (*context_retain)(void **ret, int device);
	int (*context_release)(int device);
	int (*context_push)(void *context);
	int (*context_pop)(void **ret);
	int (*import)(unsigned long long *ret, void *descriptor, int type);
	int (*release)(unsigned long long handle);
	int (*reserve)(unsigned long long *ret, size_t bytes, size_t alignment,
		unsigned long long address, unsigned long long flags);
	int (*unreserve)(unsigned long long address, size_t bytes);
	int (*map)(unsigned long long address, size_t bytes, size_t offset,
		unsigned long long handle, unsigned long long flags);
	int (*unmap)(unsigned long long address, size_t bytes);
	int (*set_access)(unsigned long long address, size_t bytes, const struct access *access,
		size_t count);
	int (*copy_in)(unsigned long long to, const void *from, size_t bytes);
	int (*copy_out)(void *to, unsigned long long from, size_t bytes);
	int (*synchronize)(void *stream);
};

static bool find_functions(struct driver *driver)
{
	const struct {
		const char *name;
		void *at;
	} functions[] = {
		{"cuInit", &driver->init},
		{"cuGetErrorName", &driver->error_name},
		{"cuDeviceGetCount", &driver->device_count},
		{"cuDeviceGet", &driver->device_get},
		{"cuDeviceGetUuid_v2", &driver->device_uuid},
		{"cuDevicePrimaryCtxRetain", &driver->context_retain},
		{"cuDevicePrimaryCtxRelease_v2", &driver->context_release},
		{"cuCtxPushCurrent_v2", &driver->context_push},
		{"cuCtxPopCurrent_v2", &driver->context_pop},
		{"cuMemImportFromShareableHandle", &driver->import},
		{"cuMemRelease", &driver->release},
		{"cuMemAddressReserve", &driver->reserve},
		{"cuMemAddressFree", &driver->unreserve},
		{"cuMemMap", &driver->map},
		{"cuMemUnmap", &driver->unmap},
		{"cuMemSetAccess", &driver->set_access},
		{"cuMemcpyHtoD_v2", &driver->copy_in},
		{"cuMemcpyDtoH_v2", &driver->copy_out},
		{"cuStreamSynchronize", &driver->synchronize},
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = dlsym(driver->library, functions[i].name);

		if (!function)
			return false;
		memcpy(functions[i].at, &function, sizeof(function));
	}
	return true;
}

/* Writes the sentence; returns `code`, unless memory is short. */
static int fail(const struct driver *driver, int result, int code, const char *what, char *why,
	size_t why_bytes)
{
	const char *name = "unknown error";

	driver->error_name(result, &name);
	snprintf(why, why_bytes, "%s: %s", what, name);
	return result == OUT_OF_MEMORY ? -ENOMEM : code;
}

int driver_open(struct driver **ret, char *why, size_t why_bytes)
{
	struct driver *driver = calloc(1, sizeof(*driver));
	int result;

	if (!driver) {
		snprintf(why, why_bytes, "no memory");
		return -ENOMEM;
	}
	/* Its threads and its fork handlers stay: it is not made to be unloaded. */
	driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!driver->library) {
		snprintf(why, why_bytes,
			"device memory needs NVIDIA's libcuda.so.1, which is not here; use host "
			"memory");
		goto fail;
	}
	if (!find_functions(driver)) {
		snprintf(why, why_bytes,
			"device memory needs a libcuda.so.1 of CUDA 11.4 or newer; use host "
			"memory or a newer driver");
		goto fail;
	}
	result = driver->init(0);
	if (result != SUCCESS) {
		fail(driver, result, 0, "this process can't use NVIDIA's driver", why, why_bytes);
		goto fail;
	}
	*ret = driver;
	return 0;
fail:
	driver_close(driver);
	return -ENOTSUP;
}

void driver_close(struct driver *driver)
{
	if (!driver)
		return;
	if (driver->library)
		dlclose(driver->library);
	free(driver);
}

/* As draftd and nvidia-smi -L print it. */
static void format_uuid(const unsigned char b[16], char ret[UUID_TEXT_BYTES])
{
	snprintf(ret, UUID_TEXT_BYTES,
		"GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
		b[14], b[15]);
}

static int find_device(const struct driver *driver, const char *uuid, int *ret)
{
	int count = 0, device;

	driver->device_count(&count);
	for (int i = 0; i < count; i++) {
		unsigned char bytes[16];
		char text[UUID_TEXT_BYTES];

		if (driver->device_get(&device, i) != SUCCESS ||
			driver->device_uuid(bytes, device) != SUCCESS)
			continue;
		format_uuid(bytes, text);
		if (strcmp(text, uuid) == 0) {
			*ret = device;
			return 0;
		}
	}
	return -ENODEV;
}

/* With the context current. */
static int map(
	struct driver *driver, int fd, struct driver_mapping *mapping, char *why, size_t why_bytes)
{
	const struct access access = {{ON_DEVICE, mapping->device}, READ_AND_WRITE};
	unsigned long long handle, address = 0;
	bool mapped = false;
	int result;

	result = driver->import(&handle, (void *)(uintptr_t)(unsigned)fd, POSIX_DESCRIPTOR);
	if (result != SUCCESS)
		return fail(
			driver, result, -EIO, "the descriptor is no device memory", why, why_bytes);
	result = driver->reserve(&address, mapping->bytes, 0, 0, 0);
	if (result == SUCCESS)
		result = driver->map(address, mapping->bytes, 0, handle, 0);
	mapped = result == SUCCESS;
	if (result == SUCCESS)
		result = driver->set_access(address, mapping->bytes, &access, 1);
	driver->release(handle); /* the mapping keeps the memory */
	if (result == SUCCESS) {
		mapping->address = address;
		return 0;
	}
	if (mapped)
		driver->unmap(address, mapping->bytes);
	if (address)
		driver->unreserve(address, mapping->bytes);
	return fail(driver, result, -EIO, "the device memory can't be mapped", why, why_bytes);
}

int driver_hold(struct driver *driver, const char *uuid, uint64_t address, uint64_t bytes,
	struct driver_mapping *ret, char *why, size_t why_bytes)
{
	struct driver_mapping mapping = {.address = address, .bytes = bytes};
	int result, r;

	r = find_device(driver, uuid, &mapping.device);
	if (r < 0) {
		snprintf(why, why_bytes,
			"the region lies on %s, which this process does not see "
			"(CUDA_VISIBLE_DEVICES)",
			uuid);
		return r;
	}
	result = driver->context_retain(&mapping.context, mapping.device);
	if (result != SUCCESS)
		return fail(driver, result, -EIO, "the GPU has no context for this process", why,
			why_bytes);
	*ret = mapping;
	return 0;
}

void driver_drop(struct driver *driver, struct driver_mapping *mapping)
{
	if (mapping->context)
		driver->context_release(mapping->device);
	*mapping = (struct driver_mapping){0};
}

int driver_map(struct driver *driver, const char *uuid, int fd, uint64_t bytes,
	struct driver_mapping *ret, char *why, size_t why_bytes)
{
	struct driver_mapping mapping;
	void *popped;
	int result, r;

	r = driver_hold(driver, uuid, 0, bytes, &mapping, why, why_bytes);
	if (r < 0)
		return r;
	result = driver->context_push(mapping.context);
	if (result == SUCCESS) {
		r = map(driver, fd, &mapping, why, why_bytes);
		driver->context_pop(&popped);
	} else {
		r = fail(driver, result, -EIO, "the GPU's context can't be used", why, why_bytes);
	}
	if (r < 0)
		driver_drop(driver, &mapping);
	else
		*ret = mapping;
	return r;
}

void driver_unmap(struct driver *driver, struct driver_mapping *mapping)
{
	if (!mapping->address)
		return;
	driver->unmap(mapping->address, mapping->bytes);
	driver->unreserve(mapping->address, mapping->bytes);
	driver_drop(driver, mapping);
}

int driver_write(struct driver *driver, const struct driver_mapping *mapping, uint64_t offset,
	const void *from, size_t bytes, char *why, size_t why_bytes)
{
	void *popped;
	int result = driver->context_push(mapping->context);

	if (result == SUCCESS) {
		result = driver->copy_in(mapping->address + offset, from, bytes);
		/* It returns when `from` may be reused; draftd may read when the data is there. */
		if (result == SUCCESS)
			result = driver->synchronize(NULL);
		driver->context_pop(&popped);
	}
	if (result == SUCCESS)
		return 0;
	return fail(driver, result, -EIO, "a copy to device memory failed", why, why_bytes);
}

int driver_read(struct driver *driver, const struct driver_mapping *mapping, uint64_t offset,
	void *to, size_t bytes, char *why, size_t why_bytes)
{
	void *popped;
	int result = driver->context_push(mapping->context);

	if (result == SUCCESS) {
		result = driver->copy_out(to, mapping->address + offset, bytes);
		driver->context_pop(&popped);
	}
	if (result == SUCCESS)
		return 0;
	return fail(driver, result, -EIO, "a copy from device memory failed", why, why_bytes);
}
