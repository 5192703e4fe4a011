#include "staging.h"

#include <string.h>

/* From a row's first byte to behind its last. */
static uint64_t extent(uint64_t stride, uint32_t steps, uint32_t vocab)
{
	return stride * (steps - 1) + (uint64_t)vocab * 2;
}

static bool wants_logits(const struct markov_batch *batch, uint32_t row)
{
	return batch->slots[row] >= 0 && batch->logits && batch->logits[row];
}

static bool find_base(const struct staging *s, const struct markov_batch *batch, uint32_t row, uint32_t vocab,
	uint64_t *ret)
{
	return cuda_memory_find(s->memory, batch->base[row],
		extent(batch->base_strides[row], batch->steps, vocab), ret);
}

static bool find_logits(const struct staging *s, const struct markov_batch *batch, uint32_t row, uint32_t vocab,
	uint64_t *ret)
{
	return cuda_memory_find(s->memory, batch->logits[row],
		extent(batch->logits_strides[row], batch->steps, vocab), ret);
}

/* Room for every row that may have to be staged. */
static int make_room(struct staging *s, const struct markov_batch *batch, uint32_t vocab, struct error_text *error)
{
	uint64_t unused;
	size_t base_rows = 0, logits_rows = 0;
	for (uint32_t row = 0; row < batch->rows; row++) {
		base_rows += !find_base(s, batch, row, vocab, &unused);
		logits_rows += wants_logits(batch, row) && !find_logits(s, batch, row, vocab, &unused);
	}
	/* Steps start at multiples of 16 bytes, so that odd vocabularies too are read in whole pieces. */
	s->step_bytes = ((uint64_t)vocab * 2 + 15) & ~15ull;
	const size_t row_bytes = arena_rounded(s->step_bytes * batch->steps);
	int r = arena_reset(&s->base, base_rows * row_bytes, error);
	if (!r)
		r = arena_reset(&s->logits, logits_rows * row_bytes, error);
	const uint64_t values = (uint64_t)batch->rows * batch->steps * vocab;
	if (!r)
		r = arena_reset(&s->trace,
			(batch->trace_bias ? arena_rounded(values * sizeof(*batch->trace_bias)) : 0) +
				(batch->trace_values ? arena_rounded(values * sizeof(*batch->trace_values)) : 0),
			error);
	return r;
}

int staging_send(struct staging *s, const struct markov_batch *batch, uint32_t vocab, struct draft_columns *columns,
	struct error_text *error)
{
	struct draft_row *rows = (struct draft_row *)(columns + 1);
	const int r = make_room(s, batch, vocab, error);
	if (r)
		return r;
	const size_t row_bytes = s->step_bytes * batch->steps;
	for (uint32_t i = 0; i < batch->rows; i++) {
		const bool padding = batch->slots[i] < 0;
		struct draft_row row = {
			.base_stride = batch->base_strides[i],
			.position = batch->positions[i],
			.seed = padding ? 0 : batch->seeds[i],
			.anchor = batch->anchors[i],
			.temperature = padding ? 0.0f : batch->temperatures[i],
		};
		if (!find_base(s, batch, i, vocab, &row.base)) {
			const size_t offset = arena_take(&s->base, row_bytes);
			for (uint32_t step = 0; step < batch->steps; step++)
				memcpy(s->base.host + offset + step * s->step_bytes,
					(const char *)batch->base[i] + step * batch->base_strides[i], (size_t)vocab * 2);
			row.base = s->base.device + offset;
			row.base_stride = s->step_bytes;
		}
		if (wants_logits(batch, i)) {
			row.logits_stride = batch->logits_strides[i];
			if (!find_logits(s, batch, i, vocab, &row.logits)) {
				row.logits = s->logits.device + arena_take(&s->logits, row_bytes);
				row.logits_stride = s->step_bytes;
			}
		}
		rows[i] = row;
	}
	const size_t values = (size_t)batch->rows * batch->steps * vocab;
	columns->trace_bias =
		batch->trace_bias ? s->trace.device + arena_take(&s->trace, values * sizeof(*batch->trace_bias)) : 0;
	columns->trace_values =
		batch->trace_values ? s->trace.device + arena_take(&s->trace, values * sizeof(*batch->trace_values)) : 0;
	return 0;
}

void staging_receive(struct staging *s, const struct markov_batch *batch, uint32_t vocab)
{
	/* In the order in which staging_send() took the room. */
	uint64_t unused;
	const char *from = s->logits.host;
	for (uint32_t row = 0; row < batch->rows; row++) {
		if (!wants_logits(batch, row) || find_logits(s, batch, row, vocab, &unused))
			continue;
		for (uint32_t step = 0; step < batch->steps; step++)
			memcpy((char *)batch->logits[row] + step * batch->logits_strides[row], from + step * s->step_bytes,
				(size_t)vocab * 2);
		from += arena_rounded(s->step_bytes * batch->steps);
	}
	const size_t values = (size_t)batch->rows * batch->steps * vocab;
	const char *trace = s->trace.host;
	if (batch->trace_bias) {
		memcpy(batch->trace_bias, trace, values * sizeof(*batch->trace_bias));
		trace += arena_rounded(values * sizeof(*batch->trace_bias));
	}
	if (batch->trace_values)
		memcpy(batch->trace_values, trace, values * sizeof(*batch->trace_values));
}

void staging_done(struct staging *s)
{
	arena_done(&s->base);
	arena_done(&s->logits);
	arena_done(&s->trace);
}
