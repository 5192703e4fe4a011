/* Private to proto/: writing a frame around a body, and the strings and keys in it.
 *
 * Everything is appended to a wire_buffer, which remembers a failed allocation: nothing here has to
 * be checked. */
#ifndef PROTO_PACK_H
#define PROTO_PACK_H

#include "message.h"

/* Opens a frame at the buffer's end and sets `pk` to pack into it. Returns where it begins. */
size_t frame_begin(struct wire_buffer *buffer, msgpack_packer *pk);

/* Fills in the header. `tail_bytes` more belong to the body, which the caller sends from elsewhere.
 * A body that the header can't count sets `buffer->failed`. */
void frame_end(struct wire_buffer *buffer, size_t frame_at, unsigned fd_count, uint64_t tail_bytes);

/* frame_begin() and the envelope up to params or result. */
size_t request_begin(
	struct wire_buffer *buffer, msgpack_packer *pk, uint32_t id, enum method method);
size_t reply_begin(struct wire_buffer *buffer, msgpack_packer *pk, uint32_t id);
size_t notification_begin(struct wire_buffer *buffer, msgpack_packer *pk, enum method method);

static inline void pack_text(msgpack_packer *pk, struct wire_text text)
{
	msgpack_pack_str(pk, text.bytes);
	msgpack_pack_str_body(pk, text.at, text.bytes);
}

/* Inline, so that a literal's length is known. */
static inline void pack_str(msgpack_packer *pk, const char *text)
{
	pack_text(pk, (struct wire_text){text, (uint32_t)strlen(text)});
}

void pack_key_uint(msgpack_packer *pk, const char *key, uint64_t value);
void pack_key_text(msgpack_packer *pk, const char *key, struct wire_text text);

#endif
