// The block form: all steps of a pass of up to 64 rows in one cooperative launch, one block of threads a
// multiprocessor. In each,
//
//   a producer thread  streams tiles of w2 into a ring in shared memory, in the order of the schedule, over the steps'
//                      borders: the ring is full again when the next step starts;
//   consumer groups    of four warps take the tiles in turn: matrix product with the rows' embeddings (64 ids x N
//                      rows, k ascending: NUMERICS section 3), bias, base, draft logit, the pruning test;
//   evaluator warps    compute the exact noise of the few values that may win.
//
// At a step's end the blocks exchange their winners (exchange.cuh) and load the winners' embeddings.
#include "block_state.cuh"
#include "kernels.h"

template <int N>
DEVICE void produce(const CUtensorMap *w2, const draft_head &head, const block_plan &plan, const tile_schedule &schedule,
	const block_layout<N> &shared, int steps)
{
	using shape = block_shape<N>;
	block_state<N> &state = *shared.state;
	const int parts = stages_a_tile(head.rank, shape::stage_chunks);
	const uint64_t first = policy_evict_first(), last = policy_evict_last();
	int stage = 0, lap = 0;
	for (int step = 0; step < steps; step++) {
		for (int item = 0; item < schedule.items; item++) {
			const int id = schedule.tile(step, item) * TILE_IDS;
			if (schedule.is_resident(item)) {
				if (step != 0)
					continue;
				const int i = item - schedule.resident_at;
				const uint32_t loaded = shared_address(&state.loaded[i]);
				barrier_expect_bytes(loaded, parts * shape::stage_bytes);
				for (int part = 0; part < parts; part++)
					copy_box(shared_address(shared.resident) + (i * parts + part) * shape::stage_bytes,
						w2, loaded, id, part * shape::stage_chunks, first);
				continue;
			}
			// The last step leaves nothing behind in L2 on purpose.
			const bool keep = step + 1 < steps && schedule.is_pinned(schedule.stream_index(step, item));
			for (int part = 0; part < parts; part++) {
				const uint32_t full = shared_address(&state.full[stage]);
				barrier_wait(shared_address(&state.empty[stage]), ~lap & 1);
				barrier_expect_bytes(full, shape::stage_bytes);
				copy_box(shared_address(shared.ring) + stage * shape::stage_bytes, w2, full, id,
					part * shape::stage_chunks, keep ? last : first);
				if (++stage == plan.stages) {
					stage = 0;
					lap++;
				}
			}
		}
	}
}

template <int N>
DEVICE void evaluate(const draft_head &head, block_state<N> &state, hint_word (*anywhere)[EXCHANGE_ROWS_MAX], int rows,
	int steps, uint64_t first_number)
{
	using shape = block_shape<N>;
	constexpr int everybody = shape::consumers + EVALUATOR_WARPS * 32;
	const int lane = threadIdx.x % 32;
	const bool watches = threadIdx.x / 32 == shape::consumers / 32 + 1;
	candidate_queue &queue = state.queue;
	named_barrier(BARRIER_WITH_EVALUATORS, everybody);
	for (int step = 0; step < steps; step++) {
		const uint32_t before = step * shape::warpgroups * 4, after = before + shape::warpgroups * 4;
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
					const float value = noised_value(bf16_float((uint16_t)(entry >> 32)),
						state.temperature[row], state.test[row].hash, id_hash(id));
					state.raise(row, value, id, &anywhere[step][row], first_number + step);
				}
				__syncwarp();
				continue;
			}
			if (finished == after)
				break;
			if (watches) {
				for (int row = lane; row < rows; row += 32) {
					const hint_word hint = *(volatile hint_word *)&anywhere[step][row];
					if (hint_is_of(hint, first_number + step))
						state.sharpen(row, hint_value(hint));
				}
			}
			if (finished == before) // everybody is in the middle of the step: no hurry
				__nanosleep(200);
		}
		named_barrier(BARRIER_WITH_EVALUATORS, everybody);
	}
}

