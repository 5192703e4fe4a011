#include "stream.h"

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/schedule.cuh"

// One thread asks for everything; a stage is asked for again as soon as it is there. Tiles that
// would stay in shared memory are only loaded in the first step.
__global__ void __launch_bounds__(STREAM_THREADS) stream(const __grid_constant__ CUtensorMap w2,
	uint32_t vocab, uint32_t rank, block_plan plan, int steps, int before)
{
	extern __shared__ __align__(1024) unsigned char ring[];
	__shared__ uint64_t full[BLOCK_STAGES_MAX];
	if (threadIdx.x)
		return;
	const int parts = (int)(rank / TABLE_CHUNK + STREAM_CHUNKS - 1) / STREAM_CHUNKS;
	const uint64_t evict_first = policy_evict_first(), evict_last = policy_evict_last();
	tile_schedule schedule;
	int stage = 0, lap = 0;

	schedule.init(vocab, plan, parts, before);
	for (int i = 0; i < plan.stages; i++)
		barrier_init(shared_address(&full[i]), 1);
	barrier_init_fence();
	for (int step = 0; step < steps; step++) {
		for (int item = 0; item < schedule.items; item++) {
			const bool resident = schedule.is_resident(item);
			if (resident && step)
				continue;
			const bool pinned =
				!resident && schedule.is_pinned(schedule.stream_index(step, item));
			const int row = schedule.tile(step, item) * TILE_IDS;
			for (int part = 0; part < parts; part++) {
				const uint32_t barrier = shared_address(&full[stage]);
				if (lap)
					barrier_wait(barrier, (lap - 1) & 1);
				barrier_expect_bytes(barrier, STREAM_STAGE_BYTES);
				copy_box(shared_address(ring) + stage * STREAM_STAGE_BYTES, &w2,
					barrier, row, part * STREAM_CHUNKS,
					pinned ? evict_last : evict_first);
				if (++stage == plan.stages) {
					stage = 0;
					lap++;
				}
			}
		}
	}
	for (int i = 0; i < plan.stages; i++) {
		const int loads = lap + (i < stage);
		if (loads)
			barrier_wait(shared_address(&full[i]), (loads - 1) & 1);
	}
}

extern "C" const void *stream_kernel(void)
{
	return (const void *)stream;
}
