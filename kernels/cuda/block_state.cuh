// What a multiprocessor keeps in shared memory during the block form, and the sizes that depend on
// the rows of a tile.
#pragma once

#include "exchange.cuh"
#include "pruning.cuh"
#include "schedule.cuh"

constexpr int STAGES_MAX = 16;
constexpr int RESIDENT_MAX = 4;
constexpr int WARPGROUP = 128;
constexpr int CHUNK = 64;                   // columns that one 128-byte row of shared memory holds
constexpr int CHUNK_BYTES = TILE_IDS * 128; // of a tile

constexpr int EVERYBODY_READS_SHARDS = 2; // of more, too many packets for all to read

enum { BARRIER_CONSUMERS = 1, BARRIER_STEP_BEGINS, BARRIER_STEP_ENDS, BARRIER_WARPGROUP };

template <int N> struct block_shape {
	static constexpr int rows = N;
	static constexpr int warpgroups =
		N <= 16 ? 4 : 3; // that take tiles in turn; registers allow no more
	static constexpr int consumers = warpgroups * WARPGROUP;
	static constexpr int threads = consumers + 32 + EVALUATOR_WARPS * 32;
	static constexpr int with_evaluators = consumers + EVALUATOR_WARPS * 32;
	static constexpr int stage_chunks = N == 64 ? 2 : 4;
	static constexpr int stage_bytes = stage_chunks * CHUNK_BYTES;
	static constexpr int base_depth =
		N == 64 ? 2 : 3;                   // tiles of base logits under way a warpgroup
	static constexpr int base_bytes = N * 128; // of one tile
};

// Stages that a tile of `rank` columns takes; columns past the rank read as zeros.
__host__ __device__ constexpr int stages_a_tile(int rank, int stage_chunks)
{
	return (rank / CHUNK + stage_chunks - 1) / stage_chunks;
}

// Where a row's step 0 lies (0: nowhere), and how far the next is.
struct __align__(16) row_place
{
	uint64_t address;
	uint64_t stride;

	DEVICE char *at(uint32_t step, uint32_t id) const
	{
		return (char *)(address + step * stride + (uint64_t)id * 2);
	}
};

// struct block_pass for N rows, by value: a parameter reaches all multiprocessors sooner than
// memory that is copied first.
template <int N> struct block_batch {
	int32_t rows, steps, begin, end;
	uint64_t first_number; // of step 0's packets
	draft_row row[N];
};

template <int N> struct block_state {
	row_test test[N];
	row_place base[N], logits[N];
	winner_key best[N]; // of this multiprocessor in this step
	int64_t seed[N], position[N];
	float temperature[N];
	uint32_t lower[N]; // order of a scaled value that the row surely reaches in this step; 0:
			   // none known
	uint32_t token[N];
	bool whole_pieces; // every row's base and logits can be moved 16 bytes at a time
	uint64_t full[STAGES_MAX],
		empty[STAGES_MAX]; // a stage holds its part of a tile; may be filled again
	uint64_t loaded[RESIDENT_MAX];
	uint64_t turn[4]; // it is this warpgroup's turn to take stages from the ring
	candidate_queue queue;

	// A row's search starts anew. A barrier lies between this and whoever looks at the row
	// before or after; the race checker loses sight of some barriers, but not of atomics.
	DEVICE void begin_row(int row, uint32_t step)
	{
		atomicExch(&best[row], first_key());
		atomicExch(&lower[row], 0);
		atomicExch(&test[row].hash, row_hash(seed[row], position[row], step));
		atomicExch(&test[row].bound, INFINITY);
	}

	// Takes a value that the row has reached in the step with that number, and tells the other
	// multiprocessors.
	DEVICE void raise(int row, float value, uint32_t id, hint_word *anywhere, uint64_t number)
	{
		const winner_key key = make_key(order_of(value), id);
		if (key <= *(volatile winner_key *)&best[row] || key <= atomicMax(&best[row], key))
			return;
		atomicMax(anywhere, make_hint(key_order(key), number));
		sharpen(row, value);
	}

	DEVICE void sharpen(int row, float value)
	{
		test[row].tighten(bound_of(value, test[row].unit));
	}
};

// Shared memory, in this order: the ring, the resident tiles, the embeddings, the base logits, the
// state.
template <int N> struct block_layout {
	char *ring, *resident, *embeddings, *base;
	block_state<N> *state;

	__host__ __device__ static constexpr size_t bytes(int rank, int stages, int resident_tiles)
	{
		using shape = block_shape<N>;
		const size_t tile =
			(size_t)stages_a_tile(rank, shape::stage_chunks) * shape::stage_bytes;
		return 1024 + (size_t)stages * shape::stage_bytes + (size_t)resident_tiles * tile +
		       tile / TILE_IDS * N +
		       (size_t)shape::warpgroups * shape::base_depth * shape::base_bytes +
		       sizeof(block_state<N>);
	}

	DEVICE block_layout(char *raw, int rank, int stages, int resident_tiles)
	{
		using shape = block_shape<N>;
		const size_t tile =
			(size_t)stages_a_tile(rank, shape::stage_chunks) * shape::stage_bytes;
		// To the swizzle's period; by an offset, since a rounded pointer would no longer be
		// known to be shared memory.
		ring = raw + (-shared_address(raw) & 1023);
		resident = ring + (size_t)stages * shape::stage_bytes;
		embeddings = resident + resident_tiles * tile;
		base = embeddings + tile / TILE_IDS * N;
		state = (block_state<N> *)(base + shape::warpgroups * shape::base_depth *
							  shape::base_bytes);
	}
};
