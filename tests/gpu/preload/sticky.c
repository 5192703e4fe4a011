/* For LD_PRELOAD: makes a real sticky error in a draftd that drafts on GPUs, in its own context of
 * one of them. A thread waits at the descriptor that STICKY_FD names for a struct order, and then
 * launches a kernel that takes all of every multiprocessor for so long, so that what draftd
 * launches meanwhile waits, and ends in a trap. It answers "launched\n" and then "ended: ERROR\n",
 * or "failed: CALL: ERROR\n". draftd may be gone before the second. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char code[] = ".version 7.8\n"
			   ".target sm_90\n"
			   ".address_size 64\n"
			   ".visible .entry hold(.param .u64 hold_ns)\n"
			   "{\n"
			   "	.reg .pred %p<2>;\n"
			   "	.reg .u64 %rd<5>;\n"
			   "	ld.param.u64 %rd1, [hold_ns];\n"
			   "	mov.u64 %rd2, %globaltimer;\n"
			   "more:\n"
			   "	mov.u64 %rd3, %globaltimer;\n"
			   "	sub.u64 %rd4, %rd3, %rd2;\n"
			   "	setp.lt.u64 %p1, %rd4, %rd1;\n"
			   "	@%p1 bra more;\n"
			   "	trap;\n"
			   "	ret;\n"
			   "}\n";

/* As sticky.py writes it. */
struct order {
	uint64_t hold_ns;
	uint64_t gpu; /* by its number */
};

static int control = -1;

/* `what` failed with `result`, unless that is 0. False then. */
static int fine(CUresult result, const char *what, void *driver)
{
	__typeof__(cuGetErrorName) *error_name =
		(__typeof__(error_name))dlsym(driver, "cuGetErrorName");
	const char *name = "unknown error";

	if (result == CUDA_SUCCESS)
		return 1;
	if (error_name)
		error_name(result, &name);
	dprintf(control, "%s: %s\n", what, name);
	return 0;
}

/* The driver's function of that name, or the end of this run. */
#define CALL(name, ...)                                                                            \
	do {                                                                                       \
		__typeof__(name) *call = (__typeof__(call))dlsym(driver, #name);                   \
		if (!call) {                                                                       \
			dprintf(control, "failed: the driver has no %s\n", #name);                 \
			return;                                                                    \
		}                                                                                  \
		if (!fine(call(__VA_ARGS__), "failed: " #name, driver))                            \
			return;                                                                    \
	} while (0)

static void break_context(struct order order)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	void *parameters[] = {&order.hold_ns};
	int processors = 0, shared_bytes = 0;
	__typeof__(cuStreamSynchronize) *synchronize;
	CUfunction function;
	CUcontext context;
	CUmodule module;
	CUstream stream;
	CUdevice device;

	if (!driver) {
		dprintf(control, "failed: libcuda.so.1: %s\n", dlerror());
		return;
	}
	CALL(cuDeviceGet, &device, (int)order.gpu);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	CALL(cuModuleLoadData, &module, code);
	CALL(cuModuleGetFunction, &function, module, "hold");
	CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	CALL(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	CALL(cuDeviceGetAttribute, &shared_bytes,
		CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
	CALL(cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		shared_bytes);
	CALL(cuLaunchKernel, function, (unsigned)processors, 1, 1, 1, 1, 1, (unsigned)shared_bytes,
		stream, parameters, NULL);
	dprintf(control, "launched\n");
	synchronize = (__typeof__(synchronize))dlsym(driver, "cuStreamSynchronize");
	if (fine(synchronize ? synchronize(stream) : CUDA_SUCCESS, "ended", driver))
		dprintf(control, "ended: without an error\n");
}

static void *wait_for_word(void *user)
{
	struct order order;

	(void)user;
	if (read(control, &order, sizeof(order)) == (ssize_t)sizeof(order))
		break_context(order);
	return NULL;
}

static void __attribute__((constructor)) start(void)
{
	const char *fd = getenv("STICKY_FD");
	sigset_t all, before;
	pthread_t thread;

	if (!fd)
		return;
	control = atoi(fd);
	sigfillset(&all); /* signals are for draftd's own threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&thread, NULL, wait_for_word, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
