/* The bias rule in integers: one vocabulary id, one embedding. This is the reference; it takes any
 * operands. Pure; any thread. NUMERICS.md section 3. */
#ifndef KERNELS_CPU_BIAS_H
#define KERNELS_CPU_BIAS_H

#include <stdint.h>

#define BIAS_BLOCK 16 /* terms that one tensor-core instruction adds at once */

/* Adds up to 16 products of BF16 values to an FP32 accumulator. */
float bias_block(float accumulator, const uint16_t *a, const uint16_t *b, uint32_t count);

/* The whole sum, from +0, over `rank` products; FP32 before it is rounded to BF16. */
float bias_sum(const uint16_t *weights, const uint16_t *embedding, uint32_t rank);

#endif
