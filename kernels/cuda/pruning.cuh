// Noise only for values that can still win.
//
// With u the row's uniform number for an id, G >= ln(u) (NUMERICS section 4: G = ln(-ln(1 - u)),
// and -ln(1 - u) >= u), so value = logit / T - G <= logit / T - ln(u), and an id cannot win once
//
//     u > 2^((logit / T - best) * log2 e)
//
// which costs a hash and one ex2, no logarithm. `best` is any value that the row is known to reach.
// The test is made to err on the side of looking: of u only the upper 16 bits are used, rounded
// down, and the exponent is raised by 0.02 and by 2^-18 of best's own, which covers the roundings
// of the scaling, of ex2 and of the true value's arithmetic (each under 2^-21 of either term). NaN
// on either side never prunes.
//
// Greedy rows (T = 0) use the same test with a scale so large that a logit below the best fails it.
//
// What passes is looked at again with the exact quotient, which also settles rows whose scale is
// out of range (|T| beyond 2^126 either way), NaN and infinities without noise; the rest goes to a
// queue in shared memory from which spare warps evaluate it, because a warpgroup that waits for one
// of its warps wastes its matrix products.
#pragma once

#include "hopper.cuh"

constexpr float LOG2_E = 1.44269504f;
constexpr float GREEDY_UNIT = 1048576.0f;
constexpr int QUEUE_ENTRIES = 512;
constexpr int EVALUATOR_WARPS = 3;

// What the test of a row needs, read with one 16-byte load.
struct __align__(16) row_test
{
	uint32_t hash; // the row's half of the noise
	float scale;   // unit / T
	float bound; // -best * unit and the slack; +inf: no best yet; -inf: nothing finite can win
		     // any more
	float unit;  // log2 e, or GREEDY_UNIT

	// Takes a smaller bound from any warp. Readers do not wait for it: any bound that was true
	// in this step still is, so a late look only finds more candidates. Among floats of one
	// sign the order of the bits is the order of the numbers (reversed below zero), and every
	// negative one is above all others as an unsigned number.
	DEVICE void tighten(float smaller)
	{
		if (!(smaller < INFINITY))
			return;
		const int bits = __float_as_int(smaller);
		if (bits >= 0)
			atomicMin((int *)&bound, bits);
		else
			atomicMax((unsigned *)&bound, (unsigned)bits);
	}
};

DEVICE bool is_greedy(const row_test &row)
{
	return row.unit == GREEDY_UNIT;
}

// `scaled` is a value that the row reaches, times unit.
DEVICE float bound_of_scaled(float scaled)
{
	return -scaled + (0.02f + fabsf(scaled) * 3.8e-6f);
}

// The bound when `best` is the row's best so far.
DEVICE float bound_of(float best, float unit)
{
	if (best == -INFINITY)
		return INFINITY;
	if (!(best < INFINITY))
		return -INFINITY; // only +inf (whose sum with this is NaN, so it is looked at) and
				  // NaN can still win
	return __fmaf_rn(-best, unit, 0.02f + fabsf(best * unit) * 3.8e-6f);
}

DEVICE float scale_of(float t, float unit)
{
	const float size = fabsf(t);
	if (t == 0.0f)
		return unit;
	if (size < 0x1p-126f || (size > 0x1p126f && size < INFINITY))
		return bits_float(0x7FFFFFFF); // never prunes: the second look does
	return unit * rcp_ftz(t);
}

// 128 + the least that u can be, from the upper 16 bits of the hash.
DEVICE float least_uniform_128(uint32_t hash)
{
	return bits_float(__byte_perm(hash, 0x43000000u, 0x7632));
}

// A number of 128 or more; the id cannot win when least_uniform_128() is above it.
DEVICE float reach_128(float exponent)
{
	return ex2_ftz(exponent) + 128.0f;
}

// A scaled value that the id surely reaches, from approximate logarithms; NaN if there is none.
DEVICE float surely_reached(float logit, const row_test &row, uint32_t id)
{
	// 1 - u is at least this, since u < (upper 16 bits + 1) / 65536.
	const float rest =
		1.9999847412109375f - (least_uniform_128(hash_upper(row.hash, id)) - 127.0f);
	const float noise = -lg2_ftz(lg2_ftz(rest) * -0.69314718f) - 0.06f;
	return fma_ftz(logit, row.scale, is_greedy(row) ? 0.0f : noise);
}

// Ids that may win, waiting for their noise: many producers, a few evaluator warps.
struct candidate_queue {
	// Bits 0-31 id, 32-47 logit, 48-55 row, 56-63 the lap in which the slot was written, so
	// that a reader sees whether an entry is there: a slot holds either this lap's entry or the
	// last one's.
	uint64_t entries[QUEUE_ENTRIES];
	uint32_t tail, head;
	uint32_t finished; // consumer warps that have offered their last of a step, counted over
			   // all steps

	DEVICE static uint64_t lap_of(uint32_t place)
	{
		return (uint64_t)(place / QUEUE_ENTRIES + 1 & 0xFF) << 56;
	}

	DEVICE void push(uint32_t id, uint16_t logit, int row)
	{
		const uint32_t place = atomicAdd(&tail, 1);
		while (place - *(volatile uint32_t *)&head >= QUEUE_ENTRIES) {
		}
		// Whole at once, and an atomic for those who check for races: a reader polls it.
		atomicExch((unsigned long long *)&entries[place % QUEUE_ENTRIES],
			(uint64_t)id | (uint64_t)logit << 32 | (uint64_t)row << 48 | lap_of(place));
	}

	// Takes up to 32 entries for a warp, one a lane: 1 got some (`has` says which lanes), 0
	// nothing there, -1 again.
	DEVICE int pop(uint64_t &entry, bool &has)
	{
		const int lane = threadIdx.x % 32;
		uint32_t from = 0, to = 0;
		if (lane == 0) {
			from = *(volatile uint32_t *)&head;
			to = *(volatile uint32_t *)&tail;
		}
		from = __shfl_sync(~0u, from, 0);
		const int count = min(32, (int)(__shfl_sync(~0u, to, 0) - from));
		if (count <= 0)
			return 0;
		has = lane < count;
		bool there = !has;
		const uint32_t place = from + lane;
		while (!there) {
			entry = *(volatile uint64_t *)&entries[place % QUEUE_ENTRIES];
			there = (entry >> 56 << 56) == lap_of(place);
			if (*(volatile uint32_t *)&head != from)
				break;
		}
		if (!__all_sync(~0u, there))
			return -1;
		bool mine = false;
		if (lane == 0)
			mine = atomicCAS(&head, from, from + count) == from;
		return __shfl_sync(~0u, (int)mine, 0) ? 1 : -1;
	}
};
