/* The options of draftctl bench. */
#ifndef DRAFTCTL_BENCH_OPTIONS_H
#define DRAFTCTL_BENCH_OPTIONS_H

#include "load.h"
#include "options.h"

struct bench_options {
	struct load_options load;
	const char *mix, *schedule; /* paths, or NULL */
	const char *json;           /* NULL: a table; "-": stdout */
	const char *csv, *plot;     /* paths, or NULL */
	double ramp_us;             /* 0: one rate */
	bool verify;
	const char *model;
};

extern const struct option_spec bench_option_table[];
extern const struct bench_options bench_option_defaults;

/* Fills in what the options leave open. Those that contradict each other are said on stderr:
 * EXIT_USAGE, else 0. */
int bench_options_check(struct bench_options *wanted);

/* Reads the files that the options name, and tries those that will be written: whatever can be
 * wrong with them is, before minutes of load. Returns 0, or -errno with `error`; schedule_done()
 * either way. */
int bench_options_read(struct bench_options *wanted, struct error_text *error);

#endif
