/* draftctl ping: is draftd there, and how far is it? */
#include "clock.h"
#include "command.h"
#include "histogram.h"
#include "text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct ping_options {
	uint32_t count;
	bool quiet;
	bool json;
};

static const struct option_spec options[] = {
	{
		.name = "count",
		.letter = 'c',
		.kind = OPTION_U32,
		.value = "N",
		.help = "how many, one after the other",
		.offset = offsetof(struct ping_options, count),
		.min = 1,
		.max = 100000000,
	},
	{
		.name = "quiet",
		.letter = 'q',
		.kind = OPTION_FLAG,
		.help = "only the summary",
		.offset = offsetof(struct ping_options, quiet),
	},
	{
		.name = "json",
		.kind = OPTION_FLAG,
		.help = "the summary as JSON",
		.offset = offsetof(struct ping_options, json),
	},
	{0},
};

static const struct ping_options defaults = {.count = 4};

static void print_summary(const struct histogram *times)
{
	printf("%s answered: min %s", text_count(times->count).at,
		text_duration((double)times->min).at);
	printf(", p50 %s", text_duration((double)histogram_at(times, 0.5)).at);
	printf(", p99 %s", text_duration((double)histogram_at(times, 0.99)).at);
	printf(", max %s\n", text_duration((double)times->max).at);
}

static int print_json(const struct histogram *times)
{
	json_t *root = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count",
		(json_int_t)times->count, "min_us", (double)times->min / 1e3, "mean_us",
		histogram_mean(times) / 1e3, "p50_us", (double)histogram_at(times, 0.5) / 1e3,
		"p99_us", (double)histogram_at(times, 0.99) / 1e3, "max_us",
		(double)times->max / 1e3);

	return command_print_json(root);
}

static int run(const struct common *common, const void *values, char **operands)
{
	const struct ping_options *wanted = values;
	struct histogram *times = NULL;
	struct draft *draft = NULL;
	struct error_text error;
	int code;

	(void)operands;
	times = calloc(1, sizeof(*times));
	if (times == NULL)
		return command_fail("out of memory");
	if (command_connect(common, &draft, &error) < 0) {
		code = command_fail("%s", error.text);
		goto out;
	}
	for (uint32_t i = 0; i < wanted->count; i++) {
		int64_t start = clock_ns();
		int64_t took;
		int r;

		r = draft_ping(draft);
		took = clock_ns() - start;
		if (r < 0) {
			code = command_fail(
				"ping %u: %s%s", i + 1, draft_error(draft), command_remedy(r));
			goto out;
		}
		histogram_add(times, (uint64_t)took);
		if (!wanted->quiet && !wanted->json)
			printf("%s answers, %s\n", draft_model(draft)->server,
				text_duration((double)took).at);
	}
	code = EXIT_SUCCESS;
	if (wanted->json)
		code = print_json(times);
	else
		print_summary(times);
out:
	draft_close(draft);
	free(times);
	return code;
}

const struct command command_ping = {
	.name = "ping",
	.summary = "ask draftd for a sign of life and time it",
	.description = "Pings draftd over one connection and prints the round-trip times.",
	.options = options,
	.defaults = &defaults,
	.values_bytes = sizeof(defaults),
	.run = run,
};
