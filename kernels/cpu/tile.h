/* Sums over tiles with vectors of LANES ids. Included once by each vector path, which defines
 * LANES, GROUP_ROWS, BROADCAST(x), LARGER(a, b) of integers, and FUSED(a, b, c), a * b + c. A
 * product of two BF16 values is exact in FP32, so fused and separate rounding agree. */
typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));

#define PAIRS          8 /* words of a block of 16 k */
#define EXPONENT_MASK  0x7f800000
#define SIGN_MASK      INT32_MIN
#define SMALLEST_POWER (27 << 23) /* bits of 2^-100 */

#define INLINE static inline __attribute__((always_inline))

INLINE vu load_words(const uint32_t *words)
{
	vu value;

	__builtin_memcpy(&value, words, sizeof(value));
	return value;
}

INLINE void store_floats(float *memory, vf value)
{
	__builtin_memcpy(memory, &value, sizeof(value));
}

INLINE vi choose(vi mask, vi yes, vi no)
{
	return (mask & yes) | (~mask & no);
}

/* ---- the screen ---- */

/* Four chains a block, joined in pairs: that is what SLACK_NORM counts. `rows` is a constant after
 * inlining. */
INLINE void screen_rows(const uint32_t *tile, uint32_t blocks, const unsigned rows,
	const struct embedding *const *embeddings, struct tile_sums *const *ret,
	const unsigned part)
{
	vf total[SCREEN_ROWS], reach[SCREEN_ROWS];

	for (unsigned r = 0; r < rows; r++)
		total[r] = reach[r] = (vf){0};
	for (uint32_t block = 0; block < blocks; block++) {
		const uint32_t *words = tile + block * PAIRS * TILE_IDS + part * LANES;
		vf chain[SCREEN_ROWS][4];

#pragma GCC unroll 8
		for (unsigned pair = 0; pair < PAIRS; pair++) {
			vu word = load_words(words + pair * TILE_IDS);
			vf even = (vf)(word << 16), odd = (vf)(word & 0xffff0000u);
			unsigned c = pair % 2 * 2;

#pragma GCC unroll 4
			for (unsigned r = 0; r < rows; r++) {
				const float *e = embeddings[r]->values + block * 16 + 2 * pair;

				if (pair < 2) {
					chain[r][c] = even * BROADCAST(e[0]);
					chain[r][c + 1] = odd * BROADCAST(e[1]);
				} else {
					chain[r][c] = FUSED(even, BROADCAST(e[0]), chain[r][c]);
					chain[r][c + 1] =
						FUSED(odd, BROADCAST(e[1]), chain[r][c + 1]);
				}
			}
		}
#pragma GCC unroll 4
		for (unsigned r = 0; r < rows; r++) {
			total[r] += (chain[r][0] + chain[r][1]) + (chain[r][2] + chain[r][3]);
			reach[r] += (vf)((vi)total[r] & ~SIGN_MASK);
		}
	}
	for (unsigned r = 0; r < rows; r++) {
		store_floats(ret[r]->sum + part * LANES, total[r]);
		store_floats(ret[r]->reach + part * LANES, reach[r]);
	}
}

static void screen(const uint32_t *tile, uint32_t blocks, unsigned rows,
	const struct embedding *const *embeddings, struct tile_sums *const *ret)
{
	for (unsigned part = 0; part < TILE_IDS / LANES; part++) {
		unsigned r = 0;

		for (; rows - r >= GROUP_ROWS; r += GROUP_ROWS)
			screen_rows(tile, blocks, GROUP_ROWS, embeddings + r, ret + r, part);
		for (; r < rows; r++)
			screen_rows(tile, blocks, 1, embeddings + r, ret + r, part);
	}
}

/* ---- the exact rule ---- */

/* One block's terms, in units of 2^(mx - 25), where `power` holds 2^mx. The 16 products can't leave
 * 32 bits: 16 * (255/128)^2 * 2^25 < 2^31. */
INLINE vi cut_products(const uint32_t *words, const float *embedding, vf scale)
{
	vi sum = {0};

#pragma GCC unroll 8
	for (unsigned pair = 0; pair < PAIRS; pair++) {
		vu word = load_words(words + pair * TILE_IDS);
		vf even = (vf)(word << 16), odd = (vf)(word & 0xffff0000u);

		even = even * BROADCAST(embedding[2 * pair]) * scale;
		odd = odd * BROADCAST(embedding[2 * pair + 1]) * scale;
		sum += __builtin_convertvector(even, vi) + __builtin_convertvector(odd, vi);
	}
	return sum;
}

/* The bits of the largest power of two under the terms: those of non-negative floats compare as
 * integers. A product of powers is 0 exactly where a factor is, and such a term is absent. */
INLINE vi largest_power(const uint32_t *words, const float *powers, vf total)
{
	vi power = (vi)total & EXPONENT_MASK;

#pragma GCC unroll 8
	for (unsigned pair = 0; pair < PAIRS; pair++) {
		vu word = load_words(words + pair * TILE_IDS);
		vf even = (vf)(word << 16 & EXPONENT_MASK), odd = (vf)(word & EXPONENT_MASK);

		power = LARGER(power, (vi)(even * BROADCAST(powers[2 * pair])));
		power = LARGER(power, (vi)(odd * BROADCAST(powers[2 * pair + 1])));
	}
	return power;
}

/* (products + total) * unit, cut toward zero to FP32. The sum of the two may need 33 bits, sign and
 * all: its magnitude is unsigned, and from 2^30 up its last two bits, which FP32 would drop anyway,
 * go first. */
INLINE vf narrow(vi products, vi total, vi unit_bits)
{
	vi sum = (vi)((vu)products + (vu)total);
	vi overflow = ((products ^ sum) & (total ^ sum)) >> 31;
	vi sign = (sum ^ overflow) & SIGN_MASK;
	vi negative = sign >> 31;
	vu magnitude = (vu)(sum ^ negative) - (vu)negative;
	vi big = (vi)(magnitude >= 1u << 30);
	vi short_sum = choose(big, (vi)(magnitude >> 2), (vi)magnitude);
	vf nearest = __builtin_convertvector(short_sum, vf);
	vi rounded_up = __builtin_convertvector(nearest, vi) > short_sum;
	vf cut = (vf)((vi)nearest + rounded_up);

	cut *= (vf)(unit_bits + (big & 2 << 23));
	return (vf)((vi)cut | sign);
}

INLINE vf exact_part(const uint32_t *tile, uint32_t blocks, const struct embedding *embedding)
{
	vf total = {0};

	for (uint32_t block = 0; block < blocks; block++) {
		const uint32_t *words = tile + block * PAIRS * TILE_IDS;
		vi power = largest_power(words, embedding->powers + block * 16, total);
		vf scale;

		/* A product in range has an exponent of -100 or more. Less is a total that
		 * cancelled, alone in its block: a multiple of the 2^-125 of every unit so far, so
		 * it comes through unchanged. Nothing at all stays +0. */
		power = LARGER(power, (vi){0} + SMALLEST_POWER);
		scale = (vf)(((127u + 127 + 25) << 23) - (vu)power); /* 2^(25 - mx) */
		total = narrow(cut_products(words, embedding->values + block * 16, scale),
			__builtin_convertvector(total * scale, vi), power - (25 << 23));
	}
	return total;
}

static void exact(const uint32_t *tile, uint32_t blocks, const struct embedding *embedding,
	float ret[TILE_IDS])
{
	for (unsigned part = 0; part < TILE_IDS / LANES; part++)
		store_floats(
			ret + part * LANES, exact_part(tile + part * LANES, blocks, embedding));
}
