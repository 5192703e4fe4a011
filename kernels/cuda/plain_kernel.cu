// The plain form: one launch computes one step of a pass of rows, with ordinary loads and mma.sync,
// every value in full. It shares no code with the block kernel but the arithmetic, which makes it
// the check on the other forms; it alone writes traces, and it runs where the block kernel can't.
//
// Launches of one block of steps may overlap (programmatic dependent launch): each waits for the
// one before it before it looks at a key, and before it ends.
#include "kernels.h"
#include "launches.cuh"
#include "numerics.cuh"

constexpr int PLAIN_THREADS = 128;
constexpr int WARP_IDS = 16; // that a warp works on at once
constexpr int BLOCK_IDS = WARP_IDS * PLAIN_THREADS / 32;
constexpr int EMBEDDING_PAD = 32; // bytes past each embedding, against bank conflicts

// d[16 ids x 8 rows] += a b over 16 columns, in the order of NUMERICS section 3. Which of the 16
// columns a register holds is free, as long as a and b agree: thread t of four has columns 4t to 4t
// + 3, which are one 8-byte load.
DEVICE void multiply_16(float (&d)[4], uint2 a_low, uint2 a_high, uint2 b)
{
	asm volatile(
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		: "r"(a_low.x), "r"(a_high.x), "r"(a_low.y), "r"(a_high.y), "r"(b.x), "r"(b.y));
}

template <int N> struct plain_state {
	winner_key best[N];
	uint32_t hash[N], token[N];
	draft_row row[N];
};

template <int N>
DEVICE void load_plain_rows(
	plain_state<N> &state, const draft_head &head, uint32_t first_row, int rows, uint32_t step)
{
	const uint32_t steps = head.columns->steps;
	for (int r = threadIdx.x; r < N; r += PLAIN_THREADS) {
		state.row[r] = draft_row{};
		state.token[r] = 0;
		if (r < rows) {
			state.row[r] = ((const draft_row *)(head.columns + 1))[first_row + r];
			state.token[r] = state.row[r].anchor;
			if (step > 0) {
				const winner_key key = step_winner(head, step - 1, first_row + r);
				state.token[r] = key_id(key);
				if (blockIdx.x == 0)
					report_winner(head, steps, first_row + r, step - 1, key);
			}
		}
		state.hash[r] = row_hash(state.row[r].seed, state.row[r].position, step);
		state.best[r] = first_key();
	}
}

