#include "field.h"
#include "pack.h"
#include "sentence.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

/* ---- where bulk data lies ---- */

#define ROW(map, key, read, member, ...)                                                           \
	FIELD(key, map "." key, read, struct bulk, member, __VA_ARGS__)
static const struct field base_fields[] = {
	ROW("base", "region", field_read_u32, region, .max = UINT32_MAX),
	ROW("base", "offset", field_read_even, offset, .max = UINT64_MAX),
	ROW("base", "row_stride", field_read_even, row_stride, .max = UINT64_MAX),
	ROW("base", "step_stride", field_read_even, step_stride, .max = UINT64_MAX),
};
static const struct field logits_fields[] = {
	ROW("logits", "region", field_read_u32, region, .max = UINT32_MAX),
	ROW("logits", "offset", field_read_even, offset, .max = UINT64_MAX),
	ROW("logits", "slot_stride", field_read_even, row_stride, .max = UINT64_MAX),
	ROW("logits", "step_stride", field_read_even, step_stride, .max = UINT64_MAX),
};
#undef ROW
static const struct field_table base_table = {"base", base_fields, 4};
static const struct field_table logits_table = {"logits", logits_fields, 4};

static int read_base(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct bulk *bulk = member;
	struct wire_cursor ahead = *cursor;
	struct wire_value value = {.type = WIRE_NIL};

	if (wire_next(&ahead, &value) && value.type == WIRE_BIN) {
		*cursor = ahead;
		bulk->kind = BULK_INLINE;
		bulk->bytes = value.data.at;
		bulk->byte_count = value.data.bytes;
		return 0;
	}
	if (value.type != WIRE_MAP)
		return message_refuse(
			fault, ERROR_BAD_REQUEST, "%s must be a bin or a map", field->name);
	bulk->kind = BULK_REGION;
	return field_read_map(cursor, &base_table, bulk, fault);
}

static int read_logits(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct bulk *bulk = member;
	struct wire_cursor ahead = *cursor;
	struct wire_value value = {.type = WIRE_NIL};

	if (wire_next(&ahead, &value) && value.type == WIRE_BOOL) {
		*cursor = ahead;
		bulk->kind = value.boolean ? BULK_INLINE : BULK_ABSENT;
		return 0;
	}
	if (value.type != WIRE_MAP)
		return message_refuse(
			fault, ERROR_BAD_REQUEST, "%s must be true, false or a map", field->name);
	bulk->kind = BULK_REGION;
	return field_read_map(cursor, &logits_table, bulk, fault);
}

/* ---- request ---- */

#define ROW(key, read, member, ...) FIELD(key, key, read, struct draft_call, member, __VA_ARGS__)
#define OPTIONAL                    .optional = true
#define OPTIONAL_HAS(member)        .optional = true, .has_offset = offsetof(struct draft_call, member)
static const struct field request_fields[] = {
	ROW("steps", field_read_u32, steps, .min = 1, .max = UINT32_MAX),
	ROW("anchors", field_read_column_u32, anchors),
	ROW("positions", field_read_column_i64, positions),
	ROW("seeds", field_read_column_bits, seeds),
	ROW("temperatures", field_read_column_f32, temperatures),
	ROW("slots", field_read_column_i64, slots, OPTIONAL_HAS(has_slots)),
	ROW("base", read_base, base),
	ROW("logits", read_logits, logits, OPTIONAL),
	ROW("deadline_us", field_read_u64, deadline_us, OPTIONAL_HAS(has_deadline),
		.max = DRAFT_DEADLINE_US_MAX),
	ROW("priority", field_read_u32, priority, OPTIONAL, .max = DRAFT_PRIORITY_MAX),
	ROW("event", field_read_u32, event, OPTIONAL_HAS(has_event), .max = UINT32_MAX),
};
#undef OPTIONAL_HAS
#undef OPTIONAL
static const struct field_table request_table = {"params", request_fields, 11};

static int check_lengths(const struct draft_call *request, struct message_fault *fault)
{
	const struct {
		const char *name;
		uint32_t count;
	} columns[] = {
		{"positions", request->positions.count},
		{"seeds", request->seeds.count},
		{"temperatures", request->temperatures.count},
		{"slots", request->has_slots ? request->slots.count : request->rows},
	};

	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		if (columns[i].count != request->rows)
			return message_refuse(fault, ERROR_BAD_REQUEST,
				"%s has %" PRIu32 " element%s and anchors has %" PRIu32
				"; every column has one element a row",
				columns[i].name, columns[i].count, sentence_s(columns[i].count),
				request->rows);
	return 0;
}

int draft_request_decode(
	struct wire_cursor params, struct draft_call *ret, struct message_fault *fault)
{
	struct draft_call request = {0};
	int rc = field_read_map(&params, &request_table, &request, fault);

	if (rc)
		return rc;
	request.rows = request.anchors.count;
	rc = check_lengths(&request, fault);
	if (rc)
		return rc;
	*ret = request;
	return 0;
}

static void pack_bulk_region(
	struct wire_buffer *buffer, const struct bulk *bulk, const char *row_stride_key)
{
	wire_pack_map(buffer, 4);
	pack_key_uint(buffer, "region", bulk->region);
	pack_key_uint(buffer, "offset", bulk->offset);
	pack_key_uint(buffer, row_stride_key, bulk->row_stride);
	pack_key_uint(buffer, "step_stride", bulk->step_stride);
}

static void pack_column_i64(
	struct wire_buffer *buffer, const char *key, const int64_t *values, uint32_t count)
{
	pack_str(buffer, key);
	wire_pack_array(buffer, count);
	for (uint32_t i = 0; i < count; i++)
		wire_pack_int64(buffer, values[i]);
}

