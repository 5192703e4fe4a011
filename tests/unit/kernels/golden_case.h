/* A golden case (NUMERICS.md section 7) as a batch to run and the bits that must come back. */
#ifndef TESTS_UNIT_KERNELS_GOLDEN_CASE_H
#define TESTS_UNIT_KERNELS_GOLDEN_CASE_H

#include "kernels/checkpoint.h"
#include "kernels/markov.h"
#include "kernels/safetensors.h"

extern const char *const golden_names[];
extern const size_t golden_count;

struct golden_case {
	const char *name;
	struct safetensors *file;
	struct checkpoint checkpoint;
	struct markov_batch batch; /* its arrays are this case's */
	uint16_t *logits;          /* [rows,K,V] */
};

/* Loads tests/golden/NAME.safetensors (the working folder is the project's root) and makes the
 * batch, traces and all. Fails the running test on any defect. */
void golden_open(struct golden_case *golden, const char *name);
void golden_close(struct golden_case *golden);

/* Fills the outputs with rubbish before a run, so that what a backend leaves out shows. */
void golden_clear(struct golden_case *golden);

/* Compares tokens, stored logits, and when `traces` biases and values, bit for bit. Any NaN equals
 * any NaN in values. */
void golden_compare(const struct golden_case *golden, bool traces, const char *who);

#endif
