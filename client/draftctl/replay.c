/* draftctl replay: submits recorded cases and compares what comes back with what was recorded, bit
 * for bit.
 *
 * Every output is poisoned before. Over regions the strides leave gaps, which must hold their
 * poison afterwards, as must the slots that no row owns, and the base logits must be as they were.
 */
#include "case_file.h"
#include "command.h"
#include "random.h"
#include "shared.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIFFERENCES_SHOWN 5
#define POISON            0xA5
/* In bytes: even and nothing more, so that no alignment helps. */
#define OFFSET   38
#define STEP_GAP 26
#define ROW_GAP  58
#define TAIL     64

enum base_where {
	BASE_INLINE,
	BASE_HOST,
	BASE_DEVICE,
};

struct replay_options {
	unsigned base;
};

static const char *const base_choices[] = {"inline", "host", "device", NULL};

static const struct option_spec options[] = {
	{
		.name = "base",
		.kind = OPTION_CHOICE,
		.value = "WHERE",
		.help = "where base and draft logits travel: in the frames, in shared memory, or "
			"in "
			"shared memory of draftd's GPU",
		.offset = offsetof(struct replay_options, base),
		.choices = base_choices,
	},
	{0},
};

static const struct replay_options defaults = {0};

/* Where the logits lie, how many of them are right, and the first differences in words. */
struct outcome {
	uint64_t row_stride, step_stride; /* in bytes, between slots (host) or rows (inline) */
	bool by_slot;
	uint64_t differences;
	char lines[DIFFERENCES_SHOWN][128];
};

