#include "bench_options.h"

#include "command.h"
#include "file.h"
#include "plot.h"
#include "ramp.h"

#include <string.h>

#define DURATION_DEFAULT_S 5
#define RAMP_DURATION_S    1

static const char *const base_choices[] = {
	"inline", "host", "device", NULL}; /* as enum load_base */

static const char *const arrival_choices[] = {
	"constant", "poisson", NULL}; /* as enum arrival_kind */

const struct option_spec bench_option_table[] = {
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
		.absent = "8, 64 a connection with --rate or --schedule; fewer where draftd takes "
			  "fewer",
	},
	{
		.name = "rate",
		.kind = OPTION_REAL,
		.value = "R",
		.help = "plan so many requests a second, whether or not those before are answered; "
			"latency counts from the planned time",
		.offset = offsetof(struct bench_options, load.rate),
		.real_min = 0.001,
		.real_max = RAMP_RATE_MAX,
		.absent = "none: the next goes when one is answered",
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
		.name = "ramp",
		.kind = OPTION_REAL,
		.value = "US",
		.help = "find the highest rate with a p99 of at most so many microseconds: a load "
			"of --duration at each rate, the first one --rate, 100 if not given",
		.offset = offsetof(struct bench_options, ramp_us),
		.real_min = 1,
		.real_max = 60e6,
		.absent = "none",
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
			"temperature=0.7 priority=1 deadline_us=5000; a line needs share, what "
			"else it leaves out is as without it",
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
		.absent = "5, 1 a step with --ramp, no limit with --requests or --schedule",
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
		.name = "csv",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "write the percentile spectrum to FILE, too: a share of the requests and "
			"its latencies a line",
		.offset = offsetof(struct bench_options, csv),
	},
	{
		.name = "plot",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "draw the percentile spectrum as a PNG, with gnuplot",
		.offset = offsetof(struct bench_options, plot),
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

const struct bench_options bench_option_defaults = {
	.load = {.connections = 1,
		.threads = 1,
		.mix = {.kinds = {{.share = 1, .rows = 1, .steps = 4}}, .count = 1}},
};

int bench_options_check(struct bench_options *wanted)
{
	struct load_options *o = &wanted->load;

	if (o->rate > 0 && wanted->schedule != NULL)
		return command_misuse("bench: --rate and --schedule both plan the requests: give "
				      "one of them");
	if (wanted->ramp_us > 0 && (wanted->schedule != NULL || o->requests > 0))
		return command_misuse("bench: --ramp sends for --duration at each rate; it takes "
				      "neither --schedule nor --requests");
	if (wanted->ramp_us > 0 && o->rate == 0)
		o->rate = RAMP_RATE_FIRST;
	if (wanted->ramp_us > 0 && o->duration_s == 0)
		o->duration_s = RAMP_DURATION_S;
	if (o->arrival != ARRIVAL_CONSTANT && o->rate == 0)
		return command_misuse("bench: --arrival needs --rate R or --ramp US");
	if (o->concurrency > 0 && o->concurrency < o->connections)
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

int bench_options_read(struct bench_options *wanted, struct error_text *error)
{
	struct load_options *o = &wanted->load;
	struct mix_kind defaults_of_kind = o->mix.kinds[0];
	int r = 0;

	if (wanted->json != NULL && strcmp(wanted->json, "-") != 0)
		r = file_check(wanted->json, error);
	if (r == 0 && wanted->csv != NULL)
		r = file_check(wanted->csv, error);
	if (r == 0 && wanted->plot != NULL)
		r = file_check(wanted->plot, error);
	if (r == 0 && wanted->plot != NULL)
		r = plot_check(error);
	if (r == 0 && wanted->mix != NULL)
		r = mix_read(wanted->mix, &defaults_of_kind, &o->mix, error);
	if (r == 0 && wanted->schedule != NULL)
		r = schedule_read(wanted->schedule, &o->schedule, error);
	return r;
}
