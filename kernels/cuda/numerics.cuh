// The arithmetic of NUMERICS sections 2, 4, 5 and 6, operation by operation. Everything whose
// rounding matters is an intrinsic or an instruction by name, so that no compiler flag can fuse,
// split or flush it.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define DEVICE __device__ __forceinline__

DEVICE float bits_float(uint32_t bits)
{
	return __uint_as_float(bits);
}

DEVICE float bf16_float(uint16_t bits)
{
	return __uint_as_float((uint32_t)bits << 16);
}

// Nearest even; any NaN becomes 0x7FFF.
DEVICE uint16_t float_bf16(float value)
{
	return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

DEVICE float fma_ftz(float a, float b, float c)
{
	float r;
	asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
	return r;
}

DEVICE float mul_ftz(float a, float b)
{
	float r;
	asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}

DEVICE float add_ftz(float a, float b)
{
	float r;
	asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}

DEVICE float rcp_ftz(float a)
{
	float r;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
	return r;
}

DEVICE float ex2_ftz(float a)
{
	float r;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
	return r;
}

DEVICE float lg2_ftz(float a)
{
	float r;
	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
	return r;
}

DEVICE float div_full(float a, float b)
{
	float r;
	asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}

// ---- section 2: from the sum of base and bias to the draft logit ----

// Section 5.
DEVICE float tanh_sfu(float z)
{
	z = add_ftz(z, -0.0f);
	const float a = fabsf(z);
	if (!(a >= bits_float(0x3F19999A))) {
		const float w = mul_ftz(z, z);
		float p = bits_float(0x3C80F082);
		p = fma_ftz(p, w, bits_float(0xBD563CAE));
		p = fma_ftz(p, w, bits_float(0x3E085941));
		p = fma_ftz(p, w, bits_float(0xBEAAA9ED));
		p = fma_ftz(p, w, 0.0f);
		return fma_ftz(p, z, z);
	}
	if (a >= bits_float(0x41102CB4))
		return copysignf(1.0f, z);
	const float e = ex2_ftz(mul_ftz(a, bits_float(0x4038AA3B)));
	return copysignf(fma_ftz(rcp_ftz(add_ftz(e, 1.0f)), -2.0f, 1.0f), z);
}

DEVICE uint16_t scaled_logit(float x, float multiplier, float soft_cap, float inverse_soft_cap)
{
	float y = __fmul_rn(multiplier, x);
	if (soft_cap != 0.0f)
		y = __fmul_rn(soft_cap, tanh_sfu(__fmul_rn(inverse_soft_cap, y)));
	return float_bf16(y);
}

// ---- section 4: the noise ----
//
// The last round of the hash before its finish is rotl(h ^ k(v), 13) * 5 + c. A rotation
// distributes over xor, so the row's half and the id's half are rotated once each and meet in a
// single xor.

DEVICE uint32_t rotate_left(uint32_t x, int by)
{
	return __funnelshift_l(x, x, by);
}

DEVICE uint32_t hash_word(uint32_t k)
{
	return rotate_left(k * 0xCC9E2D51u, 15) * 0x1B873593u;
}

DEVICE uint32_t hash_round(uint32_t h, uint32_t k)
{
	return rotate_left(h ^ hash_word(k), 13) * 5 + 0xE6546B64u;
}

DEVICE uint32_t row_hash(int64_t seed, int64_t first_position, uint32_t step)
{
	const uint64_t s = (uint64_t)seed ^ (uint64_t)step << 32;
	const uint64_t q = (uint64_t)first_position + step - 1 + (1u << 30);
	const uint32_t h = hash_round(
		hash_round(hash_round(0, (uint32_t)s), (uint32_t)(s >> 32)), (uint32_t)q);
	return rotate_left(h, 13);
}

DEVICE uint32_t id_hash(uint32_t id)
{
	return rotate_left(hash_word(id), 13);
}

// All of the finish but its last xor-shift, which leaves the upper half alone.
DEVICE uint32_t hash_upper(uint32_t row, uint32_t id)
{
	uint32_t h = (row ^ id) * 5 + 0xE6546B64u;
	h ^= 16 ^ (h >> 16);
	h *= 0x85EBCA6Bu;
	h ^= h >> 13;
	return h * 0xC2B2AE35u;
}

// log_sfu(x, 0) for a normal positive x, which is all that the noise asks for: u >= 2^-33 keeps
// -log(1 - u) above 2^-33, so the `tiny`, zero and infinite cases of section 4 never arise.
DEVICE float log_sfu(float x)
{
	const uint32_t i = __float_as_uint(x);
	const uint32_t e = (i - 0x3F2AAAABu) & 0xFF800000u;
	const float m = __fadd_rn(bits_float(i - e), -1.0f);
	const float t = __fmul_rn((float)(int32_t)e, bits_float(0x34000000));
	float q = fma_ftz(bits_float(0xBE055027), m, bits_float(0x3E1039F6));
	q = fma_ftz(q, m, bits_float(0xBDF8CDCC));
	q = fma_ftz(q, m, bits_float(0x3E0F2955));
	q = fma_ftz(q, m, bits_float(0xBE2AD8B9));
	q = fma_ftz(q, m, bits_float(0x3E4CED0B));
	q = fma_ftz(q, m, bits_float(0xBE7FFF22));
	q = fma_ftz(q, m, bits_float(0x3EAAAA78));
	q = fma_ftz(q, m, bits_float(0xBF000000));
	q = mul_ftz(m, q);
	q = fma_ftz(q, m, m);
	return fma_ftz(t, bits_float(0x3F317218), q);
}

// G(v); `row` and `id` are the two halves of the hash.
DEVICE float gumbel(uint32_t row, uint32_t id)
{
	uint32_t h = hash_upper(row, id);
	h ^= h >> 16;
	const float low = __fmul_rn(__fadd_rn((float)(h & 0xFFFF), 0.5f), 0x1p-32f);
	const float u = __fmaf_rn((float)(h >> 16), 0x1p-16f, low);
	float l;
	if (u < 0.25f) {
		float p = __fmaf_rn(u, bits_float(0x3E000000), bits_float(0x3E124925));
		p = __fmaf_rn(u, p, bits_float(0x3E2AAAAB));
		p = __fmaf_rn(u, p, bits_float(0x3E4CCCCD));
		p = __fmaf_rn(u, p, bits_float(0x3E800000));
		p = __fmaf_rn(u, p, bits_float(0x3EAAAAAB));
		p = __fmaf_rn(u, p, bits_float(0x3F000000));
		p = __fmaf_rn(u, p, bits_float(0x3F800000));
		l = __fmul_rn(p, -u);
	} else {
		l = log_sfu(fmaxf(__fadd_rn(1.0f, -u), bits_float(0x33800000)));
	}
	return log_sfu(-l);
}

// value[v] of section 2; `t` may be a zero of either sign.
DEVICE float noised_value(float logit, float t, uint32_t row, uint32_t id)
{
	return t == 0.0f ? logit : __fadd_rn(div_full(logit, t), -gumbel(row, id));
}

// ---- section 6: the winner ----

// A 32-bit number that orders as values do, NaN above all and -0 with +0.
DEVICE uint32_t order_of(float value)
{
	if (value != value)
		return 0xFFFFFFFFu;
	const int32_t bits = __float_as_int(__fadd_rn(value, 0.0f));
	return (uint32_t)(bits ^ ((bits >> 31) & 0x7FFFFFFF)) ^ 0x80000000u;
}

DEVICE float order_value(uint32_t order) // of anything but NaN
{
	const int32_t bits = (int32_t)(order ^ 0x80000000u);
	return __int_as_float(bits ^ ((bits >> 31) & 0x7FFFFFFF));
}

#define ORDER_NAN 0xFFFFFFFFu

// The greater key wins: by value, then by the lower id.
typedef unsigned long long winner_key;

DEVICE winner_key make_key(uint32_t order, uint32_t id)
{
	return (winner_key)order << 32 | (uint32_t)~id;
}

DEVICE uint32_t key_id(winner_key key)
{
	return ~(uint32_t)key;
}

DEVICE uint32_t key_order(winner_key key)
{
	return (uint32_t)(key >> 32);
}

// Where every search starts. Id 0 is always in the race with -inf at the least, so this never beats
// a true winner, and values of -inf need not be looked at.
DEVICE winner_key first_key()
{
	return make_key(order_of(-INFINITY), 0);
}
