/* draftctl draft: one request of random or given base logits, and the tokens that come back. */
#include "base_file.h"
#include "command.h"
#include "random.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS_DEFAULT 4
#define BASE_SCALE    4.0f /* random base logits: the spread of a language model's */

struct draft_values {
	uint32_t rows, steps; /* 0: not given */
	double temperature;
	int64_t anchor; /* negative: random, another one for each row */
	int64_t position;
	int64_t seed;
	const char *base; /* NULL: random */
	bool json;
};

static const struct option_spec options[] = {
	{
		.name = "rows",
		.letter = 'r',
		.kind = OPTION_U32,
		.value = "N",
		.help = "independent rows",
		.offset = offsetof(struct draft_values, rows),
		.min = 1,
		.max = REQUEST_ROWS_MAX,
		.absent = "1, or what --base has",
	},
	{
		.name = "steps",
		.letter = 'k',
		.kind = OPTION_U32,
		.value = "K",
		.help = "tokens to draft for a row",
		.offset = offsetof(struct draft_values, steps),
		.min = 1,
		.max = REQUEST_STEPS_MAX,
		.absent = "4, or what --base has",
	},
	{
		.name = "temperature",
		.kind = OPTION_REAL,
		.value = "T",
		.help = "0 takes the best token, more draws among the good ones",
		.offset = offsetof(struct draft_values, temperature),
		.real_min = 0,
		.real_max = 1e6,
	},
	{
		.name = "anchor",
		.kind = OPTION_I64,
		.value = "ID",
		.help = "the token before the block",
		.offset = offsetof(struct draft_values, anchor),
		.min = 0,
		.max = UINT32_MAX,
		.absent = "random",
	},
	{
		.name = "position",
		.kind = OPTION_I64,
		.value = "P",
		.help = "position of the first predicted token",
		.offset = offsetof(struct draft_values, position),
		.min = INT64_MIN,
		.max = INT64_MAX,
	},
	{
		.name = "seed",
		.kind = OPTION_I64,
		.value = "S",
		.help = "for random logits and anchors; row r draws its tokens with S + r",
		.offset = offsetof(struct draft_values, seed),
		.min = INT64_MIN,
		.max = INT64_MAX,
	},
	{
		.name = "base",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "base logits: a .safetensors file with \"base_logits\" [rows, K, V] in "
			"BF16, or "
			"raw BF16 in that order",
		.offset = offsetof(struct draft_values, base),
		.absent = "random",
	},
	{
		.name = "json",
		.kind = OPTION_FLAG,
		.help = "as JSON",
		.offset = offsetof(struct draft_values, json),
	},
	{0},
};

static const struct draft_values defaults = {.anchor = -1};

/* The request's columns; one allocation a column, freed by columns_done(). */
struct columns {
	uint32_t *anchors;
	int64_t *positions, *seeds;
	float *temperatures;
	struct base_file base;
};

static void columns_done(struct columns *columns)
{
	free(columns->anchors);
	free(columns->positions);
	free(columns->seeds);
	free(columns->temperatures);
	free(columns->base.logits);
}

static int make_base(const struct draft_values *wanted, uint32_t vocab, struct base_file *ret,
	struct error_text *error)
{
	struct random random = random_start((uint64_t)wanted->seed, 1);
	struct base_file base = {
		.rows = wanted->rows != 0 ? wanted->rows : 1,
		.steps = wanted->steps != 0 ? wanted->steps : STEPS_DEFAULT,
	};
	size_t count = (size_t)base.rows * base.steps * vocab;

	base.logits = malloc(count * 2);
	if (base.logits == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	random_bf16_normal(&random, BASE_SCALE, base.logits, count);
	*ret = base;
	return 0;
}

static int fill_columns(const struct draft_values *wanted, const struct draft_model *model,
	struct columns *columns, struct error_text *error)
{
	struct random random = random_start((uint64_t)wanted->seed, 2);
	uint32_t rows = columns->base.rows;

