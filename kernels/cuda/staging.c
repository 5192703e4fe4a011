#include "staging.h"

#include "device.h"

#include <string.h>

#define PITCH_MAX 0x7FFFFFFFu /* of a two-dimensional copy */

void staging_init(struct staging *s, uint32_t first_id, uint32_t vocab)
{
	*s = (struct staging){
		.first_id = first_id,
		.vocab = vocab,
		.base.kind = MEMORY_DEVICE,
		.logits.kind = MEMORY_DEVICE,
		.pinned_base.kind = MEMORY_PINNED,
		.pinned_logits.kind = MEMORY_PINNED,
		.trace.kind = MEMORY_PINNED,
	};
}

static bool wants_logits(const struct markov_batch *batch, uint32_t row)
{
	return batch->slots[row] >= 0 && batch->logits && batch->logits[row];
}

static enum memory_kind kind_of(const enum memory_kind *kinds, uint32_t row)
{
	return kinds ? kinds[row] : MEMORY_PLAIN;
}

bool staging_copies(const struct markov_batch *batch)
{
	for (uint32_t row = 0; row < batch->rows; row++)
		if (kind_of(batch->base_memory, row) != MEMORY_DEVICE ||
			(wants_logits(batch, row) &&
				kind_of(batch->logits_memory, row) != MEMORY_DEVICE))
			return true;
	return batch->trace_bias || batch->trace_values;
}

/* Where the shard's part of a row begins. */
static const char *part_of(const struct staging *s, const void *row)
{
	return (const char *)row + (size_t)s->first_id * 2;
}

static size_t trace_bytes(
	const struct staging *s, const struct markov_batch *batch, size_t size, const void *wanted)
{
	return wanted ? arena_rounded((size_t)batch->rows * batch->steps * s->vocab * size) : 0;
}

/* Room for every row that has to be copied. */
static int make_room(struct staging *s, const struct markov_batch *batch, struct error_text *error)
{
	size_t base[3] = {0}, logits[3] = {0}; /* rows by kind */
	for (uint32_t row = 0; row < batch->rows; row++) {
		base[kind_of(batch->base_memory, row)]++;
		if (wants_logits(batch, row))
			logits[kind_of(batch->logits_memory, row)]++;
	}
	/* Steps start at multiples of 16 bytes, so that odd vocabularies too are read in whole
	 * pieces. */
	s->step_bytes = ((size_t)s->vocab * 2 + 15) & ~(size_t)15;
	s->row_bytes = arena_rounded(s->step_bytes * batch->steps);
	int r = arena_reset(
		&s->base, (base[MEMORY_PLAIN] + base[MEMORY_PINNED]) * s->row_bytes, error);
	if (!r)
		r = arena_reset(&s->pinned_base, base[MEMORY_PLAIN] * s->row_bytes, error);
	if (!r)
		r = arena_reset(&s->logits,
			(logits[MEMORY_PLAIN] + logits[MEMORY_PINNED]) * s->row_bytes, error);
	if (!r)
		r = arena_reset(&s->pinned_logits, logits[MEMORY_PLAIN] * s->row_bytes, error);
	if (!r)
		r = arena_reset(&s->trace,
			trace_bytes(s, batch, sizeof(*batch->trace_bias), batch->trace_bias) +
				trace_bytes(s, batch, sizeof(*batch->trace_values),
					batch->trace_values),
			error);
	return r;
}

/* A row's steps, one copy if the strides allow it. */
static int copy_steps(void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
	uint32_t steps, size_t width, enum cudaMemcpyKind kind, cudaStream_t stream,
	struct error_text *error)
{
	int r = 0;
	if (!width)
		return 0; /* a shard without ids */
	if (to_stride >= width && from_stride >= width && to_stride <= PITCH_MAX &&
		from_stride <= PITCH_MAX)
		return CUDA_CALL(error, cudaMemcpy2DAsync(to, to_stride, from, from_stride, width,
						steps, kind, stream));
	for (uint32_t step = 0; !r && step < steps; step++)
		r = CUDA_CALL(error,
			cudaMemcpyAsync((char *)to + step * to_stride,
				(const char *)from + step * from_stride, width, kind, stream));
	return r;
}

