/* The launches of all shards, made ready before the first batch: one graph a shard for each draft
 * length 1..max_steps and row bucket 1, 2, 4, … max_rows; of the block form one for each bucket,
 * since its draft length is a parameter. Owned by the head. */
#ifndef KERNELS_CUDA_GRAPHS_H
#define KERNELS_CUDA_GRAPHS_H

#include "collective.h"
#include "shard.h"

#define GRAPH_BUCKETS_MAX 13 /* powers of two to CUDA_ROWS_MAX */

struct graph {
	cudaGraph_t graph;
	cudaGraphExec_t ready;
	cudaGraphNode_t *launches; /* of the block kernel: [passes][1, or steps + 1], or NULL */
};

struct graph_table {
	enum markov_cuda_form form;
	uint32_t buckets[GRAPH_BUCKETS_MAX]; /* rows */
	unsigned bucket_count;
	unsigned length_count;
	uint32_t shard_count;
	uint64_t bytes;       /* of device memory that they took, on the GPU where it was most */
	struct graph *graphs; /* [length_count][bucket_count][shard_count] */
};

/* Builds all of them; -ENOMEM past `bytes_max` of a GPU's memory. With a collective the shards
 * gather their keys after each step, which forms by step need where there are several. */
int graph_table_build(struct graph_table *table, struct cuda_shard *shards, uint32_t shard_count,
	struct collective *collective, enum markov_cuda_form form, uint64_t bytes_max,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error);
void graph_table_done(struct graph_table *table);

/* The smallest bucket that holds `rows`: an index. */
unsigned graph_table_bucket(const struct graph_table *table, uint32_t rows);

/* Starts on every shard what its columns describe, at about the same time; `sequence` is the number
 * of the first pass. */
int graph_table_launch(struct graph_table *table, const struct cuda_shard *shards,
	uint64_t sequence, struct error_text *error);

#endif
