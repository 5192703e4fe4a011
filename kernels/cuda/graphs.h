/* One captured launch for each draft length 1..max_steps and row bucket 1, 2, 4, … max_rows. Owned by the head. */
#ifndef KERNELS_CUDA_GRAPHS_H
#define KERNELS_CUDA_GRAPHS_H

#include "launcher.h"

#define GRAPH_BUCKETS_MAX 13 /* powers of two to CUDA_ROWS_MAX */

struct graph_table {
	uint32_t buckets[GRAPH_BUCKETS_MAX]; /* rows */
	unsigned bucket_count;
	uint64_t bytes; /* of device memory that they took */
	cudaGraphExec_t launch[CUDA_STEPS_MAX][GRAPH_BUCKETS_MAX];
};

/* Captures all of them; -ENOMEM past `bytes_max` of device memory. */
int graph_table_build(struct graph_table *table, const struct launcher *launcher, enum cuda_form form,
	cudaStream_t stream, uint64_t bytes_max, void (*progress)(void *user, const char *what, double done),
	void *user, struct error_text *error);
void graph_table_done(struct graph_table *table);

/* The smallest bucket that holds `rows`: an index. */
unsigned graph_table_bucket(const struct graph_table *table, uint32_t rows);

#endif
