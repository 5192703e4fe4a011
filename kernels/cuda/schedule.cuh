// Which tiles of w2 a block of threads works on, in what order, and where they come from.
//
// A tile is 64 vocabulary ids. Multiprocessor c of G has tiles c, c + G, c + 2G, … . The last
// `resident` of them stay in its shared memory for the whole block of steps; the others stream
// through the ring once a step, forwards and backwards in turn, so that the end of one step, or of
// the block before, is still in L2 at the start of the next. Of the streamed ones, `pinned`, spread
// evenly, are asked to stay in L2 (evict_last) while all else passes through it (evict_first):
// which is what lets a table larger than L2 be read from it in part. They are released at the end.
#pragma once

#include "columns.h"
#include "numerics.cuh"

constexpr int TILE_IDS = 64;

struct tile_schedule {
	int grid, cta;
	int items; // tiles of this multiprocessor
	int resident, streamed, pinned;
	int resident_at; // place of the first resident tile in a step: behind what the ring holds
	int before;      // steps before this block; an odd number ended at the far end

	DEVICE void init(
		uint32_t vocab, const block_plan &plan, int stages_a_tile, int steps_before)
	{
		before = steps_before;
		const int tiles = (int)((vocab + TILE_IDS - 1) / TILE_IDS);
		grid = gridDim.x;
		cta = blockIdx.x;
		items = (tiles - cta + grid - 1) / grid;
		resident = min(plan.resident, items);
		streamed = items - resident;
		pinned = min(plan.pinned, streamed);
		resident_at = min(streamed, max(1, plan.stages / stages_a_tile));
	}

	DEVICE bool is_resident(int item) const
	{
		return item >= resident_at && item < resident_at + resident;
	}

	// How many streamed tiles of the step come before the item.
	DEVICE int stream_place(int item) const
	{
		return item < resident_at ? item : item - resident;
	}

	// Which of this multiprocessor's tiles streams at the item.
	DEVICE int stream_index(int step, int item) const
	{
		const int place = stream_place(item);
		return (before + step) & 1 ? streamed - 1 - place : place;
	}

	DEVICE bool is_pinned(int index) const
	{
		return (unsigned)(index * pinned) % (unsigned)streamed < (unsigned)pinned;
	}

	DEVICE int tile(int step, int item) const
	{
		const int index = is_resident(item) ? streamed + item - resident_at
						    : stream_index(step, item);
		return index * grid + cta;
	}
};
