#include "kernels/reference.h"

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/bias.h"
#include "kernels/cpu/noise.h"
#include "kernels/cpu/sfu.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a row is computed with: a padding row's temperature and seed don't count. */
struct row {
	int64_t seed, position;
	float temperature;
	const unsigned char *base;
	unsigned char *logits; /* NULL: not stored */
	uint64_t base_stride, logits_stride;
};

uint16_t reference_mix(uint16_t base, uint16_t bias)
{
	return bf16_round(bf16_widen(base) + bf16_widen(bias));
}

uint16_t reference_logit(uint16_t x, float multiplier, float soft_cap)
{
	float y = multiplier * bf16_widen(x);

	if (soft_cap != 0.0f) {
		float inverse = 1.0f / soft_cap;

		y = soft_cap * sfu_tanh(inverse * y);
	}
	return bf16_round(y);
}

bool reference_beats(float value, uint32_t id, float best, uint32_t best_id)
{
	if (isnan(value) || isnan(best))
		return isnan(value) && (!isnan(best) || id < best_id);
	return value > best || (value == best && id < best_id);
}

static uint32_t run_step(const struct checkpoint *checkpoint, const struct row *row, uint32_t step,
	uint32_t previous, uint16_t *w1_row, uint16_t *w2_row, uint16_t *trace_bias,
	float *trace_values, bool *ret_nan)
{
	uint32_t rank = checkpoint->rank;
	size_t row_bytes = rank * sizeof(uint16_t);
	uint32_t known =
		previous < checkpoint->target_vocab ? previous : checkpoint->target_vocab - 1;
	uint32_t prefix = noise_prefix(row->seed, row->position, step);
	struct divisor divisor = sfu_divisor(row->temperature);
	float best = -INFINITY;
	uint32_t winner = UINT32_MAX;

	memcpy(w1_row, (const char *)checkpoint->w1 + known * row_bytes, row_bytes);
	for (uint32_t v = 0; v < checkpoint->vocab; v++) {
		uint16_t base, bias, logit;
		float value;

		memcpy(w2_row, (const char *)checkpoint->w2 + v * row_bytes, row_bytes);
		bias = bf16_round(bias_sum(w2_row, w1_row, rank));
		memcpy(&base, row->base + step * row->base_stride + 2 * (size_t)v, sizeof(base));
		logit = reference_logit(
			reference_mix(base, bias), checkpoint->multiplier, checkpoint->soft_cap);
		if (row->logits)
			memcpy(row->logits + step * row->logits_stride + 2 * (size_t)v, &logit,
				sizeof(logit));
		value = bf16_widen(logit);
		if (row->temperature != 0.0f)
			value = sfu_divide(value, divisor) - noise_gumbel(noise_hash(prefix, v));
		if (trace_bias)
			trace_bias[v] = bias;
		if (trace_values)
			trace_values[v] = value;
		if (reference_beats(value, v, best, winner)) {
			best = value;
			winner = v;
		}
	}
	*ret_nan = isnan(best);
	return winner;
}

int reference_run(const struct checkpoint *checkpoint, const struct markov_batch *batch,
	struct error_text *error)
{
	uint16_t *w1_row, *w2_row;
	int result = 0;

	if (batch->rows == 0 || batch->steps == 0 || !batch->anchors || !batch->base ||
		!batch->tokens)
		return error_text_set(
			error, EINVAL, "the batch has no rows, no steps or no columns");
	w1_row = malloc(checkpoint->rank * sizeof(*w1_row));
	w2_row = malloc(checkpoint->rank * sizeof(*w2_row));
	if (!w1_row || !w2_row) {
		result = error_text_set(error, ENOMEM, "no memory for two table rows");
		goto out;
	}
	for (uint32_t r = 0; r < batch->rows; r++) {
		bool padding = batch->slots[r] < 0;
		struct row row = {
			.seed = padding ? 0 : batch->seeds[r],
			.position = batch->positions[r],
			.temperature = padding ? 0.0f : batch->temperatures[r],
			.base = batch->base[r],
			.base_stride = batch->base_strides[r],
			.logits = padding ? NULL : batch->logits[r],
			.logits_stride = batch->logits_strides[r],
		};
		uint32_t previous = batch->anchors[r];

		batch->flags[r] = 0;
		for (uint32_t step = 0; step < batch->steps; step++) {
			size_t cell = (size_t)r * batch->steps + step;
			size_t trace = cell * checkpoint->vocab;
			bool nan = false;

			previous = run_step(checkpoint, &row, step, previous, w1_row, w2_row,
				batch->trace_bias ? batch->trace_bias + trace : NULL,
				batch->trace_values ? batch->trace_values + trace : NULL, &nan);
			batch->tokens[cell] = previous;
			if (nan)
				batch->flags[r] |= MARKOV_FLAG_NAN;
		}
	}
out:
	free(w2_row);
	free(w1_row);
	return result;
}
