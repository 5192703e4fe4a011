/* From a batch to the columns of a launch, and back: which rows are used in place and which pass through pinned memory.
 * Owned by the head; between staging_send() and staging_receive() the batch must stay as it is. */
#ifndef KERNELS_CUDA_STAGING_H
#define KERNELS_CUDA_STAGING_H

#include "columns.h"
#include "memory.h"

struct staging {
	const struct cuda_memory *memory; /* or NULL: nothing is used in place */
	struct arena base, logits, trace;
	uint64_t step_bytes; /* from step to step of a staged row */
};

/* Fills the columns' rows and trace addresses. */
int staging_send(struct staging *staging, const struct markov_batch *batch, uint32_t vocab,
	struct draft_columns *columns, struct error_text *error);

/* Copies out what was staged, when the launch is over. */
void staging_receive(struct staging *staging, const struct markov_batch *batch, uint32_t vocab);

void staging_done(struct staging *staging);

#endif
