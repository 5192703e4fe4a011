/* The special-function unit of the GPU in integers: what `rcp.approx.ftz`, `ex2.approx.ftz`,
 * `div.full` and the tanh built on them return, to the bit. Pure functions; any thread. NUMERICS.md
 * section 5. */
#ifndef KERNELS_CPU_SFU_H
#define KERNELS_CPU_SFU_H

float sfu_rcp(float x);

/* 2^x for an x that is a multiple of 2^-23, -126 <= x < 128. */
float sfu_ex2(float x);

/* div_full(a, b) = (a * scale) * reciprocal, both of which depend on b alone. */
struct divisor {
	float scale;
	float reciprocal;
};

struct divisor sfu_divisor(float b);

static inline float sfu_divide(float a, struct divisor by)
{
	return (a * by.scale) * by.reciprocal;
}

float sfu_tanh(float z);

#endif
