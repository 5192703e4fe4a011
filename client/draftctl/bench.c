/* draftctl bench: how fast is draftd? A load, its latencies, and a sample checked against the CPU
 * backend. */
#include "bench_options.h"
#include "bench_report.h"
#include "command.h"
#include "file.h"
#include "load.h"
#include "plot.h"
#include "spectrum.h"
#include "text.h"
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool interrupted;

static void interrupt(int signal_number)
{
	(void)signal_number;
	atomic_store(&interrupted, true);
}

/* The first SIGINT ends the load early, with a report; the second ends the process. */
static void watch_interrupt(void)
{
	struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
}

static int write_json(const char *path, const struct bench_report *report, struct error_text *error)
{
	json_t *root = bench_report_json(report);
	char *text;
	int r;

	if (strcmp(path, "-") == 0)
		return command_print_json(root) == EXIT_SUCCESS
			       ? 0
			       : error_text_set(error, EINVAL, "no report");
	text = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
	json_decref(root);
	if (text == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	r = file_replace(path, text, strlen(text), error);
	free(text);
	return r;
}

static int write_spectrum(const struct bench_options *wanted, const struct bench_report *report,
	struct error_text *error)
{
	char *csv = spectrum_csv(report->result);
	char title[512];
	int r = 0;

	if (csv == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	if (wanted->csv != NULL)
		r = file_replace(wanted->csv, csv, strlen(csv), error);
	if (r == 0 && wanted->plot != NULL && report->result->requests == 0)
		r = error_text_set(error, ENODATA, "--plot: no request was answered");
	if (r == 0 && wanted->plot != NULL) {
		snprintf(title, sizeof(title), "%s, %s on %s, %.0f requests a second, %s",
			report->model->server, report->model->name,
			report->environment->devices[0] != '\0' ? report->environment->devices
								: report->environment->processor,
			(double)report->result->requests / report->result->seconds,
			report->environment->date);
		title[sentence_cut(title, sizeof(title) - 1)] = '\0';
		r = plot_spectrum(wanted->plot, title, csv, error);
	}
	free(csv);
	return r;
}

static int write_report(const struct bench_options *wanted, const struct bench_report *report,
	struct error_text *error)
{
	int r = 0;

	if (wanted->json == NULL || strcmp(wanted->json, "-") != 0)
		bench_report_print(report);
	if (wanted->json != NULL)
		r = write_json(wanted->json, report, error);
	if (r == 0 && (wanted->csv != NULL || wanted->plot != NULL))
		r = write_spectrum(wanted, report, error);
	return r;
}

/* What is open while a bench runs. */
struct bench {
	struct bench_options wanted;
	struct load *load;
	struct verify *verify;
	struct load_result *result, *other; /* `other`: of the step of a ramp under way */
	struct ramp ramp;
	struct environment environment;
};

static void bench_done(struct bench *bench)
{
	verify_close(bench->verify);
	load_close(bench->load);
	schedule_done(&bench->wanted.load.schedule);
	free(bench->result);
	free(bench->other);
}

static int bench_open(struct bench *bench, const struct common *common, struct error_text *error)
{
	struct load_options *o = &bench->wanted.load;
	int r;

	bench->result = calloc(1, sizeof(*bench->result));
	bench->other = calloc(1, sizeof(*bench->other));
	if (bench->result == NULL || bench->other == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	r = bench_options_read(&bench->wanted, error);
	if (r == 0)
		r = load_open(o, common, &bench->load, error);
	if (r < 0)
		return r;
	environment_read(load_draft(bench->load), &bench->environment);
	if (bench->wanted.verify)
		r = verify_open(bench->wanted.model, draft_model(load_draft(bench->load)), o,
			&bench->verify, error);
	return r;
}

static int run_load(struct bench *bench, struct load_result *ret, struct error_text *error)
{
	return load_run(bench->load, &interrupted, bench->verify != NULL ? verify_observe : NULL,
		bench->verify, ret, error);
}

/* Leaves the result of the highest rate that kept the bound; of the last one, if none did or if
 * something failed. */
static int run_ramp(struct bench *bench, struct error_text *error)
{
	struct ramp *ramp = &bench->ramp;
	struct load_options *o = &bench->wanted.load;
	bool over = false;
	int r = 0;

	*ramp = ramp_start(bench->wanted.ramp_us, o->rate);
	while (r == 0 && !over) {
		double rate = ramp->rate;
		bool failed, kept;

		load_set_rate(bench->load, rate);
		r = run_load(bench, bench->other, error);
		if (r < 0)
			break;
		failed = load_error_count(bench->other) > 0;
		over = failed || bench->other->interrupted;
		kept = !over && ramp_note(ramp, bench->other);
		over |= ramp_over(ramp);
		if (kept || failed || ramp->kept == 0) {
			struct load_result *better = bench->other;

			bench->other = bench->result;
			bench->result = better;
			o->rate = rate;
		}
		bench->result->interrupted |= bench->other->interrupted;
	}
	return r;
}

static int verify_sample(
	struct bench *bench, struct bench_verdict *verdict, struct error_text *error)
{
	int r;

	if (bench->verify == NULL)
		return 0;
	r = verify_run(bench->verify, &verdict->checked, &verdict->different, verdict->first,
		sizeof(verdict->first), error);
	verdict->verified = r == 0;
	return r;
}

/* A plan that was not kept is no failure: it is what was measured. But nobody should quote its
 * percentiles without knowing. */
static void warn_unsent(const struct load_options *options, const struct load_result *result)
{
	if (load_kept_its_plan(result))
		return;
	command_warn("%s of %s planned requests %s not sent before the end, and %s in no "
		     "latency: draftd answered %s a second, with at most %u in flight. Plan fewer, "
		     "or take more --concurrency, --connections or --threads",
		text_count(result->unsent).at, text_count(load_planned_count(result)).at,
		result->unsent == 1 ? "was" : "were", sentence_is(result->unsent),
		text_rate(result->seconds > 0 ? (double)result->requests / result->seconds : 0).at,
		options->concurrency);
}

/* The exit code of a bench that ran and was reported. */
static int judge(const struct bench *bench, const struct bench_verdict *verdict)
{
	uint64_t failed = load_error_count(bench->result);

	if (verdict->different > 0)
		return command_fail(
			"replies differ from the CPU backend's; the report has the first one");
	if (failed > 0)
		return command_fail("%" PRIu64 " request%s failed; the report names the errors",
			failed, sentence_s(failed));
	if (bench->wanted.ramp_us > 0 && bench->ramp.kept == 0)
		return command_fail(
			"no rate that was tried keeps a p99 of %g us", bench->wanted.ramp_us);
	warn_unsent(&bench->wanted.load, bench->result);
	return EXIT_SUCCESS;
}

static int run(const struct common *common, const void *values, char **operands)
{
	struct bench bench = {.wanted = *(const struct bench_options *)values};
	struct bench_report report = {.options = &bench.wanted.load};
	struct error_text error;
	int r, code;

	(void)operands;
	code = bench_options_check(&bench.wanted);
	if (code != 0)
		return code;
	r = bench_open(&bench, common, &error);
	if (r < 0)
		goto out;
	watch_interrupt();
	if (bench.wanted.ramp_us > 0)
		r = run_ramp(&bench, &error);
	else
		r = run_load(&bench, bench.result, &error);
	if (r == 0)
		r = verify_sample(&bench, &report.verdict, &error);
	if (r < 0)
		goto out;
	report.model = draft_model(load_draft(bench.load));
	report.environment = &bench.environment;
	report.result = bench.result;
	report.ramp = bench.wanted.ramp_us > 0 ? &bench.ramp : NULL;
	r = write_report(&bench.wanted, &report, &error);
	if (r == 0)
		code = judge(&bench, &report.verdict);
out:
	if (r < 0)
		code = command_fail("%s", error.text);
	bench_done(&bench);
	return code;
}

const struct command command_bench = {
	.name = "bench",
	.summary = "load draftd and measure throughput and latency",
	.description =
		"Keeps so many requests of random data in flight, sending the next when one is "
		"answered; or, with --rate or --schedule, sends each at its planned time and "
		"counts "
		"latency from there, so that a stall of draftd shows. Reports throughput, "
		"percentiles of the latency, and where the time went. Ctrl-C ends it early, with "
		"the report. Exits with 1 after "
		"any error or difference; planned requests that were not sent are no error, but "
		"told on stderr when they are more than 1%.",
	.options = bench_option_table,
	.defaults = &bench_option_defaults,
	.values_bytes = sizeof(bench_option_defaults),
	.run = run,
};
