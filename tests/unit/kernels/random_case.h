/* A head with random tables and a batch of rows with every oddity that a caller may have: anchors
 * that are no ids, strides with gaps, odd alignment, temperatures of all kinds, padding rows, rows
 * that want no logits. */
#ifndef TESTS_UNIT_KERNELS_RANDOM_CASE_H
#define TESTS_UNIT_KERNELS_RANDOM_CASE_H

#include "kernels/checkpoint.h"
#include "kernels/markov.h"
#include "tests/unit/kernels/random.h"

#define CASE_ROWS_MAX 40

struct random_shape {
	uint32_t vocab, rank, target_vocab, rows, steps;
	enum operand_kind weights, embeddings, base;
	float multiplier, soft_cap;
	bool plain; /* ordinary temperatures, real anchors */
};

struct random_case {
	struct checkpoint checkpoint;
	struct markov_batch batch;
	unsigned char *logits; /* what the rows' logits, and the gaps between, lie in */
	size_t logits_bytes;
	uint16_t *base;
	uint16_t *w1, *w2;
	uint32_t anchors[CASE_ROWS_MAX];
	int64_t positions[CASE_ROWS_MAX], seeds[CASE_ROWS_MAX], slots[CASE_ROWS_MAX];
	float temperatures[CASE_ROWS_MAX];
	const void *bases[CASE_ROWS_MAX];
	void *row_logits[CASE_ROWS_MAX];
	uint64_t base_strides[CASE_ROWS_MAX], logits_strides[CASE_ROWS_MAX];
};

/* What a run left. */
struct outcome {
	uint32_t *tokens;
	uint8_t flags[CASE_ROWS_MAX];
	unsigned char *logits;
	uint16_t *bias; /* NULL without traces */
	float *values;
};

void random_case_init(struct random_case *test, const struct random_shape *shape, uint64_t seed);
void random_case_done(struct random_case *test);

/* Points the batch at fresh outputs; the logits are filled with a guard. */
void outcome_prepare(struct outcome *outcome, struct random_case *test, bool traces);

/* Takes the logits out of the case. */
void outcome_keep(struct outcome *outcome, const struct random_case *test);
void outcome_done(struct outcome *outcome);

/* Every byte, traces where both have them; any NaN equals any NaN in values. */
void outcome_compare(const struct outcome *got, const struct outcome *wanted,
	const struct random_case *test, const char *who);

#endif
