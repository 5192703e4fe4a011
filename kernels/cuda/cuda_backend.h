/* The CUDA backend behind kernels/markov.h: one head on one NVIDIA GPU or on several that share its
 * vocabulary, the same bits as every other backend (NUMERICS.md). Several exchange their winners by
 * stores into each other's memory in the block form, through NCCL in the others. Plain C;
 * kernels/markov.c dispatches to it.
 *
 * One thread at a time uses a head, from open to close. The functions have the contracts of their
 * markov_ namesakes; what is said here is what they add. */
#ifndef KERNELS_CUDA_CUDA_BACKEND_H
#define KERNELS_CUDA_CUDA_BACKEND_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/markov.h"

#define CUDA_ROWS_MAX  4096u      /* of one batch: more would only wait longer */
#define CUDA_STEPS_MAX 16u        /* a graph is captured for each draft length */
#define CUDA_VOCAB_MAX (1u << 30) /* ids of tiles are signed in the kernels */

struct cuda_options {
	enum markov_cuda_form form;
	bool sleep;               /* between looks at the GPU, instead of spinning */
	bool keep_l2;             /* leave part of w2 in L2 between blocks: on a GPU of our own */
	uint64_t wait_bound_us;   /* a launch that outlives it ends the head; 0: 10 seconds */
	uint64_t graph_bytes_max; /* of device memory for all graphs; 0: 1 GiB */
	uint32_t multiprocessors; /* that the block form may take; 0: all */
	int resident_tiles;       /* of w2, in a multiprocessor's shared memory; -1: by shape */
	int pinned_tiles;         /* of the others of a multiprocessor, in L2; -1: by shape */
	bool repeated_devices;    /* a GPU may be named several times: it is as many shards, each
				     with its part of the multiprocessors */
};

/* Everything by itself. */
void cuda_options_init(struct cuda_options *options);

struct cuda_head;

/* `tuning` may be NULL: cuda_options_init()'s. -ENODEV: no driver, GPU or code for it; -ENXIO: not
 * that GPU; -ENOMEM: the head or its graphs do not fit. Every graph is captured when it returns. */
int cuda_head_open(const struct markov_options *options, const struct cuda_options *tuning,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct cuda_head **ret, struct error_text *error);
void cuda_head_close(struct cuda_head *head);
const struct markov_facts *cuda_head_facts(const struct cuda_head *head);

/* A batch with trace outputs runs in the plain form, outside the graphs, on one GPU only. */
int cuda_head_launch(
	struct cuda_head *head, const struct markov_batch *batch, struct error_text *error);
int cuda_head_wait(struct cuda_head *head, struct error_text *error);
bool cuda_head_is_over(const struct cuda_head *head);

/* Bytes of device memory that the captured graphs took. */
uint64_t cuda_head_graph_bytes(const struct cuda_head *head);

/* For benchmarks: runs the graph of the last launch again `count` times on the same columns and
 * writes each one's microseconds, by events around it. Call it between a wait and the next launch.
 */
int cuda_head_replay(
	struct cuda_head *head, unsigned count, float *ret_us, struct error_text *error);

#ifdef __cplusplus
}
#endif

#endif
