#include "tests/unit/kernels/golden_case.h"

#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0xa5 /* what outputs hold before a run */

const char *const golden_names[] = {"extreme_positions", "extreme_temperatures", "greedy_odd_vocab",
	"greedy_small", "infinities", "many_rows", "multiplier", "multiplier_soft_cap",
	"nan_logits", "padding_rows", "random_weights", "random_weights_rank_200",
	"random_weights_rank_256", "sampled", "sampled_odd_vocab", "soft_cap", "ties",
	"wide_exponents", "wide_rank"};
const size_t golden_count = sizeof(golden_names) / sizeof(golden_names[0]);

/* Columns are copied: no alignment is promised in the file. */
static void *copy(const struct golden_case *golden, const char *name)
{
	const struct tensor *tensor = safetensors_find(golden->file, name);
	void *memory;

	REQUIRE(tensor != NULL, "%s: no tensor %s", golden->name, name);
	memory = malloc(tensor->byte_count);
	ck_assert_ptr_nonnull(memory);
	memcpy(memory, tensor->data, tensor->byte_count);
	return memory;
}

void golden_open(struct golden_case *golden, const char *name)
{
	struct markov_batch *batch = &golden->batch;
	const struct tensor *base;
	struct error_text error;
	const void **bases;
	void **logits;
	uint64_t *strides;
	char path[256];
	size_t block;

	*golden = (struct golden_case){.name = name};
	snprintf(path, sizeof(path), "tests/golden/%s.safetensors", name);
	REQUIRE(safetensors_open(path, &golden->file, &error) == 0, "%s", error.text);
	REQUIRE(checkpoint_open(path, NULL, &golden->checkpoint, &error) == 0, "%s", error.text);
	base = safetensors_find(golden->file, "base_logits");
	ck_assert_ptr_nonnull(base);
	batch->rows = (uint32_t)base->shape[0];
	batch->steps = (uint32_t)base->shape[1];
	block = (size_t)batch->steps * golden->checkpoint.vocab;
	batch->anchors = copy(golden, "anchors");
	batch->positions = copy(golden, "positions");
	batch->seeds = copy(golden, "seeds");
	batch->temperatures = copy(golden, "temperatures");
	batch->slots = copy(golden, "slots");
	bases = calloc(batch->rows, sizeof(*bases));
	logits = calloc(batch->rows, sizeof(*logits));
	strides = calloc(batch->rows, sizeof(*strides));
	golden->logits = malloc(batch->rows * block * 2);
	for (uint32_t r = 0; r < batch->rows; r++) {
		bases[r] = (const char *)base->data + r * block * 2;
		logits[r] = golden->logits + r * block;
		strides[r] = (uint64_t)golden->checkpoint.vocab * 2;
	}
	batch->base = bases;
	batch->logits = logits;
	batch->base_strides = strides;
	batch->logits_strides = strides;
	batch->tokens = malloc(batch->rows * batch->steps * sizeof(uint32_t));
	batch->flags = malloc(batch->rows);
	batch->trace_bias = malloc(batch->rows * block * sizeof(uint16_t));
	batch->trace_values = malloc(batch->rows * block * sizeof(float));
	golden_clear(golden);
}

void golden_clear(struct golden_case *golden)
{
	struct markov_batch *batch = &golden->batch;
	size_t cells = (size_t)batch->rows * batch->steps;
	size_t values = cells * golden->checkpoint.vocab;

	memset(golden->logits, GUARD, values * 2);
	memset(batch->tokens, GUARD, cells * sizeof(uint32_t));
	memset(batch->flags, GUARD, batch->rows);
	memset(batch->trace_bias, GUARD, values * sizeof(uint16_t));
	memset(batch->trace_values, GUARD, values * sizeof(float));
}

void golden_close(struct golden_case *golden)
{
	struct markov_batch *batch = &golden->batch;

	free((void *)batch->anchors);
	free((void *)batch->positions);
	free((void *)batch->seeds);
	free((void *)batch->temperatures);
	free((void *)batch->slots);
	free((void *)batch->base);
	free((void *)batch->logits);
	free((void *)batch->base_strides);
	free(batch->tokens);
	free(batch->flags);
	free(batch->trace_bias);
	free(batch->trace_values);
	free(golden->logits);
	checkpoint_close(&golden->checkpoint);
	safetensors_close(golden->file);
}

static void compare_traces(const struct golden_case *golden, size_t values, const char *who)
{
	const uint16_t *bias = copy(golden, "bias");
	const float *noised = copy(golden, "noised");

	for (size_t i = 0; i < values; i++) {
		float value = golden->batch.trace_values[i];

		REQUIRE(bias[i] == golden->batch.trace_bias[i],
			"%s, %s: bias %zu is %04x, not %04x", golden->name, who, i,
			golden->batch.trace_bias[i], bias[i]);
		REQUIRE(memcmp(&noised[i], &value, 4) == 0 || (isnan(noised[i]) && isnan(value)),
			"%s, %s: value %zu is %a, not %a", golden->name, who, i, (double)value,
			(double)noised[i]);
	}
	free((void *)bias);
	free((void *)noised);
}

void golden_compare(const struct golden_case *golden, bool traces, const char *who)
{
	const struct markov_batch *batch = &golden->batch;
	const int64_t *tokens = copy(golden, "tokens");
	const uint16_t *logits = copy(golden, "draft_logits");
	size_t cells = (size_t)batch->rows * batch->steps;
	size_t block = (size_t)batch->steps * golden->checkpoint.vocab;

	if (traces)
		compare_traces(golden, batch->rows * block, who);
	for (size_t i = 0; i < cells; i++)
		REQUIRE(tokens[i] == (int64_t)batch->tokens[i], "%s, %s: token %zu is %u, not %lld",
			golden->name, who, i, batch->tokens[i], (long long)tokens[i]);
	for (size_t i = 0; i < batch->rows * block; i++) {
		bool stored = batch->slots[i / block] >= 0;
		uint16_t expected = stored ? logits[i] : GUARD << 8 | GUARD;

		REQUIRE(golden->logits[i] == expected, "%s, %s: logit %zu is %04x, not %04x",
			golden->name, who, i, golden->logits[i], expected);
	}
	free((void *)tokens);
	free((void *)logits);
}
