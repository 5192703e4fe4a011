/* The happy path: load the library, start a communicator on each GPU without blocking, wait until
 * all are there, gather. What fails: the library, the bound, a GPU; a communicator that failed is
 * aborted, since destroying it would wait for its peers. */
#include "collective.h"

#include "device.h"
#include "kernels/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY     "libnccl.so.2"
#define VERSION_MIN 21800 /* of the functions used, in NCCL's way of writing it */
#define NAP_NS      100000

/* Connecting loads the library's kernels and asks the machine about its links: seconds, where
 * others use it too. What a launch may take says nothing about that. */
#define CONNECT_BOUND_US 30000000

struct library {
	void *handle;
	__typeof__(ncclGetVersion) *get_version;
	__typeof__(ncclGetErrorString) *error_string;
	__typeof__(ncclGetUniqueId) *get_unique_id;
	__typeof__(ncclCommInitRankConfig) *init_rank;
	__typeof__(ncclCommGetAsyncError) *async_error;
	__typeof__(ncclCommFinalize) *finalize;
	__typeof__(ncclCommDestroy) *destroy;
	__typeof__(ncclCommAbort) *abort;
	__typeof__(ncclGroupStart) *group_start;
	__typeof__(ncclGroupEnd) *group_end;
	__typeof__(ncclAllGather) *all_gather;
};

struct collective {
	struct library nccl;
	uint32_t count;
	uint64_t bound_us;
	int ordinals[MARKOV_DEVICES_MAX];
	ncclComm_t communicators[MARKOV_DEVICES_MAX];
};

static int load(struct library *nccl, struct error_text *error)
{
	const struct {
		const char *name;
		void *at;
	} functions[] = {
		{"ncclGetVersion", &nccl->get_version},
		{"ncclGetErrorString", &nccl->error_string},
		{"ncclGetUniqueId", &nccl->get_unique_id},
		{"ncclCommInitRankConfig", &nccl->init_rank},
		{"ncclCommGetAsyncError", &nccl->async_error},
		{"ncclCommFinalize", &nccl->finalize},
		{"ncclCommDestroy", &nccl->destroy},
		{"ncclCommAbort", &nccl->abort},
		{"ncclGroupStart", &nccl->group_start},
		{"ncclGroupEnd", &nccl->group_end},
		{"ncclAllGather", &nccl->all_gather},
	};
	int version = 0;

	nccl->handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!nccl->handle)
		return error_text_set(error, ENOTSUP,
			"several GPUs in this form need NCCL, and %s can't be loaded: install it "
			"(libnccl2), or put its folder on LD_LIBRARY_PATH",
			LIBRARY);
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *function = dlsym(nccl->handle, functions[i].name);
		if (!function)
			return error_text_set(error, ENOTSUP,
				"%s has no %s: NCCL %d.%d or newer is needed", LIBRARY,
				functions[i].name, VERSION_MIN / 10000, VERSION_MIN / 100 % 100);
		memcpy(functions[i].at, &function, sizeof(function));
	}
	if (nccl->get_version(&version) != ncclSuccess || version < VERSION_MIN)
		return error_text_set(error, ENOTSUP, "%s is NCCL %d.%d: %d.%d or newer is needed",
			LIBRARY, version / 10000, version / 100 % 100, VERSION_MIN / 10000,
			VERSION_MIN / 100 % 100);
	return 0;
}

static int result_of(
	const struct collective *c, ncclResult_t result, const char *what, struct error_text *error)
{
	if (result == ncclSuccess || result == ncclInProgress)
		return 0;
	return error_text_set(error, EIO, "%s: NCCL says: %s", what, c->nccl.error_string(result));
}

