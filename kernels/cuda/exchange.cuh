// How the multiprocessors agree on a token: each publishes its best (value, id) of a row and step
// as one packet, and whoever needs the winner reads all packets. A packet is 16 bytes, stored and
// loaded whole, and carries the number of its step, which never repeats: a packet that is not of
// this step is not there yet. So no launch has to clear anything, and no counter is contended. Two
// sets of packets take turns: a multiprocessor can publish step s + 2 only after it has seen every
// packet of s + 1, and those were published after their senders had read all of step s. That counts
// steps over all passes of a launch; on one GPU its launches follow each other on a stream, and on
// several the host starts none before the last is over everywhere.
//
// Where several GPUs share a vocabulary, every multiprocessor stores its packet into the exchange
// of each, over NVLink or PCIe, and reads all of them in its own GPU's. What travels is the packet
// alone: nothing else that one GPU writes is read by another.
#pragma once

#include "columns.h"
#include "hopper.cuh"
#include "kernels.h"

constexpr int EXCHANGE_LANES = 5; // packets a lane of the reading warp looks at
constexpr int EXCHANGE_CTAS_MAX = 32 * EXCHANGE_LANES;
constexpr int EXCHANGE_ROWS_MAX = 64;

struct __align__(16) packet
{
	uint64_t key;
	uint64_t number;
};

// The order of the best value of a row and step that is known anywhere: it only sharpens pruning.
// The lower half of the step's number is on top, so that a later step's maximum replaces it; the
// host clears all when that half wraps.
typedef unsigned long long hint_word;

DEVICE hint_word make_hint(uint32_t order, uint64_t number)
{
	return number << 32 | order;
}

DEVICE bool hint_is_of(hint_word hint, uint64_t number)
{
	return hint >> 32 == (uint32_t)number;
}

DEVICE float hint_value(hint_word hint)
{
	return (uint32_t)hint == ORDER_NAN ? NAN : order_value((uint32_t)hint);
}

struct exchange {
	hint_word hints[DRAFT_STEPS_MAX][EXCHANGE_ROWS_MAX];
	packet winner[2][EXCHANGE_ROWS_MAX]; // by the row's reader, when one reads for all
	exchange *peers[SHARDS_MAX];         // every shard's, this one too
	uint32_t aborted;
	packet partial[][2][EXCHANGE_ROWS_MAX][EXCHANGE_CTAS_MAX]; // from each shard
};

DEVICE packet load_packet(const packet *from)
{
	packet p;
	asm volatile("{\n.reg .b128 whole;\n"
		     "ld.relaxed.sys.global.b128 whole, [%2];\n"
		     "mov.b128 {%0, %1}, whole;\n}"
		     : "=l"(p.key), "=l"(p.number)
		     : "l"(from)
		     : "memory");
	return p;
}

DEVICE void store_packet(packet *to, uint64_t key, uint64_t number)
{
	asm volatile("{\n.reg .b128 whole;\n"
		     "mov.b128 whole, {%1, %2};\n"
		     "st.relaxed.sys.global.b128 [%0], whole;\n}" ::"l"(to),
		     "l"(key), "l"(number)
		     : "memory");
}

// A bound on waiting for another multiprocessor. Past it everybody is told to stop waiting, the
// host gets DRAFT_STATUS_EXCHANGE_TIMED_OUT, and the launch ends with tokens that nobody may use.
struct patience {
	const draft_head &head;
	uint64_t until = 0;
	uint32_t looks = 0;

	DEVICE explicit patience(const draft_head &of) : head(of)
	{
	}

	DEVICE bool lost()
	{
		if (++looks % 1024)
			return false;
		uint32_t *aborted = &((exchange *)head.exchange)->aborted;
		const uint64_t now = global_time_ns();
		if (!until)
			until = now + head.spin_bound_ns;
		if (now > until) {
			*(volatile uint32_t *)aborted = 1;
			*(volatile uint32_t *)head.status = DRAFT_STATUS_EXCHANGE_TIMED_OUT;
		}
		return *(volatile uint32_t *)aborted != 0;
	}
};

// The best of a row that this lane finds among one shard's packets, when all of them are there; a
// whole warp calls it.
DEVICE winner_key gather_shard(const draft_head &head, const packet *partial, uint64_t number)
{
	const int lane = threadIdx.x % 32, ctas = gridDim.x;
	packet p[EXCHANGE_LANES];
#pragma unroll
	for (int i = 0; i < EXCHANGE_LANES; i++)
		p[i] = packet{0, lane + 32 * i < ctas ? ~number : number};
	patience wait(head);
	bool missing;
	do {
#pragma unroll
		for (int i = 0; i < EXCHANGE_LANES; i++)
			if (p[i].number != number)
				p[i] = load_packet(partial + lane + 32 * i);
		missing = false;
#pragma unroll
		for (int i = 0; i < EXCHANGE_LANES; i++)
			missing |= p[i].number != number;
		missing = __any_sync(~0u, missing);
	} while (missing && !__any_sync(~0u, wait.lost()));
	winner_key best = 0;
#pragma unroll
	for (int i = 0; i < EXCHANGE_LANES; i++)
		best = p[i].key > best ? p[i].key : best;
	return best;
}

// The winner of a row among all multiprocessors of all shards; a whole warp calls it, and all lanes
// get it.
DEVICE winner_key gather_winner(
	const draft_head &head, const exchange &x, int turn, int row, uint64_t number)
{
	winner_key best = 0;
	for (uint32_t i = 0; i < head.shards; i++) { // the own, which is there first, before others
		const uint32_t shard = i == 0 ? head.shard : i <= head.shard ? i - 1 : i;
		const winner_key key = gather_shard(head, x.partial[shard][turn][row], number);
		best = key > best ? key : best;
	}
	const uint32_t high = __reduce_max_sync(~0u, (uint32_t)(best >> 32));
	const uint32_t low =
		__reduce_max_sync(~0u, (uint32_t)(best >> 32) == high ? (uint32_t)best : 0u);
	return (winner_key)high << 32 | low;
}

// Waits for a winner that another multiprocessor gathers.
DEVICE winner_key await_winner(const draft_head &head, const packet *winner, uint64_t number)
{
	patience wait(head);
	packet p;
	do
		p = load_packet(winner);
	while (p.number != number && !wait.lost());
	return p.key;
}
