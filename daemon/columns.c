#include "columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void columns_done(struct columns *columns)
{
	free(columns->anchors);
	free(columns->positions);
	free(columns->seeds);
	free(columns->slots);
	free(columns->temperatures);
	free(columns->base);
	free(columns->base_strides);
	free(columns->logits);
	free(columns->logits_strides);
	free(columns->base_memory);
	free(columns->logits_memory);
	free(columns->tokens);
	free(columns->flags);
	*columns = (struct columns){0};
}

int columns_init(struct columns *columns, size_t rows, size_t steps)
{
	*columns = (struct columns){
		.anchors = calloc(rows, sizeof(*columns->anchors)),
		.positions = calloc(rows, sizeof(*columns->positions)),
		.seeds = calloc(rows, sizeof(*columns->seeds)),
		.slots = calloc(rows, sizeof(*columns->slots)),
		.temperatures = calloc(rows, sizeof(*columns->temperatures)),
		.base = calloc(rows, sizeof(*columns->base)),
		.base_strides = calloc(rows, sizeof(*columns->base_strides)),
		.logits = calloc(rows, sizeof(*columns->logits)),
		.logits_strides = calloc(rows, sizeof(*columns->logits_strides)),
		.base_memory = calloc(rows, sizeof(*columns->base_memory)),
		.logits_memory = calloc(rows, sizeof(*columns->logits_memory)),
		.tokens = calloc(rows * steps, sizeof(*columns->tokens)),
		.flags = calloc(rows, sizeof(*columns->flags)),
	};
	if (columns->anchors && columns->positions && columns->seeds && columns->slots &&
		columns->temperatures && columns->base && columns->base_strides &&
		columns->logits && columns->logits_strides && columns->base_memory &&
		columns->logits_memory && columns->tokens && columns->flags)
		return 0;
	columns_done(columns);
	return -ENOMEM;
}

void columns_gather(struct columns *columns, uint32_t at, const struct draft *draft)
{
	memcpy(columns->anchors + at, draft->anchors, draft->rows * sizeof(*draft->anchors));
	memcpy(columns->positions + at, draft->positions, draft->rows * sizeof(*draft->positions));
	memcpy(columns->seeds + at, draft->seeds, draft->rows * sizeof(*draft->seeds));
	memcpy(columns->slots + at, draft->slots, draft->rows * sizeof(*draft->slots));
	memcpy(columns->temperatures + at, draft->temperatures,
		draft->rows * sizeof(*draft->temperatures));
	for (uint32_t row = 0; row < draft->rows; row++) {
		columns->base[at + row] = request_base_at(draft, row);
		columns->base_strides[at + row] = draft->base.step_stride;
		columns->logits[at + row] = request_logits_at(draft, row);
		columns->logits_strides[at + row] = draft->logits.step_stride;
		columns->base_memory[at + row] = draft->base.memory;
		columns->logits_memory[at + row] = draft->logits.memory;
	}
}

void columns_scatter(const struct columns *columns, uint32_t at, struct draft *draft)
{
	memcpy(draft->tokens, columns->tokens + (size_t)at * draft->steps,
		(size_t)draft->rows * draft->steps * sizeof(*draft->tokens));
	memcpy(draft->flags, columns->flags + at, draft->rows * sizeof(*draft->flags));
}

struct markov_batch columns_batch(const struct columns *columns, uint32_t rows, uint32_t steps)
{
	return (struct markov_batch){
		.rows = rows,
		.steps = steps,
		.anchors = columns->anchors,
		.positions = columns->positions,
		.seeds = columns->seeds,
		.temperatures = columns->temperatures,
		.slots = columns->slots,
		.base = columns->base,
		.base_strides = columns->base_strides,
		.logits = columns->logits,
		.logits_strides = columns->logits_strides,
		.base_memory = columns->base_memory,
		.logits_memory = columns->logits_memory,
		.tokens = columns->tokens,
		.flags = columns->flags,
	};
}