static int send_base(struct staging *s, const struct markov_batch *batch, uint32_t i,
	struct draft_row *row, cudaStream_t stream, struct error_text *error)
{
	const enum memory_kind kind = kind_of(batch->base_memory, i);
	const size_t width = (size_t)s->vocab * 2;
	const char *from = part_of(s, batch->base[i]);
	uint64_t stride = batch->base_strides[i];
	if (kind == MEMORY_DEVICE) {
		row->base = (uint64_t)from;
		row->base_stride = stride;
		return 0;
	}
	void *to = arena_take(&s->base, s->row_bytes);
	if (kind == MEMORY_PLAIN) {
		char *pinned = arena_take(&s->pinned_base, s->row_bytes);
		for (uint32_t step = 0; step < batch->steps; step++)
			memcpy(pinned + step * s->step_bytes, from + step * stride, width);
		from = pinned;
		stride = s->step_bytes;
	}
	row->base = (uint64_t)to;
	row->base_stride = s->step_bytes;
	return copy_steps(to, s->step_bytes, from, stride, batch->steps, width,
		cudaMemcpyHostToDevice, stream, error);
}

int staging_send(struct staging *s, const struct markov_batch *batch, struct draft_columns *columns,
	cudaStream_t stream, struct error_text *error)
{
	struct draft_row *rows = (struct draft_row *)(columns + 1);
	int r = make_room(s, batch, error);
	for (uint32_t i = 0; !r && i < batch->rows; i++) {
		const bool padding = batch->slots[i] < 0;
		struct draft_row row = {
			.position = batch->positions[i],
			.seed = padding ? 0 : batch->seeds[i],
			.anchor = batch->anchors[i],
			.temperature = padding ? 0.0f : batch->temperatures[i],
		};
		if (wants_logits(batch, i)) {
			const bool in_place = kind_of(batch->logits_memory, i) == MEMORY_DEVICE;
			row.logits = (uint64_t)(in_place ? part_of(s, batch->logits[i])
							 : arena_take(&s->logits, s->row_bytes));
			row.logits_stride = in_place ? batch->logits_strides[i] : s->step_bytes;
		}
		r = send_base(s, batch, i, &row, stream, error);
		rows[i] = row;
	}
	if (r)
		return r;
	columns->trace_bias = batch->trace_bias
				      ? (uint64_t)arena_take(&s->trace,
						trace_bytes(s, batch, sizeof(*batch->trace_bias),
							batch->trace_bias))
				      : 0;
	columns->trace_values =
		batch->trace_values ? (uint64_t)arena_take(&s->trace,
					      trace_bytes(s, batch, sizeof(*batch->trace_values),
						      batch->trace_values))
				    : 0;
	return 0;
}

int staging_collect(struct staging *s, const struct markov_batch *batch,
	const struct draft_columns *columns, cudaStream_t stream, struct error_text *error)
{
	const struct draft_row *rows = (const struct draft_row *)(columns + 1);
	int r = 0;
	for (uint32_t i = 0; !r && i < batch->rows; i++) {
		if (!wants_logits(batch, i))
			continue;
		const enum memory_kind kind = kind_of(batch->logits_memory, i);
		if (kind == MEMORY_DEVICE)
			continue;
		const bool plain = kind == MEMORY_PLAIN;
		r = copy_steps(plain ? arena_take(&s->pinned_logits, s->row_bytes)
				     : (void *)part_of(s, batch->logits[i]),
			plain ? s->step_bytes : batch->logits_strides[i],
			(const void *)rows[i].logits, s->step_bytes, batch->steps,
			(size_t)s->vocab * 2, cudaMemcpyDeviceToHost, stream, error);
	}
	return r;
}

void staging_receive(struct staging *s, const struct markov_batch *batch)
{
	/* In the order in which staging_collect() took the room. */
	const char *from = s->pinned_logits.memory;
	for (uint32_t row = 0; row < batch->rows; row++) {
		if (!wants_logits(batch, row) || kind_of(batch->logits_memory, row) != MEMORY_PLAIN)
			continue;
		for (uint32_t step = 0; step < batch->steps; step++)
			memcpy((char *)part_of(s, batch->logits[row]) +
					step * batch->logits_strides[row],
				from + step * s->step_bytes, (size_t)s->vocab * 2);
		from += s->row_bytes;
	}
	const size_t values = (size_t)batch->rows * batch->steps * s->vocab;
	const char *trace = s->trace.memory;
	if (batch->trace_bias) {
		memcpy(batch->trace_bias, trace, values * sizeof(*batch->trace_bias));
		trace += trace_bytes(s, batch, sizeof(*batch->trace_bias), batch->trace_bias);
	}
	if (batch->trace_values)
		memcpy(batch->trace_values, trace, values * sizeof(*batch->trace_values));
}

void staging_done(struct staging *s)
{
	arena_done(&s->base);
	arena_done(&s->logits);
	arena_done(&s->pinned_base);
	arena_done(&s->pinned_logits);
	arena_done(&s->trace);
}