static void differ(struct outcome *outcome, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void differ(struct outcome *outcome, const char *format, ...)
{
	va_list arguments;

	if (outcome->differences++ >= DIFFERENCES_SHOWN)
		return;
	va_start(arguments, format);
	sentence_print(outcome->lines[outcome->differences - 1], sizeof(outcome->lines[0]), format,
		arguments);
	va_end(arguments);
}

static uint64_t cell_at(
	const struct case_file *c, const struct outcome *outcome, uint32_t row, uint32_t step)
{
	uint64_t place = outcome->by_slot ? (uint64_t)c->slots[row] : row;

	return place * outcome->row_stride + step * outcome->step_stride;
}

static void compare_cell(const struct case_file *c, uint32_t row, uint32_t step, const void *logits,
	struct outcome *outcome)
{
	uint64_t cell = (uint64_t)row * c->steps + step;
	const char *recorded = (const char *)c->draft_logits + cell * c->vocab * 2;

	if (memcmp(logits, recorded, (size_t)c->vocab * 2) == 0)
		return;
	for (uint32_t v = 0; v < c->vocab; v++) {
		uint16_t got, want;

		memcpy(&got, (const char *)logits + 2 * (size_t)v, 2);
		memcpy(&want, recorded + 2 * (size_t)v, 2);
		if (got != want)
			differ(outcome,
				"row %u step %u id %u: logit 0x%04x (%g), recorded 0x%04x (%g)",
				row, step, v, got, (double)bf16_to_float(got), want,
				(double)bf16_to_float(want));
	}
}

static void compare(const struct case_file *c, const uint32_t *tokens, const void *logits,
	struct outcome *outcome)
{
	for (uint32_t row = 0; row < c->rows; row++) {
		for (uint32_t step = 0; step < c->steps; step++) {
			uint64_t cell = (uint64_t)row * c->steps + step;

			if ((int64_t)tokens[cell] != c->tokens[cell])
				differ(outcome, "row %u step %u: token %u, recorded %" PRId64, row,
					step, tokens[cell], c->tokens[cell]);
			if (c->slots[row] >= 0)
				compare_cell(c, row, step,
					(const char *)logits + cell_at(c, outcome, row, step),
					outcome);
		}
	}
}

static void compare_poison(const unsigned char *bytes, uint64_t count, struct outcome *outcome)
{
	for (uint64_t i = 0; i < count; i++) {
		if (bytes[i] == POISON)
			continue;
		differ(outcome,
			"byte %" PRIu64 " of the logits' memory is 0x%02x: written, but no row's",
			i, bytes[i]);
		return;
	}
}

static struct draft_request request_of(const struct case_file *c)
{
	return (struct draft_request){
		.size = sizeof(struct draft_request),
		.rows = c->rows,
		.steps = c->steps,
		.anchors = c->anchors,
		.positions = c->positions,
		.seeds = c->seeds,
		.temperatures = c->temperatures,
		.slots = c->slots,
	};
}

/* Base logits in the request's frame, draft logits in the reply's, by row. */
static int replay_inline(struct draft *draft, const struct case_file *c, uint32_t *tokens,
	struct outcome *outcome, struct error_text *error)
{
	uint64_t bytes = (uint64_t)c->rows * c->steps * c->vocab * 2;
	struct draft_request request = request_of(c);
	unsigned char *logits;
	int r;

	outcome->step_stride = (uint64_t)c->vocab * 2;
	outcome->row_stride = outcome->step_stride * c->steps;
	logits = malloc(bytes + TAIL);
	if (logits == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	memset(logits, POISON, bytes + TAIL);
	request.base.data = (void *)(uintptr_t)c->base; /* only read */
	request.logits.data = logits;
	r = draft_draft(draft, &request, tokens, NULL);
	if (r < 0) {
		error_text_set(error, EPROTO, "%s%s", draft_error(draft), command_remedy(r));
	} else {
		compare(c, tokens, logits, outcome);
		compare_poison(logits + bytes, TAIL, outcome);
	}
	free(logits);
	return r;
}

/* The image of the base region: rows and steps at their strides, poison between them. */
static void lay_out_base(const struct case_file *c, unsigned char *image, uint64_t bytes,
	const struct outcome *outcome)
{
	memset(image, POISON, bytes);
	for (uint32_t row = 0; row < c->rows; row++)
		for (uint32_t step = 0; step < c->steps; step++)
			memcpy(image + OFFSET + row * outcome->row_stride +
					step * outcome->step_stride,
				(const char *)c->base +
					((uint64_t)row * c->steps + step) * c->vocab * 2,
				(size_t)c->vocab * 2);
}

/* Poisons again what rows own, so that all must be poison. */
static void poison_cells(
	const struct case_file *c, unsigned char *logits, const struct outcome *outcome)
{
	for (uint32_t row = 0; row < c->rows; row++)
		for (uint32_t step = 0; step < c->steps && c->slots[row] >= 0; step++)
			memset(logits + cell_at(c, outcome, row, step), POISON,
				(size_t)c->vocab * 2);
}

/* Base and draft logits in regions, with gaps between rows and steps. */
static int replay_regions(struct draft *draft, const struct case_file *c, enum draft_memory memory,
	uint32_t *tokens, struct outcome *outcome, struct error_text *error)
{
	struct draft_request request = request_of(c);
	struct shared base = {0}, logits = {0};
	uint64_t base_bytes, logits_bytes;
	unsigned char *image = NULL, *read = NULL;
	int r;

	outcome->by_slot = true;
	outcome->step_stride = (uint64_t)c->vocab * 2 + STEP_GAP;
	outcome->row_stride = outcome->step_stride * c->steps + ROW_GAP;
	base_bytes = OFFSET + c->rows * outcome->row_stride;
	/* A case of padding rows only needs no slot, but a region is never empty. */
	logits_bytes = OFFSET + c->slot_end * outcome->row_stride + TAIL;
	image = malloc(base_bytes);
	read = malloc(base_bytes > logits_bytes ? base_bytes : logits_bytes);
	r = image != NULL && read != NULL ? 0 : error_text_set(error, ENOMEM, "out of memory");
	if (r == 0)
		r = shared_open(draft, base_bytes, memory, &base, error);
	if (r == 0)
		r = shared_open(draft, logits_bytes, memory, &logits, error);
	if (r < 0)
		goto out;
	lay_out_base(c, image, base_bytes, outcome);
	memset(read, POISON, logits_bytes);
	r = shared_write(&base, 0, image, base_bytes, error);
	if (r == 0)
		r = shared_write(&logits, 0, read, logits_bytes, error);
	if (r < 0)
		goto out;

	request.base = (struct draft_place){
		.region = base.region,
		.offset = OFFSET,
		.row_stride = outcome->row_stride,
		.step_stride = outcome->step_stride,
	};
	request.logits = request.base;
	request.logits.region = logits.region;
	r = draft_draft(draft, &request, tokens, NULL);
	if (r < 0) {
		error_text_set(error, EPROTO, "%s%s", draft_error(draft), command_remedy(r));
		goto out;
	}
	r = shared_read(&logits, 0, read, logits_bytes, error);
	if (r < 0)
		goto out;
	compare(c, tokens, read + OFFSET, outcome);
	poison_cells(c, read + OFFSET, outcome);
	compare_poison(read, logits_bytes, outcome);
	r = shared_read(&base, 0, read, base_bytes, error);
	if (r == 0 && memcmp(read, image, base_bytes) != 0)
		differ(outcome, "the base logits' memory was written");
out:
	shared_close(&logits);
	shared_close(&base);
	free(read);
	free(image);
	return r;
}

/* A model that cannot have made the case is refused in words, before any difference in bits. */
static int check_model(const struct case_file *c, const char *path, const struct draft_model *model,
	struct error_text *error)
{
	const struct tensor *w2 = safetensors_find(c->file, "markov_head.markov_w2.weight");

	if (c->vocab != model->vocab)
		return error_text_set(error, EINVAL,
			"the case has V %u, draftd serves \"%s\" with V %u; start it "
			"with --model %s",
			c->vocab, model->name, model->vocab, path);
	if (w2 != NULL && w2->dimension_count == 2 && w2->shape[1] != model->rank)
		return error_text_set(error, EINVAL,
			"the case has rank %" PRIu64
			", draftd serves \"%s\" of rank %u; start it with --model %s",
			w2->shape[1], model->name, model->rank, path);
	return command_check_shape(model, c->rows, c->steps, error);
}

static void report(const char *name, const char *where, const struct case_file *c,
	const struct draft_model *model, const struct outcome *outcome)
{
	uint64_t tokens = (uint64_t)c->rows * c->steps, stored = 0;

	printf("%-10s%s, %s: rows %u, steps %u, V %u",
		outcome->differences == 0 ? "equal" : "DIFFERENT", name, where, c->rows, c->steps,
		c->vocab);
	if (outcome->differences == 0) {
		for (uint32_t row = 0; row < c->rows; row++)
			stored += c->slots[row] >= 0 ? (uint64_t)c->steps * c->vocab : 0;
		printf("; tokens %s", text_count(tokens).at);
		printf(", logits %s\n", text_count(stored).at);
		return;
	}
	printf("; draftd serves \"%s\"\n", model->name);
	for (unsigned i = 0; i < outcome->differences && i < DIFFERENCES_SHOWN; i++)
		printf("          %s\n", outcome->lines[i]);
	if (outcome->differences > DIFFERENCES_SHOWN)
		printf("          and %s more\n",
			text_count(outcome->differences - DIFFERENCES_SHOWN).at);
}

/* Returns 1 when the case is equal, 0 when it differs, or a negative number with `error` set. */
static int replay(
	struct draft *draft, const char *path, enum base_where where, struct error_text *error)
{
	const char *slash = strrchr(path, '/');
	struct outcome outcome = {0};
	struct error_text reason;
	struct case_file c = {0};
	uint32_t *tokens = NULL;
	int r;

	r = case_file_open(path, &c, error);
	if (r < 0)
		return r;
	r = check_model(&c, path, draft_model(draft), &reason);
	if (r < 0)
		goto out;
	tokens = malloc((size_t)c.rows * c.steps * sizeof(*tokens));
	if (tokens == NULL) {
		r = error_text_set(&reason, ENOMEM, "out of memory");
		goto out;
	}
	memset(tokens, POISON, (size_t)c.rows * c.steps * sizeof(*tokens));
	if (where == BASE_INLINE)
		r = replay_inline(draft, &c, tokens, &outcome, &reason);
	else
		r = replay_regions(draft, &c, where == BASE_HOST ? DRAFT_HOST : DRAFT_DEVICE,
			tokens, &outcome, &reason);
	if (r < 0)
		goto out;
	report(slash != NULL ? slash + 1 : path, base_choices[where], &c, draft_model(draft),
		&outcome);
	r = outcome.differences == 0;
out:
	if (r < 0)
		error_text_set(error, EPROTO, "%s: %s", path, reason.text);
	free(tokens);
	case_file_close(&c);
	return r;
}

static int run(const struct common *common, const void *values, char **operands)
{
	const struct replay_options *wanted = values;
	struct draft *draft = NULL;
	struct error_text error;
	unsigned equal = 0, count = 0;

	if (command_connect(common, &draft, &error) < 0)
		return command_fail("%s", error.text);
	for (; *operands != NULL; operands++) {
		int r = replay(draft, *operands, (enum base_where)wanted->base, &error);

		count++;
		if (r > 0)
			equal++;
		else if (r < 0)
			command_fail("%s", error.text);
		/* After a broken connection the files left would all tell the same. */
		if (draft_fd(draft) < 0)
			break;
	}
	if (count > 1)
		printf("%u of %u case%s equal\n", equal, count, sentence_s(count));
	draft_close(draft);
	return equal == count ? EXIT_SUCCESS : EXIT_FAILURE;
}

const struct command command_replay = {
	.name = "replay",
	.operands = "FILE...",
	.operands_min = 1,
	.operands_max = -1,
	.summary = "submit recorded cases and compare every token and logit, bit for bit",
	.description =
		"Submits the request in each .safetensors file and compares the tokens and the "
		"stored logits that come back with those in the file. draftd must serve the "
		"model of the case. Over shared memory (--base host, device) rows and steps lie "
		"apart, "
		"and nothing between them may be touched.",
	.options = options,
	.defaults = &defaults,
	.values_bytes = sizeof(defaults),
	.run = run,
};
