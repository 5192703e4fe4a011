#include "model.h"

#include "kernels/reference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEST_ROWS      2 /* one greedy, one sampled */
#define TEST_STEPS_MAX 2 /* the second step depends on the first one's token */

struct outcome {
	uint32_t tokens[TEST_ROWS * TEST_STEPS_MAX];
	uint8_t flags[TEST_ROWS];
	uint16_t *logits; /* [TEST_ROWS, steps, V] */
};

/* BF16 numbers between -8 and 8 in no order, so that no id is favoured. */
static void fill_base(uint16_t *base, size_t count)
{
	uint32_t state = 1;

	for (size_t i = 0; i < count; i++) {
		uint32_t exponent;

		state = state * 1664525u + 1013904223u;
		exponent = 0x7e + (state >> 30);
		base[i] =
			(uint16_t)((state >> 29 & 1) << 15 | exponent << 7 | (state >> 16 & 0x7f));
	}
}

static int compare(const struct outcome *got, const struct outcome *right, uint32_t steps,
	size_t values, struct error_text *error)
{
	for (uint32_t i = 0; i < TEST_ROWS * steps; i++)
		if (got->tokens[i] != right->tokens[i])
			return error_text_set(error, EIO,
				"the self-test failed: row %u, step %u drafted token %u, the "
				"reference has %u",
				i / steps, i % steps, got->tokens[i], right->tokens[i]);
	if (memcmp(got->logits, right->logits, values * sizeof(*got->logits)) != 0)
		return error_text_set(error, EIO,
			"the self-test failed: the stored logits differ from the reference");
	return 0;
}

static int self_test(struct markov_head *head, const struct checkpoint *checkpoint,
	uint32_t max_steps, struct error_text *error)
{
	const uint32_t anchors[TEST_ROWS] = {
		checkpoint->target_vocab / 2, checkpoint->target_vocab - 1};
	const int64_t positions[TEST_ROWS] = {17, 4096};
	const int64_t seeds[TEST_ROWS] = {0, -3};
	const float temperatures[TEST_ROWS] = {0.0f, 0.75f};
	const int64_t slots[TEST_ROWS] = {0, 1};
	uint32_t steps = max_steps < TEST_STEPS_MAX ? max_steps : TEST_STEPS_MAX;
	size_t row_values = (size_t)steps * checkpoint->vocab;
	size_t values = TEST_ROWS * row_values;
	const uint64_t strides[TEST_ROWS] = {
		(uint64_t)checkpoint->vocab * 2, (uint64_t)checkpoint->vocab * 2};
	uint16_t *base = malloc(values * sizeof(*base));
	struct outcome got = {.logits = calloc(values, sizeof(*got.logits))};
	struct outcome right = {.logits = calloc(values, sizeof(*right.logits))};
	const void *const base_rows[TEST_ROWS] = {base, base + row_values};
	struct markov_batch batch = {
		.rows = TEST_ROWS,
		.steps = steps,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
		.slots = slots,
		.base = base_rows,
		.base_strides = strides,
		.logits_strides = strides,
	};
	int r;

	if (!base || !got.logits || !right.logits) {
		r = error_text_set(error, ENOMEM, "out of memory for the self-test");
		goto out;
	}
	fill_base(base, values);

	batch.logits = (void *const[TEST_ROWS]){got.logits, got.logits + row_values};
	batch.tokens = got.tokens;
	batch.flags = got.flags;
	r = markov_launch(head, &batch, error);
	if (r == 0)
		r = markov_wait(head, error);
	if (r < 0)
		goto out;

	batch.logits = (void *const[TEST_ROWS]){right.logits, right.logits + row_values};
	batch.tokens = right.tokens;
	batch.flags = right.flags;
	r = reference_run(checkpoint, &batch, error);
	if (r == 0)
		r = compare(&got, &right, steps, values, error);
out:
	free(base);
	free(got.logits);
	free(right.logits);
	return r;
}

static int open_checkpoint(
	const struct config *config, struct checkpoint *ret, struct error_text *error)
{
	const struct checkpoint_options options = {
		.has_multiplier = config->has_multiplier,
		.multiplier = config->multiplier,
		.has_soft_cap = config->has_soft_cap,
		.soft_cap = config->soft_cap,
	};

	return checkpoint_open(config->model_path, &options, ret, error);
}

int model_check(const struct config *config, struct error_text *error)
{
	struct checkpoint checkpoint = {0};
	int r = open_checkpoint(config, &checkpoint, error);

	checkpoint_close(&checkpoint);
	return r;
}

int model_load(const struct config *config,
	void (*progress)(void *user, const char *what, double done), void *user, struct model *ret,
	struct error_text *error)
{
	const struct markov_options head_options = {
		.backend = config->backend,
		.devices = config->devices,
		.max_rows = config->max_rows,
		.max_steps = config->max_steps,
		.threads = config->threads,
		.cuda = config->cuda,
	};
	struct checkpoint checkpoint = {0};
	struct markov_head *head = NULL;
	int r;

	r = open_checkpoint(config, &checkpoint, error);
	if (r < 0)
		return r;
	if (progress)
		progress(user, "reading", 0);
	r = checkpoint_load(&checkpoint, progress, user, error);
	if (r < 0)
		goto out;
	r = markov_open(&head_options, &checkpoint, progress, user, &head, error);
	if (r < 0)
		goto out;
	if (progress)
		progress(user, "testing", 0);
	r = self_test(head, &checkpoint, config->max_steps, error);
	if (r < 0)
		goto out;
	*ret = (struct model){.head = head};
	memcpy(ret->name, checkpoint.name, sizeof(ret->name));
	head = NULL;
out:
	markov_close(head);
	checkpoint_close(&checkpoint);
	return r;
}
