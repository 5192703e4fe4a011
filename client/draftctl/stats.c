/* draftctl stats and metrics: what draftd has done, as a table, as JSON, and as Prometheus text.
 *
 * The table follows the document that draftd sends and knows no list of its keys, so a figure that
 * draftd learns to tell appears here by itself. */
#include "command.h"
#include "file.h"
#include "text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_COLUMN  20
#define LINE_COLUMN 80

struct stats_options {
	bool json;
};

static const struct option_spec stats_table[] = {
	{
		.name = "json",
		.kind = OPTION_FLAG,
		.help = "the document as draftd sends it",
		.offset = offsetof(struct stats_options, json),
	},
	{0},
};

static const struct stats_options stats_defaults = {0};

static bool ends_with(const char *text, const char *ending)
{
	size_t length = strlen(text), tail = strlen(ending);

	return length >= tail && strcmp(text + length - tail, ending) == 0;
}

/* A key as a person reads it: without the unit that its value will show, and with blanks. */
static struct text label(const char *key)
{
	struct text text = text_plain(key);
	size_t length = strlen(text.at);

	if (ends_with(text.at, "_us"))
		text.at[length - 3] = '\0';
	for (char *c = text.at; *c != '\0'; c++)
		if (*c == '_')
			*c = ' ';
	return text;
}

static struct text scalar(const char *key, const json_t *value)
{
	struct text text = {""};

	if (json_is_integer(value)) {
		uint64_t count = (uint64_t)json_integer_value(value);

		if (ends_with(key, "_us"))
			return text_duration((double)count * 1e3);
		if (ends_with(key, "_bytes"))
			return text_bytes(count);
		return text_count(count);
	}
	if (json_is_real(value))
		snprintf(text.at, sizeof(text.at), "%.4g", json_real_value(value));
	else if (json_is_string(value))
		text = text_plain(json_string_value(value));
	else if (json_is_boolean(value))
		snprintf(text.at, sizeof(text.at), "%s", json_is_true(value) ? "yes" : "no");
	else
		snprintf(text.at, sizeof(text.at), "-");
	return text;
}

static bool is_distribution(json_t *value)
{
	return json_is_integer(json_object_get(value, "p50")) &&
	       json_is_integer(json_object_get(value, "count"));
}

static void print_distributions(const char *key, json_t *group)
{
	static const char *const columns[] = {"p50", "p90", "p99", "p999", "max"};
	const char *name;
	json_t *value;

	printf("\n%-*s %12s", KEY_COLUMN, label(key).at, "count");
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		printf(" %9s", columns[i]);
	putchar('\n');
	json_object_foreach(group, name, value)
	{
		if (!is_distribution(value))
			continue;
		printf("  %-*s %12s", KEY_COLUMN - 2, label(name).at,
			scalar("count", json_object_get(value, "count")).at);
		for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
			printf(" %9s", scalar(key, json_object_get(value, columns[i])).at);
		putchar('\n');
	}
}

/* Counts by name on as few lines as hold them; zeros are left out. */
static void print_counts(const char *key, json_t *group)
{
	int column = printf("%-*s", KEY_COLUMN, label(key).at);
	bool first = true;
	const char *name;
	json_t *value;

	json_object_foreach(group, name, value)
	{
		char item[2 * TEXT_BYTES];
		int length;

		if (json_is_integer(value) && json_integer_value(value) == 0)
			continue;
		length = snprintf(
			item, sizeof(item), "%s %s", text_plain(name).at, scalar(name, value).at);
		if (!first && column + length + 2 > LINE_COLUMN)
			column = printf(",\n%*s", KEY_COLUMN, "") - 2;
		else if (!first)
			column += printf(", ");
		column += printf("%s", item);
		first = false;
	}
	printf("%s\n", first ? "none" : "");
}

/* [[steps, bucket, count]] */
static void print_launches(const char *key, json_t *launches)
{
	json_t *launch;
	size_t i;

	if (json_array_size(launches) == 0) {
		printf("%-*snone\n", KEY_COLUMN, label(key).at);
		return;
	}
	printf("%-*s%5s %8s %12s\n", KEY_COLUMN, label(key).at, "steps", "bucket", "count");
	json_array_foreach(launches, i, launch)
	{
		json_int_t count = json_integer_value(json_array_get(launch, 2));

		printf("%*s%5" JSON_INTEGER_FORMAT " %8" JSON_INTEGER_FORMAT " %12s\n", KEY_COLUMN,
			"", json_integer_value(json_array_get(launch, 0)),
			json_integer_value(json_array_get(launch, 1)),
			text_count((uint64_t)count).at);
	}
}

