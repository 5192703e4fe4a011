/* What a bench found, for people and for machines. */
#ifndef DRAFTCTL_BENCH_REPORT_H
#define DRAFTCTL_BENCH_REPORT_H

#include "load.h"

#include <jansson.h>

struct bench_verdict {
	bool verified;
	unsigned checked, different;
	char first[256]; /* the first difference */
};

/* A table, the errors, and the latencies drawn. */
void bench_report_print(const struct load_options *options, const struct draft_model *model,
	const struct load_result *result, const struct bench_verdict *verdict);

/* The same as a JSON document, whose `schema` names its layout; NULL without memory. */
json_t *bench_report_json(const struct load_options *options, const struct draft_model *model,
	const struct load_result *result, const struct bench_verdict *verdict);

#endif
