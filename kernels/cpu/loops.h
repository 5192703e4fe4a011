/* The loops around the bias, in plain C that compilers turn into vector code of the including
 * file's instruction set. Included once by each path_*.c; path.h says what each does. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/noise.h"
#include "kernels/cpu/path.h"

/* bf16() without a branch. */
static inline uint32_t round_bits(float value)
{
	uint32_t bits = float_bits(value);
	uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (bits & 0x7fffffffu) > 0x7f800000u ? BF16_NAN : rounded;
}

static inline uint32_t mix_bits(uint16_t base, float bias)
{
	return round_bits(bf16_widen(base) + float_of(round_bits(bias) << 16));
}

static bool mix(const struct tile_sums *sums, const float *fixed, uint32_t tiles,
	const uint16_t *restrict base, uint16_t *restrict ret_x, uint16_t *restrict ret_doubt)
{
	uint32_t any = 0;

	for (uint32_t t = 0; t < tiles; t++) {
		const float *sum = sums[t].sum, *reach = sums[t].reach;
		const uint16_t *tile_base = base + (size_t)t * TILE_IDS;
		uint16_t *x = ret_x + (size_t)t * TILE_IDS;
		uint16_t *doubt = ret_doubt + (size_t)t * TILE_IDS;
		float fixed_slack = fixed[t];

		for (size_t i = 0; i < TILE_IDS; i++) {
			float magnitude = float_of(float_bits(sum[i]) & 0x7fffffffu);
			float slack = reach[i] * SLACK_REACH + magnitude * SLACK_SUM + fixed_slack;
			uint32_t low = mix_bits(tile_base[i], sum[i] - slack);
			uint32_t high = mix_bits(tile_base[i], sum[i] + slack);

			x[i] = (uint16_t)low;
			doubt[i] = (uint16_t)(low ^ high);
			any |= low ^ high;
		}
	}
	return any != 0;
}

static void multiply(
	const uint16_t *restrict x, uint32_t count, float multiplier, uint16_t *restrict ret_logits)
{
	for (uint32_t i = 0; i < count; i++)
		ret_logits[i] = (uint16_t)round_bits(multiplier * bf16_widen(x[i]));
}

static bool bound(const uint16_t *restrict logits, uint32_t count,
	const struct tempering *tempering, float best, float *restrict ret_bounds)
{
	struct divisor divisor = tempering->divisor;
	uint32_t prefix = tempering->prefix, first_id = tempering->first_id;
	uint32_t any = 0;

	if (!tempering->sampled) {
		for (uint32_t i = 0; i < count; i++) {
			ret_bounds[i] = bf16_widen(logits[i]);
			any |= !(ret_bounds[i] <= best);
		}
		return any != 0;
	}
	for (uint32_t i = 0; i < count; i++) {
		float noise = noise_bound(noise_hash(prefix, first_id + i));

		ret_bounds[i] = sfu_divide(bf16_widen(logits[i]), divisor) + noise;
		any |= !(ret_bounds[i] <= best);
	}
	return any != 0;
}
