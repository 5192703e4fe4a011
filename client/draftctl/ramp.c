#include "ramp.h"

#include <math.h>

struct ramp ramp_start(double bound_us, double rate_first)
{
	return (struct ramp){.bound_ns = bound_us * 1e3, .rate = rate_first};
}

static double clamp(double rate)
{
	return fmin(fmax(rate, RAMP_RATE_MIN), RAMP_RATE_MAX);
}

bool ramp_note(struct ramp *ramp, const struct load_result *result)
{
	struct ramp_step step = {
		.rate = ramp->rate,
		.achieved = result->seconds > 0 ? (double)result->requests / result->seconds : 0,
		.p50_ns = histogram_at(&result->total, 0.5),
		.p99_ns = histogram_at(&result->total, 0.99),
		.late = result->late,
		.unsent = result->unsent,
	};

	step.kept = result->requests > 0 && (double)step.p99_ns <= ramp->bound_ns &&
		    load_kept_its_plan(result);
	ramp->steps[ramp->count++] = step;
	ramp->again = !step.kept && !ramp->again;
	if (ramp->again)
		return false;
	if (step.kept)
		ramp->kept = ramp->rate;
	else
		ramp->broken = ramp->rate;
	if (ramp->kept > 0 && ramp->broken > 0)
		ramp->rate = sqrt(ramp->kept * ramp->broken);
	else
		ramp->rate = clamp(step.kept ? ramp->rate * 2 : ramp->rate / 2);
	return step.kept;
}

bool ramp_over(const struct ramp *ramp)
{
	if (ramp->count == RAMP_STEPS_MAX)
		return true;
	if (ramp->count == 0 || ramp->again)
		return false;
	if (ramp->kept > 0 && ramp->broken > 0)
		return ramp->broken <= ramp->kept * RAMP_CLOSE;
	/* Only at an end of the range the next rate is the last one. */
	return ramp->rate == ramp->steps[ramp->count - 1].rate;
}
