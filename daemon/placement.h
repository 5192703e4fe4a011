/* Where BF16 logits lie in memory that a client chose, and the arithmetic that keeps them inside.
 * Pure functions; any thread. PROTOCOL.md, "draft". */
#ifndef DAEMON_PLACEMENT_H
#define DAEMON_PLACEMENT_H

#include "kernels/memory.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>

/* A block of rows (or slots) of steps of `vocab` BF16 values. Strides are in bytes. */
struct placement {
	uint8_t *at; /* row 0, step 0 */
	uint64_t row_stride, step_stride;
	enum memory_kind memory; /* that it lies in */
};

/* Checks that rows 0 to `row_last`, each of `steps` steps of `vocab` values, lie within
 * `region_bytes`: without overflow, over exactly the bytes that are used. `what` is "base" or
 * "logits". Returns 0, or -EBADMSG with OUT_OF_RANGE in `fault`. */
int placement_check(const char *what, const struct bulk *bulk, uint64_t row_last, uint32_t steps,
	uint32_t vocab, uint64_t region_bytes, struct message_fault *fault);

/* Checks that what `rows` rows write at their slots does not overlap: no slot twice, and strides
 * that put whole slots behind each other, or whole steps. Padding rows write nothing.
 * `ret_slot_last` gets the largest slot, or -1 if all are padding. Returns 0, or -EBADMSG with
 * BAD_REQUEST in `fault`, or -ENOMEM. */
int placement_check_slots(const struct bulk *bulk, const int64_t *slots, uint32_t rows,
	uint32_t steps, uint32_t vocab, int64_t *ret_slot_last, struct message_fault *fault);

#endif
