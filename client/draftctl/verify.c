#include "verify.h"

#include "kernels/checkpoint.h"
#include "kernels/markov.h"
#include "random.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX   16
#define SAMPLE_STREAM 3 /* of the seed */
#define SAMPLE_BYTES_MAX                                                                           \
	(256u << 20) /* kept draft logits, of all samples together; one is always kept */

/* An exchange, copied but for its base logits. */
struct sample {
	uint32_t rows, steps;
	const uint16_t *base;
	uint32_t *anchors;
	int64_t *positions, *seeds;
	float *temperatures;
	uint32_t *tokens;
	uint8_t *flags;
	uint16_t *logits; /* NULL: not asked for */
};

struct verify {
	struct markov_head *head;
	uint32_t rows, steps, vocab; /* the most of an exchange */
	uint64_t logits_bytes;       /* the same */
	pthread_mutex_t mutex;       /* over what follows, while a load runs */
	struct sample samples[SAMPLES_MAX];
	unsigned sample_max;
	uint64_t seen;
	struct random random;
};

static int check_served(
	const struct checkpoint *model, const struct draft_model *served, struct error_text *error)
{
	if (model->vocab == served->vocab && model->rank == served->rank &&
		model->target_vocab == served->target_vocab)
		return 0;
	return error_text_set(error, EINVAL,
		"--model has V %u, R %u and %u target token%s; draftd serves \"%s\" with V "
		"%u, R %u and %u",
		model->vocab, model->rank, model->target_vocab, sentence_s(model->target_vocab),
		served->name, served->vocab, served->rank, served->target_vocab);
}

static int allocate_samples(struct verify *verify, bool logits, struct error_text *error)
{
	uint64_t fit = SAMPLE_BYTES_MAX / verify->logits_bytes;
	size_t rows = verify->rows;

	verify->sample_max = !logits || fit > SAMPLES_MAX ? SAMPLES_MAX
			     : fit < 1                    ? 1
							  : (unsigned)fit;
	for (unsigned i = 0; i < verify->sample_max; i++) {
		struct sample *sample = &verify->samples[i];

		sample->anchors = malloc(rows * sizeof(*sample->anchors));
		sample->positions = malloc(rows * sizeof(*sample->positions));
		sample->seeds = malloc(rows * sizeof(*sample->seeds));
		sample->temperatures = malloc(rows * sizeof(*sample->temperatures));
		sample->tokens = malloc(rows * verify->steps * sizeof(*sample->tokens));
		sample->flags = malloc(rows);
		sample->logits = logits ? malloc(verify->logits_bytes) : NULL;
		if (sample->anchors == NULL || sample->positions == NULL || sample->seeds == NULL ||
			sample->temperatures == NULL || sample->tokens == NULL ||
			sample->flags == NULL || (logits && sample->logits == NULL))
			return error_text_set(error, ENOMEM, "no memory for a sample of replies");
	}
	return 0;
}

