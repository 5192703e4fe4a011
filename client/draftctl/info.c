/* draftctl info: what draftd serves, on what, and how much a client may ask of it. */
#include "command.h"
#include "devices.h"
#include "text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct info_options {
	bool json;
};

static const struct option_spec options[] = {
	{
		.name = "json",
		.kind = OPTION_FLAG,
		.help = "as JSON",
		.offset = offsetof(struct info_options, json),
	},
	{0},
};

static const struct info_options defaults = {0};

#define LABEL_WIDTH 15

static void print_table(const struct draft *draft, json_t *stats, const struct common *common)
{
	const struct draft_model *m = draft_model(draft);

	printf("server          %s on %s, generation %" PRIu64 "\n", m->server, common->socket_path,
		m->generation);
	printf("model           %s\n", m->name);
	printf("vocabulary      %s", text_count(m->vocab).at);
	if (m->target_vocab != m->vocab)
		printf(" (the target's: %s)", text_count(m->target_vocab).at);
	printf("\nrank            %u\n", m->rank);
	printf("tables          %s of BF16\n",
		text_bytes(((uint64_t)m->vocab + m->target_vocab) * m->rank * 2).at);
	printf("multiplier      %.9g\n", (double)m->multiplier);
	if (m->soft_cap > 0)
		printf("soft cap        %.9g\n", (double)m->soft_cap);
	else
		printf("soft cap        none\n");
	printf("backend         %s, bias order %s", m->backend, m->bias_order);
	if (m->tensor_parallel > 1)
		printf(", tensor parallel over %u", m->tensor_parallel);
	putchar('\n');
	devices_print(stdout, draft, stats, LABEL_WIDTH);
	printf("limits          %u row%s a request, %u step%s a block, ", m->max_rows,
		sentence_s(m->max_rows), m->max_steps, sentence_s(m->max_steps));
	printf("%u request%s in flight\n", m->max_inflight, sentence_s(m->max_inflight));
	printf("                frames up to %s", text_bytes(m->max_frame_bytes).at);
	printf(", %u region%s up to %s\n", m->max_regions, sentence_s(m->max_regions),
		text_bytes(m->max_region_bytes).at);
}

/* The devices of each replica, as draftd's statistics list them. */
static json_t *replicas_json(json_t *stats)
{
	json_t *replicas = json_array(), *replica;
	size_t i;

	json_array_foreach(json_object_get(stats, "replicas"), i, replica)
	{
		json_array_append(replicas, json_object_get(replica, "devices"));
	}
	return replicas;
}

static int print_json(const struct draft *draft, json_t *stats)
{
	const struct draft_model *m = draft_model(draft);
	struct draft_device device;
	json_t *devices = json_array();
	json_t *root;

	for (uint32_t i = 0; draft_device_at(draft, i, &device); i++)
		json_array_append_new(devices,
			json_pack("{s:s, s:s, s:I}", "uuid", device.uuid, "name", device.name,
				"memory_bytes", (json_int_t)device.memory_bytes));
	root = json_pack("{s:s, s:I, s:{s:s, s:I, s:I, s:I, s:f, s:o, s:s}, s:{s:s, s:s, s:I, s:o, "
			 "s:o}, s:{s:I, s:I, s:I, s:I, s:I, s:I}}",
		"server", m->server, "generation", (json_int_t)m->generation, "model", "name",
		m->name, "vocab", (json_int_t)m->vocab, "rank", (json_int_t)m->rank, "target_vocab",
		(json_int_t)m->target_vocab, "multiplier", (double)m->multiplier, "soft_cap",
		m->soft_cap > 0 ? json_real((double)m->soft_cap) : json_null(), "dtype", "bf16",
		"backend", "name", m->backend, "bias_order", m->bias_order, "tensor_parallel",
		(json_int_t)m->tensor_parallel, "devices", devices, "replicas",
		replicas_json(stats), "limits", "max_rows", (json_int_t)m->max_rows, "max_steps",
		(json_int_t)m->max_steps, "max_frame_bytes", (json_int_t)m->max_frame_bytes,
		"max_inflight", (json_int_t)m->max_inflight, "max_regions",
		(json_int_t)m->max_regions, "max_region_bytes", (json_int_t)m->max_region_bytes);
	return command_print_json(root);
}

static int run(const struct common *common, const void *values, char **operands)
{
	const struct info_options *wanted = values;
	struct draft *draft = NULL;
	struct error_text error;
	int code = EXIT_SUCCESS;
	char *text = NULL;
	json_t *stats = NULL;
	int r;

	(void)operands;
	if (command_connect(common, &draft, &error) < 0)
		return command_fail("%s", error.text);
	r = draft_stats(draft, &text);
	if (r < 0) {
		code = command_fail("%s%s", draft_error(draft), command_remedy(r));
		goto out;
	}
	stats = json_loads(text, 0, NULL);
	if (wanted->json)
		code = print_json(draft, stats);
	else
		print_table(draft, stats, common);
out:
	json_decref(stats);
	free(text);
	draft_close(draft);
	return code;
}

const struct command command_info = {
	.name = "info",
	.summary = "the model that draftd serves, its backend and limits",
	.description =
		"Prints what draftd serves, on which devices, those of each replica if there are "
		"several, and what a client may ask of it.",
	.options = options,
	.defaults = &defaults,
	.values_bytes = sizeof(defaults),
	.run = run,
};
