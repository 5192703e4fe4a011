/* From a batch to the columns of a launch, and back: rows in device memory are used in place,
 * others are copied there and back, since kernels that read host memory in small pieces get a fifth
 * of what the copy engines do. Pinned rows are copied once; plain ones twice, through pinned memory
 * of ours, since the driver would do the same in smaller pieces and keep the launch waiting. Of
 * every row it is a shard's ids alone that are used and copied. Owned by the shard; from
 * staging_send() to staging_receive() the batch must stay as it is. */
#ifndef KERNELS_CUDA_STAGING_H
#define KERNELS_CUDA_STAGING_H

#include "arena.h"
#include "columns.h"

#include "kernels/markov.h"

#include <cuda_runtime_api.h>

struct staging {
	uint32_t first_id, vocab;  /* of the shard */
	struct arena base, logits; /* on the device */
	struct arena pinned_base, pinned_logits, trace;
	size_t step_bytes, row_bytes; /* of a copied row */
};

/* Whether a batch takes room here: a row that has to be copied, or a trace. */
bool staging_copies(const struct markov_batch *batch);

void staging_init(struct staging *staging, uint32_t first_id, uint32_t vocab);

/* Fills the columns' rows and trace addresses, and puts the copies of base logits on the stream. */
int staging_send(struct staging *staging, const struct markov_batch *batch,
	struct draft_columns *columns, cudaStream_t stream, struct error_text *error);

/* Puts the copies of draft logits on the stream, behind the kernels. */
int staging_collect(struct staging *staging, const struct markov_batch *batch,
	const struct draft_columns *columns, cudaStream_t stream, struct error_text *error);

/* Copies out what came to pinned memory, when the launch is over. */
void staging_receive(struct staging *staging, const struct markov_batch *batch);

void staging_done(struct staging *staging);

#endif
