/* Bodies: whatever the scan accepts is walked to its end by the cursor and is one object to
 * msgpack-c too; the envelope and every decoder of both sides either refuse with a text, or give a
 * struct that encodes to a frame which decodes and encodes to itself. */
#include "proto/message.h"
#include "tests/unit/proto/again.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count);

static void require(bool condition)
{
	if (!condition)
		abort();
}

/* ---- the scan against the cursor and msgpack-c ---- */

/* How many bytes msgpack-c takes for one object; 0 if it refuses. It reserves what heads declare,
 * so the scan must have bounded that before. */
static size_t msgpack_takes(const uint8_t *bytes, size_t byte_count)
{
	msgpack_unpacked result;
	size_t offset = 0;
	msgpack_unpack_return rc;

	msgpack_unpacked_init(&result);
	rc = msgpack_unpack_next(&result, (const char *)bytes, byte_count, &offset);
	msgpack_unpacked_destroy(&result);
	require(rc != MSGPACK_UNPACK_NOMEM_ERROR);
	return rc == MSGPACK_UNPACK_SUCCESS ? offset : 0;
}

static void check_accepted(const uint8_t *bytes, size_t byte_count)
{
	struct wire_cursor walk, skip;
	struct wire_value value;
	size_t values = 0;

	wire_cursor_init(&walk, bytes, byte_count);
	while (wire_next(&walk, &value)) {
		values++;
		if (value.type == WIRE_STR || value.type == WIRE_BIN)
			require(value.data.at + value.data.bytes == walk.at);
	}
	require(walk.at == bytes + byte_count && values <= byte_count);
	wire_cursor_init(&skip, bytes, byte_count);
	require(wire_skip(&skip) && skip.at == bytes + byte_count);
	require(msgpack_takes(bytes, byte_count) == byte_count);
}

static enum wire_fault check_scan(const uint8_t *bytes, size_t byte_count)
{
	enum wire_fault fault = wire_scan(bytes, byte_count);
	struct wire_cursor skip;
	size_t taken;

	require(wire_fault_text(fault)[0]);
	switch (fault) {
	case WIRE_OK:
		check_accepted(bytes, byte_count);
		break;
	case WIRE_TRAILING:
		wire_cursor_init(&skip, bytes, byte_count);
		require(wire_skip(&skip));
		taken = msgpack_takes(bytes, byte_count);
		require(taken > 0 && taken < byte_count && skip.at == bytes + taken);
		break;
	case WIRE_SHORT:
		wire_cursor_init(&skip, bytes, byte_count);
		require(!wire_skip(&skip) && skip.at == bytes);
		break;
	case WIRE_EMPTY:
		require(!byte_count);
		break;
	default:
		break;
	}
	return fault;
}

/* ---- messages ---- */

static void check_refusal(int rc, const struct message_fault *fault)
{
	require(rc == -EBADMSG && fault->code == ERROR_BAD_REQUEST);
	require(memchr(fault->text, '\0', sizeof(fault->text)) && fault->text[0]);
}

/* `reply_to` is the method that a response answers. */
static int again(struct wire_buffer *buffer, const struct message *message, enum method reply_to,
	struct message_fault *fault)
{
	if (message->failed) {
		again_error(buffer, message);
		return 0;
	}
	switch (message->kind) {
	case MESSAGE_REQUEST:
		return again_request(buffer, message, fault);
	case MESSAGE_RESPONSE:
		return again_reply(buffer, message, reply_to, fault);
	case MESSAGE_NOTIFICATION:
		break;
	}
	return again_notification(buffer, message, fault);
}

static void check_message(const struct message *message, enum method reply_to)
{
	struct message_fault fault = {0};
	struct wire_buffer first, second;
	struct message reread;
	int rc;

	wire_buffer_init(&first);
	wire_buffer_init(&second);
	rc = again(&first, message, reply_to, &fault);
	if (rc) {
		check_refusal(rc, &fault);
	} else {
		require(!first.failed && first.count > FRAME_HEADER_BYTES);
		require(!message_decode(first.bytes + FRAME_HEADER_BYTES,
			first.count - FRAME_HEADER_BYTES, &reread, &fault));
		require(reread.kind == message->kind && reread.method == message->method &&
			reread.failed == message->failed && reread.has_id == message->has_id &&
			reread.id == message->id);
		require(!again(&second, &reread, reply_to, &fault));
		require(second.count == first.count &&
			!memcmp(second.bytes, first.bytes, first.count));
	}
	wire_buffer_done(&first);
	wire_buffer_done(&second);
}

static void check_decoded(const struct message *message)
{
	char text[65];

	if (message->kind == MESSAGE_RESPONSE && !message->failed) {
		for (int method = METHOD_HELLO; method < METHOD_CANCEL; method++)
			check_message(message, (enum method)method);
	} else if (message->kind == MESSAGE_RESPONSE) {
		wire_text_copy(message->error.text, text, sizeof(text));
		if (error_lookup(message->error.code)) {
			const char *name = error_lookup(message->error.code)->name;

			require((int)error_by_name(name) == message->error.code);
			check_message(message, METHOD_UNKNOWN);
		}
	} else if (message->method != METHOD_UNKNOWN) {
		check_message(message, METHOD_UNKNOWN);
	} else {
		wire_text_copy(message->method_text, text, sizeof(text));
		require(strlen(text) < sizeof(text));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	enum wire_fault scan = check_scan(bytes, byte_count);
	struct message_fault fault = {0};
	struct message message;
	int rc = message_decode(bytes, byte_count, &message, &fault);

	if (rc)
		check_refusal(rc, &fault);
	else
		check_decoded(&message);
	require(!scan || rc);
	return 0;
}
