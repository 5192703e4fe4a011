// The block kernel: steps of a pass of up to 64 rows, one block of threads a multiprocessor. The
// block form computes all steps in one cooperative launch, the step form one in each. In every
// block of threads,
//
//   a producer warp    streams tiles of w2 into a ring in shared memory, in the order of the
//                      schedule, over the steps' borders: the ring is full again when the next
//                      step starts;
//   consumer groups    of four warps take the tiles in turn: matrix product with the rows'
//                      embeddings (64 ids x N rows, k ascending: NUMERICS section 3), bias, base,
//                      draft logit, the pruning test;
//   evaluator warps    compute the exact noise of the few values that may win.
//
// At a step's end the blocks exchange their winners (exchange.cuh) and load the winners'
// embeddings. In the step form they leave them in step_keys for the next launch instead, which
// loads its first tiles while it waits for this one; a launch of no step ends the block.
#include "block_consumer.cuh"
#include "block_feeders.cuh"
#include "kernels.h"

template <int N> DEVICE void clear_shared(const block_layout<N> &shared, int rank)
{
	// Rows that no batch row fills, and columns past the rank, must read as zeros.
	using shape = block_shape<N>;
	const size_t bytes = (char *)shared.state - shared.embeddings;
	for (size_t i = threadIdx.x * 16; i < bytes; i += shape::consumers * 16)
		*(uint4 *)(shared.embeddings + i) = make_uint4(0, 0, 0, 0);
	for (int i = threadIdx.x; i < QUEUE_ENTRIES; i += shape::consumers)
		shared.state->queue.entries[i] = 0;
	if (threadIdx.x == 0)
		shared.state->queue.tail = shared.state->queue.head = shared.state->queue.finished =
			0;
}

// The token before a row's first step of this launch.
template <int N>
DEVICE uint32_t first_token(
	const draft_head &head, const block_plan &plan, const block_batch<N> &batch, int row)
{
	if (batch.begin == 0)
		return batch.row[row].anchor;
	const winner_key key = step_winner(head, batch.begin - 1, plan.first_row + row);
	if (blockIdx.x == 0)
		report_winner(head, batch.steps, plan.first_row + row, batch.begin - 1, key);
	return key_id(key);
}

template <int N>
DEVICE void load_rows(const draft_head &head, const block_plan &plan, block_state<N> &state,
	const block_batch<N> &batch)
{
	bool whole = true;
	wait_for_predecessor();
	for (int row = threadIdx.x; row < N; row += block_shape<N>::consumers) {
		draft_row r = {};
		if (row < batch.rows)
			r = batch.row[row];
		state.base[row] = {r.base, r.base_stride};
		state.logits[row] = {r.logits, r.logits_stride};
		whole = whole && ((r.base | r.base_stride | r.logits | r.logits_stride) & 15) == 0;
		state.seed[row] = r.seed;
		state.position[row] = r.position;
		state.temperature[row] = r.temperature;
		state.token[row] = row < batch.rows ? first_token(head, plan, batch, row) : 0;
		state.test[row].unit = r.temperature == 0.0f ? GREEDY_UNIT : LOG2_E;
		state.test[row].scale = scale_of(r.temperature, state.test[row].unit);
		state.begin_row(row, batch.begin);
		if (row >= batch.rows)
			state.test[row].bound = -INFINITY;
	}
	if (!whole)
		state.whole_pieces = false;
}

// The step form, behind the last step: its tokens; and the keys as they were.
template <int N>
DEVICE void end_block(const draft_head &head, const block_plan &plan, const block_batch<N> &batch)
{
	wait_for_predecessor();
	for (int row = threadIdx.x; row < batch.rows; row += block_shape<N>::threads) {
		first_token(head, plan, batch, row);
		for (int step = 0; step < batch.steps; step++)
			step_keys(head, step, head.shard)[plan.first_row + row] = 0;
	}
}

template <int N>
__global__ void __launch_bounds__(block_shape<N>::threads, 1) draft_block(
	const __grid_constant__ CUtensorMap w2, const __grid_constant__ draft_head head,
	const __grid_constant__ block_plan plan, const __grid_constant__ block_batch<N> batch)
{
	using shape = block_shape<N>;
	extern __shared__ char raw[];
	const block_layout<N> shared(raw, head.rank, plan.stages, plan.resident);
	block_state<N> &state = *shared.state;
	let_successor_start();
	if (!batch.rows || batch.begin == batch.end) {
		end_block<N>(head, plan, batch);
		return; // also when the bucket has more passes than this batch needs
	}
	exchange &x = *(exchange *)head.exchange;
	tile_schedule schedule;
	const int odd_block = (int)(batch.first_number / DRAFT_STEPS_MAX & 1);
	schedule.init(head.vocab, plan, stages_a_tile(head.rank, shape::stage_chunks),
		odd_block * batch.steps);

	if (threadIdx.x == 0) {
		state.whole_pieces = true;
		for (int i = 0; i < plan.stages; i++) {
			barrier_init(shared_address(&state.full[i]), 1);
			barrier_init(shared_address(&state.empty[i]), 4);
		}
		for (int i = 0; i < plan.resident; i++)
			barrier_init(shared_address(&state.loaded[i]), 1);
		for (int i = 0; i < shape::warpgroups; i++)
			barrier_init(shared_address(&state.turn[i]), 4);
		barrier_init_fence();
	}
	__syncthreads();

	if (threadIdx.x >= shape::consumers + 32) {
		evaluate<N>(state, x.hints, batch);
	} else if (threadIdx.x >= shape::consumers) {
		producer<N>{&w2, head, plan, schedule, shared, batch.steps, batch.begin, batch.end}
			.run();
	} else {
		clear_shared<N>(shared, head.rank);
		load_rows<N>(head, plan, state, batch);
		named_barrier(BARRIER_CONSUMERS, shape::consumers);
		consumer<N> c(head, plan, schedule, shared, batch);
		for (int row = threadIdx.x / 32; row < batch.rows; row += shape::consumers / 32)
			c.load_embedding(row, state.token[row]);
		c.embeddings_ready();
		c.run();
	}
}

template <int N> static void describe(struct block_kernel *ret)
{
	using shape = block_shape<N>;
	*ret = {(const void *)draft_block<N>, N, shape::threads, shape::stage_chunks,
		shape::stage_bytes};
}

extern "C" void block_kernel_for(uint32_t rows, struct block_kernel *ret)
{
	if (rows <= 8)
		describe<8>(ret);
	else if (rows <= 16)
		describe<16>(ret);
	else if (rows <= 32)
		describe<32>(ret);
	else
		describe<64>(ret);
}

extern "C" size_t block_kernel_shared_bytes(
	const struct block_kernel *kernel, uint32_t rank, int stages, int resident)
{
	switch (kernel->rows) {
	case 8:
		return block_layout<8>::bytes(rank, stages, resident);
	case 16:
		return block_layout<16>::bytes(rank, stages, resident);
	case 32:
		return block_layout<32>::bytes(rank, stages, resident);
	default:
		return block_layout<64>::bytes(rank, stages, resident);
	}
}

extern "C" size_t block_kernel_exchange_bytes(uint32_t shards)
{
	return sizeof(exchange) + shards * sizeof(((exchange *)nullptr)->partial[0]);
}

extern "C" size_t block_kernel_hint_bytes(void)
{
	static_assert(offsetof(exchange, hints) == 0, "the host clears them from the start");
	return sizeof(((exchange *)nullptr)->hints);
}

extern "C" size_t block_kernel_peers_offset(void)
{
	return offsetof(exchange, peers);
}
