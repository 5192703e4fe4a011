#include "fake.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INVALID_VALUE 1

struct fake fake;

static bool fails(void)
{
	return ++fake.calls == fake.fail_at;
}

int cuInit(unsigned flags);
int cuGetErrorName(int result, const char **ret);
int cuDeviceGetCount(int *ret);
int cuDeviceGet(int *ret, int ordinal);
int cuDeviceGetUuid_v2(unsigned char ret[16], int device);
int cuDevicePrimaryCtxRetain(void **ret, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **ret);
int cuMemImportFromShareableHandle(unsigned long long *ret, void *descriptor, int type);
int cuMemRelease(unsigned long long handle);
int cuMemAddressReserve(unsigned long long *ret, size_t bytes, size_t alignment,
	unsigned long long address, unsigned long long flags);
int cuMemAddressFree(unsigned long long address, size_t bytes);
int cuMemMap(unsigned long long address, size_t bytes, size_t offset, unsigned long long handle,
	unsigned long long flags);
int cuMemUnmap(unsigned long long address, size_t bytes);
int cuMemSetAccess(unsigned long long address, size_t bytes, const int access[3], size_t count);
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes);
int cuStreamSynchronize(void *stream);

/* What cuMemcpyHtoD() has taken in and not yet written, as the real one may leave it. */
static struct {
	void *to, *data;
	size_t bytes;
} under_way;

static void finish_copy(void)
{
	if (under_way.data)
		memcpy(under_way.to, under_way.data, under_way.bytes);
	free(under_way.data);
	under_way.data = NULL;
}

int cuInit(unsigned flags)
{
	return flags || fails();
}

int cuGetErrorName(int result, const char **ret)
{
	*ret = result == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OUT_OF_MEMORY";
	return 0;
}

int cuDeviceGetCount(int *ret)
{
	*ret = 1;
	return 0;
}

int cuDeviceGet(int *ret, int ordinal)
{
	*ret = ordinal + 7;
	return ordinal != 0 || fails();
}

int cuDeviceGetUuid_v2(unsigned char ret[16], int device)
{
	for (int i = 0; i < 16; i++)
		ret[i] = (unsigned char)i;
	return device != 7 || fails();
}

int cuDevicePrimaryCtxRetain(void **ret, int device)
{
	if (device != 7 || fails())
		return INVALID_VALUE;
	*ret = &fake;
	fake.contexts++;
	return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	fake.contexts--;
	return device != 7;
}

int cuCtxPushCurrent_v2(void *context)
{
	if (context != &fake || fails())
		return INVALID_VALUE;
	fake.current++;
	return 0;
}

int cuCtxPopCurrent_v2(void **ret)
{
	*ret = &fake;
	fake.current--;
	return 0;
}

int cuMemImportFromShareableHandle(unsigned long long *ret, void *descriptor, int type)
{
	int fd;

	if (type != 1 || fails())
		return INVALID_VALUE;
	fd = fcntl((int)(uintptr_t)descriptor, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || fcntl(fd, F_GET_SEALS) < 0) {
		close(fd);
		return INVALID_VALUE;
	}
	*ret = (unsigned long long)fd;
	fake.handles++;
	return 0;
}

int cuMemRelease(unsigned long long handle)
{
	fake.handles--;
	return close((int)handle);
}

int cuMemAddressReserve(unsigned long long *ret, size_t bytes, size_t alignment,
	unsigned long long address, unsigned long long flags)
{
	void *range;

	if (alignment || address || flags || fails())
		return INVALID_VALUE;
	range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (range == MAP_FAILED)
		return 2;
	*ret = (uintptr_t)range;
	fake.ranges++;
	return 0;
}

int cuMemAddressFree(unsigned long long address, size_t bytes)
{
	fake.ranges--;
	return munmap((void *)(uintptr_t)address, bytes);
}

/* Not to be touched before access is granted. */
int cuMemMap(unsigned long long address, size_t bytes, size_t offset, unsigned long long handle,
	unsigned long long flags)
{
	if (offset || flags || fails())
		return INVALID_VALUE;
	if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle,
		    0) == MAP_FAILED)
		return INVALID_VALUE;
	fake.mappings++;
	return 0;
}

int cuMemUnmap(unsigned long long address, size_t bytes)
{
	fake.mappings--;
	return mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
}

int cuMemSetAccess(unsigned long long address, size_t bytes, const int access[3], size_t count)
{
	if (count != 1 || access[0] != 1 || access[1] != 7 || access[2] != 3 || fails())
		return INVALID_VALUE;
	return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE);
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
	if (!fake.current || fails())
		return INVALID_VALUE;
	finish_copy();
	under_way.to = (void *)(uintptr_t)to;
	under_way.bytes = bytes;
	under_way.data = malloc(bytes);
	if (!under_way.data)
		return INVALID_VALUE;
	memcpy(under_way.data, from, bytes);
	return 0;
}

int cuStreamSynchronize(void *stream)
{
	if (stream || !fake.current || fails())
		return INVALID_VALUE;
	finish_copy();
	return 0;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
	if (!fake.current || fails())
		return INVALID_VALUE;
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	return 0;
}
