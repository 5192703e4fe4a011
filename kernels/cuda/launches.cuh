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

// `row` is that of the batch.
DEVICE void report_winner(
	const draft_head &head, uint32_t steps, uint32_t row, uint32_t step, winner_key key)
{
	head.tokens[(uint64_t)row * steps + step] = key_id(key);
	if (key_order(key) == ORDER_NAN)
		head.flags[row] = DRAFT_FLAG_NAN;
}
