#include "arrival.h"

#include <math.h>

#define STREAM 1000 /* of the seed; the workers' follow */

struct arrival arrival_start(enum arrival_kind kind, double rate, const struct schedule *schedule,
	uint64_t seed, uint32_t index, uint32_t count)
{
	return (struct arrival){
		.kind = kind,
		.rate = rate,
		.schedule = schedule,
		.next = index,
		.stride = count,
		.random = random_start(seed, STREAM + index),
	};
}

bool arrival_next(struct arrival *arrival, int64_t *ret_ns)
{
	const struct schedule *schedule = arrival->schedule;
	double share;

	if (schedule != NULL) {
		if (arrival->next >= schedule->count)
			return false;
		*ret_ns = schedule->at_ns[arrival->next];
	} else if (arrival->kind == ARRIVAL_POISSON) {
		/* Independent Poisson streams are one when they are put together. */
		share = (double)(random_next(&arrival->random) >> 11) * 0x1p-53;
		arrival->poisson_ns -=
			log1p(-share) * 1e9 * (double)arrival->stride / arrival->rate;
		*ret_ns = (int64_t)arrival->poisson_ns;
	} else {
		/* From the number and not from the time before, which would add its error. */
		*ret_ns = (int64_t)((double)arrival->next * 1e9 / arrival->rate);
	}
	arrival->next += arrival->stride;
	return true;
}
