/* The bias rule: the reference against an implementation with big integers that was written from
 * NUMERICS.md alone, and every path's exact sum and screen against the reference. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/bias.h"
#include "kernels/cpu/path.h"
#include "tests/unit/kernels/random.h"
#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers of 1024 bits: magnitude * 2^-512 ---- */

#define LIMBS 32
#define POINT 512

struct big {
	bool negative;
	uint32_t limb[LIMBS];
};

static int compare_magnitudes(const struct big *a, const struct big *b)
{
	for (int i = LIMBS - 1; i >= 0; i--)
		if (a->limb[i] != b->limb[i])
			return a->limb[i] < b->limb[i] ? -1 : 1;
	return 0;
}

static void add(struct big *to, const struct big *value)
{
	const struct big *high = to, *low = value;
	struct big result;
	int64_t carry = 0;

	if (compare_magnitudes(to, value) < 0) {
		high = value;
		low = to;
	}
	result.negative = high->negative;
	for (int i = 0; i < LIMBS; i++) {
		carry += high->limb[i];
		carry += to->negative == value->negative ? (int64_t)low->limb[i]
							 : -(int64_t)low->limb[i];
		result.limb[i] = (uint32_t)carry;
		carry >>= 32;
	}
	*to = result;
}

static bool bit(const struct big *value, int place)
{
	return value->limb[(place + POINT) / 32] >> ((place + POINT) % 32) & 1;
}

/* Clears the bits below 2^place. */
static void truncate_below(struct big *value, int place)
{
	for (int i = -POINT; i < place && i < POINT; i++)
		value->limb[(i + POINT) / 32] &= ~(1u << ((i + POINT) % 32));
}

/* magnitude * 2^scale. */
static struct big make(bool negative, uint64_t magnitude, int scale)
{
	struct big value = {.negative = negative};

	for (int i = 0; i < 64; i++)
		if (magnitude >> i & 1)
			value.limb[(scale + i + POINT) / 32] |= 1u << ((scale + i + POINT) % 32);
	return value;
}

static bool is_zero(const struct big *value)
{
	for (int i = 0; i < LIMBS; i++)
		if (value->limb[i])
			return false;
	return true;
}

/* ---- the page, once more ---- */

struct number {
	bool negative;
	int exponent;
	uint32_t significand; /* times 2^(exponent - 23) */
};

static struct number take_apart(float value)
{
	uint32_t bits = float_bits(value);
	int field = (int)(bits >> 23 & 0xff);

	if (field == 0)
		return (struct number){bits >> 31, -126, bits & 0x7fffff};
	return (struct number){bits >> 31, field - 127, (bits & 0x7fffff) | 0x800000};
}

static float by_the_page(float accumulator, const uint16_t *a, const uint16_t *b)
{
	struct big terms[17], sum = {0};
	int exponents[17], mx = -100000, top = 511, low;
	struct number c = take_apart(accumulator);
	double value = 0;

	terms[16] = make(c.negative, c.significand, c.exponent - 23);
	exponents[16] = c.exponent;
	for (int k = 0; k < 16; k++) {
		struct number x = take_apart(bf16_widen(a[k])), y = take_apart(bf16_widen(b[k]));

		terms[k] = make(x.negative != y.negative, (uint64_t)x.significand * y.significand,
			x.exponent + y.exponent - 46);
		exponents[k] = x.exponent + y.exponent;
	}
	for (int k = 0; k < 17; k++)
		if (!is_zero(&terms[k]) && exponents[k] > mx)
			mx = exponents[k];
	if (mx == -100000)
		return 0.0f;
	for (int k = 0; k < 17; k++) {
		truncate_below(&terms[k], mx - 25);
		add(&sum, &terms[k]);
	}
	if (is_zero(&sum))
		return 0.0f;
	while (!bit(&sum, top))
		top--;
	if (top > 127)
		return sum.negative ? -INFINITY : INFINITY;
	low = top - 23 > -149 ? top - 23 : -149;
	for (int place = top; place >= low; place--)
		if (bit(&sum, place))
			value += ldexp(1.0, place);
	return (float)(sum.negative ? -value : value);
}

static float chain(const uint16_t *a, const uint16_t *b, int blocks,
	float (*block)(float, const uint16_t *, const uint16_t *))
{
	float accumulator = 0;

	/* Big integers have no infinities to go on with. */
	for (int i = 0; i < blocks && !isinf(accumulator); i++)
		accumulator = block(accumulator, a + 16 * i, b + 16 * i);
	return accumulator;
}

