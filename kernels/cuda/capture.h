/* Graphs that are captured from the shards' streams, all at once: the plain form, and forms by step
 * of several shards, which gather their keys through a collective between steps. */
#ifndef KERNELS_CUDA_CAPTURE_H
#define KERNELS_CUDA_CAPTURE_H

#include "graphs.h"

/* Fills graph and launches of one graph a shard: `graphs[i]` is of `shards[i]`. */
int capture_graphs(struct graph *graphs, struct cuda_shard *shards, uint32_t shard_count,
	struct collective *collective, enum markov_cuda_form form, uint32_t bucket, uint32_t steps,
	struct error_text *error);

/* Puts the plain form on the shards' streams, whether they capture or run. */
int capture_plain(struct cuda_shard *shards, uint32_t shard_count, struct collective *collective,
	uint32_t bucket, uint32_t steps, struct error_text *error);

/* Gathers the keys of a step on the shards' streams, whether they capture or run. */
int capture_gather(struct cuda_shard *shards, uint32_t shard_count, struct collective *collective,
	uint32_t step, struct error_text *error);

#endif
