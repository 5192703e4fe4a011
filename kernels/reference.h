/* NUMERICS.md in plain C, one value at a time: what every backend is compared with. Slow (about 0.2
 * s a row and step at V=151936, R=256), no state, no threads; any thread may call it. */
#ifndef KERNELS_REFERENCE_H
#define KERNELS_REFERENCE_H

#include "kernels/checkpoint.h"
#include "kernels/error_text.h"
#include "kernels/markov.h"

/* Fills a batch's outputs (tokens, flags, stored logits, traces) from the tables of an open
 * checkpoint. Blocks. Returns 0, -EINVAL for a batch without rows, steps or columns, or -ENOMEM. */
int reference_run(const struct checkpoint *checkpoint, const struct markov_batch *batch,
	struct error_text *error);

/* What happens to one base logit, in the order of NUMERICS section 2. */
uint16_t reference_mix(uint16_t base, uint16_t bias);                   /* x */
uint16_t reference_logit(uint16_t x, float multiplier, float soft_cap); /* 0: no cap */

/* Whether (value, id) wins over (best, best_id): NUMERICS section 6. */
bool reference_beats(float value, uint32_t id, float best, uint32_t best_id);

#endif
