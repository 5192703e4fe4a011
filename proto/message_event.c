#include "field.h"
#include "pack.h"

#include <stddef.h>

/* ---- event_import ---- */

static int read_handle(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct wire_value value;

	if (!wire_next(cursor, &value) || value.type != WIRE_BIN ||
		value.data.bytes != EVENT_HANDLE_BYTES)
		return message_refuse(fault, ERROR_BAD_REQUEST, "%s must be a bin of %d bytes",
			field->name, EVENT_HANDLE_BYTES);
	*(const uint8_t **)member = value.data.at;
	return 0;
}

#define ROW(key, read, member, ...) FIELD(key, key, read, struct event_request, member, __VA_ARGS__)
static const struct field request_fields[] = {
	ROW("handle", read_handle, handle),
	ROW("device", field_read_text, device, .min = 1, .max = MESSAGE_UUID_BYTES - 1,
		.optional = true, .has_offset = offsetof(struct event_request, has_device)),
};
#undef ROW
static const struct field_table request_table = {"params", request_fields, 2};

void event_request_encode(
	struct wire_buffer *buffer, uint32_t id, const struct event_request *request)
{
	size_t frame_at = request_begin(buffer, id, METHOD_EVENT_IMPORT);

	wire_pack_map(buffer, 1u + request->has_device);
	pack_str(buffer, "handle");
	wire_pack_bin(buffer, EVENT_HANDLE_BYTES);
	wire_pack_bin_body(buffer, request->handle, EVENT_HANDLE_BYTES);
	if (request->has_device)
		pack_key_text(buffer, "device", request->device);
	frame_end(buffer, frame_at, 0, 0);
}

int event_request_decode(
	struct wire_cursor params, struct event_request *ret, struct message_fault *fault)
{
	struct event_request request = {0};
	int rc = field_read_map(&params, &request_table, &request, fault);

	if (rc)
		return rc;
	*ret = request;
	return 0;
}

/* ---- {"event": id}: the reply to event_import, and the params of event_close ---- */

static const struct field event_fields[] = {
	FIELD_WHOLE("event", "event", field_read_u32, .max = UINT32_MAX),
};
static const struct field_table reply_table = {"result", event_fields, 1};
static const struct field_table close_table = {"params", event_fields, 1};

static void pack_event(struct wire_buffer *buffer, size_t frame_at, uint32_t event)
{
	wire_pack_map(buffer, 1);
	pack_key_uint(buffer, "event", event);
	frame_end(buffer, frame_at, 0, 0);
}

static int read_event(struct wire_cursor map, const struct field_table *table, uint32_t *ret_event,
	struct message_fault *fault)
{
	uint32_t event;
	int rc = field_read_map(&map, table, &event, fault);

	if (rc)
		return rc;
	*ret_event = event;
	return 0;
}

void event_reply_encode(struct wire_buffer *buffer, uint32_t id, uint32_t event)
{
	size_t frame_at = reply_begin(buffer, id);

	pack_event(buffer, frame_at, event);
}

int event_reply_decode(struct wire_cursor result, uint32_t *ret_event, struct message_fault *fault)
{
	return read_event(result, &reply_table, ret_event, fault);
}

void event_close_encode(struct wire_buffer *buffer, uint32_t id, uint32_t event)
{
	size_t frame_at = request_begin(buffer, id, METHOD_EVENT_CLOSE);

	pack_event(buffer, frame_at, event);
}

int event_close_decode(struct wire_cursor params, uint32_t *ret_event, struct message_fault *fault)
{
	return read_event(params, &close_table, ret_event, fault);
}
