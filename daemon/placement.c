#include "placement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One past the last byte of row `row_last`. False when that is no 64-bit number. */
static bool footprint_end(const struct bulk *bulk, uint64_t row_last, uint32_t steps,
	uint32_t vocab, uint64_t *ret_end)
{
	uint64_t rows_bytes, steps_bytes, end;

	if (__builtin_mul_overflow(row_last, bulk->row_stride, &rows_bytes) ||
		__builtin_mul_overflow((uint64_t)steps - 1, bulk->step_stride, &steps_bytes) ||
		__builtin_add_overflow(bulk->offset, rows_bytes, &end) ||
		__builtin_add_overflow(end, steps_bytes, &end) ||
		__builtin_add_overflow(end, (uint64_t)vocab * 2, &end))
		return false;
	*ret_end = end;
	return true;
}

int placement_check(const char *what, const struct bulk *bulk, uint64_t row_last, uint32_t steps,
	uint32_t vocab, uint64_t region_bytes, struct message_fault *fault)
{
	uint64_t end;

	if (!footprint_end(bulk, row_last, steps, vocab, &end))
		return message_refuse(fault, ERROR_OUT_OF_RANGE,
			"%s.offset and strides reach beyond 64 bits, the region has %" PRIu64
			" bytes",
			what, region_bytes);
	if (end > region_bytes)
		return message_refuse(fault, ERROR_OUT_OF_RANGE,
			"%s reaches byte %" PRIu64 " of region %" PRIu32 ", which has %" PRIu64
			" bytes",
			what, end, bulk->region, region_bytes);
	return 0;
}

static int compare_slots(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

/* Whole slots behind each other, or whole steps behind each other: anything between is refused even
 * if it happens not to overlap. */
static bool strides_apart(
	const struct bulk *bulk, uint64_t slot_span, uint32_t steps, uint32_t vocab)
{
	uint64_t values = (uint64_t)vocab * 2;
	uint64_t inner;

	if (steps == 1)
		return bulk->row_stride >= values || slot_span == 0;
	if (slot_span == 0)
		return bulk->step_stride >= values;
	if (bulk->step_stride >= values &&
		!__builtin_mul_overflow((uint64_t)steps - 1, bulk->step_stride, &inner) &&
		!__builtin_add_overflow(inner, values, &inner) && bulk->row_stride >= inner)
		return true;
	return bulk->row_stride >= values &&
	       !__builtin_mul_overflow(slot_span, bulk->row_stride, &inner) &&
	       !__builtin_add_overflow(inner, values, &inner) && bulk->step_stride >= inner;
}

int placement_check_slots(const struct bulk *bulk, const int64_t *slots, uint32_t rows,
	uint32_t steps, uint32_t vocab, int64_t *ret_slot_last, struct message_fault *fault)
{
	int64_t *sorted;
	uint32_t used = 0;
	bool ascending = true;
	int r = 0;

	sorted = malloc(rows * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	for (uint32_t row = 0; row < rows; row++) {
		if (slots[row] < 0)
			continue;
		ascending = ascending && (used == 0 || slots[row] > sorted[used - 1]);
		sorted[used++] = slots[row];
	}
	if (used == 0) {
		*ret_slot_last = -1;
		goto out;
	}
	if (!ascending)
		qsort(sorted, used, sizeof(*sorted), compare_slots);
	for (uint32_t i = 1; i < used; i++) {
		if (sorted[i] == sorted[i - 1]) {
			r = message_refuse(
				fault, ERROR_BAD_REQUEST, "slots has %" PRId64 " twice", sorted[i]);
			goto out;
		}
	}
	if (!strides_apart(bulk, (uint64_t)(sorted[used - 1] - sorted[0]), steps, vocab)) {
		r = message_refuse(fault, ERROR_BAD_REQUEST,
			"logits.slot_stride %" PRIu64 " and step_stride %" PRIu64
			" make rows overlap: a step takes %" PRIu64
			" bytes, and whole slots or whole steps must lie behind each other",
			bulk->row_stride, bulk->step_stride, (uint64_t)vocab * 2);
		goto out;
	}
	*ret_slot_last = sorted[used - 1];
out:
	free(sorted);
	return r;
}
