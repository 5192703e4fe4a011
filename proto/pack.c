#include "pack.h"

size_t frame_begin(struct wire_buffer *buffer)
{
	static const char no_header[FRAME_HEADER_BYTES];
	size_t frame_at = buffer->count;

	wire_buffer_write(buffer, no_header, sizeof(no_header));
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

size_t request_begin(struct wire_buffer *buffer, uint32_t id, enum method method)
{
	size_t frame_at = frame_begin(buffer);

	wire_pack_array(buffer, 4);
	wire_pack_uint32(buffer, MESSAGE_REQUEST);
	wire_pack_uint32(buffer, id);
	pack_str(buffer, method_name(method));
	return frame_at;
}

size_t reply_begin(struct wire_buffer *buffer, uint32_t id)
{
	size_t frame_at = frame_begin(buffer);

	wire_pack_array(buffer, 4);
	wire_pack_uint32(buffer, MESSAGE_RESPONSE);
	wire_pack_uint32(buffer, id);
	wire_pack_nil(buffer);
	return frame_at;
}

size_t notification_begin(struct wire_buffer *buffer, enum method method)
{
	size_t frame_at = frame_begin(buffer);

	wire_pack_array(buffer, 3);
	wire_pack_uint32(buffer, MESSAGE_NOTIFICATION);
	pack_str(buffer, method_name(method));
	return frame_at;
}