template <int N> struct consumer {
	using shape = block_shape<N>;

	const draft_head &head;
	const block_plan &plan;
	const tile_schedule &schedule;
	const block_layout<N> &shared;
	block_state<N> &state;
	hint_word (*anywhere)[EXCHANGE_ROWS_MAX];
	const int rows, steps;
	const uint64_t first_number; // of step 0's packets
	const int parts;
	const int group, warp, lane;	 // warp of the group
	const uint64_t evict_first, evict_normal;
	const uint32_t base_address; // this group's base logits
	char *const base_bytes;
	int taken = 0; // tiles that this group has taken, over all steps

	DEVICE consumer(const draft_head &h, const block_plan &p, const tile_schedule &s, const block_layout<N> &l,
		hint_word (*a)[EXCHANGE_ROWS_MAX], int row_count, int step_count, uint64_t number)
		: head(h), plan(p), schedule(s), shared(l), state(*l.state), anywhere(a), rows(row_count),
		  steps(step_count), first_number(number), parts(stages_a_tile(h.rank, shape::stage_chunks)),
		  group(threadIdx.x / WARPGROUP), warp(threadIdx.x / 32 % 4), lane(threadIdx.x % 32),
		  evict_first(policy_evict_first()), evict_normal(policy_evict_normal()),
		  base_address(shared_address(l.base) + group * shape::base_depth * shape::base_bytes),
		  base_bytes(l.base + group * shape::base_depth * shape::base_bytes)
	{
	}

	// A place in the sequence of items of all steps; a group visits every `warpgroups`-th.
	struct cursor {
		int step, item;
	};

	DEVICE void settle(cursor &at) const
	{
		while (at.item >= schedule.items && at.step < steps) {
			at.item -= schedule.items;
			at.step++;
		}
	}

	DEVICE void advance(cursor &at) const
	{
		at.item += shape::warpgroups;
		settle(at);
	}

	// Base logits of a tile lie as one row of 128 bytes a batch row, its 16-byte pieces swizzled by the row.
	DEVICE static uint32_t piece_offset(int row, int piece)
	{
		return row * 128 + ((piece ^ (row & 7)) << 4);
	}

	// A warp moves the 16 ids (two pieces) of its part of the matrix product, two lanes a row.
	DEVICE int moved_row(int from) const
	{
		return from + lane / 2;
	}

	DEVICE int moved_piece() const
	{
		return 2 * warp + lane % 2;
	}

	DEVICE void fetch_base(cursor at, int slot) const
	{
		if (at.step < steps) {
			const uint32_t id = schedule.tile(at.step, at.item) * TILE_IDS + moved_piece() * 8;
			const int count = id < head.vocab ? min(8, (int)(head.vocab - id)) : 0;
#pragma unroll
			for (int from = 0; from < N; from += 16) {
				const int row = moved_row(from);
				if (row >= N || row >= rows)
					continue;
				const row_place place = state.base[row];
				const uint32_t offset = slot * shape::base_bytes + piece_offset(row, moved_piece());
				const char *source = place.at(at.step, count ? id : 0);
				if (place.whole_pieces())
					copy_16(base_address + offset, source, count * 2, evict_first);
				else
					copy_elements((uint16_t *)(base_bytes + offset), (const uint16_t *)source, count);
			}
		}
		copy_commit();
	}

	// A piece whose source is not aligned.
	DEVICE static void copy_elements(uint16_t *to, const uint16_t *from, int count)
	{
#pragma unroll 1
		for (int i = 0; i < 8; i++)
			to[i] = i < count ? from[i] : 0;
	}

	DEVICE void store_logits(cursor at, const char *tile) const
	{
		const uint32_t id = schedule.tile(at.step, at.item) * TILE_IDS + moved_piece() * 8;
		if (id >= head.vocab)
			return;
		const bool whole = id + 8 <= head.vocab;
#pragma unroll
		for (int from = 0; from < N; from += 16) {
			const int row = moved_row(from);
			if (row >= N || row >= rows)
				continue;
			const row_place place = state.logits[row];
			if (!place.address)
				continue;
			const char *piece = tile + piece_offset(row, moved_piece());
			char *to = place.at(at.step, id);
			if (whole && place.whole_pieces())
				store_16(to, *(const uint4 *)piece, evict_first);
			else
				store_elements((uint16_t *)to, (const uint16_t *)piece, min(8, (int)(head.vocab - id)));
		}
	}

	DEVICE static void store_elements(uint16_t *to, const uint16_t *from, int count)
	{
#pragma unroll 1
		for (int i = 0; i < count; i++)
			to[i] = from[i];
	}

	DEVICE void pass_turn() const
	{
		if (lane == 0)
			barrier_arrive(shared_address(&state.turn[group + 1 == shape::warpgroups ? 0 : group + 1]));
	}

	// The tile's products with all rows. Waiting for a stage by parity is only right when no group is two laps
	// behind, so a group looks at the ring only when the one before it has its stages.
	DEVICE void multiply(cursor at, float (&sum)[N / 8][4])
	{
		const bool streamed = !schedule.is_resident(at.item);
		__syncwarp();
		if (taken || group)
			barrier_wait(shared_address(&state.turn[group]), (group ? taken : taken + 1) & 1);
		__syncwarp();
		taken++;
		if (!streamed) {
			pass_turn();
			barrier_wait(shared_address(&state.loaded[at.item - schedule.resident_at]), 0);
		}
		int place = (at.step * schedule.streamed + schedule.stream_place(at.item)) * parts;
		for (int part = 0; part < parts; part++) {
			uint32_t tile, stage = 0;
			if (streamed) {
				stage = (unsigned)place % (unsigned)plan.stages;
				barrier_wait(shared_address(&state.full[stage]), (unsigned)place / (unsigned)plan.stages & 1);
				__syncwarp();
				place++;
				tile = shared_address(shared.ring) + stage * shape::stage_bytes;
				if (part + 1 == parts)
					pass_turn();
			} else {
				tile = shared_address(shared.resident) +
					((at.item - schedule.resident_at) * parts + part) * shape::stage_bytes;
			}
			const uint32_t embeddings = shared_address(shared.embeddings) + part * shape::stage_chunks * N * 128;
			matrix_fence();
#pragma unroll
			for (int chunk = 0; chunk < shape::stage_chunks; chunk++)
#pragma unroll
				for (int k = 0; k < 4; k++)
					matrix_product<N>(sum, matrix_descriptor(tile + chunk * CHUNK_BYTES + k * 32),
						matrix_descriptor(embeddings + chunk * N * 128 + k * 32),
						(part | chunk | k) != 0);
			matrix_commit();
			matrix_wait();
			if (streamed && lane == 0)
				barrier_arrive(shared_address(&state.empty[stage]));
		}
	}

	DEVICE uint32_t matrix_address(uint32_t tile, int r) const
	{
		return tile + piece_offset(r * 8 + (lane & 7), 2 * warp + (lane >> 3 & 1));
	}

	// Thread (g, t) of a warp, g = lane / 4, t = lane % 4, holds of each eight rows: rows 2t and 2t + 1 of ids g and
	// g + 8 of the warp's 16. `logits[r][z]` packs the two rows of id g + 8z. The base logits in the tile become draft
	// logits.
	DEVICE void finish_logits(const float (&sum)[N / 8][4], int slot, uint32_t (&logits)[N / 8][2]) const
	{
		const uint32_t tile = base_address + slot * shape::base_bytes;
#pragma unroll
		for (int r = 0; r < N / 8; r++) {
			const uint32_t address = matrix_address(tile, r);
			uint32_t base[2];
			load_transposed(address, base[0], base[1]);
#pragma unroll
			for (int z = 0; z < 2; z++) {
				const __nv_bfloat162 bias = __floats2bfloat162_rn(sum[r][2 * z], sum[r][2 * z + 1]);
				logits[r][z] = add_bf16x2(base[z], *(const uint32_t *)&bias);
			}
			store_transposed(address, logits[r][0], logits[r][1]);
		}
		__syncwarp();
		if (head.multiplier == 1.0f && head.soft_cap == 0.0f)
			return;
		scale_logits(base_bytes + slot * shape::base_bytes);
		__syncwarp();
#pragma unroll
		for (int r = 0; r < N / 8; r++)
			load_transposed(matrix_address(tile, r), logits[r][0], logits[r][1]);
	}

	// Multiplier and soft cap, in shared memory: in registers the code for them would stand once for each value, and
	// the loop over tiles would outgrow the instruction cache.
	DEVICE void scale_logits(char *tile) const
	{
#pragma unroll 1
		for (int from = 0; from < N; from += 16) {
			const int row = moved_row(from);
			if (row >= N)
				continue;
			uint32_t *pairs = (uint32_t *)(tile + piece_offset(row, moved_piece()));
#pragma unroll 1
			for (int i = 0; i < 4; i++) {
				const uint32_t pair = pairs[i];
				const uint32_t low = scaled_logit(bits_float(pair << 16), head.multiplier, head.soft_cap,
					head.inverse_soft_cap);
				const uint32_t high = scaled_logit(bits_float(pair & 0xFFFF0000u), head.multiplier,
					head.soft_cap, head.inverse_soft_cap);
				pairs[i] = low | high << 16;
			}
		}
	}

	DEVICE static float logit_of(const uint32_t (&logits)[2], int z, int y)
	{
		return bits_float(y ? logits[z] & 0xFFFF0000u : logits[z] << 16);
	}

	// From a step's first tile: values that the rows surely reach, so that few candidates are queued.
	DEVICE void find_lower_bounds(const uint32_t (&logits)[N / 8][2], const uint32_t (&ids)[2]) const
	{
		const int t = lane & 3;
#pragma unroll
		for (int r = 0; r < N / 8; r++) {
			float most[2];
#pragma unroll
			for (int y = 0; y < 2; y++) {
				const row_test test = state.test[r * 8 + 2 * t + y];
				most[y] = fmaxf(surely_reached(logit_of(logits[r], 0, y), test, ids[0]),
					surely_reached(logit_of(logits[r], 1, y), test, ids[1]));
			}
#pragma unroll
			for (int other = 4; other < 32; other <<= 1) {
				most[0] = fmaxf(most[0], __shfl_xor_sync(~0u, most[0], other));
				most[1] = fmaxf(most[1], __shfl_xor_sync(~0u, most[1], other));
			}
			if (lane < 4) {
				atomicMax(&state.lower[r * 8 + 2 * lane], order_of(most[0]));
				atomicMax(&state.lower[r * 8 + 2 * lane + 1], order_of(most[1]));
			}
		}
		named_barrier(BARRIER_WARPGROUP + group, WARPGROUP);
		for (int row = threadIdx.x % WARPGROUP; row < rows; row += WARPGROUP) {
			const float bound = bound_of_scaled(order_value(state.lower[row]));
			if (bound < state.test[row].bound)
				state.test[row].bound = bound;
		}
		named_barrier(BARRIER_WARPGROUP + group, WARPGROUP);
	}

	// Which of the thread's values may win: bit 4r + 2z + y.
	DEVICE uint32_t passing(const uint32_t (&logits)[N / 8][2], const uint32_t (&ids)[2]) const
	{
		const int t = lane & 3;
		uint32_t pass = 0;
#pragma unroll
		for (int r = 0; r < N / 8; r++) {
			const row_test test[2] = {state.test[r * 8 + 2 * t], state.test[r * 8 + 2 * t + 1]};
			float reach[4], least[4];
#pragma unroll
			for (int x = 0; x < 4; x++) {
				const int z = x >> 1, y = x & 1;
				reach[x] = reach_128(fma_ftz(logit_of(logits[r], z, y), test[y].scale, test[y].bound));
				least[x] = least_uniform_128(hash_upper(test[y].hash, ids[z]));
			}
			if (!(least[0] > reach[0]) || !(least[1] > reach[1]) || !(least[2] > reach[2]) ||
				!(least[3] > reach[3])) {
#pragma unroll
				for (int x = 0; x < 4; x++)
					if (!(least[x] > reach[x]))
						pass |= 1u << (r * 4 + x);
			}
		}
		return pass;
	}

	// The second look at what passed.
	DEVICE void offer(int step, int row, uint32_t id, uint32_t id_half, uint16_t bits) const
	{
		const float logit = bf16_float(bits), t = state.temperature[row];
		const float quotient = t == 0.0f ? logit : div_full(logit, t);
		if (quotient == -INFINITY)
			return;
		if (t == 0.0f || quotient != quotient) {
			state.raise(row, quotient, id, &anywhere[step][row], first_number + step);
			return;
		}
		const row_test &test = state.test[row];
		if (test.scale != test.scale && least_uniform_128(hash_upper(test.hash, id_half)) >
				reach_128(fma_ftz(quotient, LOG2_E, test.bound)))
			return;
		state.queue.push(id, bits, row);
	}

	DEVICE void search(cursor at, const char *tile, const uint32_t (&logits)[N / 8][2], bool first) const
	{
		const int g = lane >> 2, t = lane & 3;
		const uint32_t tile_id = schedule.tile(at.step, at.item) * TILE_IDS;
		const uint32_t id = tile_id + warp * 16 + g;
		const uint32_t ids[2] = {id_hash(id), id_hash(id + 8)};
		if (first && tile_id + TILE_IDS <= head.vocab)
			find_lower_bounds(logits, ids);
		uint32_t pass = passing(logits, ids);
		while (pass) {
			const int bit = __ffs(pass) - 1;
			pass &= pass - 1;
			const int row = (bit >> 2) * 8 + 2 * t + (bit & 1), z = bit >> 1 & 1;
			if (row < rows && id + 8 * z < head.vocab)
				offer(at.step, row, id + 8 * z, ids[z],
					*(const uint16_t *)(tile + piece_offset(row, 2 * warp + z) + g * 2));
		}
		__syncwarp();
	}

	DEVICE void load_embedding(int row, uint32_t token, int from, int by) const
	{
		const uint32_t id = min(token, head.target_vocab - 1);
		const char *w1 = (const char *)head.w1 + (uint64_t)id * head.rank * 2;
		for (int piece = from; piece < (int)head.rank / 8; piece += by)
			copy_16(shared_address(shared.embeddings) + (piece >> 3) * (N * 128) + piece_offset(row, piece & 7),
				w1 + piece * 16, 16, evict_normal);
	}

	// Waits for the embeddings that this thread has asked for, and then for everybody's.
	DEVICE void embeddings_ready() const
	{
		copy_commit();
		copy_wait<0>();
		fence_async_proxy();
		named_barrier(BARRIER_CONSUMERS, shape::consumers);
	}

	DEVICE void report(int row, int step, winner_key key) const
	{
		head.tokens[(uint64_t)(plan.first_row + row) * steps + step] = key_id(key);
		if (key_order(key) == ORDER_NAN)
			head.flags[plan.first_row + row] = DRAFT_FLAG_NAN;
	}

	// Publishes this multiprocessor's winners, learns everybody's, and loads their embeddings for the next step.
	DEVICE void conclude(int step) const
	{
		exchange &x = *(exchange *)head.exchange;
		packet(*partial)[EXCHANGE_CTAS_MAX] = x.partial[step & 1];
		const uint64_t number = first_number + step;
		const bool last = step + 1 == steps;
		if (N <= 16) {
			// Few rows: every multiprocessor reads all packets, a warp a row.
			for (int row = threadIdx.x / 32; row < rows; row += shape::consumers / 32) {
				if (lane == 0)
					store_packet(&partial[row][blockIdx.x], state.best[row], number);
				if (last && blockIdx.x != 0)
					continue;
				const winner_key key = gather_winner(head, partial[row], number);
				if (blockIdx.x == 0 && lane == 0)
					report(row, step, key);
				if (last)
					continue;
				load_embedding(row, key_id(key), lane, 32);
				if (lane == 0)
					state.begin_row(row, step + 1);
			}
		} else {
			// Many rows: one multiprocessor reads for all of them.
			if ((int)threadIdx.x < rows)
				store_packet(&partial[threadIdx.x][blockIdx.x], state.best[threadIdx.x], number);
			for (int row = blockIdx.x + gridDim.x * (threadIdx.x / 32); row < rows;
				row += gridDim.x * (shape::consumers / 32)) {
				const winner_key key = gather_winner(head, partial[row], number);
				if (lane == 0)
					store_packet(&x.winner[step & 1][row], key, number);
			}
			if (last && blockIdx.x != 0)
				return;
			if ((int)threadIdx.x < rows) {
				const int row = threadIdx.x;
				const winner_key key = await_winner(head, &x.winner[step & 1][row], number);
				if (blockIdx.x == 0)
					report(row, step, key);
				state.token[row] = key_id(key);
				state.begin_row(row, step + 1);
			}
			if (last)
				return;
			named_barrier(BARRIER_CONSUMERS, shape::consumers);
			for (int row = threadIdx.x / 32; row < rows; row += shape::consumers / 32)
				load_embedding(row, state.token[row], lane, 32);
		}
		if (!last)
			embeddings_ready();
	}

	DEVICE void run()
	{
		cursor ahead = {0, group};
		settle(ahead);
		cursor at = ahead;
		int ahead_slot = 0, slot = 0;
		for (int i = 0; i < shape::base_depth - 1; i++) {
			fetch_base(ahead, ahead_slot++);
			advance(ahead);
		}
		for (int step = 0; step < steps; step++) {
			bool first = true;
			while (at.step == step) {
				fetch_base(ahead, ahead_slot);
				advance(ahead);
				if (++ahead_slot == shape::base_depth)
					ahead_slot = 0;

				float sum[N / 8][4];
				multiply(at, sum);
				copy_wait<shape::base_depth - 1>();
				__syncwarp();
				char *tile = base_bytes + slot * shape::base_bytes;
				uint32_t logits[N / 8][2];
				finish_logits(sum, slot, logits);
				store_logits(at, tile);
				search(at, tile, logits, first);
				first = false;
				if (++slot == shape::base_depth)
					slot = 0;
				advance(at);
			}
			__syncwarp();
			if (lane == 0) {
				__threadfence_block();
				atomicAdd(&state.queue.finished, 1);
			}
			named_barrier(BARRIER_WITH_EVALUATORS, shape::consumers + EVALUATOR_WARPS * 32);
			conclude(step);
		}
	}
};

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
		shared.state->queue.tail = shared.state->queue.head = shared.state->queue.finished = 0;
}

