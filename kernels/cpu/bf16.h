/* BF16 and the bits of FP32. Pure functions; any thread. NUMERICS.md, notation. */
#ifndef KERNELS_CPU_BF16_H
#define KERNELS_CPU_BF16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BF16_NAN 0x7fffu

static inline uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* f32(): exact. */
static inline float bf16_widen(uint16_t value)
{
	return float_of((uint32_t)value << 16);
}

/* bf16(): nearest, ties to even; every NaN becomes 0x7FFF. */
static inline uint16_t bf16_round(float value)
{
	uint32_t bits = float_bits(value);

	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return BF16_NAN;
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* FTZ of a result: a subnormal becomes a zero of its sign. */
static inline float flush(float value)
{
	uint32_t bits = float_bits(value);

	return (bits & 0x7f800000u) == 0 ? float_of(bits & 0x80000000u) : value;
}

static inline float fma_ftz(float a, float b, float c)
{
	return flush(fmaf(a, b, c));
}

#endif
