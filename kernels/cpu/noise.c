#include "kernels/cpu/noise.h"

#include "kernels/cpu/bf16.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* Draft noise is salted apart from the verifier's by this distance in position. */
#define POSITION_SALT (UINT64_C(1) << 30)

uint32_t noise_prefix(int64_t seed, int64_t first_position, uint32_t step)
{
	uint64_t s = (uint64_t)seed ^ (uint64_t)step << 32;
	uint64_t q = (uint64_t)first_position + step - 1 + POSITION_SALT;
	uint32_t h = 0;

	h = noise_word(h, (uint32_t)s);
	h = noise_word(h, (uint32_t)(s >> 32));
	return noise_word(h, (uint32_t)q);
}

/* log(x) + addend * ln 2. */
static float log_sfu(float x, float addend)
{
	static const uint32_t series[] = {0x3e1039f6, 0xbdf8cdcc, 0x3e0f2955, 0xbe2ad8b9,
		0x3e4ced0b, 0xbe7fff22, 0x3eaaaa78, 0xbf000000};
	uint32_t i = float_bits(x);
	uint32_t e = (i - 0x3f2aaaabu) & 0xff800000u;
	float m = float_of(i - e) - 1.0f;
	float t = fma_ftz((float)(int32_t)e, float_of(0x34000000), addend);
	float q = float_of(0xbe055027);

	if (i >= 0x7f800000u)
		return fma_ftz(x, INFINITY, INFINITY);
	for (size_t k = 0; k < sizeof(series) / sizeof(series[0]); k++)
		q = fma_ftz(q, m, float_of(series[k]));
	q = flush(m * q);
	q = fma_ftz(q, m, m);
	return fma_ftz(t, float_of(0x3f317218), q);
}

float noise_gumbel(uint32_t hash)
{
	static const uint32_t series[] = {
		0x3e124925, 0x3e2aaaab, 0x3e4ccccd, 0x3e800000, 0x3eaaaaab, 0x3f000000, 0x3f800000};
	float u = fmaf((float)(hash >> 16), 0x1p-16f, ((float)(hash & 0xffff) + 0.5f) * 0x1p-32f);
	float l, x;
	bool tiny;

	if (u < 0.25f) {
		float p = float_of(0x3e000000);

		for (size_t k = 0; k < sizeof(series) / sizeof(series[0]); k++)
			p = fmaf(u, p, float_of(series[k]));
		l = p * -u;
	} else {
		l = log_sfu(fmaxf(1.0f - u, float_of(0x33800000)), 0.0f);
	}
	tiny = l > float_of(0x80800000);
	x = tiny ? l * -0x1p23f : -l;
	return x == 0.0f ? -INFINITY : log_sfu(x, tiny ? -23.0f : 0.0f);
}
