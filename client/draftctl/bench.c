/* draftctl bench: how fast is draftd? A load, its latencies, and a sample checked against the CPU
 * backend. */
#include "bench_report.h"
#include "command.h"
#include "file.h"
#include "load.h"
#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_DEFAULT_S 5
#define INFLIGHT_CLOSED    8  /* if --concurrency is not given */
#define INFLIGHT_OPEN      64 /* the same, a connection */
#define RATE_MAX           1e7

struct bench_options {
	struct load_options load;
	const char *mix, *schedule; /* paths, or NULL */
	const char *json;           /* NULL: a table; "-": stdout */
	bool verify;
	const char *model;
};

static const char *const base_choices[] = {
	"inline", "host", "device", NULL}; /* as enum load_base */

static const char *const arrival_choices[] = {
	"constant", "poisson", NULL}; /* as enum arrival_kind */

static const struct option_spec options[] = {
	{
		.name = "concurrency",
		.letter = 'n',
		.kind = OPTION_U32,
		.value = "N",
		.help = "requests in flight, over all connections; at most so many with --rate or "
			"--schedule",
		.offset = offsetof(struct bench_options, load.concurrency),
		.min = 1,
		.max = LOAD_INFLIGHT_MAX,
		.absent = "8, 64 a connection with --rate or --schedule",
	},
	{
		.name = "rate",
		.kind = OPTION_REAL,
		.value = "R",
		.help = "plan so many requests a second, whether or not those before are answered; "
			"latency counts from the planned time",
		.offset = offsetof(struct bench_options, load.rate),
		.real_min = 0.001,
		.real_max = RATE_MAX,
		.absent = "the next goes when one is answered",
	},
	{
		.name = "arrival",
		.kind = OPTION_CHOICE,
		.value = "HOW",
		.help = "the gaps of --rate: equal, or random as of many independent clients",
		.offset = offsetof(struct bench_options, load.arrival),
		.choices = arrival_choices,
	},
	{
		.name = "schedule",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "the planned times instead of a rate: a line each, seconds from the start, "
			"in order",
		.offset = offsetof(struct bench_options, schedule),
	},
	{
		.name = "connections",
		.letter = 'c',
		.kind = OPTION_U32,
		.value = "C",
		.help = "connections that share them",
		.offset = offsetof(struct bench_options, load.connections),
		.min = 1,
		.max = LOAD_CONNECTIONS_MAX,
	},
	{
		.name = "threads",
		.letter = 't',
		.kind = OPTION_U32,
		.value = "N",
		.help = "threads that share the connections",
		.offset = offsetof(struct bench_options, load.threads),
		.min = 1,
		.max = LOAD_THREADS_MAX,
	},
	{
		.name = "rows",
		.letter = 'r',
		.kind = OPTION_U32,
		.value = "N",
		.help = "rows of a request",
		.offset = offsetof(struct bench_options, load.mix.kinds[0].rows),
		.min = 1,
		.max = REQUEST_ROWS_MAX,
	},
	{
		.name = "steps",
		.letter = 'k',
		.kind = OPTION_U32,
		.value = "K",
		.help = "tokens to draft for a row",
		.offset = offsetof(struct bench_options, load.mix.kinds[0].steps),
		.min = 1,
		.max = REQUEST_STEPS_MAX,
	},
	{
		.name = "temperature",
		.kind = OPTION_REAL,
		.value = "T",
		.help = "0 takes the best token, more draws among the good ones",
		.offset = offsetof(struct bench_options, load.mix.kinds[0].temperature),
		.real_min = 0,
		.real_max = 1e6,
	},
	{
		.name = "mix",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "several kinds of requests, a line each: share=3 rows=8 steps=4 "
			"temperature=0.7 priority=1 deadline_us=5000; what a line leaves out is as "
			"without it",
		.offset = offsetof(struct bench_options, mix),
	},
	{
		.name = "base",
		.kind = OPTION_CHOICE,
		.value = "WHERE",
		.help = "where the logits travel: in the frames, in shared memory, or in shared "
			"memory of draftd's GPU",
		.offset = offsetof(struct bench_options, load.base),
		.choices = base_choices,
	},
	{
		.name = "logits",
		.kind = OPTION_FLAG,
		.help = "ask for draft logits, too",
		.offset = offsetof(struct bench_options, load.logits),
	},
	{
		.name = "requests",
		.kind = OPTION_I64,
		.value = "N",
		.help = "send so many",
		.offset = offsetof(struct bench_options, load.requests),
		.min = 1,
		.max = INT64_C(1000000000000),
		.absent = "as many as fit the time",
	},
	{
		.name = "duration",
		.letter = 'd',
		.kind = OPTION_REAL,
		.value = "SECONDS",
		.help = "send for so long",
		.offset = offsetof(struct bench_options, load.duration_s),
		.real_min = 0.01,
		.real_max = 604800,
		.absent = "5, no limit with --requests or --schedule",
	},
	{
		.name = "warmup",
		.letter = 'w',
		.kind = OPTION_REAL,
		.value = "SECONDS",
		.help = "send for so long before measuring",
		.offset = offsetof(struct bench_options, load.warmup_s),
		.real_min = 0,
		.real_max = 3600,
	},
	{
		.name = "spin",
		.kind = OPTION_I64,
		.value = "US",
		.help = "look for replies for so long before sleeping, which takes a core",
		.offset = offsetof(struct bench_options, load.spin_us),
		.min = 0,
		.max = 1000000,
	},
	{
		.name = "seed",
		.kind = OPTION_I64,
		.value = "S",
		.help = "for the random data",
		.offset = offsetof(struct bench_options, load.seed),
		.min = INT64_MIN,
		.max = INT64_MAX,
	},
	{
		.name = "json",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "write the report as JSON to FILE, too; \"-\": only that, on stdout",
		.offset = offsetof(struct bench_options, json),
	},
	{
		.name = "verify",
		.kind = OPTION_FLAG,
		.help = "compute a sample of the replies again on this CPU and compare every bit; "
			"needs "
			"--model",
		.offset = offsetof(struct bench_options, verify),
	},
	{
		.name = "model",
		.kind = OPTION_TEXT,
		.value = "PATH",
		.help = "the model that draftd serves, for --verify",
		.offset = offsetof(struct bench_options, model),
	},
	{0},
};

