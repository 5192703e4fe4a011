#include "field.h"
#include "pack.h"

#include <string.h>

/* ---- metrics ---- */

static const struct field metrics_fields[] = {
	FIELD_WHOLE("text", "text", field_read_text, .max = UINT32_MAX),
};
static const struct field_table metrics_table = {"result", metrics_fields, 1};

void metrics_reply_encode(
	struct wire_buffer *buffer, uint32_t id, const char *text, size_t text_bytes)
{
	size_t frame_at = reply_begin(buffer, id);

	if (text_bytes > UINT32_MAX) {
		buffer->failed = true;
		return;
	}
	wire_pack_map(buffer, 1);
	pack_key_text(buffer, "text", (struct wire_text){text, (uint32_t)text_bytes});
	frame_end(buffer, frame_at, 0, 0);
}

int metrics_reply_decode(
	struct wire_cursor result, struct wire_text *ret_text, struct message_fault *fault)
{
	struct wire_text text;
	int rc = field_read_map(&result, &metrics_table, &text, fault);

	if (rc)
		return rc;
	*ret_text = text;
	return 0;
}

/* ---- cancel ---- */

static const struct field cancel_fields[] = {
	FIELD_WHOLE("id", "id", field_read_u32, .max = UINT32_MAX),
};
static const struct field_table cancel_table = {"params", cancel_fields, 1};

void cancel_encode(struct wire_buffer *buffer, uint32_t id)
{
	size_t frame_at = notification_begin(buffer, METHOD_CANCEL);

	wire_pack_map(buffer, 1);
	pack_key_uint(buffer, "id", id);
	frame_end(buffer, frame_at, 0, 0);
}

int cancel_decode(struct wire_cursor params, uint32_t *ret_id, struct message_fault *fault)
{
	uint32_t id;
	int rc = field_read_map(&params, &cancel_table, &id, fault);

	if (rc)
		return rc;
	*ret_id = id;
	return 0;
}

/* ---- goaway ---- */

static const struct field goaway_fields[] = {
	FIELD_WHOLE("reason", "reason", field_read_text, .max = UINT32_MAX),
};
static const struct field_table goaway_table = {"params", goaway_fields, 1};

void goaway_encode(struct wire_buffer *buffer, const char *reason)
{
	size_t frame_at = notification_begin(buffer, METHOD_GOAWAY);

	wire_pack_map(buffer, 1);
	pack_str(buffer, "reason");
	pack_str(buffer, reason);
	frame_end(buffer, frame_at, 0, 0);
}

int goaway_decode(
	struct wire_cursor params, struct wire_text *ret_reason, struct message_fault *fault)
{
	struct wire_text reason;
	int rc = field_read_map(&params, &goaway_table, &reason, fault);

	if (rc)
		return rc;
	*ret_reason = reason;
	return 0;
}
