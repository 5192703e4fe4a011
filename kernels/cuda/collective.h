/* NCCL between the GPUs of one process: a communicator over all of them, driven by one thread.
 * libnccl.so.2 is found at run time, so that a head on one GPU, or on GPUs that see each other's
 * memory, does without. Every wait has a bound. Owned by the head. */
#ifndef KERNELS_CUDA_COLLECTIVE_H
#define KERNELS_CUDA_COLLECTIVE_H

#include "kernels/error_text.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct collective; /* opaque: NCCL's types stay inside */

/* Over these GPUs, each once. Blocks for at most 30 seconds; what is asked of it later, for at most
 * `bound_us`. Returns 0, -ENOTSUP without a usable libnccl.so.2, -EIO when the GPUs don't find each
 * other. */
int collective_open(const int *ordinals, uint32_t count, uint64_t bound_us, struct collective **ret,
	struct error_text *error);

/* Puts on each GPU's stream: words [count * i, count * (i + 1)) of `blocks[i]` come to the same
 * place in every other block. May be captured. */
int collective_gather(struct collective *collective, uint64_t *const *blocks, size_t count,
	const cudaStream_t *streams, struct error_text *error);

/* What went wrong on the side, if anything: 0, or -EIO. */
int collective_check(struct collective *collective, struct error_text *error);

/* Nothing is under way any more, and no graph holds what was captured; or `abort`, which ends what
 * is under way. NULL is fine. */
void collective_close(struct collective *collective, int abort);

#endif
