/* What a bench found, for people (bench_report.c) and for machines (bench_json.c, described in
 * BENCH.md). */
#ifndef DRAFTCTL_BENCH_REPORT_H
#define DRAFTCTL_BENCH_REPORT_H

#include "environment.h"
#include "load.h"
#include "ramp.h"

#include <jansson.h>

struct bench_verdict {
	bool verified;
	unsigned checked, different;
	char first[256]; /* the first difference */
};

/* Borrowed, but for the verdict. */
struct bench_report {
	const struct load_options *options;
	const struct draft_model *model;
	const struct environment *environment;
	const struct load_result *result;
	const struct ramp *ramp; /* NULL: one rate */
	struct bench_verdict verdict;
};

#define BENCH_PERCENTILES 5

extern const struct bench_percentile {
	const char *name, *key;
	double fraction;
} bench_percentiles[BENCH_PERCENTILES];

extern const char *const bench_base_names[]; /* as enum load_base */

/* A table, the errors, and the latencies drawn. */
void bench_report_print(const struct bench_report *report);

/* The same as a JSON document, whose `schema` names its layout; NULL without memory. */
json_t *bench_report_json(const struct bench_report *report);

#endif
