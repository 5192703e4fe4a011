#include "model.h"

#include "devices.h"
#include "kernels/reference.h"
#include "proto/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(LIMIT_THREADS_MAX == MARKOV_THREADS_MAX, "what may be asked for can be started");

#define TEST_ROWS      2 /* one greedy, one sampled; the head may take one only */
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

static int compare(const struct outcome *got, const struct outcome *right, uint32_t rows,
	uint32_t steps, size_t values, struct error_text *error)
{
	for (uint32_t i = 0; i < rows * steps; i++)
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

/* Of several replicas, which one an error is about. */
static void name_replica(uint32_t replicas, uint32_t replica, struct error_text *error)
{
	const struct error_text why = *error;

	if (replicas > 1)
		error_text_set(
			error, EINVAL, "replica %" PRIu32 ": %.*s", replica, CUT(480, why.text));
}

/* Drafts the block on a head, or with NULL on the reference. */
static int draft_block(struct markov_head *head, const struct checkpoint *checkpoint,
	const uint16_t *base, uint32_t rows, uint32_t steps, struct outcome *outcome,
	struct error_text *error)
{
	const size_t row_values = (size_t)steps * checkpoint->vocab;
	const uint64_t stride = (uint64_t)checkpoint->vocab * 2;
	const struct markov_batch batch = {
		.rows = rows,
		.steps = steps,
		.anchors = (const uint32_t[TEST_ROWS]){checkpoint->target_vocab / 2,
			checkpoint->target_vocab - 1},
		.positions = (const int64_t[TEST_ROWS]){17, 4096},
		.seeds = (const int64_t[TEST_ROWS]){0, -3},
		.temperatures = (const float[TEST_ROWS]){0.0f, 0.75f},
		.slots = (const int64_t[TEST_ROWS]){0, 1},
		.base = (const void *const[TEST_ROWS]){base, base + row_values},
		.base_strides = (const uint64_t[TEST_ROWS]){stride, stride},
		.logits = (void *const[TEST_ROWS]){outcome->logits, outcome->logits + row_values},
		.logits_strides = (const uint64_t[TEST_ROWS]){stride, stride},
		.tokens = outcome->tokens,
		.flags = outcome->flags,
	};
	int r;

	if (!head)
		return reference_run(checkpoint, &batch, error);
	r = markov_launch(head, &batch, error);
	if (r == 0)
		r = markov_wait(head, error);
	return r;
}

static int self_test(const struct model *model, const struct checkpoint *checkpoint,
	const struct config *config, struct error_text *error)
{
	uint32_t rows = config->max_rows < TEST_ROWS ? config->max_rows : TEST_ROWS;
	uint32_t steps = config->max_steps < TEST_STEPS_MAX ? config->max_steps : TEST_STEPS_MAX;
	size_t values = (size_t)rows * steps * checkpoint->vocab;
	uint16_t *base = malloc(values * sizeof(*base));
	struct outcome got = {.logits = calloc(values, sizeof(*got.logits))};
	struct outcome right = {.logits = calloc(values, sizeof(*right.logits))};
	int r;

	if (!base || !got.logits || !right.logits) {
		r = error_text_set(error, ENOMEM, "out of memory for the self-test");
		goto out;
	}
	fill_base(base, values);
	r = draft_block(NULL, checkpoint, base, rows, steps, &right, error);
	for (uint32_t i = 0; r == 0 && i < model->replicas; i++) {
		memset(got.logits, 0, values * sizeof(*got.logits));
		memset(got.tokens, 0xff, sizeof(got.tokens));
		r = draft_block(model->heads[i], checkpoint, base, rows, steps, &got, error);
		if (r == 0)
			r = compare(&got, &right, rows, steps, values, error);
		if (r < 0)
			name_replica(model->replicas, i, error);
	}
out:
	free(base);
	free(got.logits);
	free(right.logits);
	return r;
}

static int open_checkpoint(
	const struct config *config, struct checkpoint *ret, struct refusal *refusal)
{
	const struct checkpoint_options options = {
		.has_multiplier = config->has_multiplier,
		.multiplier = config->multiplier,
		.has_soft_cap = config->has_soft_cap,
		.soft_cap = config->soft_cap,
	};
	int r = checkpoint_open(config->model_path, &options, ret, &refusal->sentence);

	/* Every multiplier that the table takes is right. */
	if (r < 0)
		refusal_about(refusal, r == -EDOM ? SETTING(soft_cap) : SETTING(model_path), 0);
	return r;
}

/* What can be told before anything is read. */
static int look(const struct config *config, struct checkpoint *ret, struct refusal *refusal)
{
	int r = open_checkpoint(config, ret, refusal);

	if (r < 0)
		return r;
	r = markov_check_build(config->backend, &refusal->sentence);
	if (r < 0)
		refusal_about(refusal, SETTING(backend), 0);
	return r;
}

int model_check(const struct config *config, struct refusal *refusal)
{
	struct checkpoint checkpoint = {0};
	int r = look(config, &checkpoint, refusal);

	checkpoint_close(&checkpoint);
	return r;
}

const struct markov_device *model_device(
	const struct markov_facts *facts, uint32_t replica, uint32_t index)
{
	/* The processor is one device, whatever the number of replicas. */
	return &facts->devices[(replica * facts->tensor_parallel + index) % facts->device_count];
}

void model_close(struct model *model)
{
	for (uint32_t i = 0; i < model->replicas; i++) {
		markov_close(model->heads[i]);
		model->heads[i] = NULL;
	}
}

/* ---- opening the heads ---- */

/* Progress of one head. */
struct opening {
	void (*progress)(void *user, const char *what, double done);
	void *user;
	uint32_t replica, replicas;
};

static void tell_progress(void *user, const char *what, double done)
{
	const struct opening *opening = user;
	char text[96];

	if (opening->replicas > 1)
		snprintf(text, sizeof(text), "replica %" PRIu32 ", %s", opening->replica, what);
	else
		snprintf(text, sizeof(text), "%s", what);
	if (opening->progress)
		opening->progress(opening->user, text, done);
}

/* Two names may be those of one GPU: a number and a UUID. */
static int add_facts(struct model *model, const struct markov_facts *own, struct refusal *refusal)
{
	struct markov_facts *all = &model->facts;

	if (model->replicas == 0) {
		*all = *own;
		return 0;
	}
	all->table_bytes += own->table_bytes;
	if (strcmp(own->backend, "cpu") == 0)
		return 0;
	for (uint32_t i = 0; i < own->device_count; i++) {
		for (uint32_t n = 0; n < all->device_count; n++)
			if (strcmp(own->devices[i].uuid, all->devices[n].uuid) == 0)
				return error_text_set(refusal_about(refusal, SETTING(devices), 0),
					EINVAL, "devices names %s twice; name each GPU once",
					own->devices[i].uuid);
		all->devices[all->device_count++] = own->devices[i];
	}
	return 0;
}

static int open_head(const struct config *config, const struct checkpoint *checkpoint,
	const struct opening *opening, struct model *model, struct refusal *refusal)
{
	char devices[MARKOV_DEVICES_MAX * sizeof(((struct markov_device *)0)->uuid)];
	struct markov_options options = {
		.backend = config->backend,
		.devices = config->devices ? devices : NULL,
		.max_rows = config->max_rows,
		.max_steps = config->max_steps,
		.threads = config->threads,
		.shares = config->backend == MARKOV_CPU ? opening->replicas : 1,
		.cuda = config->cuda,
	};
	struct markov_head *head = NULL;
	int r;

	if (config->devices)
		devices_of(config->devices, config->tensor_parallel, opening->replica, devices,
			sizeof(devices));
	/* Falling back to the CPU is for the first one, and then for all. */
	if (opening->replica > 0 && config->backend == MARKOV_AUTO)
		options.backend = MARKOV_CUDA;
	r = markov_open(&options, checkpoint, tell_progress, (void *)(uintptr_t)opening, &head,
		&refusal->sentence);
	if (r == -ENODEV || r == -ENXIO)
		refusal_about(refusal, r == -ENXIO ? SETTING(devices) : SETTING(backend), 0);
	if (r == 0)
		r = add_facts(model, markov_facts(head), refusal);
	if (r < 0) {
		markov_close(head);
		return r;
	}
	model->heads[model->replicas++] = head;
	return 0;
}

static int open_heads(const struct config *config, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct model *model, struct refusal *refusal)
{
	struct opening opening = {.progress = progress, .user = user, .replicas = config->replicas};
	int r;

	while (opening.replica < opening.replicas) {
		r = open_head(config, checkpoint, &opening, model, refusal);
		if (r < 0) {
			name_replica(opening.replicas, opening.replica, &refusal->sentence);
			return r;
		}
		opening.replica++;
		if (config->backend == MARKOV_AUTO && strcmp(model->facts.backend, "cpu") == 0)
			break; /* the GPUs that are listed can't be used */
	}
	return 0;
}

int model_load(const struct config *config,
	void (*progress)(void *user, const char *what, double done), void *user, struct model *ret,
	struct refusal *refusal)
{
	struct checkpoint checkpoint = {0};
	struct model model = {0};
	int r;

	r = look(config, &checkpoint, refusal);
	if (r == 0 && progress)
		progress(user, "reading the model", 0);
	if (r == 0)
		r = checkpoint_load(&checkpoint, progress, user, &refusal->sentence);
	if (r == 0)
		r = open_heads(config, &checkpoint, progress, user, &model, refusal);
	if (r == 0 && progress)
		progress(user, "testing the model", 0);
	if (r == 0)
		r = self_test(&model, &checkpoint, config, &refusal->sentence);
	if (r < 0) {
		model_close(&model);
	} else {
		/* A file's name may be any bytes, one that is shown may not. */
		wire_text_copy(
			(struct wire_text){checkpoint.name, (uint32_t)strlen(checkpoint.name)},
			model.name, sizeof(model.name));
		*ret = model;
	}
	checkpoint_close(&checkpoint);
	return r;
}