static float reference_block(float accumulator, const uint16_t *a, const uint16_t *b)
{
	return bias_block(accumulator, a, b, 16);
}

START_TEST(reference_follows_the_page)
{
	struct random random = {(uint64_t)_i * 77 + 1};
	uint16_t a[64], b[64];

	for (int n = 0; n < 3000; n++) {
		enum operand_kind kind = (enum operand_kind)_i;

		for (int k = 0; k < 64; k++) {
			a[k] = random_operand(&random, kind);
			b[k] = random_operand(&random, n % 2 ? kind : OPERAND_NEAR);
		}
		float wanted = chain(a, b, 4, by_the_page);
		float got = chain(a, b, 4, reference_block);

		REQUIRE(float_bits(wanted) == float_bits(got), "kind %d, chain %d: %a, not %a", _i,
			n, (double)got, (double)wanted);
	}
}
END_TEST

START_TEST(infinities_and_nan_are_ieee)
{
	const uint16_t inf = 0x7f80, minus_inf = 0xff80, nan = 0x7fc1, one = 0x3f80, big = 0x7f7f;
	uint16_t a[16] = {0}, b[16] = {0};

	a[3] = inf;
	b[3] = one;
	ck_assert(bias_block(-5.0f, a, b, 16) == INFINITY);
	b[3] = 0;
	ck_assert_uint_eq(float_bits(bias_block(1.0f, a, b, 16)), 0x7fffffff);
	b[3] = one;
	a[9] = minus_inf;
	b[9] = one;
	ck_assert_uint_eq(float_bits(bias_block(0.0f, a, b, 16)), 0x7fffffff);
	a[9] = nan;
	ck_assert_uint_eq(float_bits(bias_block(0.0f, a, b, 16)), 0x7fffffff);
	a[3] = a[9] = 0;
	ck_assert(bias_block(-INFINITY, a, b, 16) == -INFINITY);
	ck_assert_uint_eq(float_bits(bias_block(NAN, a, b, 16)), 0x7fffffff);
	a[0] = a[1] = big;
	b[0] = big;
	b[1] = 0xff7f;
	ck_assert_uint_eq(
		float_bits(bias_block(0.0f, a, b, 16)), 0); /* cancels above FP32's range */
	b[1] = one;
	ck_assert(bias_block(0.0f, a, b, 16) == INFINITY);
	ck_assert_uint_eq(float_bits(bias_block(-0.0f, a, b, 0)), 0);
}
END_TEST

/* What an H200 returned for operands that are subnormal: the exponent of one is -126, its
 * significand below 1. */
START_TEST(subnormal_operands_count_at_face_value)
{
	uint16_t a[16] = {0x0001}, b[16] = {bf16_round(0x1p127f)};

	a[1] = bf16_round(0x1p-14f);
	b[1] = bf16_round(0x1p-14f);
	ck_assert(bias_block(0, a, b, 16) == 0x1p-6f); /* 2^-28 is cut away: mx is 1, not -6 */
	a[1] = b[1] = bf16_round(0x1p-12f);
	ck_assert(bias_block(0, a, b, 16) == 0x1.00004p-6f);
	b[1] = bf16_round(0x1p-13f);
	ck_assert(bias_block(0, a, b, 16) == 0x1p-6f);
	a[1] = 0;
	b[0] = bf16_round(0x1p120f);
	ck_assert(bias_block(0x1p-30f, a, b, 16) == 0x1.00008p-13f);
}
END_TEST

/* ---- the paths ---- */

#define BLOCKS_MAX 16

struct operands {
	uint32_t blocks;
	uint16_t weights[TILE_IDS][BLOCKS_MAX * 16];
	uint32_t tile[BLOCKS_MAX * 8 * TILE_IDS] __attribute__((aligned(64)));
	struct range tile_range, row_range;
	float values[BLOCKS_MAX * 16], powers[BLOCKS_MAX * 16];
	uint16_t bits[BLOCKS_MAX * 16];
	uint32_t pairs[BLOCKS_MAX * 8];
	struct embedding embedding;
	double fixed; /* the slack's share of tile and row */
};

static void fill_operands(struct operands *o, struct random *random, enum operand_kind weights,
	enum operand_kind embedding)
{
	double norm = 0, largest = 0, squares, row_squares = 0, peaks = 0;

