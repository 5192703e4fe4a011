/* For LD_PRELOAD: lets one call of NVIDIA's driver by a draftd return an error. The CUDA runtime is
 * a part of draftd and asks the driver for all its functions by name, as draftd does for what the
 * runtime lacks; so their dlsym() is this one, which gives them another cuGetProcAddress(), which
 * gives them another function for each. (What the runtime calls through the driver's private tables
 * stays out of reach.)
 *
 * A place is a function and the calls that led to it, by address, so that the runtime's one place
 * that launches a kernel is as many as draftd has. The file that DRIVER_FAULT_FILE names lists
 * them, and says at which place the how many-th call fails. */
#include <cuda.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED      __attribute__((visibility("default")))
#define PLACES_MAX    4096
#define FUNCTIONS_MAX 1024
#define DEPTH_MAX     24
#define STACK_KEPT    12

struct place {
	uint64_t hash;
	uint64_t calls;
	uint64_t stack[STACK_KEPT]; /* addresses within their objects, the innermost first */
	char function[48];
};

/* As driver_faults.py reads it. */
struct faults {
	uint64_t place; /* whose call fails; 0: none */
	uint64_t call;  /* which one of it, from 1 */
	uint64_t error;
	uint64_t failed; /* 1: it has */
	uint64_t place_count;
	struct place places[PLACES_MAX];
};

static struct faults *faults;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct function {
	void *real;
	char name[sizeof(((struct place *)0)->function)];
} functions[FUNCTIONS_MAX];
static unsigned function_count;

/* The place of a call that is made now, without its count: the same in every process. */
static void find_place(const struct function *function, struct place *ret)
{
	void *stack[DEPTH_MAX];
	const int depth = backtrace(stack, DEPTH_MAX);
	uint64_t hash = 14695981039346656037u; /* FNV-1a, by words */
	Dl_info own, object;
	unsigned kept = 0;

	*ret = (struct place){0};
	strcpy(ret->function, function->name);
	if (!dladdr((void *)(uintptr_t)find_place, &own))
		abort();
	for (const char *at = function->name; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 1099511628211u;
	for (int i = 0; i < depth; i++) {
		if (!dladdr(stack[i], &object) || object.dli_fbase == own.dli_fbase)
			continue;
		const uint64_t address = (uint64_t)((char *)stack[i] - (char *)object.dli_fbase);
		hash = (hash ^ address) * 1099511628211u;
		if (kept < STACK_KEPT)
			ret->stack[kept++] = address;
	}
	ret->hash = hash ? hash : 1;
}

/* The error that this call returns instead of being made, or 0. */
static CUresult fault(const struct function *function)
{
	struct place called, *place;
	CUresult error = CUDA_SUCCESS;
	uint64_t i = 0;

	find_place(function, &called);
	pthread_mutex_lock(&lock);
	while (i < faults->place_count && faults->places[i].hash != called.hash)
		i++;
	if (i < PLACES_MAX) {
		place = &faults->places[i];
		if (i == faults->place_count) {
			*place = called;
			faults->place_count++;
		}
		place->calls++;
		if (faults->place == called.hash && faults->call == place->calls) {
			faults->failed = 1;
			error = (CUresult)faults->error;
		}
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* Stand in for the driver's functions: they hand on the most that one of these takes, which are
 * whole numbers, pointers, and structs that lie where the last ten of these sixteen do. */
#define TAKEN                                                                                      \
	long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k,    \
		long l, long m, long n, long o, long p
#define GIVEN a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p
#define ONE(number)                                                                                \
	static CUresult stand_in_##number(TAKEN)                                                   \
	{                                                                                          \
		const struct function *function = &functions[0x##number];                          \
		const CUresult error = fault(function);                                            \
		return error ? error : ((CUresult(*)(TAKEN))function->real)(GIVEN);                \
	}
#define NAME(number) stand_in_##number,
#define SIXTEEN(each, high)                                                                        \
	each(high##0) each(high##1) each(high##2) each(high##3) each(high##4) each(high##5)        \
		each(high##6) each(high##7) each(high##8) each(high##9) each(high##a)              \
			each(high##b) each(high##c) each(high##d) each(high##e) each(high##f)
#define QUARTER(each, high)                                                                        \
	SIXTEEN(each, high##0)                                                                     \
	SIXTEEN(each, high##1)                                                                     \
	SIXTEEN(each, high##2) SIXTEEN(each, high##3) SIXTEEN(each, high##4)                       \
		SIXTEEN(each, high##5) SIXTEEN(each, high##6) SIXTEEN(each, high##7)               \
			SIXTEEN(each, high##8) SIXTEEN(each, high##9) SIXTEEN(each, high##a)       \
				SIXTEEN(each, high##b) SIXTEEN(each, high##c)                      \
					SIXTEEN(each, high##d) SIXTEEN(each, high##e)              \
						SIXTEEN(each, high##f)
#define ALL(each) QUARTER(each, 0) QUARTER(each, 1) QUARTER(each, 2) QUARTER(each, 3)

ALL(ONE)
static CUresult (*const stand_ins[FUNCTIONS_MAX])(TAKEN) = {ALL(NAME)};

static void *stand_in_for(const char *name, void *real)
{
	unsigned i = 0;

	pthread_mutex_lock(&lock);
	while (i < function_count &&
		(functions[i].real != real || strcmp(functions[i].name, name) != 0))
		i++;
	if (i == function_count && i < FUNCTIONS_MAX && strlen(name) < sizeof(functions[i].name)) {
		functions[i].real = real;
		strcpy(functions[i].name, name);
		function_count++;
	}
	pthread_mutex_unlock(&lock);
	return i < function_count ? (void *)(uintptr_t)stand_ins[i] : real;
}

static __typeof__(cuGetProcAddress) *real_get;

static CUresult get(const char *symbol, void **function, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *status)
{
	static const struct function self = {.name = "cuGetProcAddress"};
	CUresult result = fault(&self);

	if (result == CUDA_SUCCESS)
		result = real_get(symbol, function, version, flags, status);
	if (result != CUDA_SUCCESS || !function || !*function)
		return result;
	if (strncmp(symbol, "cuGetProcAddress", 16) == 0)
		*function = (void *)(uintptr_t)get;
	else if (strcmp(symbol, "cuGetErrorName") != 0 && strcmp(symbol, "cuGetErrorString") != 0)
		*function = stand_in_for(symbol, *function); /* (those two can't fail) */
	return CUDA_SUCCESS;
}

/* What is looked up after the caller's object is looked up by a jump, so that the caller stays who
 * it is. */
EXPORTED void *dlsym(void *restrict handle, const char *restrict name)
{
	static void *(*real)(void *, const char *);
	void *found;

	if (!real)
		real = (__typeof__(real))(uintptr_t)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!real)
		real = (__typeof__(real))(uintptr_t)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (!faults || strcmp(name, "cuGetProcAddress_v2") != 0)
		return real(handle, name);
	found = real(handle, name);
	if (!found)
		return NULL;
	real_get = (__typeof__(real_get))(uintptr_t)found;
	return (void *)(uintptr_t)get;
}

static void __attribute__((constructor)) start(void)
{
	const char *path = getenv("DRIVER_FAULT_FILE");
	const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *first[1], *at;

	if (fd < 0)
		return;
	backtrace(first, 1); /* which loads what it needs */
	at = mmap(NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		faults = at;
}
