/* draftctl model make, model show: a random model to try draftd with, and what is in a checkpoint.
 */
#include "command.h"
#include "kernels/checkpoint.h"
#include "kernels/replacement.h"
#include "kernels/safetensors.h"
#include "random.h"
#include "text.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_VALUES (4u << 20) /* between two looks at the progress line */
#define VOCAB_MAX    (1 << 24)
#define RANK_MAX     16384

struct make_options {
	uint32_t vocab;
	uint32_t rank;
	int64_t seed;
	uint32_t target_vocab; /* 0: like vocab */
	double multiplier;
	double soft_cap; /* 0: none */
	bool force;
};

static const struct option_spec make_table[] = {
	{
		.name = "vocab",
		.kind = OPTION_U32,
		.value = "V",
		.help = "tokens that the head scores",
		.offset = offsetof(struct make_options, vocab),
		.min = 1,
		.max = VOCAB_MAX,
	},
	{
		.name = "rank",
		.kind = OPTION_U32,
		.value = "R",
		.help = "length of a token's vector",
		.offset = offsetof(struct make_options, rank),
		.min = 1,
		.max = RANK_MAX,
	},
	{
		.name = "seed",
		.kind = OPTION_I64,
		.value = "S",
		.help = "the same seed gives the same file everywhere",
		.offset = offsetof(struct make_options, seed),
		.min = INT64_MIN,
		.max = INT64_MAX,
	},
	{
		.name = "target-vocab",
		.kind = OPTION_U32,
		.value = "N",
		.help = "tokens of the target model",
		.offset = offsetof(struct make_options, target_vocab),
		.min = 1,
		.max = VOCAB_MAX,
		.absent = "V",
	},
	{
		.name = "multiplier",
		.kind = OPTION_REAL,
		.value = "X",
		.help = "output_multiplier",
		.offset = offsetof(struct make_options, multiplier),
		.real_min = -1e6,
		.real_max = 1e6,
	},
	{
		.name = "soft-cap",
		.kind = OPTION_REAL,
		.value = "X",
		.help = "final_logit_softcapping",
		.offset = offsetof(struct make_options, soft_cap),
		.real_min = 1e-6,
		.real_max = 1e6,
		.absent = "none",
	},
	{
		.name = "force",
		.letter = 'f',
		.kind = OPTION_FLAG,
		.help = "replace FILE if it exists",
		.offset = offsetof(struct make_options, force),
	},
	{0},
};

static const struct make_options make_defaults = {.vocab = 32768, .rank = 64, .multiplier = 1};

/* Fills a table; `done` of `all` values were filled before it. */
static void fill(
	uint16_t *table, size_t count, struct random random, float scale, size_t done, size_t all)
{
	bool progress = isatty(STDERR_FILENO) && all > 4 * (size_t)CHUNK_VALUES;

	for (size_t at = 0; at < count; at += CHUNK_VALUES) {
		size_t n = count - at < CHUNK_VALUES ? count - at : CHUNK_VALUES;

		random_bf16_normal(&random, scale, table + at, n);
		if (progress)
			fprintf(stderr, "\rdrawing weights: %3zu%%", (done + at + n) * 100 / all);
	}
	if (progress && done + count == all)
		fprintf(stderr, "\r%*s\r", 24, "");
}

static int write_model(const char *path, const struct make_options *wanted, const uint16_t *w1,
	const uint16_t *w2, uint32_t target_vocab, struct error_text *error)
{
	char multiplier[32], soft_cap[32];
	struct tensor_source tensors[] = {
		{
			.name = "markov_head.markov_w1.weight",
			.dtype_name = "BF16",
			.dimension_count = 2,
			.shape = {target_vocab, wanted->rank},
			.data = w1,
			.byte_count = (uint64_t)target_vocab * wanted->rank * 2,
		},
		{
			.name = "markov_head.markov_w2.weight",
			.dtype_name = "BF16",
			.dimension_count = 2,
			.shape = {wanted->vocab, wanted->rank},
			.data = w2,
			.byte_count = (uint64_t)wanted->vocab * wanted->rank * 2,
		},
	};
	struct metadata_pair metadata[] = {
		{"output_multiplier", multiplier},
		{"final_logit_softcapping", soft_cap},
	};

	snprintf(multiplier, sizeof(multiplier), "%.9g", wanted->multiplier);
	snprintf(soft_cap, sizeof(soft_cap), "%.9g", wanted->soft_cap);
	return safetensors_write(path, tensors, 2, metadata, wanted->soft_cap > 0 ? 2 : 1, error);
}

