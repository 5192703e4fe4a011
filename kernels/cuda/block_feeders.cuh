// The two helpers of the consumer groups: the warp that feeds them tiles, and the warps that
// evaluate the noise.
#pragma once

#include "block_state.cuh"

// Gives the L2 that a pinned tile holds back to whoever uses the GPU next: a later load with
// another priority would not. For a whole warp.
DEVICE void release_tile(const draft_head &head, int tile)
{
	const uint64_t row_bytes = (uint64_t)head.rank * 2, begin = tile * TILE_IDS * row_bytes;
	const uint64_t end = min(begin + TILE_IDS * row_bytes, head.vocab * row_bytes);
	for (uint64_t line = begin + threadIdx.x % 32 * 128; line < end; line += 32 * 128)
		release_line((const char *)head.w2 + line);
}

// One warp feeds all tiles of all steps; its first lane asks for them.
template <int N> struct producer {
	using shape = block_shape<N>;

	const CUtensorMap *w2;
	const draft_head &head;
	const block_plan &plan;
	const tile_schedule &schedule;
	const block_layout<N> &shared;
	const int steps, begin, end;
	const int parts = stages_a_tile(head.rank, shape::stage_chunks);
	const uint64_t evict_first = policy_evict_first(), evict_last = policy_evict_last();
	int stage = 0, lap = 0;

	DEVICE void load_resident(int i, int tile) const
	{
		const uint32_t loaded = shared_address(&shared.state->loaded[i]);
		barrier_expect_bytes(loaded, parts * shape::stage_bytes);
		for (int part = 0; part < parts; part++)
			copy_box(shared_address(shared.resident) +
					 (i * parts + part) * shape::stage_bytes,
				w2, loaded, tile * TILE_IDS, part * shape::stage_chunks,
				evict_first);
	}

	DEVICE void stream(int tile, uint64_t policy)
	{
		for (int part = 0; part < parts; part++) {
			const uint32_t full = shared_address(&shared.state->full[stage]);
			barrier_wait(shared_address(&shared.state->empty[stage]), ~lap & 1);
			barrier_expect_bytes(full, shape::stage_bytes);
			copy_box(shared_address(shared.ring) + stage * shape::stage_bytes, w2, full,
				tile * TILE_IDS, part * shape::stage_chunks, policy);
			if (++stage == plan.stages) {
				stage = 0;
				lap++;
			}
		}
	}

	DEVICE void run()
	{
		const bool asks = threadIdx.x % 32 == 0;
		for (int step = begin; step < end; step++) {
			const bool last = step + 1 == steps && !plan.keep;
			int pinned_before = -1; // a tile; by the next one it has been read
			for (int item = 0; item < schedule.items; item++) {
				const int tile = schedule.tile(step, item);
				if (schedule.is_resident(item)) {
					if (step == begin && asks)
						load_resident(item - schedule.resident_at, tile);
					continue;
				}
				const bool pinned =
					schedule.is_pinned(schedule.stream_index(step, item));
				if (asks)
					stream(tile, pinned && !last ? evict_last : evict_first);
				__syncwarp();
				if (!last || !pinned || step == 0)
					continue; // of a single step nothing was pinned
				if (pinned_before >= 0)
					release_tile(head, pinned_before);
				pinned_before = tile;
			}
			if (pinned_before >= 0)
				release_tile(head, pinned_before);
		}
	}
};

template <int N>
DEVICE void evaluate(block_state<N> &state, hint_word (*anywhere)[EXCHANGE_ROWS_MAX],
	const block_batch<N> &batch)
{
	using shape = block_shape<N>;
	const int lane = threadIdx.x % 32, rows = batch.rows;
	const bool watches = threadIdx.x / 32 == shape::consumers / 32 + 1;
	candidate_queue &queue = state.queue;
	hint_word seen[(N + 31) / 32] = {};
	for (int step = batch.begin; step < batch.end; step++) {
		named_barrier(BARRIER_STEP_BEGINS, shape::with_evaluators);
		const uint64_t number = batch.first_number + step;
		const uint32_t before = (step - batch.begin) * shape::warpgroups * 4,
			       after = before + shape::warpgroups * 4;
		for (;;) {
			// Read before the queue is: whoever has finished pushes nothing more.
			uint32_t finished = 0;
			if (lane == 0)
				finished = *(volatile uint32_t *)&queue.finished;
			__threadfence_block();
			finished = __shfl_sync(~0u, finished, 0);
			uint64_t entry;
			bool has;
			const int got = queue.pop(entry, has);
			if (got < 0)
				continue;
			if (got > 0) {
				if (has) {
					const uint32_t id = (uint32_t)entry;
					const int row = (int)(entry >> 48 & 0xFF);
					const float value =
						noised_value(bf16_float((uint16_t)(entry >> 32)),
							state.temperature[row],
							state.test[row].hash, id_hash(id));
					state.raise(row, value, id, &anywhere[step][row], number);
				}
				__syncwarp();
				continue;
			}
			if (finished == after)
				break;
			if (watches && finished == before) { // later, the answer would hold up all
#pragma unroll
				for (int i = 0; i < (N + 31) / 32; i++) {
					const int row = lane + 32 * i;
					if (row >= rows)
						continue;
					const hint_word hint =
						*(volatile hint_word *)&anywhere[step][row];
					if (hint != seen[i] && hint_is_of(hint, number))
						state.sharpen(row, hint_value(hint));
					seen[i] = hint;
				}
			}
			if (finished == before) // everybody is in the middle of the step: no hurry
				__nanosleep(200);
		}
		named_barrier(BARRIER_STEP_ENDS, shape::with_evaluators);
	}
}
