// What a consumer group does with its tiles, and what all of them do at the end of a step.
#pragma once

#include "block_mover.cuh"
#include "launches.cuh"

template <int N> struct consumer {
	using shape = block_shape<N>;
	static constexpr int WARPS = shape::consumers / 32;

	const draft_head &head;
	const block_plan &plan;
	const tile_schedule &schedule;
	const block_layout<N> &shared;
	block_state<N> &state;
	const block_batch<N> &batch;
	exchange &x;
	exchange *const peer; // of the shard that the lane publishes to
	const int rows;
	const int parts;
	const int group, warp, lane; // warp of the group
	const logits_mover<N> mover;
	int taken = 0; // tiles that this group has taken, over all steps
	// Where the ring's next stage of this group is: `place` counts stages over all steps.
	int place = 0, stage = 0;
	uint32_t parity = 0;
	// This group's tile, where its logits lie, and the tile whose base logits are fetched next.
	cursor at = {}, ahead = {};
	int slot = 0;

	DEVICE consumer(const draft_head &h, const block_plan &p, const tile_schedule &s,
		const block_layout<N> &l, const block_batch<N> &b)
	    : head(h), plan(p), schedule(s), shared(l), state(*l.state), batch(b),
	      x(*(exchange *)h.exchange),
	      peer(x.peers[threadIdx.x % 32 < h.shards ? threadIdx.x % 32 : 0]), rows(b.rows),
	      parts(stages_a_tile(h.rank, shape::stage_chunks)),
	      group(uniform(threadIdx.x / WARPGROUP)), warp(uniform(threadIdx.x / 32 % 4)),
	      lane(threadIdx.x % 32), mover{h, s, *l.state, b.rows, b.end, warp, lane,
					      shared_address(l.base) +
						      group * shape::base_depth * shape::base_bytes,
					      l.base +
						      group * shape::base_depth * shape::base_bytes}
	{
	}

	DEVICE void settle(cursor &c) const
	{
		while (c.item >= schedule.items && c.step < batch.end) {
			c.item -= schedule.items;
			c.step++;
		}
	}

	DEVICE void advance(cursor &c) const
	{
		c.item += shape::warpgroups;
		settle(c);
	}

	DEVICE void pass_turn() const
	{
		if (lane == 0)
			barrier_arrive(shared_address(
				&state.turn[group + 1 == shape::warpgroups ? 0 : group + 1]));
	}

	DEVICE void move_in_ring(int to)
	{
		stage += to - place;
		place = to;
		while (stage >= plan.stages) {
			stage -= plan.stages;
			parity ^= 1;
		}
	}

	DEVICE void multiply_part(uint32_t tile, int part, float (&sum)[N / 8][4]) const
	{
		// Made uniform once: else every product would wait for its own address to be.
		const uint32_t a = matrix_descriptor(uniform(tile));
		const uint32_t b = matrix_descriptor(
			shared_address(shared.embeddings) + part * shape::stage_chunks * N * 128);
		matrix_fence();
#pragma unroll
		for (int chunk = 0; chunk < shape::stage_chunks; chunk++)
#pragma unroll
			for (int k = 0; k < 4; k++)
				matrix_product<N>(sum, a + (chunk * CHUNK_BYTES + k * 32) / 16,
					b + (chunk * N * 128 + k * 32) / 16,
					(part | chunk | k) != 0);
		matrix_commit();
		matrix_wait();
	}

	// The tile's products with all rows. Waiting for a stage by parity is only right when no
	// group is two laps behind, so a group looks at the ring only when the one before it has
	// its stages.
	DEVICE void multiply(float (&sum)[N / 8][4])
	{
		if (taken || group)
			barrier_wait(shared_address(&state.turn[group]),
				(group ? taken : taken + 1) & 1);
		__syncwarp();
		taken++;
		const bool resident = schedule.is_resident(at.item);
		const int held = at.item - schedule.resident_at;
		const int first = ((at.step - batch.begin) * schedule.streamed +
					  schedule.stream_place(at.item)) *
				  parts;
		for (int part = 0; part < parts; part++) {
			uint32_t tile, there, phase = 0;
			if (resident) {
				tile = shared_address(shared.resident) +
				       (held * parts + part) * shape::stage_bytes;
				there = shared_address(&state.loaded[held]);
			} else {
				move_in_ring(first + part);
				tile = shared_address(shared.ring) + stage * shape::stage_bytes;
				there = shared_address(&state.full[stage]);
				phase = parity;
			}
			barrier_wait(there, phase);
			__syncwarp();
			if (part + 1 == parts)
				pass_turn();
			multiply_part(tile, part, sum);
			if (!resident && lane == 0)
				barrier_arrive(shared_address(&state.empty[stage]));
		}
	}

	DEVICE uint32_t matrix_address(uint32_t tile, int r) const
	{
		return tile + piece_offset(r * 8 + (lane & 7), 2 * warp + (lane >> 3 & 1));
	}

	// Thread (g, t) of a warp, g = lane / 4, t = lane % 4, holds of each eight rows: rows 2t
	// and 2t + 1 of ids g and g + 8 of the warp's 16. `logits[r][z]` packs the two rows of id g
	// + 8z.
	DEVICE void load_logits(uint32_t (&logits)[N / 8][2]) const
	{
		const uint32_t tile = mover.base_address + slot * shape::base_bytes;
#pragma unroll
		for (int r = 0; r < N / 8; r++)
			load_transposed(matrix_address(tile, r), logits[r][0], logits[r][1]);
	}

	// Base logits, here and in the tile, become draft logits.
	DEVICE void finish_logits(const float (&sum)[N / 8][4], uint32_t (&logits)[N / 8][2]) const
	{
		const uint32_t tile = mover.base_address + slot * shape::base_bytes;
#pragma unroll
		for (int r = 0; r < N / 8; r++) {
#pragma unroll
			for (int z = 0; z < 2; z++) {
				const __nv_bfloat162 bias =
					__floats2bfloat162_rn(sum[r][2 * z], sum[r][2 * z + 1]);
				logits[r][z] = add_bf16x2(logits[r][z], *(const uint32_t *)&bias);
			}
			store_transposed(matrix_address(tile, r), logits[r][0], logits[r][1]);
		}
		__syncwarp();
		if (head.multiplier == 1.0f && head.soft_cap == 0.0f)
			return;
		mover.scale(slot);
		__syncwarp();
		load_logits(logits);
	}

	DEVICE static float logit_of(const uint32_t (&logits)[2], int z, int y)
	{
		return bits_float(y ? logits[z] & 0xFFFF0000u : logits[z] << 16);
	}

	// One exchange of the reduction below, between threads whose lanes differ in bit `other`:
	// of `count` values each thread keeps half, or its one. True if it kept the upper half.
	template <int count> DEVICE bool exchange_halves(float *most, int other) const
	{
		constexpr int kept = count > 1 ? count / 2 : 1;
		const bool upper = count > 1 && (lane & other);
#pragma unroll
		for (int i = 0; i < kept; i++) {
			const float mine = upper ? most[i + count - kept] : most[i];
			const float given = upper ? most[i] : most[i + count - kept];
			most[i] = fmaxf(mine, __shfl_xor_sync(~0u, given, other));
		}
		return upper;
	}

	// The maxima over the eight threads that share t of this thread's values for rows 8r + 2t +
	// y, which lie at 2r + y. At the end each thread has those of N / 32 rows, at least one, of
	// which the first is returned.
	DEVICE int reduce_rows(float (&most)[N / 4]) const
	{
		constexpr int second = N / 8 > 1 ? N / 8 : 1, third = N / 16 > 1 ? N / 16 : 1;
		int at = 0;
		at += exchange_halves<N / 4>(most, 16) ? N / 8 : 0;
		at += exchange_halves<second>(most, 8) ? second / 2 : 0;
		at += exchange_halves<third>(most, 4) ? third / 2 : 0;
		return at / 2 * 8 + 2 * (lane & 3) + at % 2;
	}

	// From a step's first tile: values that the rows surely reach, so that few candidates are
	// queued.
	DEVICE void find_lower_bounds(
		const uint32_t (&logits)[N / 8][2], const uint32_t (&ids)[2]) const
	{
		const int t = lane & 3;
		float most[N / 4];
#pragma unroll
		for (int r = 0; r < N / 8; r++) {
#pragma unroll
			for (int y = 0; y < 2; y++) {
				const row_test &test = state.test[r * 8 + 2 * t + y];
				const float low = logit_of(logits[r], 0, y),
					    high = logit_of(logits[r], 1, y);
				most[2 * r + y] = fmaxf(surely_reached(low, test, ids[0]),
					surely_reached(high, test, ids[1]));
			}
		}
		const int row = reduce_rows(most);
#pragma unroll
		for (int i = 0; i < (N > 32 ? 2 : 1); i++)
			atomicMax(&state.lower[row + i], order_of(most[i]));
		named_barrier(BARRIER_WARPGROUP + group, WARPGROUP);
		const int own = threadIdx.x % WARPGROUP;
		if (own < rows)
			state.test[own].tighten(bound_of_scaled(order_value(state.lower[own])));
		named_barrier(BARRIER_WARPGROUP + group, WARPGROUP);
	}

	// Which of the thread's values may win: bit 4r + 2z + y. Few do, so a branch for several at
	// once skips the bits.
	DEVICE uint32_t passing(const uint32_t (&logits)[N / 8][2], const uint32_t (&ids)[2]) const
	{
		constexpr int together = N == 8 ? 1 : 2;
		const int t = lane & 3;
		uint32_t pass = 0;
#pragma unroll
		for (int first = 0; first < N / 8; first += together) {
			float reach[together * 4], least[together * 4];
			bool any = false;
#pragma unroll
			for (int x = 0; x < together * 4; x++) {
				const int r = first + x / 4, z = x >> 1 & 1, y = x & 1;
				const row_test test = state.test[r * 8 + 2 * t + y];
				reach[x] = reach_128(
					fma_ftz(logit_of(logits[r], z, y), test.scale, test.bound));
				least[x] = least_uniform_128(hash_upper(test.hash, ids[z]));
				any = any || !(least[x] > reach[x]);
			}
			if (any) {
#pragma unroll
				for (int x = 0; x < together * 4; x++)
					if (!(least[x] > reach[x]))
						pass |= 1u << (first * 4 + x);
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
		if (t == 0.0f || !(quotient < INFINITY)) { // no noise changes these
			state.raise(
				row, quotient, id, &x.hints[step][row], batch.first_number + step);
			return;
		}
		const row_test &test = state.test[row];
		if (test.scale != test.scale &&
			least_uniform_128(hash_upper(test.hash, id_half)) >
				reach_128(fma_ftz(quotient, LOG2_E, test.bound)))
			return;
		state.queue.push(id, bits, row);
	}

	DEVICE void search(const uint32_t (&logits)[N / 8][2], bool first) const
	{
		const char *const tile = mover.base_bytes + slot * shape::base_bytes;
		const int g = lane >> 2, t = lane & 3;
		const uint32_t left = head.vocab - schedule.tile(at.step, at.item) * TILE_IDS;
		const uint32_t in_tile = warp * 16 + g;
		const uint32_t id = head.first_id + head.vocab - left + in_tile;
		const uint32_t ids[2] = {id_hash(id), id_hash(id + 8)};
		if (first && left >= TILE_IDS)
			find_lower_bounds(logits, ids);
		uint32_t pass = passing(logits, ids);
		while (__any_sync(~0u,
			pass != 0)) { // all lanes together: what follows must find the warp whole
			if (!pass)
				continue;
			const int bit = __ffs(pass) - 1;
			pass &= pass - 1;
			const int row = (bit >> 2) * 8 + 2 * t + (bit & 1), z = bit >> 1 & 1;
			if (row < rows && in_tile + 8 * z < left)
				offer(at.step, row, id + 8 * z, z ? ids[1] : ids[0],
					*(const uint16_t *)(tile + piece_offset(row, 2 * warp + z) +
							    g * 2));
		}
		__syncwarp();
	}

	DEVICE const char *embedding(uint32_t token) const
	{
		return (const char *)head.w1 +
		       (uint64_t)min(token, head.target_vocab - 1) * head.rank * 2;
	}

	// For a whole warp: brings an embedding that all multiprocessors are about to load into L2.
	DEVICE void prefetch_embedding(uint32_t token) const
	{
		for (uint32_t at = lane * 128; at < head.rank * 2; at += 32 * 128)
			prefetch_line(embedding(token) + at);
	}

	// For a whole warp.
	DEVICE void load_embedding(int row, uint32_t token) const
	{
		const char *from = embedding(token) + lane * 16;
		uint32_t to = shared_address(shared.embeddings) + (lane >> 3) * (N * 128) +
			      piece_offset(row, lane & 7);
#pragma unroll 1
		for (int pieces = (int)head.rank / 8 - lane; pieces > 0; pieces -= 32) {
			copy_16(to, from);
			from += 32 * 16;
			to += 32 / 8 * N * 128;
		}
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
		report_winner(head, batch.steps, plan.first_row + row, step, key);
	}

	// Publishes a row's best to the lane's shard.
	DEVICE void publish(exchange *to, int turn, int row, uint64_t number) const
	{
		store_packet(
			&to->partial[head.shard][turn][row][blockIdx.x], state.best[row], number);
	}

	// Few rows: every multiprocessor reads all packets, a warp a row.
	DEVICE void conclude_few(int step, int turn, uint64_t number, bool last) const
	{
		const int row = threadIdx.x / 32;
		if (row >= rows)
			return;
		if (lane < head.shards)
			publish(peer, turn, row, number);
		if (last && blockIdx.x != 0)
			return;
		const winner_key key = gather_winner(head, x, turn, row, number);
		if (blockIdx.x == 0 && lane == 0)
			report(row, step, key);
		if (last)
			return;
		load_embedding(row, key_id(key));
		if (lane == 0)
			state.begin_row(row, step + 1);
	}

	// Many rows: of each, one multiprocessor reads all packets and publishes the winner for the
	// others.
	DEVICE void conclude_many(int step, int turn, uint64_t number, bool last) const
	{
		packet *winner = x.winner[turn];
		const int own = threadIdx.x;
		for (uint32_t shard = 0; shard < head.shards; shard++) {
			exchange *to = (exchange *)__shfl_sync(~0u, (uint64_t)peer, shard);
			if (own < rows)
				publish(to, turn, own, number);
		}
		for (int row = blockIdx.x + gridDim.x * (threadIdx.x / 32); row < rows;
			row += gridDim.x * WARPS) {
			const winner_key key = gather_winner(head, x, turn, row, number);
			if (lane == 0)
				store_packet(&winner[row], key, number);
			prefetch_embedding(key_id(key));
		}
		if (last && blockIdx.x != 0)
			return;
		// Two warps wait for all winners: with more of them at it, those who publish are
		// slowed down.
		if (own < rows) {
			const winner_key key = await_winner(head, &winner[own], number);
			if (blockIdx.x == 0)
				report(own, step, key);
			atomicExch(&state.token[own], key_id(key)); // as in begin_row()
			state.begin_row(own, step + 1);
		}
		if (last)
			return;
		named_barrier(BARRIER_CONSUMERS, shape::consumers);
		for (int row = threadIdx.x / 32; row < rows; row += WARPS)
			load_embedding(row, state.token[row]);
	}

	// Publishes this multiprocessor's winners, learns everybody's, and loads their embeddings
	// for the next step; which in the step form the next launch does.
	DEVICE void conclude(int step) const
	{
		if (plan.by_step) {
			if ((int)threadIdx.x < rows)
				atomicMax(step_keys(head, step, head.shard) + plan.first_row +
						  threadIdx.x,
					state.best[threadIdx.x]);
			return;
		}
		const bool last = step + 1 == batch.steps;
		const int turn = (plan.first_row / BLOCK_ROWS_MAX * batch.steps + step) & 1;
		if (N <= WARPS && head.shards <= EVERYBODY_READS_SHARDS)
			conclude_few(step, turn, batch.first_number + step, last);
		else
			conclude_many(step, turn, batch.first_number + step, last);
		if (!last)
			embeddings_ready();
	}

	// Asks for the base logits of a tile to come, into slot `to`.
	DEVICE void fetch_ahead(int to)
	{
		mover.fetch(ahead, to);
		advance(ahead);
	}

	DEVICE void run()
	{
		ahead = {batch.begin, group};
		settle(ahead);
		at = ahead;
		for (int i = 0; i < shape::base_depth - 1; i++)
			fetch_ahead(i);
		for (int step = batch.begin; step < batch.end; step++) {
			bool first = true;
			named_barrier_arrive(BARRIER_STEP_BEGINS, shape::with_evaluators);
			while (at.step == step) {
				// Before the products whatever does not need them: the tile may not
				// have come yet.
				fetch_ahead(slot ? slot - 1 : shape::base_depth - 1);
				copy_wait<shape::base_depth - 1>();
				__syncwarp();
				uint32_t logits[N / 8][2];
				load_logits(logits);
				float sum[N / 8][4];
				multiply(sum);
				finish_logits(sum, logits);
				mover.store(at, slot);
				search(logits, first);
				first = false;
				advance(at);
				if (++slot == shape::base_depth)
					slot = 0;
			}
			__syncwarp();
			if (lane == 0) {
				__threadfence_block();
				atomicAdd(&state.queue.finished, 1);
			}
			named_barrier(BARRIER_STEP_ENDS, shape::with_evaluators);
			conclude(step);
		}
	}
};
