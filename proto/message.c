#include "field.h"
#include "pack.h"
#include "sentence.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int message_refuse(struct message_fault *fault, enum error_code code, const char *format, ...)
{
	va_list arguments;

	fault->code = code;
	va_start(arguments, format);
	sentence_print(fault->text, sizeof(fault->text), format, arguments);
	va_end(arguments);
	return -EBADMSG;
}

/* ---- text ---- */

/* Bytes of the printable UTF-8 character that begins at `at`; 0 if none does. */
static uint32_t character_bytes(const uint8_t *at, uint32_t left)
{
	static const uint32_t smallest[] = {0, 0, 0xa0, 0x800, 0x10000};
	uint32_t bytes, code;

	if (at[0] < 0x80)
		return at[0] >= 0x20 && at[0] != 0x7f;
	if (at[0] < 0xc0 || at[0] >= 0xf8)
		return 0;
	bytes = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
	if (bytes > left)
		return 0;

	code = at[0] & (0x7fu >> bytes);
	for (uint32_t i = 1; i < bytes; i++) {
		if (at[i] >> 6 != 0x2)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	/* Overlong forms, the control characters below U+00A0, surrogates, and what lies past
	 * Unicode. */
	if (code < smallest[bytes] || code >> 11 == 0x1b || code > 0x10ffff)
		return 0;
	return bytes;
}

void wire_text_copy(struct wire_text text, char *to, size_t size)
{
	const uint8_t *at = (const uint8_t *)text.at;
	uint32_t done = 0;
	size_t written = 0;

	if (!size)
		return;
	while (done < text.bytes) {
		uint32_t bytes = character_bytes(at + done, text.bytes - done);
		uint32_t room = bytes ? bytes : 1;

		if (written + room > size - 1)
			break;
		if (bytes)
			memcpy(to + written, at + done, bytes);
		else
			to[written] = '?';
		written += room;
		done += room;
	}
	to[written] = '\0';
}

/* ---- methods ---- */

static const struct {
	struct wire_text name;
	enum message_kind kind;
} methods[METHOD_END] = {
	[METHOD_UNKNOWN] = {WIRE_TEXT("unknown"), MESSAGE_RESPONSE},
	[METHOD_HELLO] = {WIRE_TEXT("hello"), MESSAGE_REQUEST},
	[METHOD_PING] = {WIRE_TEXT("ping"), MESSAGE_REQUEST},
	[METHOD_DRAFT] = {WIRE_TEXT("draft"), MESSAGE_REQUEST},
	[METHOD_REGION_OPEN] = {WIRE_TEXT("region_open"), MESSAGE_REQUEST},
	[METHOD_REGION_IMPORT] = {WIRE_TEXT("region_import"), MESSAGE_REQUEST},
	[METHOD_REGION_CLOSE] = {WIRE_TEXT("region_close"), MESSAGE_REQUEST},
	[METHOD_EVENT_IMPORT] = {WIRE_TEXT("event_import"), MESSAGE_REQUEST},
	[METHOD_EVENT_CLOSE] = {WIRE_TEXT("event_close"), MESSAGE_REQUEST},
	[METHOD_STATS] = {WIRE_TEXT("stats"), MESSAGE_REQUEST},
	[METHOD_METRICS] = {WIRE_TEXT("metrics"), MESSAGE_REQUEST},
	[METHOD_DRAIN] = {WIRE_TEXT("drain"), MESSAGE_REQUEST},
	[METHOD_RELOAD] = {WIRE_TEXT("reload"), MESSAGE_REQUEST},
	[METHOD_CANCEL] = {WIRE_TEXT("cancel"), MESSAGE_NOTIFICATION},
	[METHOD_GOAWAY] = {WIRE_TEXT("goaway"), MESSAGE_NOTIFICATION},
};

const char *method_name(enum method method)
{
	return methods[(unsigned)method < METHOD_END ? method : METHOD_UNKNOWN].name.at;
}

unsigned method_fd_count(enum method method)
{
	return method == METHOD_REGION_IMPORT ? 1 : 0;
}

static enum method method_by_text(struct wire_text text, enum message_kind kind)
{
	for (unsigned i = METHOD_UNKNOWN + 1; i < METHOD_END; i++)
		if (methods[i].kind == kind && wire_text_equal(methods[i].name, text))
			return (enum method)i;
	return METHOD_UNKNOWN;
}

/* ---- the envelope ---- */

/* Reads `[kind, id` as far as it goes, from bytes that may not have passed the scan. Returns the
 * count of the array's elements, 0 if the kind can't be read. */
static uint32_t read_prefix(struct wire_cursor *cursor, struct message *message)
{
	struct wire_value array, kind, id;
	struct wire_cursor ahead;

	if (!wire_next(cursor, &array) || array.type != WIRE_ARRAY || !wire_next(cursor, &kind) ||
		kind.type != WIRE_UINT || kind.uint > MESSAGE_NOTIFICATION)
		return 0;
	message->kind = (enum message_kind)kind.uint;
	if (message->kind == MESSAGE_NOTIFICATION)
		return array.count;
	ahead = *cursor;
	if (wire_next(&ahead, &id) && id.type == WIRE_UINT && id.uint <= UINT32_MAX) {
		message->has_id = true;
		message->id = (uint32_t)id.uint;
		*cursor = ahead;
	}
	return array.count;
}

static int read_method(
	struct wire_cursor *cursor, struct message *message, struct message_fault *fault)
{
	struct wire_value name;

	if (!wire_next(cursor, &name) || name.type != WIRE_STR)
		return message_refuse(fault, ERROR_BAD_REQUEST, "the method must be a string");
	message->method_text = (struct wire_text){(const char *)name.data.at, name.data.bytes};
	message->method = method_by_text(message->method_text, message->kind);
	message->params = *cursor;
	return 0;
}

static const struct field error_fields[] = {
	FIELD("code", "error.code", field_read_u32, struct message_error, code, .min = 1,
		.max = INT32_MAX),
	FIELD("name", "error.name", field_read_text, struct message_error, name, .max = UINT32_MAX),
	FIELD("message", "error.message", field_read_text, struct message_error, text,
		.max = UINT32_MAX),
	FIELD("retryable", "error.retryable", field_read_bool, struct message_error, retryable),
};
static const struct field_table error_table = {"error", error_fields, 4};

/* [1, id, error, result]: one of error and result is nil, and only an error may lack the id. */
static int read_response(
	struct wire_cursor *cursor, struct message *message, struct message_fault *fault)
{
	struct wire_cursor error_at = *cursor;
	struct wire_value error, result;

	if (!message->has_id) {
		struct wire_value id;

		if (!wire_next(cursor, &id) || id.type != WIRE_NIL)
			return message_refuse(fault, ERROR_BAD_REQUEST,
				"the id of a response must be nil or an integer from 0 to "
				"4294967295");
		error_at = *cursor;
	}
	if (wire_next(cursor, &error) && error.type == WIRE_NIL) {
		if (!message->has_id)
			return message_refuse(fault, ERROR_BAD_REQUEST,
				"a response without an error must have an id");
		message->params = *cursor;
		return 0;
	}

	if (field_read_map(&error_at, &error_table, &message->error, fault))
		return -EBADMSG;
	if (!wire_next(&error_at, &result) || result.type != WIRE_NIL)
		return message_refuse(
			fault, ERROR_BAD_REQUEST, "the result of a failed response must be nil");
	message->failed = true;
	return 0;
}

int message_decode(
	const uint8_t *body, size_t body_bytes, struct message *ret, struct message_fault *fault)
{
	static const char *const kinds[] = {"request", "response", "notification"};
	enum wire_fault scan = wire_scan(body, body_bytes);
	struct wire_cursor cursor;
	uint32_t count, wanted;

	*ret = (struct message){.kind = MESSAGE_REQUEST};
	wire_cursor_init(&cursor, body, body_bytes);
	count = read_prefix(&cursor, ret);
	if (scan)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"the body is not one MessagePack value within the rules: %s",
			wire_fault_text(scan));
	if (!count)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"the body must be an array that begins with 0 (request), 1 (response) or 2 "
			"(notification)");
	wanted = ret->kind == MESSAGE_NOTIFICATION ? 3 : 4;
	if (count != wanted)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"a %s must be an array of %" PRIu32 " elements, this one has %" PRIu32,
			kinds[ret->kind], wanted, count);

	switch (ret->kind) {
	case MESSAGE_REQUEST:
		if (!ret->has_id)
			return message_refuse(fault, ERROR_BAD_REQUEST,
				"the id of a request must be an integer from 0 to 4294967295");
		return read_method(&cursor, ret, fault);
	case MESSAGE_RESPONSE:
		return read_response(&cursor, ret, fault);
	case MESSAGE_NOTIFICATION:
		break;
	}
	return read_method(&cursor, ret, fault);
}

