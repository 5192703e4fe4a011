/* Repeatable random operands of the kinds that break arithmetic. */
#ifndef TESTS_UNIT_KERNELS_RANDOM_H
#define TESTS_UNIT_KERNELS_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state; /* not 0 */
};

static inline uint64_t random_bits(struct random *random)
{
	random->state ^= random->state << 13;
	random->state ^= random->state >> 7;
	random->state ^= random->state << 17;
	return random->state * 0x2545f4914f6cdd1dULL;
}

static inline uint32_t random_below(struct random *random, uint32_t limit)
{
	return (uint32_t)((random_bits(random) >> 32) * limit >> 32);
}

enum operand_kind {
	OPERAND_NEAR,    /* exponents of -6 to 1: what weights look like */
	OPERAND_SPREAD,  /* exponents of -30 to 10, zeros among them */
	OPERAND_LARGEST, /* near 1.99: sums that need all the bits */
	OPERAND_TIED,    /* few values, both signs: cancellation to zero */
	OPERAND_EXTREME, /* any finite exponent, subnormals too */
	OPERAND_ANY,     /* any bits: infinities and NaN too */
	OPERAND_KINDS,
};

static inline uint16_t random_operand(struct random *random, enum operand_kind kind)
{
	uint32_t bits = (uint32_t)(random_bits(random) >> 32);
	uint32_t sign_fraction = bits & 0x807f;
	uint32_t field;

	switch (kind) {
	case OPERAND_NEAR:
		field = 121 + random_below(random, 8);
		break;
	case OPERAND_SPREAD:
		if (random_below(random, 5) == 0)
			return (uint16_t)(bits & 0x8000);
		field = 97 + random_below(random, 41);
		break;
	case OPERAND_LARGEST:
		return (uint16_t)((bits & 1 ? 0x8000u : 0) | 0x3ffe | (bits >> 1 & 1));
	case OPERAND_TIED:
		return (uint16_t)((bits & 0x8000) | (0x3f80 + (bits & 1) * 0x80));
	case OPERAND_EXTREME:
		field = random_below(random, 255);
		break;
	default:
		field = random_below(random, 4) ? random_below(random, 255) : 255;
		if (random_below(random, 8))
			field = 120 + random_below(random, 10);
		break;
	}
	return (uint16_t)(sign_fraction | field << 7);
}

#endif
