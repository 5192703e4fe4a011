/* A head, between those who open it and those who launch on it. One thread at a time. */
#ifndef KERNELS_CUDA_HEAD_H
#define KERNELS_CUDA_HEAD_H

#include "cuda_backend.h"
#include "graphs.h"
#include "shard.h"

/* Passes after which the lower half of the exchange's numbers (DRAFT_STEPS_MAX a pass) wraps, and
 * where a head starts: close below, so that the wrap is nothing rare. A multiple of SEQUENCE_WRAP
 * is never used: a lower half of 0 is what a cleared exchange holds. */
#define SEQUENCE_WRAP  ((1ull << 32) / DRAFT_STEPS_MAX)
#define SEQUENCE_FIRST (SEQUENCE_WRAP - 256)

/* A launch that is under way. */
struct cuda_flight {
	const struct markov_batch *batch;
	unsigned slot;
};

struct cuda_head {
	struct markov_facts facts;
	struct cuda_options options;
	enum markov_cuda_form form;
	struct cuda_shard *shards;
	uint32_t shard_count;
	struct collective *collective; /* of forms by step on several GPUs, or NULL */
	struct graph_table graphs;
	uint64_t sequence;
	struct cuda_flight flights[MARKOV_BATCHES_MAX]; /* under way, the oldest first */
	unsigned flight_count;
	uint64_t until_us; /* then the oldest of them counts as lost */
	unsigned slot;     /* of the next launch */
	bool alone;        /* the one under way copies rows: no other may use the staging */
	bool replayable;   /* the columns are those of a launch through a graph */
	bool lost;
};

/* Until what was put on every shard's stream before a slot's event is over. 0, or -EIO: it failed,
 * or it is still not over at `until_us`. */
int cuda_head_await(
	struct cuda_head *head, unsigned slot, uint64_t until_us, struct error_text *error);

/* When what begins now counts as lost. */
uint64_t cuda_head_bound(const struct cuda_head *head);

#endif