/* Until what was asked of all communicators is done, which each does in a thread of its own. */
static int settle(
	struct collective *c, const char *what, uint64_t bound_us, struct error_text *error)
{
	const uint64_t until = clock_us() + bound_us;
	for (uint32_t i = 0; i < c->count; i++) {
		for (;;) {
			ncclResult_t state = ncclInternalError;
			int r = result_of(
				c, c->nccl.async_error(c->communicators[i], &state), what, error);
			if (!r)
				r = result_of(c, state, what, error);
			if (r)
				return r;
			if (state != ncclInProgress)
				break;
			if (clock_us() > until)
				return error_text_set(error, EIO,
					"%s: the GPUs did not answer each other within %llu us",
					what, (unsigned long long)bound_us);
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		}
	}
	return 0;
}

static int start(struct collective *c, struct error_text *error)
{
	static const char what[] = "connecting the GPUs";
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;

	config.blocking = 0;
	int r = result_of(c, c->nccl.get_unique_id(&id), what, error);
	if (!r)
		r = result_of(c, c->nccl.group_start(), what, error);
	if (r)
		return r;
	for (uint32_t i = 0; !r && i < c->count; i++) {
		r = CUDA_CALL(error, cudaSetDevice(c->ordinals[i]));
		if (!r)
			r = result_of(c,
				c->nccl.init_rank(
					&c->communicators[i], (int)c->count, id, (int)i, &config),
				what, error);
	}
	const int ended = result_of(c, c->nccl.group_end(), what, r ? NULL : error);
	if (!r)
		r = ended;
	return r ? r : settle(c, what, CONNECT_BOUND_US, error);
}

int collective_open(const int *ordinals, uint32_t count, uint64_t bound_us, struct collective **ret,
	struct error_text *error)
{
	struct collective *c = calloc(1, sizeof(*c));
	if (!c)
		return error_text_set(error, ENOMEM, "out of memory");
	c->count = count;
	c->bound_us = bound_us;
	memcpy(c->ordinals, ordinals, count * sizeof(*ordinals));
	/* Unless the operator says otherwise: what is captured here mixes with nothing else, and
	 * multicast is not worth its risks for packets of this size. */
	setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	int r = load(&c->nccl, error);
	if (!r)
		r = start(c, error);
	if (r)
		collective_close(c, 1);
	else
		*ret = c;
	return r;
}

int collective_gather(struct collective *c, uint64_t *const *blocks, size_t count,
	const cudaStream_t *streams, struct error_text *error)
{
	static const char what[] = "gathering winners";
	int r = result_of(c, c->nccl.group_start(), what, error);
	if (r)
		return r;
	for (uint32_t i = 0; !r && i < c->count; i++)
		r = result_of(c,
			c->nccl.all_gather(blocks[i] + i * count, blocks[i], count, ncclUint64,
				c->communicators[i], streams[i]),
			what, error);
	const int ended = result_of(c, c->nccl.group_end(), what, r ? NULL : error);
	if (!r)
		r = ended;
	return r ? r : settle(c, what, c->bound_us, error);
}

int collective_check(struct collective *c, struct error_text *error)
{
	for (uint32_t i = 0; i < c->count; i++) {
		ncclResult_t state = ncclInternalError;
		int r = result_of(c, c->nccl.async_error(c->communicators[i], &state),
			"between the GPUs", error);
		if (!r)
			r = result_of(c, state, "between the GPUs", error);
		if (r)
			return r;
	}
	return 0;
}

void collective_close(struct collective *c, int abort)
{
	struct error_text ignored;

	if (!c)
		return;
	if (!abort) {
		for (uint32_t i = 0; i < c->count; i++)
			c->nccl.finalize(c->communicators[i]);
		abort = settle(c, "disconnecting the GPUs", c->bound_us, &ignored) != 0;
	}
	for (uint32_t i = 0; i < c->count; i++) {
		if (!c->communicators[i])
			continue;
		cudaSetDevice(c->ordinals[i]);
		if (abort)
			c->nccl.abort(c->communicators[i]);
		else
			c->nccl.destroy(c->communicators[i]);
	}
	/* The library stays: it has threads and handlers that outlive a communicator. */
	free(c);
}
