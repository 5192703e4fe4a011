/* Writing a frame around a body, which is private to proto/, and the strings and keys in it, which
 * serve who packs a result himself, too (message_begin_reply()).
 *
 * Everything is appended to a wire_buffer, which remembers a failed allocation: nothing here has to
 * be checked. */
#ifndef PROTO_PACK_H
#define PROTO_PACK_H

#include "message.h"

/* Opens a frame at the buffer's end. Returns where it begins. */
size_t frame_begin(struct wire_buffer *buffer);

/* Fills in the header. `tail_bytes` more belong to the body, which the caller sends from elsewhere.
 * A body that the header can't count sets `buffer->failed`. */
void frame_end(struct wire_buffer *buffer, size_t frame_at, unsigned fd_count, uint64_t tail_bytes);

/* frame_begin() and the envelope up to params or result. */
size_t request_begin(struct wire_buffer *buffer, uint32_t id, enum method method);
size_t reply_begin(struct wire_buffer *buffer, uint32_t id);
size_t notification_begin(struct wire_buffer *buffer, enum method method);

static inline __attribute__((always_inline)) void pack_text(
	struct wire_buffer *buffer, struct wire_text text)
{
	wire_pack_str(buffer, text.bytes);
	wire_pack_str_body(buffer, text.at, text.bytes);
}

/* Inline, so that a literal's length is known. */
static inline __attribute__((always_inline)) void pack_str(
	struct wire_buffer *buffer, const char *text)
{
	pack_text(buffer, (struct wire_text){text, (uint32_t)strlen(text)});
}

static inline __attribute__((always_inline)) void pack_key_uint(
	struct wire_buffer *buffer, const char *key, uint64_t value)
{
	pack_str(buffer, key);
	wire_pack_uint64(buffer, value);
}

static inline void pack_key_text(struct wire_buffer *buffer, const char *key, struct wire_text text)
{
	pack_str(buffer, key);
	pack_text(buffer, text);
}

#endif
