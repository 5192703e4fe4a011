#include "bench_report.h"

#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BAR_WIDTH   48
#define BARS_MAX    16
#define DRAWN_SHARE 0.001 /* the tails that the picture leaves out, on each side */

static const struct {
	const char *name, *key;
	double fraction;
} percentiles[] = {
	{"p50", "p50", 0.5},
	{"p90", "p90", 0.9},
	{"p99", "p99", 0.99},
	{"p99.9", "p99_9", 0.999},
	{"max", "max", 1},
};
#define PERCENTILE_COUNT (sizeof(percentiles) / sizeof(percentiles[0]))

static const char *const base_names[] = {"inline", "host", "device"}; /* as enum load_base */

static void print_latency(const char *name, const struct histogram *histogram)
{
	printf("  %-14s", name);
	for (size_t i = 0; i < PERCENTILE_COUNT; i++)
		printf(" %10s",
			text_duration((double)histogram_at(histogram, percentiles[i].fraction)).at);
	printf(" %10s\n", text_duration(histogram_mean(histogram)).at);
}

/* Bars over equal ratios of time, between the percentiles that cut the tails off. */
static void draw_latencies(const struct histogram *histogram)
{
	double low = (double)histogram_at(histogram, DRAWN_SHARE);
	double high = (double)histogram_at(histogram, 1 - DRAWN_SHARE) * 1.01;
	uint64_t counts[BARS_MAX], most = 0;
	double ratio;

	if (histogram->count < 2 || low < 1)
		return;
	ratio = pow(high / low, 1.0 / BARS_MAX);
	for (unsigned i = 0; i < BARS_MAX; i++) {
		counts[i] = histogram_between(histogram, (uint64_t)(low * pow(ratio, i)),
			(uint64_t)(low * pow(ratio, i + 1)));
		if (counts[i] > most)
			most = counts[i];
	}
	printf("\n  latency seen here, requests from each line's time up to the next\n");
	for (unsigned i = 0; i < BARS_MAX && most > 0; i++) {
		unsigned width = (unsigned)((counts[i] * BAR_WIDTH + most - 1) / most);

		printf("  %10s |", text_duration(low * pow(ratio, i)).at);
		for (unsigned x = 0; x < width; x++)
			putchar('#');
		printf(" %s\n", counts[i] > 0 ? text_count(counts[i]).at : "");
	}
}

/* The phases' means, which add up to that of the latency. */
static void print_phases(const struct load_options *options, const struct load_result *result)
{
	double total = histogram_mean(&result->total);
	double queue = histogram_mean(&result->queue), device = histogram_mean(&result->device);
	const struct {
		const char *name;
		double ns;
	} phases[] = {
		{"late here", histogram_mean(&result->waited)},
		{"sockets",
			total - histogram_mean(&result->waited) - histogram_mean(&result->served)},
		{"queue", queue},
		{"device", device},
		{"draftd's rest", histogram_mean(&result->served) - queue - device},
	};

	size_t first = load_is_open(options) ? 0 : 1; /* nothing is late in a closed load */

	if (total <= 0)
		return;
	printf("\n  the mean's %s:", text_duration(total).at);
	for (size_t i = first; i < sizeof(phases) / sizeof(phases[0]); i++)
		printf("%s %s %s (%.0f%%)", i > first ? "," : "", phases[i].name,
			text_duration(phases[i].ns > 0 ? phases[i].ns : 0).at,
			100 * phases[i].ns / total);
	putchar('\n');
}

static void print_kinds(const struct load_options *options, const struct load_result *result)
{
	const struct mix *mix = &options->mix;

	if (mix->count == 1)
		return;
	printf("\n  %-14s", "kinds");
	for (size_t i = 0; i < PERCENTILE_COUNT; i++)
		printf(" %10s", percentiles[i].name);
	printf(" %10s\n", "mean");
	for (unsigned k = 0; k < mix->count; k++) {
		char name[24];

		snprintf(name, sizeof(name), "line %u", mix->kinds[k].line);
		print_latency(name, &result->kinds[k]);
	}
}