	columns->anchors = malloc(rows * sizeof(*columns->anchors));
	columns->positions = malloc(rows * sizeof(*columns->positions));
	columns->seeds = malloc(rows * sizeof(*columns->seeds));
	columns->temperatures = malloc(rows * sizeof(*columns->temperatures));
	if (columns->anchors == NULL || columns->positions == NULL || columns->seeds == NULL ||
		columns->temperatures == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	for (uint32_t r = 0; r < rows; r++) {
		columns->anchors[r] = wanted->anchor >= 0
					      ? (uint32_t)wanted->anchor
					      : random_below(&random, model->target_vocab);
		columns->positions[r] = wanted->position;
		columns->seeds[r] = (int64_t)((uint64_t)wanted->seed + r);
		columns->temperatures[r] = (float)wanted->temperature;
	}
	return 0;
}

static void print_table(const struct draft_model *model, const struct columns *columns,
	const struct draft_result *result, double temperature)
{
	printf("%s: vocabulary %u, rank %u, on %s; temperature %g\n\n", model->name, model->vocab,
		model->rank, model->backend, temperature);
	printf("%5s %8s %9s   tokens\n", "row", "anchor", "position");
	for (uint32_t r = 0; r < result->rows; r++) {
		printf("%5u %8u %9" PRId64 "  ", r, columns->anchors[r], columns->positions[r]);
		for (uint32_t i = 0; i < result->steps; i++)
			printf(" %7u", result->tokens[(size_t)r * result->steps + i]);
		printf("%s\n", result->flags[r] & 1 ? "   (a NaN won)" : "");
	}
	printf("\nqueue %s", text_duration((double)result->queue_us * 1e3).at);
	printf(", device %s", text_duration((double)result->device_us * 1e3).at);
	printf(", in all %s\n", text_duration((double)result->total_us * 1e3).at);
}

static int print_json(const struct columns *columns, const struct draft_result *result)
{
	json_t *rows = json_array();

	for (uint32_t r = 0; r < result->rows; r++) {
		json_t *tokens = json_array();

		for (uint32_t i = 0; i < result->steps; i++)
			json_array_append_new(tokens,
				json_integer(result->tokens[(size_t)r * result->steps + i]));
		json_array_append_new(rows, json_pack("{s:I, s:I, s:I, s:f, s:o, s:b}", "anchor",
						    (json_int_t)columns->anchors[r], "position",
						    (json_int_t)columns->positions[r], "seed",
						    (json_int_t)columns->seeds[r], "temperature",
						    (double)columns->temperatures[r], "tokens",
						    tokens, "nan", result->flags[r] & 1));
	}
	return command_print_json(json_pack("{s:I, s:I, s:o, s:{s:I, s:I, s:I}}", "generation",
		(json_int_t)result->generation, "steps", (json_int_t)result->steps, "rows", rows,
		"times_us", "queue", (json_int_t)result->queue_us, "device",
		(json_int_t)result->device_us, "total", (json_int_t)result->total_us));
}

/* Submits and waits; the result carries the times that draft_draft() does not. */
static int submit(struct draft *draft, const struct columns *columns, double timeout_s,
	struct draft_result **ret, struct error_text *error)
{
	struct draft_request request = {
		.size = sizeof(request),
		.rows = columns->base.rows,
		.steps = columns->base.steps,
		.anchors = columns->anchors,
		.positions = columns->positions,
		.seeds = columns->seeds,
		.temperatures = columns->temperatures,
		.base.data = columns->base.logits,
	};
	uint64_t ticket;
	int r;

	r = draft_submit(draft, &request, &ticket);
	if (r == 0) {
		r = draft_poll(draft, (int64_t)(timeout_s * 1e6), ret);
		if (r == 0)
			return command_no_answer(timeout_s, error);
	}
	if (r < 0)
		return error_text_set(error, EPROTO, "%s%s", draft_error(draft), command_remedy(r));
	if ((*ret)->code != 0)
		return error_text_set(
			error, EPROTO, "%s: %s", draft_error_name((*ret)->code), (*ret)->error);
	return 0;
}

static int run(const struct common *common, const void *values, char **operands)
{
	const struct draft_values *wanted = values;
	struct columns columns = {0};
	struct draft_result *result = NULL;
	const struct draft_model *model;
	struct draft *draft = NULL;
	struct error_text error;
	int r, code = EXIT_FAILURE;

	(void)operands;
	r = command_connect(common, &draft, &error);
	if (r < 0)
		goto out;
	model = draft_model(draft);
	if (wanted->base != NULL) {
		r = base_file_read(wanted->base, model->vocab, wanted->rows, wanted->steps,
			&columns.base, &error);
	} else {
		r = command_check_shape(model, wanted->rows != 0 ? wanted->rows : 1,
			wanted->steps != 0 ? wanted->steps : STEPS_DEFAULT, &error);
		if (r == 0)
			r = make_base(wanted, model->vocab, &columns.base, &error);
	}
	if (r < 0)
		goto out;
	r = fill_columns(wanted, model, &columns, &error);
	if (r == 0)
		r = command_check_shape(model, columns.base.rows, columns.base.steps, &error);
	if (r == 0)
		r = submit(draft, &columns, common->timeout_s, &result, &error);
	if (r < 0)
		goto out;
	code = EXIT_SUCCESS;
	if (wanted->json)
		code = print_json(&columns, result);
	else
		print_table(model, &columns, result, wanted->temperature);
out:
	if (r < 0)
		command_fail("%s", error.text);
	draft_result_free(result);
	columns_done(&columns);
	draft_close(draft);
	return code;
}

const struct command command_draft = {
	.name = "draft",
	.summary = "draft tokens for random or given base logits",
	.description = "Sends one request and prints the tokens that draftd drafts for each row.",
	.options = options,
	.defaults = &defaults,
	.values_bytes = sizeof(defaults),
	.run = run,
};