static int run_make(const struct common *common, const void *values, char **operands)
{
	const struct make_options *wanted = values;
	uint32_t target_vocab = wanted->target_vocab != 0 ? wanted->target_vocab : wanted->vocab;
	size_t w1_count = (size_t)target_vocab * wanted->rank;
	size_t w2_count = (size_t)wanted->vocab * wanted->rank;
	uint64_t bytes = ((uint64_t)w1_count + w2_count) * 2;
	uint64_t seed = (uint64_t)wanted->seed;
	const char *path = operands[0];
	struct error_text error;
	uint16_t *tables;
	int code = EXIT_SUCCESS;

	(void)common;
	if (replacement_check(path, &error) < 0)
		return command_fail("%s", error.text);
	if (!wanted->force && access(path, F_OK) == 0)
		return command_fail("%s exists; --force replaces it", path);
	tables = malloc(bytes);
	if (tables == NULL)
		return command_fail("not enough memory for tables of %s", text_bytes(bytes).at);
	/* The bias is a sum of R products: with these scales its deviation is 1, beside base logits
	 * of some 4. */
	fill(tables, w1_count, random_start(seed, 1), 1.0f, 0, w1_count + w2_count);
	fill(tables + w1_count, w2_count, random_start(seed, 2), 1.0f / sqrtf((float)wanted->rank),
		w1_count, w1_count + w2_count);
	if (write_model(path, wanted, tables, tables + w1_count, target_vocab, &error) < 0)
		code = command_fail("%s", error.text);
	else
		printf("%s: vocabulary %u, rank %u, %s\n", path, wanted->vocab, wanted->rank,
			text_bytes(bytes).at);
	free(tables);
	return code;
}

struct show_options {
	bool json;
};

static const struct option_spec show_table[] = {
	{
		.name = "json",
		.kind = OPTION_FLAG,
		.help = "as JSON",
		.offset = offsetof(struct show_options, json),
	},
	{0},
};

static const struct show_options show_defaults = {0};

static uint64_t table_bytes(const struct checkpoint *model)
{
	return ((uint64_t)model->vocab + model->target_vocab) * model->rank * 2;
}

static int show_json(const struct checkpoint *model)
{
	json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:s, s:f, s:o, s:I}", "name", model->name,
		"vocab", (json_int_t)model->vocab, "rank", (json_int_t)model->rank, "target_vocab",
		(json_int_t)model->target_vocab, "dtype", "bf16", "multiplier",
		(double)model->multiplier, "soft_cap",
		model->soft_cap > 0 ? json_real((double)model->soft_cap) : json_null(),
		"table_bytes", (json_int_t)table_bytes(model));

	return command_print_json(root);
}

static int run_show(const struct common *common, const void *values, char **operands)
{
	const struct show_options *wanted = values;
	struct checkpoint_options none = {0};
	struct checkpoint model = {0};
	struct error_text error;
	int code = EXIT_SUCCESS;

	(void)common;
	if (checkpoint_open(operands[0], &none, &model, &error) < 0)
		return command_fail("%s", error.text);
	if (wanted->json) {
		code = show_json(&model);
	} else {
		printf("model        %s\n", model.name);
		printf("w1           [%u, %u] BF16, one row a token of the target\n",
			model.target_vocab, model.rank);
		printf("w2           [%u, %u] BF16, one row a token of the head\n", model.vocab,
			model.rank);
		printf("multiplier   %.9g\n", (double)model.multiplier);
		if (model.soft_cap > 0)
			printf("soft cap     %.9g\n", (double)model.soft_cap);
		else
			printf("soft cap     none\n");
		printf("size         %s\n", text_bytes(table_bytes(&model)).at);
	}
	checkpoint_close(&model);
	return code;
}

const struct command command_model_make = {
	.name = "model make",
	.operands = "FILE",
	.operands_min = 1,
	.operands_max = 1,
	.summary = "write a random model to try draftd with",
	.description = "Writes a .safetensors file with a Markov head of random normal weights.",
	.options = make_table,
	.defaults = &make_defaults,
	.values_bytes = sizeof(make_defaults),
	.run = run_make,
};

const struct command command_model_show = {
	.name = "model show",
	.operands = "PATH",
	.operands_min = 1,
	.operands_max = 1,
	.summary = "what is in a model's file or folder",
	.description = "Opens a .safetensors file or a checkpoint's folder as draftd would, and "
		       "prints the Markov head in it.",
	.options = show_table,
	.defaults = &show_defaults,
	.values_bytes = sizeof(show_defaults),
	.run = run_show,
};