/* [{key: value or [value]}]: one line each, numbered. */
static void print_records(const char *key, json_t *records)
{
	json_t *record, *value, *item;
	const char *name;
	size_t i, n;

	json_array_foreach(records, i, record)
	{
		const char *separator = "";

		printf("%-*s%-3zu", KEY_COLUMN, i == 0 ? label(key).at : "", i);
		json_object_foreach(record, name, value)
		{
			printf("%s%s", separator, label(name).at);
			separator = ", ";
			if (!json_is_array(value))
				printf(" %s", scalar(name, value).at);
			json_array_foreach(value, n, item)
			{
				printf(" %s", scalar(name, item).at);
			}
		}
		putchar('\n');
	}
}

static void print_table(json_t *root)
{
	const char *key;
	json_t *value;

	json_object_foreach(root, key, value)
	{
		if (json_is_object(value) &&
			is_distribution(json_object_iter_value(json_object_iter(value))))
			print_distributions(key, value);
		else if (json_is_object(value))
			print_counts(key, value);
		else if (json_is_object(json_array_get(value, 0)))
			print_records(key, value);
		else if (json_is_array(value))
			print_launches(key, value);
		else
			printf("%-*s%s\n", KEY_COLUMN, label(key).at, scalar(key, value).at);
	}
}

static int run_stats(const struct common *common, const void *values, char **operands)
{
	const struct stats_options *wanted = values;
	struct draft *draft = NULL;
	struct error_text error;
	char *text = NULL;
	json_t *root = NULL;
	int r, code = EXIT_SUCCESS;

	(void)operands;
	if (command_connect(common, &draft, &error) < 0)
		return command_fail("%s", error.text);
	r = draft_stats(draft, &text);
	if (r < 0) {
		code = command_fail("%s%s", draft_error(draft), command_remedy(r));
		goto out;
	}
	root = json_loads(text, 0, NULL);
	if (!json_is_object(root))
		code = command_fail("draftd's statistics are not a JSON object");
	else if (wanted->json)
		code = command_print_json(json_incref(root));
	else
		print_table(root);
out:
	json_decref(root);
	free(text);
	draft_close(draft);
	return code;
}

struct metrics_options {
	const char *textfile;
};

static const struct option_spec metrics_table[] = {
	{
		.name = "textfile",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "write to FILE instead, whole or not at all, as node_exporter's textfile "
			"collector needs it",
		.offset = offsetof(struct metrics_options, textfile),
	},
	{0},
};

static const struct metrics_options metrics_defaults = {0};

static int run_metrics(const struct common *common, const void *values, char **operands)
{
	const struct metrics_options *wanted = values;
	struct draft *draft = NULL;
	struct error_text error;
	char *text = NULL;
	int r, code = EXIT_SUCCESS;

	(void)operands;
	if (command_connect(common, &draft, &error) < 0)
		return command_fail("%s", error.text);
	r = draft_metrics(draft, &text);
	if (r < 0)
		code = command_fail("%s%s", draft_error(draft), command_remedy(r));
	else if (wanted->textfile == NULL)
		fputs(text, stdout);
	else if (file_replace(wanted->textfile, text, strlen(text), &error) < 0)
		code = command_fail("%s", error.text);
	free(text);
	draft_close(draft);
	return code;
}

const struct command command_stats = {
	.name = "stats",
	.summary = "what draftd has done: counters, gauges, latencies",
	.description = "Prints draftd's statistics since it started.",
	.options = stats_table,
	.defaults = &stats_defaults,
	.values_bytes = sizeof(stats_defaults),
	.run = run_stats,
};

const struct command command_metrics = {
	.name = "metrics",
	.summary = "the same for Prometheus",
	.description = "Prints draftd's metrics in the Prometheus text format.",
	.options = metrics_table,
	.defaults = &metrics_defaults,
	.values_bytes = sizeof(metrics_defaults),
	.run = run_metrics,
};