/* Target and achieved rate, and what an open load did not do as planned. */
static void print_plan(const struct load_options *options, const struct load_result *result)
{
	if (!load_is_open(options))
		return;
	if (options->rate > 0)
		printf("  %-14s %10s %14s\n", "planned", "", text_rate(options->rate).at);
	printf("  %-14s %10s   sent %s or more after the planned time\n", "late",
		text_count(result->late).at, text_duration(LOAD_LATE_NS).at);
	if (result->unsent > 0)
		printf("  %-14s %10s   planned, but not sent before the time was over\n", "unsent",
			text_count(result->unsent).at);
}

static void print_errors(const struct load_result *result)
{
	if (result->error_kinds == 0) {
		printf("\nerrors: none\n");
		return;
	}
	printf("\nerrors:\n");
	for (unsigned i = 0; i < result->error_kinds; i++) {
		const struct load_error *error = &result->errors[i];

		printf("  %-20s %s, first: %s\n", draft_error_name(error->code),
			text_count(error->count).at, error->text);
	}
}

static void print_load(const struct load_options *options)
{
	const struct mix_kind *kind = &options->mix.kinds[0];

	if (options->rate > 0)
		printf("%s arrivals, ",
			options->arrival == ARRIVAL_POISSON ? "poisson" : "constant");
	if (options->schedule.count > 0)
		printf("%zu scheduled arrivals, ", options->schedule.count);
	printf("%s%u in flight over %u connection%s, %u thread%s; ",
		load_is_open(options) ? "at most " : "", options->concurrency, options->connections,
		options->connections == 1 ? "" : "s", options->threads,
		options->threads == 1 ? "" : "s");
	if (options->mix.count > 1)
		printf("%u kinds of requests, base ", options->mix.count);
	else
		printf("%u row%s of %u steps, temperature %g, base ", kind->rows,
			kind->rows == 1 ? "" : "s", kind->steps, kind->temperature);
	printf("%s%s\n", base_names[options->base], options->logits ? ", with draft logits" : "");
}

void bench_report_print(const struct load_options *options, const struct draft_model *model,
	const struct load_result *result, const struct bench_verdict *verdict)
{
	double seconds = result->seconds > 0 ? result->seconds : 1;

	printf("%s serves %s: vocabulary %u, rank %u, on %s\n", model->server, model->name,
		model->vocab, model->rank, model->backend);
	print_load(options);
	printf("\n  %-14s %10s %14s\n", "", "in all", "a second");
	printf("  %-14s %10s %14s\n", "requests", text_count(result->requests).at,
		text_rate((double)result->requests / seconds).at);
	printf("  %-14s %10s %14s\n", "rows", text_count(result->rows).at,
		text_rate((double)result->rows / seconds).at);
	printf("  %-14s %10s %14s\n", "tokens", text_count(result->tokens).at,
		text_rate((double)result->tokens / seconds).at);
	print_plan(options, result);
	printf("  %-14s %10.3f%s\n", "seconds", result->seconds,
		result->interrupted ? "   (interrupted)" : "");
	printf("\n  %-14s", "latency");
	for (size_t i = 0; i < PERCENTILE_COUNT; i++)
		printf(" %10s", percentiles[i].name);
	printf(" %10s\n", "mean");
	print_latency("seen here", &result->total);
	if (load_is_open(options))
		print_latency("late here", &result->waited);
	print_latency("draftd's total", &result->served);
	print_latency("  its queue", &result->queue);
	print_latency("  its device", &result->device);
	print_latency("less draftd's", &result->wire);
	print_latency("less device", &result->around);
	print_phases(options, result);
	print_kinds(options, result);
	draw_latencies(&result->total);
	print_errors(result);
	if (result->missed > 0)
		printf("deadlines of --mix that were missed, no failures: %s\n",
			text_count(result->missed).at);
	if (result->nan_rows > 0)
		printf("rows where a NaN won: %s\n", text_count(result->nan_rows).at);
	if (!verdict->verified)
		return;
	printf("verified: %u of %u sampled replies equal the CPU backend's, bit for bit\n",
		verdict->checked - verdict->different, verdict->checked);
	if (verdict->different > 0)
		printf("  first difference: %s\n", verdict->first);
}

static json_t *latency_json(const struct histogram *histogram)
{
	json_t *latency = json_object();

	for (size_t i = 0; i < PERCENTILE_COUNT; i++)
		json_object_set_new(latency, percentiles[i].key,
			json_real((double)histogram_at(histogram, percentiles[i].fraction) / 1e3));
	json_object_set_new(latency, "mean", json_real(histogram_mean(histogram) / 1e3));
	json_object_set_new(latency, "min", json_real((double)histogram->min / 1e3));
	return latency;
}