template <int N>
DEVICE void load_rows(block_state<N> &state, const draft_head &head, uint32_t first_row, int rows)
{
	for (int row = threadIdx.x; row < N; row += block_shape<N>::consumers) {
		draft_row r = {};
		if (row < rows)
			r = ((const draft_row *)(head.columns + 1))[first_row + row];
		state.base[row].set(r.base, r.base_stride);
		state.logits[row].set(r.logits, r.logits_stride);
		state.seed[row] = r.seed;
		state.position[row] = r.position;
		state.temperature[row] = r.temperature;
		state.token[row] = r.anchor;
		state.test[row].unit = r.temperature == 0.0f ? GREEDY_UNIT : LOG2_E;
		state.test[row].scale = scale_of(r.temperature, state.test[row].unit);
		state.begin_row(row, 0);
		if (row >= rows)
			state.test[row].bound = -INFINITY;
	}
}

template <int N>
__global__ void __launch_bounds__(block_shape<N>::threads, 1)
	draft_block(const __grid_constant__ CUtensorMap w2, const __grid_constant__ draft_head head,
		const __grid_constant__ block_plan plan)
{
	using shape = block_shape<N>;
	extern __shared__ char raw[];
	const block_layout<N> shared(raw, head.rank, plan.stages, plan.resident);
	block_state<N> &state = *shared.state;
	const int steps = head.columns->steps;
	const int rows = min(N, (int)head.columns->rows - (int)plan.first_row);
	if (rows <= 0)
		return; // the bucket has more passes than this batch needs
	const uint64_t first_number = (head.columns->sequence + plan.pass) * DRAFT_STEPS_MAX + 1;
	exchange &x = *(exchange *)head.exchange;
	tile_schedule schedule;
	schedule.init(head.vocab, plan, stages_a_tile(head.rank, shape::stage_chunks));

	if (threadIdx.x == 0) {
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
		evaluate<N>(head, state, x.hints, rows, steps, first_number);
	} else if (threadIdx.x >= shape::consumers) {
		if (threadIdx.x == shape::consumers)
			produce<N>(&w2, head, plan, schedule, shared, steps);
	} else {
		clear_shared<N>(shared, head.rank);
		load_rows<N>(state, head, plan.first_row, rows);
		named_barrier(BARRIER_CONSUMERS, shape::consumers);
		consumer<N> c(head, plan, schedule, shared, x.hints, rows, steps, first_number);
		for (int row = threadIdx.x / 32; row < rows; row += shape::consumers / 32)
			c.load_embedding(row, state.token[row], c.lane, 32);
		c.embeddings_ready();
		named_barrier(BARRIER_WITH_EVALUATORS, shape::consumers + EVALUATOR_WARPS * 32);
		c.run();
	}
}

template <int N> static void describe(struct block_kernel *ret)
{
	using shape = block_shape<N>;
	*ret = {(const void *)draft_block<N>, N, shape::threads, shape::stage_chunks, shape::stage_bytes};
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

extern "C" size_t block_kernel_shared_bytes(const struct block_kernel *kernel, uint32_t rank, int stages, int resident)
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

extern "C" size_t block_kernel_exchange_bytes(void)
{
	return sizeof(exchange);
}