int verify_open(const char *model_path, const struct draft_model *served,
	const struct load_options *load, struct verify **ret, struct error_text *error)
{
	/* What draftd was told of multiplier and cap wins over the file, as it does there. */
	struct checkpoint_options overrides = {
		.has_multiplier = true,
		.multiplier = served->multiplier,
		.has_soft_cap = true,
		.soft_cap = served->soft_cap,
	};
	struct markov_options options = {
		.backend = MARKOV_CPU,
		.max_rows = mix_rows_max(&load->mix),
		.max_steps = mix_steps_max(&load->mix),
	};
	struct checkpoint model = {0};
	struct verify *verify;
	int r;

	verify = calloc(1, sizeof(*verify));
	if (verify == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	pthread_mutex_init(&verify->mutex, NULL);
	r = checkpoint_open(model_path, &overrides, &model, error);
	if (r < 0)
		goto out;
	r = check_served(&model, served, error);
	if (r < 0)
		goto out;
	r = checkpoint_load(&model, NULL, NULL, error);
	if (r < 0)
		goto out;
	r = markov_open(&options, &model, NULL, NULL, &verify->head, error);
	if (r < 0)
		goto out;
	verify->rows = options.max_rows;
	verify->steps = options.max_steps;
	verify->vocab = model.vocab;
	verify->logits_bytes = mix_cells_max(&load->mix) * model.vocab * 2;
	verify->random = random_start((uint64_t)load->seed, SAMPLE_STREAM);
	r = allocate_samples(verify, load->logits, error);
out:
	checkpoint_close(&model);
	if (r < 0)
		verify_close(verify);
	else
		*ret = verify;
	return r;
}

void verify_close(struct verify *verify)
{
	if (verify == NULL)
		return;
	for (unsigned i = 0; i < SAMPLES_MAX; i++) {
		struct sample *sample = &verify->samples[i];

		free(sample->anchors);
		free(sample->positions);
		free(sample->seeds);
		free(sample->temperatures);
		free(sample->tokens);
		free(sample->flags);
		free(sample->logits);
	}
	markov_close(verify->head);
	pthread_mutex_destroy(&verify->mutex);
	free(verify);
}

static void keep(
	const struct verify *verify, struct sample *sample, const struct load_exchange *exchange)
{
	size_t rows = exchange->rows, cells = rows * exchange->steps;

	sample->rows = exchange->rows;
	sample->steps = exchange->steps;
	sample->base = exchange->base;
	memcpy(sample->anchors, exchange->anchors, rows * sizeof(*sample->anchors));
	memcpy(sample->positions, exchange->positions, rows * sizeof(*sample->positions));
	memcpy(sample->seeds, exchange->seeds, rows * sizeof(*sample->seeds));
	memcpy(sample->temperatures, exchange->temperatures, rows * sizeof(*sample->temperatures));
	memcpy(sample->tokens, exchange->tokens, cells * sizeof(*sample->tokens));
	memcpy(sample->flags, exchange->flags, rows);
	if (sample->logits != NULL)
		memcpy(sample->logits, exchange->logits, cells * verify->vocab * 2);
}

void verify_observe(void *user, const struct load_exchange *exchange)
{
	struct verify *verify = user;
	uint64_t place;

	pthread_mutex_lock(&verify->mutex);
	place = verify->seen++;
	/* Reservoir sampling: the n-th exchange takes a place with probability places / n. */
	if (place >= verify->sample_max)
		place = random_next(&verify->random) % verify->seen;
	if (place < verify->sample_max)
		keep(verify, &verify->samples[place], exchange);
	pthread_mutex_unlock(&verify->mutex);
}

/* The batch's outputs and the columns that an exchange does not have. */
struct scratch {
	int64_t *slots;
	const void **base;
	void **logits;
	uint64_t *strides;
	uint32_t *tokens;
	uint8_t *flags;
	uint16_t *computed; /* [rows,K,V] */
};

static void scratch_done(struct scratch *scratch)
{
	free(scratch->slots);
	free(scratch->base);
	free(scratch->logits);
	free(scratch->strides);
	free(scratch->tokens);
	free(scratch->flags);
	free(scratch->computed);
}

static int scratch_init(
	struct scratch *scratch, const struct verify *verify, struct error_text *error)
{
	size_t rows = verify->rows;

	scratch->slots = calloc(rows, sizeof(*scratch->slots));
	scratch->base = calloc(rows, sizeof(*scratch->base));
	scratch->logits = calloc(rows, sizeof(*scratch->logits));
	scratch->strides = calloc(rows, sizeof(*scratch->strides));
	scratch->tokens = calloc(rows * verify->steps, sizeof(*scratch->tokens));
	scratch->flags = calloc(rows, sizeof(*scratch->flags));
	scratch->computed = malloc(verify->logits_bytes);
	if (scratch->slots == NULL || scratch->base == NULL || scratch->logits == NULL ||
		scratch->strides == NULL || scratch->tokens == NULL || scratch->flags == NULL ||
		scratch->computed == NULL)
		return error_text_set(error, ENOMEM, "no memory to verify");
	for (size_t r = 0; r < rows; r++) {
		scratch->slots[r] = (int64_t)r;
		scratch->strides[r] = (uint64_t)verify->vocab * 2;
	}
	return 0;
}

static int compute(struct verify *verify, const struct sample *sample, struct scratch *scratch,
	struct error_text *error)
{
	struct markov_batch batch = {
		.rows = sample->rows,
		.steps = sample->steps,
		.anchors = sample->anchors,
		.positions = sample->positions,
		.seeds = sample->seeds,
		.temperatures = sample->temperatures,
		.slots = scratch->slots,
		.base = scratch->base,
		.base_strides = scratch->strides,
		.logits = scratch->logits,
		.logits_strides = scratch->strides,
		.tokens = scratch->tokens,
		.flags = scratch->flags,
	};
	int r;

	for (size_t row = 0; row < sample->rows; row++) {
		size_t at = row * sample->steps * verify->vocab;

		scratch->base[row] = sample->base + at;
		scratch->logits[row] = scratch->computed + at;
	}
	r = markov_launch(verify->head, &batch, error);
	if (r == 0)
		r = markov_wait(verify->head, error);
	return r;
}

/* Describes the first difference, or returns false. */
static bool differs(const struct verify *verify, const struct sample *sample,
	const struct scratch *scratch, char *text, size_t text_bytes)
{
	size_t cells = (size_t)sample->rows * sample->steps;

	for (size_t i = 0; i < cells; i++) {
		size_t row = i / sample->steps, step = i % sample->steps;

		if (sample->tokens[i] != scratch->tokens[i]) {
			snprintf(text, text_bytes,
				"row %zu step %zu (anchor %u, position %" PRId64 ", seed %" PRId64
				"): token %u, the CPU backend has %u",
				row, step, sample->anchors[row], sample->positions[row],
				sample->seeds[row], sample->tokens[i], scratch->tokens[i]);
			return true;
		}
		for (size_t v = i * verify->vocab;
			sample->logits != NULL && v < (i + 1) * verify->vocab; v++) {
			if (sample->logits[v] == scratch->computed[v])
				continue;
			snprintf(text, text_bytes,
				"row %zu step %zu id %zu: logit 0x%04x, the CPU backend has 0x%04x",
				row, step, v - i * verify->vocab, sample->logits[v],
				scratch->computed[v]);
			return true;
		}
	}
	for (size_t row = 0; row < sample->rows; row++) {
		if (sample->flags[row] == scratch->flags[row])
			continue;
		snprintf(text, text_bytes, "row %zu: flags 0x%02x, the CPU backend has 0x%02x", row,
			sample->flags[row], scratch->flags[row]);
		return true;
	}
	return false;
}

int verify_run(struct verify *verify, unsigned *ret_checked, unsigned *ret_different, char *text,
	size_t text_bytes, struct error_text *error)
{
	unsigned count =
		verify->seen < verify->sample_max ? (unsigned)verify->seen : verify->sample_max;
	struct scratch scratch = {0};
	unsigned different = 0;
	char rest[128];
	int r;

	r = scratch_init(&scratch, verify, error);
	for (unsigned i = 0; r == 0 && i < count; i++) {
		bool first = different == 0;

		r = compute(verify, &verify->samples[i], &scratch, error);
		if (r == 0)
			different += differs(verify, &verify->samples[i], &scratch,
				first ? text : rest, first ? text_bytes : sizeof(rest));
	}
	if (r == 0) {
		*ret_checked = count;
		*ret_different = different;
	}
	scratch_done(&scratch);
	return r;
}
