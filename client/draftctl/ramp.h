/* The search for the highest rate of an open load whose p99 stays within a bound: the rate is
 * doubled (halved) until the bound is broken (kept), then the gap is closed by its geometric
 * middle.
 *
 * A plain value of its user's; runs nothing itself. */
#ifndef DRAFTCTL_RAMP_H
#define DRAFTCTL_RAMP_H

#include "load.h"

#define RAMP_RATE_FIRST 100
#define RAMP_RATE_MIN   1
#define RAMP_RATE_MAX   1e7
#define RAMP_CLOSE      1.05 /* near enough: the broken rate over the kept one */
#define RAMP_STEPS_MAX  96   /* doubling over the whole range and closing the last gap, twice */

struct ramp_step {
	double rate, achieved; /* a second */
	uint64_t p50_ns, p99_ns, late, unsent;
	bool kept;
};

struct ramp {
	double bound_ns;
	double rate;         /* to try next */
	double kept, broken; /* the highest kept and the lowest broken so far; 0: none */
	bool again;          /* the last step broke the bound, and its rate is tried again */
	struct ramp_step steps[RAMP_STEPS_MAX];
	unsigned count;
};

struct ramp ramp_start(double bound_us, double rate_first);

/* Notes what came of `rate`, and sets the next one. Whether it kept the bound: the p99 is within
 * it, and load_kept_its_plan(). */
bool ramp_note(struct ramp *ramp, const struct load_result *result);

/* Whether there is nothing left to try. */
bool ramp_over(const struct ramp *ramp);

#endif