template <int N>
__global__ void __launch_bounds__(PLAIN_THREADS)
	draft_plain(const __grid_constant__ draft_head head, uint32_t first_row, uint32_t step)
{
	extern __shared__ uint4 raw[];
	plain_state<N> &state = *(plain_state<N> *)raw;
	char *embeddings = (char *)(&state + 1);
	const uint32_t pitch = head.rank * 2 + EMBEDDING_PAD;

	let_successor_start();
	wait_for_predecessor();
	const uint32_t steps = head.columns->steps;
	const int rows = min(N, (int)head.columns->rows - (int)first_row);
	if (rows <= 0)
		return;
	load_plain_rows<N>(state, head, first_row, rows, step);
	__syncthreads();
	for (int i = threadIdx.x; i < N * (int)head.rank / 8; i += PLAIN_THREADS) {
		const int r = i / (head.rank / 8), piece = i % (head.rank / 8);
		uint4 x = make_uint4(0, 0, 0, 0);
		if (r < rows)
			x = ((const uint4 *)head
					.w1)[(uint64_t)min(state.token[r], head.target_vocab - 1) *
						     (head.rank / 8) +
					     piece];
		*(uint4 *)(embeddings + r * pitch + piece * 16) = x;
	}
	__syncthreads();

	const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
	for (uint32_t from = blockIdx.x * BLOCK_IDS + threadIdx.x / 32 * WARP_IDS;
		from < head.vocab; from += gridDim.x * BLOCK_IDS) {
		// Thread (g, t) has rows 2t and 2t + 1, of each eight, of the ids from + g and from
		// + g + 8.
		const char *a_low = (const char *)head.w2 +
				    (uint64_t)min(from + g, head.vocab - 1) * head.rank * 2;
		const char *a_high = (const char *)head.w2 +
				     (uint64_t)min(from + g + 8, head.vocab - 1) * head.rank * 2;
		float sum[N / 8][4] = {};
		for (uint32_t k = 0; k < head.rank * 2; k += 128) {
			uint2 low[4], high[4];
#pragma unroll
			for (int i = 0; i < 4; i++) {
				low[i] = *(const uint2 *)(a_low + k + i * 32 + t * 8);
				high[i] = *(const uint2 *)(a_high + k + i * 32 + t * 8);
			}
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int r = 0; r < N / 8; r++)
					multiply_16(sum[r], low[i], high[i],
						*(const uint2 *)(embeddings + (r * 8 + g) * pitch +
								 k + i * 32 + t * 8));
		}
#pragma unroll
		for (int r = 0; r < N / 8; r++) {
#pragma unroll
			for (int y = 0; y < 2; y++) {
				const int row = r * 8 + 2 * t + y;
				const draft_row &place = state.row[row];
				winner_key best = 0;
#pragma unroll
				for (int z = 0; z < 2; z++) {
					const uint32_t id = from + g + 8 * z;
					if (row >= rows || id >= head.vocab)
						continue;
					const uint16_t bias = float_bf16(sum[r][2 * z + y]);
					const uint16_t base =
						((const uint16_t *)(place.base +
								    step * place.base_stride))[id];
					const uint16_t x = float_bf16(
						__fadd_rn(bf16_float(base), bf16_float(bias)));
					const uint16_t logit =
						scaled_logit(bf16_float(x), head.multiplier,
							head.soft_cap, head.inverse_soft_cap);
					if (place.logits)
						((uint16_t *)(place.logits +
							      step * place.logits_stride))[id] =
							logit;
					const uint32_t whole_id = head.first_id + id;
					const float value =
						noised_value(bf16_float(logit), place.temperature,
							state.hash[row], id_hash(whole_id));
					const uint64_t trace =
						((uint64_t)(first_row + row) * steps + step) *
							head.vocab +
						id;
					if (head.columns->trace_bias)
						((uint16_t *)head.columns->trace_bias)[trace] =
							bias;
					if (head.columns->trace_values)
						((float *)head.columns->trace_values)[trace] =
							value;
					const winner_key key = make_key(order_of(value), whole_id);
					best = key > best ? key : best;
				}
#pragma unroll
				for (int other = 4; other < 32; other <<= 1) {
					const winner_key theirs = __shfl_xor_sync(~0u, best, other);
					best = theirs > best ? theirs : best;
				}
				if (g == 0 && best > state.best[row])
					atomicMax(&state.best[row], best);
			}
		}
	}
	__syncthreads();
	for (int r = threadIdx.x; r < rows; r += PLAIN_THREADS)
		atomicMax(step_keys(head, step, head.shard) + first_row + r, state.best[r]);
}

__global__ void __launch_bounds__(PLAIN_FINISH_THREADS)
	draft_finish(const __grid_constant__ draft_head head)
{
	wait_for_predecessor();
	const uint32_t steps = head.columns->steps;
	for (uint32_t row = threadIdx.x; row < head.columns->rows; row += PLAIN_FINISH_THREADS) {
		report_winner(head, steps, row, steps - 1, step_winner(head, steps - 1, row));
		for (uint32_t step = 0; step < steps; step++)
			step_keys(head, step, head.shard)[row] = 0;
	}
}

extern "C" void plain_kernel_for(uint32_t rows, struct plain_kernel *ret)
{
	if (rows <= 8)
		*ret = {(const void *)draft_plain<8>, 8, PLAIN_THREADS};
	else
		*ret = {(const void *)draft_plain<64>, 64, PLAIN_THREADS};
}

extern "C" size_t plain_kernel_shared_bytes(const struct plain_kernel *kernel, uint32_t rank)
{
	const size_t state = kernel->rows == 8 ? sizeof(plain_state<8>) : sizeof(plain_state<64>);
	return state + kernel->rows * ((size_t)rank * 2 + EMBEDDING_PAD);
}

extern "C" const void *plain_finish_kernel(void)
{
	return (const void *)draft_finish;
}
