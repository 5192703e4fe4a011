#include "kernels/cpu/sfu.h"

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/mufu_table.h"

#include <math.h>

/* The unit's squarer drops the low partial products one by one; x < 2^17. */
static int64_t square(uint32_t x)
{
	uint64_t sum = 0;

	for (unsigned bit = 0; bit < 17; bit++)
		if (x >> bit & 1)
			sum += (uint64_t)x << bit >> 18;
	return (int64_t)(sum >> 1);
}

float sfu_rcp(float x)
{
	uint32_t bits = float_bits(x), sign = bits & 0x80000000u;
	uint32_t exponent = bits >> 23 & 0xff, mantissa = bits & 0x7fffff;
	const struct mufu_row *row = &mufu_rcp[mantissa >> 16];
	int64_t l = mantissa & 0xffff, y;

	if (exponent == 0)
		return float_of(sign | 0x7f800000u);
	if (exponent == 0xff)
		return mantissa ? float_of(0x7fffffffu) : float_of(sign);
	y = ((int64_t)row->c0 * 8192 - row->c1 * l + row->c2 * square((uint32_t)(2 * l)) +
		    0x47e7) >>
	    15;
	return flush(copysignf(ldexpf((float)y, -24 - ((int)exponent - 127)), x));
}

float sfu_ex2(float x)
{
	float whole = floorf(x);
	uint32_t mantissa = (uint32_t)((x - whole) * 0x1p23f);
	const struct mufu_row *row = &mufu_ex2[mantissa >> 17];
	int64_t l = mantissa & 0x1ffff, y;

	y = ((int64_t)row->c0 * 8192 + row->c1 * l + row->c2 * square((uint32_t)l) + 0x77e2) >> 15;
	return ldexpf((float)y, (int)whole - 23);
}

struct divisor sfu_divisor(float b)
{
	float magnitude = fabsf(b);

	if (magnitude > 0x1p126f && isfinite(b))
		return (struct divisor){0.25f, sfu_rcp(b * 0.25f)};
	if (magnitude > 0 && magnitude < 0x1p-126f)
		return (struct divisor){0x1p24f, sfu_rcp(b * 0x1p24f)};
	return (struct divisor){1.0f, sfu_rcp(b)};
}

float sfu_tanh(float z)
{
	static const uint32_t series[] = {0xbd563cae, 0x3e085941, 0xbeaaa9ed, 0x00000000};
	float a, p, w, e;

	z = flush(z);
	a = fabsf(z);
	if (!(a >= float_of(0x3f19999a))) {
		w = flush(z * z);
		p = float_of(0x3c80f082);
		for (unsigned i = 0; i < sizeof(series) / sizeof(series[0]); i++)
			p = fma_ftz(p, w, float_of(series[i]));
		return fma_ftz(p, z, z);
	}
	if (a >= float_of(0x41102cb4))
		return copysignf(1.0f, z);
	e = sfu_ex2(a * float_of(0x4038aa3b));
	return copysignf(fma_ftz(sfu_rcp(e + 1.0f), -2.0f, 1.0f), z);
}
