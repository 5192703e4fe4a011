/* The noise: its hash against MurmurHash3 as published, its logarithms against libm's, its bound
 * against itself. */
#include "kernels/cpu/noise.h"
#include "tests/unit/kernels/random.h"
#include "tests/unit/kernels/suites.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* MurmurHash3_x86_32 over bytes, from its description. */
static uint32_t murmur(const void *data, size_t length, uint32_t seed)
{
	const unsigned char *bytes = data;
	uint32_t h = seed;

	for (size_t i = 0; i < length; i += 4) {
		uint32_t k = 0;

		for (size_t j = 0; j < 4 && i + j < length; j++)
			k |= (uint32_t)bytes[i + j] << 8 * j;
		k *= 0xcc9e2d51u;
		k = k << 15 | k >> 17;
		h ^= k * 0x1b873593u;
		if (i + 4 <= length) {
			h = h << 13 | h >> 19;
			h = h * 5 + 0xe6546b64u;
		}
	}
	h ^= (uint32_t)length;
	h ^= h >> 16;
	h *= 0x85ebca6bu;
	h ^= h >> 13;
	h *= 0xc2b2ae35u;
	return h ^ h >> 16;
}

START_TEST(hash_is_murmur3_of_four_words)
{
	struct random random = {9};

	/* published vectors */
	ck_assert_uint_eq(murmur("", 0, 1), 0x514e28b7);
	ck_assert_uint_eq(murmur("\xff\xff\xff\xff", 4, 0), 0x76293b50);
	ck_assert_uint_eq(murmur("\x21\x43\x65\x87", 4, 0), 0xf55b516b);
	ck_assert_uint_eq(murmur("test", 4, 0), 0xba6bd213);
	for (int n = 0; n < 10000; n++) {
		int64_t seed = (int64_t)random_bits(&random),
			position = (int64_t)random_bits(&random);
		uint32_t step = random_below(&random, 100), v = random_below(&random, 200000);
		uint64_t s = (uint64_t)seed ^ (uint64_t)step << 32;
		uint32_t words[4] = {(uint32_t)s, (uint32_t)(s >> 32),
			(uint32_t)((uint64_t)position + step - 1 + (1u << 30)), v};

		REQUIRE(noise_hash(noise_prefix(seed, position, step), v) == murmur(words, 16, 0),
			"id %u", v);
	}
}
END_TEST

static double gumbel(uint32_t hash)
{
	double u = ((double)hash + 0.5) * 0x1p-32;

	return log(-log1p(-u));
}

START_TEST(gumbel_is_close_to_the_logarithms)
{
	const uint64_t stride = slow_tool() ? 49999 : 4999;

	for (uint64_t h = 0; h < UINT64_C(1) << 32; h += stride) {
		double wanted = gumbel((uint32_t)h), got = (double)noise_gumbel((uint32_t)h);

		/* Near u = 1, FP32 has few numbers left: the largest is log(2^-24). */
		if (h < 0xffff0000u)
			REQUIRE(fabs(got - wanted) < 2e-3 &&
					(h > 0xf0000000u || fabs(got - wanted) < 1e-5),
				"%llx: %g, not %g", (unsigned long long)h, got, wanted);
	}
	ck_assert(fabs((double)noise_gumbel(0) - gumbel(0)) < 1e-5);
	ck_assert(fabs((double)noise_gumbel(UINT32_MAX) - log(24 * log(2))) < 1e-6);
}
END_TEST

/* All hashes with DRAFTD_SLOW_TESTS (minutes), else every 257th and the ends, fewer under a slow
 * tool. */
START_TEST(bound_is_never_below_the_noise)
{
	uint64_t stride = getenv("DRAFTD_SLOW_TESTS") ? 1 : slow_tool() ? 25747 : 257;

	for (uint64_t h = 0; h < UINT64_C(1) << 32; h += h < 100000 ? 1 : stride) {
		float noise = -noise_gumbel((uint32_t)h), bound = noise_bound((uint32_t)h);

		REQUIRE(noise <= bound && bound < 110, "%llx: %a, bound %a", (unsigned long long)h,
			(double)noise, (double)bound);
	}
	ck_assert(-noise_gumbel(UINT32_MAX) <= noise_bound(UINT32_MAX));
}
END_TEST

Suite *noise_suite(void)
{
	Suite *suite = suite_create("noise");
	TCase *tests = tcase_create("noise");

	tcase_set_timeout(tests, getenv("DRAFTD_SLOW_TESTS") ? 1200 : 60);
	tcase_add_test(tests, hash_is_murmur3_of_four_words);
	tcase_add_test(tests, gumbel_is_close_to_the_logarithms);
	tcase_add_test(tests, bound_is_never_below_the_noise);
	suite_add_tcase(suite, tests);
	return suite;
}