static const struct bench_options defaults = {
	.load = {.connections = 1,
		.threads = 1,
		.mix = {.kinds = {{.share = 1, .rows = 1, .steps = 4}}, .count = 1}},
};

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

static int report(const struct bench_options *wanted, const struct load *load,
	const struct load_result *result, const struct bench_verdict *verdict,
	struct error_text *error)
{
	const struct load_options *o = &wanted->load;
	bool only_json = wanted->json != NULL && strcmp(wanted->json, "-") == 0;
	json_t *root;
	char *text;
	int r = 0;

	if (!only_json)
		bench_report_print(o, load_model(load), result, verdict);
	if (wanted->json == NULL)
		return 0;
	root = bench_report_json(o, load_model(load), result, verdict);
	if (only_json)
		return command_print_json(root) == EXIT_SUCCESS
			       ? 0
			       : error_text_set(error, EINVAL, "no report");
	text = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
	json_decref(root);
	if (text == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	r = file_replace(wanted->json, text, strlen(text), error);
	free(text);
	return r;
}

/* Options that contradict each other: EXIT_USAGE, or 0. Fills in what they leave open. */
static int check_options(struct bench_options *wanted)
{
	struct load_options *o = &wanted->load;
	bool open = o->rate > 0 || wanted->schedule != NULL;

	if (o->rate > 0 && wanted->schedule != NULL)
		return command_misuse("bench: --rate and --schedule both plan the requests: give "
				      "one of them");
	if (o->arrival != ARRIVAL_CONSTANT && o->rate == 0)
		return command_misuse("bench: --arrival needs --rate R");
	if (o->concurrency == 0)
		o->concurrency = open                               ? INFLIGHT_OPEN * o->connections
				 : o->connections > INFLIGHT_CLOSED ? o->connections
								    : INFLIGHT_CLOSED;
	if (o->concurrency > LOAD_INFLIGHT_MAX)
		o->concurrency = LOAD_INFLIGHT_MAX;
	if (o->concurrency < o->connections)
		return command_misuse("bench: --concurrency %u is less than --connections %u: some "
				      "would have nothing to do",
			o->concurrency, o->connections);
	if (o->connections < o->threads)
		return command_misuse("bench: --connections %u is less than --threads %u: some "
				      "would have nothing to do",
			o->connections, o->threads);
	if (wanted->verify != (wanted->model != NULL))
		return command_misuse("bench: --verify and --model PATH go together");
	if (o->duration_s == 0 && o->requests == 0 && wanted->schedule == NULL)
		o->duration_s = DURATION_DEFAULT_S;
	return 0;
}

/* Whatever can be wrong with files, before minutes of load. */
static int read_files(struct bench_options *wanted, struct error_text *error)
{
	struct load_options *o = &wanted->load;
	struct mix_kind defaults_of_kind = o->mix.kinds[0];
	int r = 0;

	if (wanted->json != NULL && strcmp(wanted->json, "-") != 0)
		r = file_check(wanted->json, error);
	if (r == 0 && wanted->mix != NULL)
		r = mix_read(wanted->mix, &defaults_of_kind, &o->mix, error);
	if (r == 0 && wanted->schedule != NULL)
		r = schedule_read(wanted->schedule, &o->schedule, error);
	return r;
}

static int run(const struct common *common, const void *values, char **operands)
{
	struct bench_options wanted = *(const struct bench_options *)values;
	struct load_options *o = &wanted.load;
	struct bench_verdict verdict = {0};
	struct load_result *result = NULL;
	struct verify *verify = NULL;
	struct load *load = NULL;
	struct error_text error;
	int r, code = EXIT_FAILURE;

	(void)operands;
	r = check_options(&wanted);
	if (r != 0)
		return r;
	result = calloc(1, sizeof(*result));
	if (result == NULL)
		return command_fail("out of memory");
	r = read_files(&wanted, &error);
	if (r == 0)
		r = load_open(o, common, &load, &error);
	if (r == 0 && wanted.verify)
		r = verify_open(wanted.model, load_model(load), o, &verify, &error);
	if (r < 0)
		goto out;
	watch_interrupt();
	r = load_run(
		load, &interrupted, verify != NULL ? verify_observe : NULL, verify, result, &error);
	if (r == 0 && verify != NULL) {
		r = verify_run(verify, &verdict.checked, &verdict.different, verdict.first,
			sizeof(verdict.first), &error);
		verdict.verified = r == 0;
	}
	if (r < 0)
		goto out;
	r = report(&wanted, load, result, &verdict, &error);
	if (r == 0 && load_error_count(result) == 0 && verdict.different == 0)
		code = EXIT_SUCCESS;
	else if (r == 0 && verdict.different == 0)
		command_fail("%" PRIu64 " requests failed; the report names the errors",
			load_error_count(result));
	else if (r == 0)
		command_fail("replies differ from the CPU backend's; the report has the first one");
out:
	if (r < 0)
		command_fail("%s", error.text);
	verify_close(verify);
	load_close(load);
	schedule_done(&o->schedule);
	free(result);
	return code;
}

const struct command command_bench = {
	.name = "bench",
	.summary = "load draftd and measure throughput and latency",
	.description =
		"Keeps so many requests of random data in flight, sending the next when one is "
		"answered; or, with --rate or --schedule, sends each at its planned time and "
		"counts "
		"latency from there, so that a draftd that stalls is seen to. Reports throughput, "
		"percentiles of the latency, and where the time went. Ctrl-C ends it early, with "
		"the report. Exits with 1 after "
		"any error or difference.",
	.options = options,
	.defaults = &defaults,
	.values_bytes = sizeof(defaults),
	.run = run,
};
