/* When the requests of an open load are planned to be sent, whatever became of those before.
 *
 * A plain value of its worker's thread; a schedule is shared, constant, and its reader's. */
#ifndef DRAFTCTL_ARRIVAL_H
#define DRAFTCTL_ARRIVAL_H

#include "random.h"
#include "schedule.h"

#include <stdbool.h>
#include <stdint.h>

enum arrival_kind {
	ARRIVAL_CONSTANT, /* equal gaps */
	ARRIVAL_POISSON,  /* exponential gaps: many clients that know nothing of each other */
};

struct arrival {
	enum arrival_kind kind;
	double rate;                     /* a second, of all workers together */
	const struct schedule *schedule; /* NULL: by the rate */
	uint64_t next, stride;           /* this worker's: each stride-th of all */
	double poisson_ns;
	struct random random;
};

/* The share of worker `index` of `count`; what all of them plan together has the rate. */
struct arrival arrival_start(enum arrival_kind kind, double rate, const struct schedule *schedule,
	uint64_t seed, uint32_t index, uint32_t count);

/* The next planned time, in ns from the start, never before the last one; false at the end of a
 * schedule. */
bool arrival_next(struct arrival *arrival, int64_t *ret_ns);

#endif
