#include "bench_report.h"

#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BAR_WIDTH   48
#define BARS_MAX    16
#define DRAWN_SHARE 0.001 /* the tails that the picture leaves out, on each side */

const struct bench_percentile bench_percentiles[BENCH_PERCENTILES] = {
	{"p50", "p50", 0.5},
	{"p90", "p90", 0.9},
	{"p99", "p99", 0.99},
	{"p99.9", "p99_9", 0.999},
	{"max", "max", 1},
};

const char *const bench_base_names[] = {"inline", "host", "device"};

static void print_latency(const char *name, const struct histogram *histogram)
{
	printf("  %-14s", name);
	for (size_t i = 0; i < BENCH_PERCENTILES; i++)
		printf(" %10s", text_duration((double)histogram_at(
						      histogram, bench_percentiles[i].fraction))
					.at);
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

static void print_ramp(const struct ramp *ramp)
{
	if (ramp == NULL)
		return;
	printf("\n  %-14s %10s %14s %10s %10s\n", "ramp", "planned", "achieved", "p50", "p99");
	for (unsigned i = 0; i < ramp->count; i++) {
		const struct ramp_step *step = &ramp->steps[i];

		printf("  %-14s %10s", "", text_rate(step->rate).at);
		printf(" %14s", text_rate(step->achieved).at);
		printf(" %10s", text_duration((double)step->p50_ns).at);
		printf(" %10s%s\n", text_duration((double)step->p99_ns).at,
			step->kept ? "   kept" : "");
	}
	if (ramp->kept > 0)
		printf("  %s a second keep a p99 of %s; above are the figures of that rate\n",
			text_rate(ramp->kept).at, text_duration(ramp->bound_ns).at);
}

static void print_kinds(const struct load_options *options, const struct load_result *result)
{
	const struct mix *mix = &options->mix;

	if (mix->count == 1)
		return;
	printf("\n  %-14s", "kinds");
	for (size_t i = 0; i < BENCH_PERCENTILES; i++)
		printf(" %10s", bench_percentiles[i].name);
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

static void print_environment(const struct environment *environment)
{
	printf("%s, %s, %u processor%s", environment->date, environment->processor,
		environment->processors, sentence_s(environment->processors));
	if (environment->devices[0] != '\0')
		printf(", draftd on %s", environment->devices);
	if (environment->driver[0] != '\0')
		printf(" (driver %s)", environment->driver);
	printf(", %s\n", environment->kernel);
}

static void print_processor_time(const struct load_result *result)
{
	double used = result->user_s + result->system_s;

	printf("  %-14s %10.3f   user %.3f, system %.3f: %.0f%% of a processor\n", "own CPU time",
		used, result->user_s, result->system_s,
		result->wall_s > 0 ? 100 * used / result->wall_s : 0);
}

static void print_load(const struct load_options *options, const struct draft_model *model)
{
	const bool all =
		options->concurrency == (uint64_t)options->connections * model->max_inflight;
	const struct mix_kind *kind = &options->mix.kinds[0];

	if (options->rate > 0)
		printf("%s arrivals, ",
			options->arrival == ARRIVAL_POISSON ? "poisson" : "constant");
	if (options->schedule.count > 0)
		printf("%zu scheduled arrival%s, ", options->schedule.count,
			sentence_s(options->schedule.count));
	printf("%s%u in flight%s over %u connection%s, %u thread%s; ",
		load_is_open(options) ? "at most " : "", options->concurrency,
		all ? " (all that draftd takes)" : "", options->connections,
		sentence_s(options->connections), options->threads, sentence_s(options->threads));
	if (options->mix.count > 1)
		printf("%u kinds of requests, base ", options->mix.count);
	else
		printf("%u row%s of %u step%s, temperature %g, base ", kind->rows,
			sentence_s(kind->rows), kind->steps, sentence_s(kind->steps),
			kind->temperature);
	printf("%s%s\n", bench_base_names[options->base],
		options->logits ? ", with draft logits" : "");
}

void bench_report_print(const struct bench_report *report)
{
	const struct load_options *options = report->options;
	const struct draft_model *model = report->model;
	const struct load_result *result = report->result;
	const struct bench_verdict *verdict = &report->verdict;
	double seconds = result->seconds > 0 ? result->seconds : 1;

	printf("%s serves %s: vocabulary %u, rank %u, on %s\n", model->server, model->name,
		model->vocab, model->rank, model->backend);
	print_environment(report->environment);
	print_load(options, model);
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
	print_processor_time(result);
	printf("\n  %-14s", "latency");
	for (size_t i = 0; i < BENCH_PERCENTILES; i++)
		printf(" %10s", bench_percentiles[i].name);
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
	print_ramp(report->ramp);
	draw_latencies(&result->total);
	print_errors(result);
	if (result->missed > 0)
		printf("deadlines of --mix that were missed, no failures: %s\n",
			text_count(result->missed).at);
	if (result->nan_rows > 0)
		printf("rows where a NaN won: %s\n", text_count(result->nan_rows).at);
	if (!verdict->verified)
		return;
	printf("verified: %u of %u sampled %s the CPU backend's, bit for bit\n",
		verdict->checked - verdict->different, verdict->checked,
		verdict->checked == 1 ? "reply equals" : "replies equal");
	if (verdict->different > 0)
		printf("  first difference: %s\n", verdict->first);
}