static void pack_column_u32(
	struct wire_buffer *buffer, const char *key, const uint32_t *values, size_t count)
{
	pack_str(buffer, key);
	wire_pack_array(buffer, count);
	for (size_t i = 0; i < count; i++)
		wire_pack_uint32(buffer, values[i]);
}

void draft_request_encode(
	struct wire_buffer *buffer, uint32_t id, const struct draft_params *params)
{
	uint64_t tail_bytes = params->base.kind == BULK_INLINE ? params->base.byte_count : 0;
	size_t frame_at = request_begin(buffer, id, METHOD_DRAFT);

	wire_pack_map(buffer, 6u + (params->slots != NULL) + (params->logits.kind != BULK_ABSENT) +
				      params->has_deadline + (params->priority != 0) +
				      params->has_event);
	pack_key_uint(buffer, "steps", params->steps);
	pack_column_u32(buffer, "anchors", params->anchors, params->rows);
	pack_column_i64(buffer, "positions", params->positions, params->rows);
	pack_column_i64(buffer, "seeds", params->seeds, params->rows);
	pack_str(buffer, "temperatures");
	wire_pack_array(buffer, params->rows);
	for (uint32_t i = 0; i < params->rows; i++)
		wire_pack_float(buffer, params->temperatures[i]);
	if (params->slots)
		pack_column_i64(buffer, "slots", params->slots, params->rows);
	if (params->logits.kind == BULK_INLINE) {
		pack_str(buffer, "logits");
		wire_pack_true(buffer);
	} else if (params->logits.kind == BULK_REGION) {
		pack_str(buffer, "logits");
		pack_bulk_region(buffer, &params->logits, "slot_stride");
	}
	if (params->has_deadline)
		pack_key_uint(buffer, "deadline_us", params->deadline_us);
	if (params->priority)
		pack_key_uint(buffer, "priority", params->priority);
	if (params->has_event)
		pack_key_uint(buffer, "event", params->event);
	pack_str(buffer, "base");
	if (params->base.kind == BULK_INLINE)
		wire_pack_bin(buffer, (size_t)params->base.byte_count);
	else
		pack_bulk_region(buffer, &params->base, "row_stride");
	frame_end(buffer, frame_at, 0, tail_bytes);
}

/* ---- reply ---- */

#undef ROW
#define ROW(key, read, member, ...)                                                                \
	FIELD(key, "times_us." key, read, struct draft_reply, times_us.member, __VA_ARGS__)
static const struct field times_fields[] = {
	ROW("queue", field_read_u64, queue, .max = UINT64_MAX),
	ROW("device", field_read_u64, device, .max = UINT64_MAX),
	ROW("total", field_read_u64, total, .max = UINT64_MAX),
};
static const struct field_table times_table = {"times_us", times_fields, 3};

static int read_reply_logits(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct draft_reply *reply = member;
	struct wire_value value;

	if (!wire_next(cursor, &value) || value.type != WIRE_BIN)
		return message_refuse(fault, ERROR_BAD_REQUEST, "%s must be a bin", field->name);
	reply->has_logits = true;
	reply->logits = value.data.at;
	reply->logits_bytes = value.data.bytes;
	return 0;
}

#undef ROW
#define ROW(key, read, member, ...) FIELD(key, key, read, struct draft_reply, member, __VA_ARGS__)
static const struct field reply_fields[] = {
	ROW("tokens", field_read_column_u32, tokens),
	ROW("flags", field_read_column_u32, flags),
	ROW("generation", field_read_u64, generation, .max = UINT64_MAX),
	FIELD_WHOLE("times_us", "times_us", field_read_table, .table = &times_table),
	FIELD_WHOLE("logits", "logits", read_reply_logits, .optional = true),
};
#undef ROW
static const struct field_table reply_table = {"result", reply_fields, 5};

void draft_reply_encode(struct wire_buffer *buffer, uint32_t id, const struct draft_answer *result)
{
	size_t frame_at = reply_begin(buffer, id);

	wire_pack_map(buffer, 4u + result->has_logits);
	pack_column_u32(buffer, "tokens", result->tokens, (size_t)result->rows * result->steps);
	pack_str(buffer, "flags");
	wire_pack_array(buffer, result->rows);
	for (uint32_t i = 0; i < result->rows; i++)
		wire_pack_uint8(buffer, result->flags[i]);
	pack_key_uint(buffer, "generation", result->generation);
	pack_str(buffer, "times_us");
	wire_pack_map(buffer, 3);
	pack_key_uint(buffer, "queue", result->queue_us);
	pack_key_uint(buffer, "device", result->device_us);
	pack_key_uint(buffer, "total", result->total_us);
	if (result->has_logits) {
		pack_str(buffer, "logits");
		wire_pack_bin(buffer, result->logits_bytes);
	}
	frame_end(buffer, frame_at, 0, result->has_logits ? result->logits_bytes : 0);
}

int draft_reply_decode(
	struct wire_cursor result, struct draft_reply *ret, struct message_fault *fault)
{
	struct draft_reply reply = {0};
	int rc = field_read_map(&result, &reply_table, &reply, fault);

	if (rc)
		return rc;
	reply.token_count = reply.tokens.count;
	reply.row_count = reply.flags.count;
	if (reply.token_count % reply.row_count)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"tokens has %" PRIu32 " element%s, which is no multiple of the %" PRIu32
			" in flags",
			reply.token_count, sentence_s(reply.token_count), reply.row_count);
	*ret = reply;
	return 0;
}
