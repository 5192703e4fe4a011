/* The columns of a replica's largest launch, between the drafts that ride in it and the head.
 *
 * Made and freed by the engine, used by the replica's thread alone. */
#ifndef DAEMON_COLUMNS_H
#define DAEMON_COLUMNS_H

#include "kernels/markov.h"
#include "request.h"

#include <stdint.h>

struct columns { /* zeroed: none */
	uint32_t *anchors;
	int64_t *positions, *seeds, *slots;
	float *temperatures;
	const void **base;
	uint64_t *base_strides;
	void **logits;
	uint64_t *logits_strides;
	enum memory_kind *base_memory, *logits_memory;
	uint32_t *tokens;
	uint8_t *flags;
};

/* For launches of up to `rows` rows of `steps` steps. Returns 0 or -ENOMEM. */
int columns_init(struct columns *columns, size_t rows, size_t steps);
void columns_done(struct columns *columns);

/* Copies the rows of a draft to row `at` and up. */
void columns_gather(struct columns *columns, uint32_t at, const struct draft *draft);

/* Copies what a launch has computed for these rows back into the draft. */
void columns_scatter(const struct columns *columns, uint32_t at, struct draft *draft);

/* A batch of the first `rows` rows. */
struct markov_batch columns_batch(const struct columns *columns, uint32_t rows, uint32_t steps);

#endif