	o->blocks = 1 + random_below(random, BLOCKS_MAX);
	o->tile_range = o->row_range = RANGE_NONE;
	for (uint32_t lane = 0; lane < TILE_IDS; lane++) {
		squares = 0;
		for (uint32_t k = 0; k < o->blocks * 16; k++) {
			uint16_t value = random_operand(random, weights);
			double wide = (double)bf16_widen(value);

			o->weights[lane][k] = value;
			range_add(&o->tile_range, value);
			squares += wide * wide;
			largest = fmax(largest, fabs(wide));
			o->tile[k / 2 * TILE_IDS + lane] =
				(k % 2 ? o->tile[k / 2 * TILE_IDS + lane] : 0) |
				(uint32_t)value << k % 2 * 16;
		}
		norm = fmax(norm, sqrt(squares));
	}
	for (uint32_t block = 0; block < o->blocks; block++) {
		double peak = 0;

		for (uint32_t k = block * 16; k < block * 16 + 16; k++) {
			o->bits[k] = random_operand(random, embedding);
			range_add(&o->row_range, o->bits[k]);
			o->values[k] = bf16_widen(o->bits[k]);
			o->powers[k] = float_of(float_bits(o->values[k]) & 0x7f800000);
			row_squares += (double)o->values[k] * (double)o->values[k];
			peak = fmax(peak, fabs((double)o->values[k]));
			o->pairs[k / 2] = (k % 2 ? o->pairs[k / 2] : 0) | (uint32_t)o->bits[k]
										  << k % 2 * 16;
		}
		peaks += peak;
	}
	o->embedding = (struct embedding){o->values, o->powers, o->bits, o->pairs};
	o->fixed = norm * sqrt(row_squares) * (double)SLACK_NORM +
		   largest * peaks * (double)SLACK_PEAK;
}

static void check_exact(const struct path *path, const struct operands *o, const float *wanted)
{
	float got[TILE_IDS];

	path->exact(o->tile, o->blocks, &o->embedding, got);
	for (uint32_t lane = 0; lane < TILE_IDS; lane++)
		REQUIRE(float_bits(got[lane]) == float_bits(wanted[lane]),
			"%s, lane %u: %a, not %a", path->name, lane, (double)got[lane],
			(double)wanted[lane]);
}

static void check_screen(const struct path *path, const struct operands *o, const float *wanted)
{
	struct tile_sums sums[5];
	struct tile_sums *to[5] = {&sums[0], &sums[1], &sums[2], &sums[3], &sums[4]};
	const struct embedding *rows[5] = {
		&o->embedding, &o->embedding, &o->embedding, &o->embedding, &o->embedding};

	path->screen(o->tile, o->blocks, 5, rows, to);
	for (uint32_t lane = 0; lane < TILE_IDS; lane++) {
		double sum = (double)sums[0].sum[lane];
		double slack = (double)sums[0].reach[lane] * (double)SLACK_REACH +
			       fabs(sum) * (double)SLACK_SUM + o->fixed;

		for (int r = 1; r < 5; r++) /* alone or in a group: the same bits */
			REQUIRE(sums[r].sum[lane] == sums[0].sum[lane] &&
					sums[r].reach[lane] == sums[0].reach[lane],
				"%s, row %d, lane %u", path->name, r, lane);
		REQUIRE(fabs(sum - (double)wanted[lane]) <= slack,
			"%s, lane %u: %a is more than %a from %a", path->name, lane, sum, slack,
			(double)wanted[lane]);
	}
}

START_TEST(paths_agree_with_the_reference)
{
	static struct operands o;
	struct random random = {(uint64_t)_i + 5};
	unsigned fitting = 0;

	for (int n = 0; n < 1500; n++) {
		float wanted[TILE_IDS];

		fill_operands(&o, &random, (enum operand_kind)(_i % OPERAND_KINDS),
			(enum operand_kind)(_i / OPERAND_KINDS));
		if (!range_fits(o.tile_range, o.row_range))
			continue;
		fitting++;
		for (uint32_t lane = 0; lane < TILE_IDS; lane++)
			wanted[lane] = bias_sum(o.weights[lane], o.bits, o.blocks * 16);
		for (const struct path *const *path = path_list(); *path; path++) {
			if (!(*path)->screen)
				continue;
			check_exact(*path, &o, wanted);
			check_screen(*path, &o, wanted);
		}
	}
	/* What weights look like must take the fast way. */
	if (_i % OPERAND_KINDS < OPERAND_EXTREME && _i / OPERAND_KINDS < OPERAND_EXTREME)
		ck_assert_uint_eq(fitting, 1500);
}
END_TEST

