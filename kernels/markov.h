/* The one seam to what computes draft blocks (NUMERICS.md): open a head on a backend, prepare it,
 * launch a batch of rows, wait for it, close. Plain C; nothing here knows sockets.
 *
 * One thread at a time uses a head: in the daemon the engine thread, from open to close. Several
 * heads may be open (a reload opens the new one beside the old). The caller owns every array of a
 * batch and keeps it, and the memory it points to, until markov_wait() has returned 0 for it. */
#ifndef KERNELS_MARKOV_H
#define KERNELS_MARKOV_H

#include "checkpoint.h"
#include "error_text.h"
#include "memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MARKOV_DEVICES_MAX 32
#define MARKOV_THREADS_MAX 256u
#define MARKOV_BATCHES_MAX 2u
#define MARKOV_FLAG_NAN    0x01 /* a NaN won somewhere in the row */

enum markov_backend {
	MARKOV_AUTO, /* cuda if this build and this machine have it, else cpu */
	MARKOV_CPU,
	MARKOV_CUDA,
};

/* How the CUDA backend works; it computes the same either way. Zeroed: the defaults. */
enum markov_cuda_form {
	MARKOV_CUDA_AUTO,  /* a launch a block where the GPU can run it */
	MARKOV_CUDA_BLOCK, /* one launch for all steps, which takes all multiprocessors */
	MARKOV_CUDA_STEP,  /* one launch a step: slower, but it needs no more than is free */
	MARKOV_CUDA_PLAIN, /* one launch a step, every value in full: the check on the others, and
			      for GPUs that can't run them */
};
enum markov_cuda_wait {
	MARKOV_CUDA_SPIN,  /* look at the GPU again and again: soonest, one core busy meanwhile */
	MARKOV_CUDA_SLEEP, /* sleep a few microseconds between looks; one batch at a time */
};
enum markov_cuda_l2 {
	MARKOV_CUDA_RELEASE, /* leave the GPU's L2 to others between blocks */
	MARKOV_CUDA_KEEP,    /* leave part of w2 there: on a GPU that nobody else uses */
};

struct markov_cuda_options {
	enum markov_cuda_form form;
	enum markov_cuda_wait wait;
	enum markov_cuda_l2 l2;
	uint64_t timeout_us;  /* after that a launch counts as lost; 0: 10 seconds */
	uint64_t graph_bytes; /* device memory that the graphs may take; 0: 1 GiB */
};

struct markov_options {
	enum markov_backend backend;
	const char *devices; /* for cuda: a number or a UUID, or NULL for the first */
	uint32_t max_rows;   /* rows of the largest batch, >= 1 */
	uint32_t max_steps;  /* K of the longest block, >= 1 */
	uint32_t threads;    /* cpu: up to MARKOV_THREADS_MAX; 0 for one a usable core of this
				head's share */
	uint32_t shares;     /* cpu: heads that share the usable cores; 0 counts as 1 */
	struct markov_cuda_options cuda;
};

struct markov_device {
	char uuid[64]; /* "CPU" stands alone for the processor */
	char name[128];
	uint64_t memory_bytes;
};

struct markov_facts {
	const char *backend;    /* "cpu", "cuda" */
	const char *variant;    /* "scalar", "sse2", "avx2", "avx512", "avx512bf16", "sm_90" */
	const char *bias_order; /* "mma16": the order of NUMERICS section 3 */
	char choice[256];       /* one sentence: which backend was taken and why */
	uint32_t vocab, rank, target_vocab;
	float multiplier;
	float soft_cap; /* 0: none */
	uint32_t max_rows, max_steps;
	uint32_t batches_max; /* under way at once: 1 or MARKOV_BATCHES_MAX */
	uint32_t tensor_parallel;
	uint32_t device_count;
	struct markov_device devices[MARKOV_DEVICES_MAX];
	uint64_t table_bytes; /* memory held for w1 and w2 */
};

/* Columns over rows. Strides are in bytes; data is little-endian BF16. Any alignment of 2 works; a
 * row's base and logits may not overlap another row's logits. */
struct markov_batch {
	uint32_t rows;  /* 1 to max_rows */
	uint32_t steps; /* K, 1 to max_steps */
	const uint32_t *anchors;
	const int64_t *positions; /* of step 0 */
	const int64_t *seeds;
	const float *temperatures;
	const int64_t *slots; /* only the sign is looked at: negative is a padding row (T = 0, seed
				 = 0, nothing stored) */
	const void *const *base;      /* [rows]: step 0's V logits of the row */
	const uint64_t *base_strides; /* [rows]: from step i to i + 1 */
	void *const *logits; /* [rows]: where step 0's V draft logits go, or NULL for a row that
				wants none */
	const uint64_t *logits_strides;
	/* [rows]: what the row's base and draft logits lie in, whole; or NULL: all plain */
	const enum memory_kind *base_memory, *logits_memory;
	uint32_t *tokens;     /* out [rows*K], row-major */
	uint8_t *flags;       /* out [rows]: MARKOV_FLAG_… */
	uint16_t *trace_bias; /* tests: out [rows,K,V] BF16 of NUMERICS section 3, or NULL */
	float *trace_values;  /* tests: out [rows,K,V] the values that the argmax compared, or NULL
			       */
};

struct markov_head; /* a model on a backend */

/* Whether this build has the backend, whatever the machine has. Returns 0, or -ENODEV with `error`
 * in one sentence. Never blocks. */
int markov_check_build(enum markov_backend backend, struct error_text *error);

/* Copies the tables out of `checkpoint`, which may be closed afterwards. `progress` (or NULL) is
 * told 0 to 1 while it loads. Returns 0; -ENODEV: the backend can't run in this build or on this
 * machine; -ENXIO: it can, but not on a device that `devices` names; or another -errno; with
 * `error` in one sentence. Blocks while it loads. */
int markov_open(const struct markov_options *options, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_head **ret, struct error_text *error);

/* Waits for what was launched, then frees everything. NULL is fine. */
void markov_close(struct markov_head *head);

const struct markov_facts *markov_facts(const struct markov_head *head);

/* Starts a batch, or puts it behind the one under way where `batches_max` lets it: it begins as
 * soon as that one has ended. Returns 0, -EINVAL for a batch outside the limits, -EBUSY when as
 * many as can be are under way (a batch whose rows have to be copied can only be alone), or -EIO
 * when the device is lost. */
int markov_launch(
	struct markov_head *head, const struct markov_batch *batch, struct error_text *error);

/* Waits for the oldest batch under way. Returns 0 when its outputs are complete and visible to
 * every thread and process that is told so, or -EIO when the device is lost: then so are all that
 * are under way, and the head can only be closed. */
int markov_wait(struct markov_head *head, struct error_text *error);

/* Whether the oldest batch under way is over, well or not, or markov_wait() is what computes it.
 * Never blocks. */
bool markov_is_over(const struct markov_head *head);

#endif
