/* Random numbers that are the same for a seed on every machine: integers only, up to one exact
 * conversion.
 *
 * A generator is a value of its user's; no globals. */
#ifndef DRAFTCTL_RANDOM_H
#define DRAFTCTL_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random {
	uint64_t state;
};

/* Different streams of one seed are independent. */
struct random random_start(uint64_t seed, uint64_t stream);

uint64_t random_next(struct random *random);                  /* 64 fair bits */
uint32_t random_below(struct random *random, uint32_t bound); /* 0 to bound - 1; bound >= 1 */

/* Fills `count` BF16 values with `scale` times a bell of mean 0 and deviation 1. */
void random_bf16_normal(struct random *random, float scale, uint16_t *out, size_t count);

/* FP32 to BF16, nearest even; a NaN becomes 0x7FFF. */
uint16_t bf16_from_float(float value);

float bf16_to_float(uint16_t bits);

#endif
