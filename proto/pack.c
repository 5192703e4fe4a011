#include "pack.h"

#include <string.h>

size_t frame_begin(struct wire_buffer *buffer, msgpack_packer *pk)
{
	static const char no_header[FRAME_HEADER_BYTES];
	size_t frame_at = buffer->count;

	wire_buffer_write(buffer, no_header, sizeof(no_header));
	msgpack_packer_init(pk, buffer, wire_buffer_write);
	return frame_at;
}

void frame_end(struct wire_buffer *buffer, size_t frame_at, unsigned fd_count, uint64_t tail_bytes)
{
	uint64_t body_bytes;

	if (buffer->failed)
		return;
	body_bytes = buffer->count - frame_at - FRAME_HEADER_BYTES;
	if (tail_bytes > UINT32_MAX || body_bytes > UINT32_MAX - tail_bytes) {
		buffer->failed = true;
		return;
	}
	frame_put_header(buffer->bytes + frame_at, (uint32_t)(body_bytes + tail_bytes), fd_count);
}

size_t request_begin(
	struct wire_buffer *buffer, msgpack_packer *pk, uint32_t id, enum method method)
{
	size_t frame_at = frame_begin(buffer, pk);

	msgpack_pack_array(pk, 4);
	msgpack_pack_uint32(pk, MESSAGE_REQUEST);
	msgpack_pack_uint32(pk, id);
	pack_str(pk, method_name(method));
	return frame_at;
}

size_t reply_begin(struct wire_buffer *buffer, msgpack_packer *pk, uint32_t id)
{
	size_t frame_at = frame_begin(buffer, pk);

	msgpack_pack_array(pk, 4);
	msgpack_pack_uint32(pk, MESSAGE_RESPONSE);
	msgpack_pack_uint32(pk, id);
	msgpack_pack_nil(pk);
	return frame_at;
}

size_t notification_begin(struct wire_buffer *buffer, msgpack_packer *pk, enum method method)
{
	size_t frame_at = frame_begin(buffer, pk);

	msgpack_pack_array(pk, 3);
	msgpack_pack_uint32(pk, MESSAGE_NOTIFICATION);
	pack_str(pk, method_name(method));
	return frame_at;
}

void pack_key_uint(msgpack_packer *pk, const char *key, uint64_t value)
{
	pack_str(pk, key);
	msgpack_pack_uint64(pk, value);
}

void pack_key_text(msgpack_packer *pk, const char *key, struct wire_text text)
{
	pack_str(pk, key);
	pack_text(pk, text);
}
