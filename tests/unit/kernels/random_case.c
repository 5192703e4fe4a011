#include "tests/unit/kernels/random_case.h"

#include "kernels/cpu/bf16.h"
#include "tests/unit/kernels/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0x5a

static uint16_t *operands(struct random *random, size_t count, enum operand_kind kind)
{
	/* one value further: the tables must work at any address of 2 */
	uint16_t *values = malloc((count + 1) * sizeof(*values));

	for (size_t i = 0; i <= count; i++)
		values[i] = random_operand(random, kind);
	return values;
}

static void fill_row(struct random_case *test, struct random *random,
	const struct random_shape *shape, uint32_t r)
{
	static const float odd[] = {0.0f, -0.0f, 1.0f, 0.7f, 3.0f, 1e-40f, 2e38f, -1.0f, INFINITY,
		-INFINITY, NAN, 0x1p-126f};

	test->anchors[r] = shape->plain || r % 3 ? random_below(random, shape->target_vocab)
						 : (uint32_t)random_bits(random);
	test->positions[r] = r % 4 == 3 ? (int64_t)random_bits(random) : (int64_t)r * 100;
	test->seeds[r] = (int64_t)random_bits(random);
	test->slots[r] = !shape->plain && r % 7 == 5 ? -1 : (int64_t)r;
	test->temperatures[r] = shape->plain ? 0.5f + (float)(r % 3) * 0.5f
					     : odd[r % (sizeof(odd) / sizeof(odd[0]))];
}

void random_case_init(struct random_case *test, const struct random_shape *shape, uint64_t seed)
{
	struct random random = {seed * 2 + 1};
	size_t base_stride = shape->vocab + (shape->plain ? 0 : 3);
	size_t logits_stride = (size_t)shape->vocab * 2 + (shape->plain ? 0 : 10);

	*test = (struct random_case){
		.w1 = operands(
			&random, (size_t)shape->target_vocab * shape->rank, shape->embeddings),
		.w2 = operands(&random, (size_t)shape->vocab * shape->rank, shape->weights),
		.base = operands(&random, shape->rows * shape->steps * base_stride, shape->base),
		.logits_bytes = shape->rows * shape->steps * logits_stride + 2,
	};
	test->logits = malloc(test->logits_bytes);
	test->checkpoint = (struct checkpoint){
		.name = "random",
		.vocab = shape->vocab,
		.rank = shape->rank,
		.target_vocab = shape->target_vocab,
		.w1 = test->w1 + 1,
		.w2 = test->w2 + 1,
		.multiplier = shape->multiplier,
		.soft_cap = shape->soft_cap,
	};
	for (uint32_t r = 0; r < shape->rows; r++) {
		fill_row(test, &random, shape, r);
		test->bases[r] = test->base + 1 + r * shape->steps * base_stride;
		test->base_strides[r] = base_stride * 2;
		test->row_logits[r] = !shape->plain && r % 5 == 4
					      ? NULL
					      : test->logits + 2 + r * shape->steps * logits_stride;
		test->logits_strides[r] = logits_stride;
	}
	test->batch = (struct markov_batch){
		.rows = shape->rows,
		.steps = shape->steps,
		.anchors = test->anchors,
		.positions = test->positions,
		.seeds = test->seeds,
		.temperatures = test->temperatures,
		.slots = test->slots,
		.base = test->bases,
		.base_strides = test->base_strides,
		.logits = test->row_logits,
		.logits_strides = test->logits_strides,
	};
}

void random_case_done(struct random_case *test)
{
	free(test->w1);
	free(test->w2);
	free(test->base);
	free(test->logits);
}

void outcome_prepare(struct outcome *outcome, struct random_case *test, bool traces)
{
	size_t cells = (size_t)test->batch.rows * test->batch.steps;
	size_t values = cells * test->checkpoint.vocab;

	*outcome = (struct outcome){
		.tokens = malloc(cells * sizeof(uint32_t)),
		.logits = malloc(test->logits_bytes),
		.bias = traces ? malloc(values * sizeof(uint16_t)) : NULL,
		.values = traces ? malloc(values * sizeof(float)) : NULL,
	};
	memset(outcome->tokens, GUARD, cells * sizeof(uint32_t));
	memset(outcome->flags, GUARD, sizeof(outcome->flags));
	memset(test->logits, GUARD, test->logits_bytes);
	test->batch.tokens = outcome->tokens;
	test->batch.flags = outcome->flags;
	test->batch.trace_bias = outcome->bias;
	test->batch.trace_values = outcome->values;
}

void outcome_keep(struct outcome *outcome, const struct random_case *test)
{
	memcpy(outcome->logits, test->logits, test->logits_bytes);
}

void outcome_done(struct outcome *outcome)
{
	free(outcome->tokens);
	free(outcome->logits);
	free(outcome->bias);
	free(outcome->values);
}

void outcome_compare(const struct outcome *got, const struct outcome *wanted,
	const struct random_case *test, const char *who)
{
	size_t cells = (size_t)test->batch.rows * test->batch.steps;
	size_t values = cells * test->checkpoint.vocab;

	for (size_t i = 0; got->bias && wanted->bias && i < values; i++) {
		REQUIRE(got->bias[i] == wanted->bias[i], "%s: bias %zu is %04x, not %04x", who, i,
			got->bias[i], wanted->bias[i]);
		REQUIRE(memcmp(&got->values[i], &wanted->values[i], 4) == 0 ||
				(isnan(got->values[i]) && isnan(wanted->values[i])),
			"%s: value %zu is %a, not %a", who, i, (double)got->values[i],
			(double)wanted->values[i]);
	}
	for (size_t i = 0; i < test->logits_bytes; i++)
		REQUIRE(got->logits[i] == wanted->logits[i],
			"%s: byte %zu of the logits is %02x, not %02x", who, i, got->logits[i],
			wanted->logits[i]);
	for (size_t i = 0; i < cells; i++)
		REQUIRE(got->tokens[i] == wanted->tokens[i] &&
				got->tokens[i] < test->checkpoint.vocab,
			"%s: token %zu is %u, not %u", who, i, got->tokens[i], wanted->tokens[i]);
	for (uint32_t r = 0; r < test->batch.rows; r++)
		REQUIRE(got->flags[r] == wanted->flags[r], "%s: flags of row %u are %u, not %u",
			who, r, got->flags[r], wanted->flags[r]);
}