static json_t *errors_json(const struct load_result *result)
{
	json_t *errors = json_object();

	for (unsigned i = 0; i < result->error_kinds; i++)
		json_object_set_new(errors, draft_error_name(result->errors[i].code),
			json_integer((json_int_t)result->errors[i].count));
	return errors;
}

static const char *arrival_name(const struct load_options *options)
{
	if (options->schedule.count > 0)
		return "schedule";
	if (options->rate == 0)
		return "closed";
	return options->arrival == ARRIVAL_POISSON ? "poisson" : "constant";
}

static json_t *load_json(const struct load_options *options)
{
	json_t *load = json_pack("{s:s, s:I, s:I, s:I, s:s, s:b, s:f, s:I, s:I}", "arrival",
		arrival_name(options), "concurrency", (json_int_t)options->concurrency,
		"connections", (json_int_t)options->connections, "threads",
		(json_int_t)options->threads, "base", base_names[options->base], "logits",
		options->logits, "warmup_seconds", options->warmup_s, "spin_us",
		(json_int_t)options->spin_us, "seed", (json_int_t)options->seed);

	if (options->rate > 0)
		json_object_set_new(load, "rate", json_real(options->rate));
	return load;
}

static json_t *mix_json(const struct load_options *options, const struct load_result *result)
{
	json_t *kinds = json_array();

	for (unsigned k = 0; k < options->mix.count; k++) {
		const struct mix_kind *kind = &options->mix.kinds[k];

		json_array_append_new(
			kinds, json_pack("{s:f, s:I, s:I, s:f, s:I, s:I, s:I, s:o}", "share",
				       kind->share, "rows", (json_int_t)kind->rows, "steps",
				       (json_int_t)kind->steps, "temperature", kind->temperature,
				       "priority", (json_int_t)kind->priority, "deadline_us",
				       (json_int_t)kind->deadline_us, "requests",
				       (json_int_t)result->kinds[k].count, "seen_us",
				       latency_json(&result->kinds[k])));
	}
	return kinds;
}

json_t *bench_report_json(const struct load_options *options, const struct draft_model *model,
	const struct load_result *result, const struct bench_verdict *verdict)
{
	double seconds = result->seconds > 0 ? result->seconds : 1;
	json_t *root;

	root = json_pack("{s:s, s:{s:s, s:s, s:s, s:I, s:I, s:I}}", "schema", "draftctl-bench-1",
		"server", "version", model->server, "backend", model->backend, "model", model->name,
		"vocab", (json_int_t)model->vocab, "rank", (json_int_t)model->rank, "generation",
		(json_int_t)model->generation);
	json_object_set_new(root, "load", load_json(options));
	json_object_set_new(root, "mix", mix_json(options, result));
	json_object_set_new(root, "seconds", json_real(result->seconds));
	json_object_set_new(root, "interrupted", json_boolean(result->interrupted));
	json_object_set_new(root, "totals",
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests",
			(json_int_t)result->requests, "rows", (json_int_t)result->rows, "tokens",
			(json_int_t)result->tokens, "nan_rows", (json_int_t)result->nan_rows,
			"late", (json_int_t)result->late, "unsent", (json_int_t)result->unsent,
			"deadlines_missed", (json_int_t)result->missed));
	json_object_set_new(root, "per_second",
		json_pack("{s:f, s:f, s:f}", "requests", (double)result->requests / seconds, "rows",
			(double)result->rows / seconds, "tokens",
			(double)result->tokens / seconds));
	json_object_set_new(root, "latency_us",
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "seen",
			latency_json(&result->total), "late", latency_json(&result->waited),
			"total", latency_json(&result->served), "queue",
			latency_json(&result->queue), "device", latency_json(&result->device),
			"seen_less_total", latency_json(&result->wire), "seen_less_device",
			latency_json(&result->around)));
	json_object_set_new(root, "errors", errors_json(result));
	if (verdict->verified)
		json_object_set_new(root, "verified",
			json_pack("{s:I, s:I, s:s}", "checked", (json_int_t)verdict->checked,
				"different", (json_int_t)verdict->different, "first_difference",
				verdict->first));
	return root;
}