static void set_operand(struct operands *o, uint32_t lane, uint32_t k, uint16_t value)
{
	uint32_t *word = &o->tile[k / 2 * TILE_IDS + lane];

	o->weights[lane][k] = value;
	*word = (*word & ~(0xffffu << k % 2 * 16)) | (uint32_t)value << k % 2 * 16;
}

/* At the lowest exponents in range: a block that cancels almost to nothing, then blocks without a
 * product. What is left is far below 2^-100 and must come through as it is. */
START_TEST(totals_that_cancelled_come_through)
{
	static struct operands o;

	o.blocks = 3;
	o.embedding = (struct embedding){o.values, o.powers, o.bits, o.pairs};
	for (uint32_t k = 0; k < 48; k++) {
		o.bits[k] = (127 - 50) << 7;
		o.values[k] = o.powers[k] = 0x1p-50f;
		o.pairs[k / 2] = 0x10001u * o.bits[k];
	}
	for (uint32_t lane = 0; lane < TILE_IDS; lane++) {
		set_operand(&o, lane, 0, (127 - 50) << 7 | 1);      /* 2^-50 (1 + 2^-7) */
		set_operand(&o, lane, 1, 0x8000 | (127 - 50) << 7); /* -2^-50 */
	}
	/* lane 3: the rest of a second cancellation in the last block */
	set_operand(&o, 3, 33, (127 - 50) << 7);
	set_operand(&o, 3, 34, 0x8000 | (127 - 50) << 7 | 1);
	ck_assert(bias_sum(o.weights[0], o.bits, 48) == 0x1p-107f);
	ck_assert_uint_eq(float_bits(bias_sum(o.weights[3], o.bits, 48)), 0);
	for (const struct path *const *path = path_list(); *path; path++) {
		float got[TILE_IDS];

		if (!(*path)->exact)
			continue;
		(*path)->exact(o.tile, o.blocks, &o.embedding, got);
		ck_assert(got[0] == 0x1p-107f && got[15] == 0x1p-107f);
		ck_assert_uint_eq(float_bits(got[3]), 0);
	}
}
END_TEST

START_TEST(ranges)
{
	struct range none = RANGE_NONE, one = RANGE_NONE, wild = RANGE_NONE, tiny = RANGE_NONE;

	range_add(&one, 0x3f80);
	range_add(&one, 0x8000);
	ck_assert(one.low == 0 && one.high == 0);
	ck_assert(range_fits(one, none) && range_fits(none, none));
	range_add(&wild, 0x7f80);
	range_add(&wild, 0x3f80);
	ck_assert(!range_fits(wild, one) && !range_fits(wild, none));
	wild = RANGE_NONE;
	range_add(&wild, 0x0001);
	ck_assert(!range_fits(wild, one) && !range_fits(wild, none));
	range_add(&tiny, (127 - 100) << 7);
	ck_assert(range_fits(tiny, one));
	range_add(&tiny, (127 - 101) << 7);
	ck_assert(!range_fits(tiny, one));
	tiny = RANGE_NONE;
	range_add(&tiny, (127 + 100) << 7);
	ck_assert(range_fits(tiny, one));
	range_add(&tiny, (127 + 101) << 7);
	ck_assert(!range_fits(tiny, one));
}
END_TEST

Suite *bias_suite(void)
{
	Suite *suite = suite_create("bias");
	TCase *rule = tcase_create("rule"), *paths = tcase_create("paths");

	tcase_set_timeout(rule, 60);
	tcase_add_loop_test(rule, reference_follows_the_page, 0, OPERAND_ANY);
	tcase_add_test(rule, infinities_and_nan_are_ieee);
	tcase_add_test(rule, subnormal_operands_count_at_face_value);
	suite_add_tcase(suite, rule);
	tcase_set_timeout(paths, 120);
	tcase_add_loop_test(
		paths, paths_agree_with_the_reference, 0, OPERAND_KINDS * OPERAND_KINDS);
	tcase_add_test(paths, totals_that_cancelled_come_through);
	tcase_add_test(paths, ranges);
	suite_add_tcase(suite, paths);
	return suite;
}
