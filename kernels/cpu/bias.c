#include "kernels/cpu/bias.h"

#include "kernels/cpu/bf16.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>

#define CUT 25 /* terms keep bits down to 2^(mx - CUT) */

/* A term: magnitude * 2^scale, and the exponent that it competes with. */
struct term {
	bool negative;
	int exponent;
	int scale;
	int64_t magnitude; /* 0: absent */
};

/* A finite value of `fraction_bits` fraction bits. A subnormal counts at face value: exponent of
 * the smallest normal, no leading one. */
static struct term split(uint32_t bits, unsigned fraction_bits)
{
	uint32_t fraction = bits & ((1u << fraction_bits) - 1);
	uint32_t field = bits >> fraction_bits & 0xff;
	struct term term;

	term.negative = bits >> (fraction_bits + 8) & 1;
	term.exponent = field ? (int)field - 127 : -126;
	term.scale = term.exponent - (int)fraction_bits;
	term.magnitude = field ? fraction | 1u << fraction_bits : fraction;
	return term;
}

static struct term multiply(uint16_t a, uint16_t b)
{
	struct term x = split(a, 7), y = split(b, 7);

	return (struct term){
		.negative = x.negative != y.negative,
		.exponent = x.exponent + y.exponent,
		.scale = x.scale + y.scale,
		.magnitude = x.magnitude * y.magnitude,
	};
}

/* The term in units of 2^unit, cut toward zero. A left shift is at most 25 - 14 + 2 bits. */
static int64_t cut(struct term term, int unit)
{
	int shift = term.scale - unit;
	int64_t magnitude;

	if (shift >= 0)
		magnitude = term.magnitude << shift;
	else
		magnitude = shift > -63 ? term.magnitude >> -shift : 0;
	return term.negative ? -magnitude : magnitude;
}

/* sum * 2^unit as FP32, cut toward zero. */
static float narrow(int64_t sum, int unit)
{
	uint64_t magnitude = (uint64_t)(sum < 0 ? -sum : sum);
	int top, drop;

	if (sum == 0)
		return 0.0f;
	top = 63 - __builtin_clzll(magnitude) + unit;
	if (top > 127)
		return sum < 0 ? -INFINITY : INFINITY;
	/* What lies under the last bit of the result, a subnormal's or a normal one's, goes. */
	drop = (top < -126 ? -149 : top - 23) - unit;
	if (drop > 0)
		magnitude = drop < 64 ? magnitude >> drop << drop : 0;
	return ldexpf(sum < 0 ? -(float)magnitude : (float)magnitude, unit);
}

static bool is_finite(float value)
{
	return (float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

float bias_block(float accumulator, const uint16_t *a, const uint16_t *b, uint32_t count)
{
	struct term terms[BIAS_BLOCK + 1];
	bool special = !is_finite(accumulator);
	float ieee = accumulator;
	int64_t sum = 0;
	int mx = INT_MIN;

	for (uint32_t k = 0; k < count; k++) {
		float x = bf16_widen(a[k]), y = bf16_widen(b[k]);

		/* Only infinities and NaN matter in this sum: a product that overflows FP32 is
		 * finite here. */
		if (!is_finite(x) || !is_finite(y)) {
			special = true;
			ieee += x * y;
		}
		terms[k] = multiply(a[k], b[k]);
	}
	if (special)
		return isnan(ieee) ? float_of(0x7fffffffu) : ieee;

	terms[count] = split(float_bits(accumulator), 23);
	for (uint32_t k = 0; k <= count; k++)
		if (terms[k].magnitude != 0 && terms[k].exponent > mx)
			mx = terms[k].exponent;
	if (mx == INT_MIN)
		return 0.0f;
	for (uint32_t k = 0; k <= count; k++)
		sum += cut(terms[k], mx - CUT);
	return narrow(sum, mx - CUT);
}

float bias_sum(const uint16_t *weights, const uint16_t *embedding, uint32_t rank)
{
	float accumulator = 0.0f;

	for (uint32_t k = 0; k < rank; k += BIAS_BLOCK)
		accumulator = bias_block(accumulator, weights + k, embedding + k,
			rank - k < BIAS_BLOCK ? rank - k : BIAS_BLOCK);
	return accumulator;
}