void message_encode_error(struct wire_buffer *buffer, bool has_id, uint32_t id,
	enum error_code code, const char *text)
{
	const struct error_info *info = error_lookup((int)code);
	size_t frame_at = frame_begin(buffer);

	wire_pack_array(buffer, 4);
	wire_pack_uint32(buffer, MESSAGE_RESPONSE);
	if (has_id)
		wire_pack_uint32(buffer, id);
	else
		wire_pack_nil(buffer);
	wire_pack_map(buffer, 4);
	pack_key_uint(buffer, "code", (uint64_t)code);
	pack_str(buffer, "name");
	pack_str(buffer, info->name);
	pack_str(buffer, "message");
	pack_str(buffer, text);
	pack_str(buffer, "retryable");
	if (info->retryable)
		wire_pack_true(buffer);
	else
		wire_pack_false(buffer);
	wire_pack_nil(buffer);
	frame_end(buffer, frame_at, 0, 0);
}

void message_encode_request(struct wire_buffer *buffer, uint32_t id, enum method method)
{
	size_t frame_at = request_begin(buffer, id, method);

	wire_pack_map(buffer, 0);
	frame_end(buffer, frame_at, 0, 0);
}

void message_encode_empty_reply(struct wire_buffer *buffer, uint32_t id)
{
	size_t frame_at = reply_begin(buffer, id);

	wire_pack_map(buffer, 0);
	frame_end(buffer, frame_at, 0, 0);
}

size_t message_begin_reply(struct wire_buffer *buffer, uint32_t id)
{
	return reply_begin(buffer, id);
}

void message_end_reply(struct wire_buffer *buffer, size_t frame_at, unsigned fd_count)
{
	frame_end(buffer, frame_at, fd_count, 0);
}

int empty_params_decode(struct wire_cursor params, struct message_fault *fault)
{
	static const struct field_table none = {"params", NULL, 0};

	return field_read_map(&params, &none, NULL, fault);
}
