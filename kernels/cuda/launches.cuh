// What kernels of one block of steps share: how a launch follows the one before it, and how a token
// gets to the host.
#pragma once

#include "columns.h"
#include "numerics.cuh"

// Launches of a block may overlap (programmatic dependent launch): each lets the next start at
// once, and waits for the one before it before it looks at what that one wrote, and before it ends.
DEVICE void wait_for_predecessor()
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
}

DEVICE void let_successor_start()
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// The winners so far of a step's rows among a shard's ids.
DEVICE winner_key *step_keys(const draft_head &head, uint32_t step, uint32_t shard)
{
	return head.step_keys + ((uint64_t)step * head.shards + shard) * head.step_keys_pitch;
}

// The winner of a step that is over, when every shard's keys have come.
DEVICE winner_key step_winner(const draft_head &head, uint32_t step, uint32_t row)
{
	winner_key best = 0;
	for (uint32_t shard = 0; shard < head.shards; shard++) {
		const winner_key key = __ldcg(step_keys(head, step, shard) + row);
		best = key > best ? key : best;
	}
	return best;
}

// `row` is that of the batch.
DEVICE void report_winner(
	const draft_head &head, uint32_t steps, uint32_t row, uint32_t step, winner_key key)
{
	head.tokens[(uint64_t)row * steps + step] = key_id(key);
	if (key_order(key) == ORDER_NAN)
		head.flags[row] = DRAFT_FLAG_NAN;
}
