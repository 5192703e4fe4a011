// How a warp of a consumer group moves base logits into shared memory and draft logits out of it.
#pragma once

#include "block_state.cuh"

// A place in the sequence of items of all steps.
struct cursor {
	int step, item;
};

// The logits of a tile lie as one row of 128 bytes a batch row, its eight pieces of 16 bytes
// swizzled by the row.
DEVICE uint32_t piece_offset(int row, int piece)
{
	return row * 128 + ((piece ^ (row & 7)) << 4);
}

// Up to eight elements at any even address, all under way before the first is needed; those from
// `count` to `filled` become zeros. Not inlined, for the sake of the loop that hardly ever calls
// it.
static __device__ __noinline__ void move_elements(
	uint16_t *to, const uint16_t *from, int count, int filled)
{
	uint16_t element[8];
#pragma unroll
	for (int e = 0; e < 8; e++)
		element[e] = e < count ? from[e] : 0;
#pragma unroll
	for (int e = 0; e < 8; e++)
		if (e < filled)
			to[e] = element[e];
}

template <int N> struct logits_mover {
	using shape = block_shape<N>;

	const draft_head &head;
	const tile_schedule &schedule;
	block_state<N> &state;
	const int rows, end;
	const int warp, lane;        // warp of the group
	const uint32_t base_address; // the group's tiles of logits, `base_depth` of them
	char *const base_bytes;
	const uint64_t evict_first = policy_evict_first();

	// A warp moves the 16 ids (two pieces) of its part of the matrix product, two lanes a row,
	// 16 rows at a time.
	static constexpr int MOVES = (N + 15) / 16;

	DEVICE int moved_row(int move) const
	{
		return move * 16 + lane / 2;
	}

	DEVICE int moved_piece() const
	{
		return 2 * warp + lane % 2;
	}

	DEVICE uint32_t moved_offset(int slot, int move) const
	{
		return slot * shape::base_bytes + piece_offset(moved_row(move) % N, moved_piece());
	}

	DEVICE uint32_t moved_address(int slot, int move) const
	{
		return base_address + moved_offset(slot, move);
	}

	DEVICE uint16_t *moved_elements(int slot, int move) const
	{
		return (uint16_t *)(base_bytes + moved_offset(slot, move));
	}

	// How many ids of this lane's piece of a tile there are.
	DEVICE int piece_ids(uint32_t id) const
	{
		return id < head.vocab ? min(8, (int)(head.vocab - id)) : 0;
	}

	DEVICE void fetch(cursor at, int slot) const
	{
		if (at.step < end) {
			const uint32_t id =
				schedule.tile(at.step, at.item) * TILE_IDS + moved_piece() * 8;
			const int count = piece_ids(id);
			if (state.whole_pieces) {
				row_place place[MOVES];
#pragma unroll
				for (int i = 0; i < MOVES; i++)
					place[i] = state.base[moved_row(i) % N];
#pragma unroll
				for (int i = 0; i < MOVES; i++)
					if (moved_row(i) < rows)
						copy_16(moved_address(slot, i),
							place[i].at(at.step, count ? id : 0),
							count * 2, evict_first);
			} else {
				fetch_elements(at.step, slot, id, count);
			}
		}
		copy_commit();
	}

	DEVICE void store(cursor at, int slot) const
	{
		const uint32_t id = schedule.tile(at.step, at.item) * TILE_IDS + moved_piece() * 8;
		const int count = piece_ids(id);
		if (state.whole_pieces && count == 8) {
			row_place place[MOVES];
			uint4 piece[MOVES];
#pragma unroll
			for (int i = 0; i < MOVES; i++) {
				place[i] = state.logits[moved_row(i) % N];
				piece[i] = load_shared_16(moved_address(slot, i));
			}
#pragma unroll
			for (int i = 0; i < MOVES; i++)
				if (moved_row(i) < rows && place[i].address)
					store_16(place[i].at(at.step, id), piece[i], evict_first);
		} else {
			store_elements(at.step, slot, id, count);
		}
	}

	// The same for rows and pieces of which some are not whole. A warp moves its 16 ids of each
	// row by itself, so what one lane writes here is read by none of another warp.
	DEVICE void fetch_elements(int step, int slot, uint32_t id, int count) const
	{
#pragma unroll 1
		for (int i = 0; i < MOVES; i++)
			if (moved_row(i) < rows)
				move_elements(moved_elements(slot, i),
					(const uint16_t *)state.base[moved_row(i)].at(step, id),
					count, 8);
	}

	DEVICE void store_elements(int step, int slot, uint32_t id, int count) const
	{
#pragma unroll 1
		for (int i = 0; i < MOVES; i++)
			if (moved_row(i) < rows && state.logits[moved_row(i)].address)
				move_elements((uint16_t *)state.logits[moved_row(i)].at(step, id),
					moved_elements(slot, i), count, count);
	}

	// Multiplier and soft cap, in shared memory: in registers the code for them would stand
	// once for each value, and the loop over tiles would outgrow the instruction cache.
	DEVICE void scale(int slot) const
	{
#pragma unroll 1
		for (int i = 0; i < MOVES; i++) {
			if (moved_row(i) >= rows)
				continue;
			uint32_t *pairs = (uint32_t *)moved_elements(slot, i);
#pragma unroll 1
			for (int pair = 0; pair < 4; pair++) {
				const uint32_t x = pairs[pair];
				const uint32_t low = scaled_logit(bits_float(x << 16),
					head.multiplier, head.soft_cap, head.inverse_soft_cap);
				const uint32_t high = scaled_logit(bits_float(x & 0xFFFF0000u),
					head.multiplier, head.soft_cap, head.inverse_soft_cap);
				pairs[pair] = low | high << 16;
			}
		}
	}
};
