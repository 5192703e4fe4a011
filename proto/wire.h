/* MessagePack at the level of single values: the whole-frame scan, a cursor that reads in place,
 * and a buffer that values are packed into (PROTOCOL.md, "Frames").
 *
 * The scan walks a body once and proves that it is exactly one well-formed value within the rules;
 * the cursor then reads without any allocation and may trust lengths. (msgpack-c's unpacker is not
 * used on received bytes: its objects cost 24 bytes for a one-byte integer, which breaks the rule
 * that a frame may not cost more than four times its size.) No globals; one thread at a time a
 * cursor or buffer. */
#ifndef PROTO_WIRE_H
#define PROTO_WIRE_H

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WIRE_DEPTH_MAX 8

/* Values of a body, with the containers themselves. The longest request has 1024 rows, five columns
 * and less than a hundred other values; the longest reply 1024 rows of 16 tokens and a flag. */
#define WIRE_VALUES_MAX 65536

enum wire_fault {
	WIRE_OK = 0,
	WIRE_EMPTY, /* no byte at all */
	WIRE_SHORT, /* the value runs past the end, or declares more objects than bytes are left */
	WIRE_TRAILING, /* bytes after the value */
	WIRE_TOO_DEEP, /* more than WIRE_DEPTH_MAX levels of arrays and maps */
	WIRE_TOO_MANY, /* more than WIRE_VALUES_MAX values */
	WIRE_EXT,      /* an ext type */
	WIRE_RESERVED, /* 0xc1 */
};

/* Checks that `bytes` is exactly one value that keeps the rules. Time linear in the number of
 * values and bounded by WIRE_VALUES_MAX, constant memory. (String contents are not validated as
 * UTF-8.) */
enum wire_fault wire_scan(const uint8_t *bytes, size_t byte_count);

/* One sentence fragment for a person: "a length runs past the end of the body". */
const char *wire_fault_text(enum wire_fault fault);

enum wire_type {
	WIRE_NIL,
	WIRE_BOOL,
	WIRE_UINT, /* any width, non-negative */
	WIRE_INT,  /* any width, negative */
	WIRE_FLOAT,
	WIRE_STR,
	WIRE_BIN,
	WIRE_ARRAY,
	WIRE_MAP,
};

/* One value's head. Containers are followed in the cursor by their children. */
struct wire_value {
	enum wire_type type;
	union {
		bool boolean;
		uint64_t uint;
		int64_t sint; /* negative */
		double real;  /* a float32 is widened; its NaN payload is kept by conversion only */
		struct {
			const uint8_t *at; /* in the body, not NUL-terminated */
			uint32_t bytes;
		} data;         /* str, bin */
		uint32_t count; /* array elements, map pairs */
	};
};

/* Reads a scanned body in place. */
struct wire_cursor {
	const uint8_t *at;
	const uint8_t *end;
};

void wire_cursor_init(struct wire_cursor *cursor, const uint8_t *bytes, size_t byte_count);

/* The rest of wire_next(), for the tags 0xc0 to 0xdf. */
bool wire_next_tagged(struct wire_cursor *cursor, struct wire_value *ret_value);

/* Reads the next value's head, and steps over the bytes of a str or bin. Returns false at the end
 * of the body, or where it is not well-formed, and leaves the cursor. Never looks past the end.
 * Inline, as most values are a byte or a short string. */
static inline bool wire_next(struct wire_cursor *cursor, struct wire_value *ret_value)
{
	const uint8_t *at = cursor->at;
	uint8_t tag;

	if (at == cursor->end)
		return false;
	tag = *at++;
	if (tag < 0x80) {
		ret_value->type = WIRE_UINT;
		ret_value->uint = tag;
	} else if (tag < 0xa0) {
		ret_value->type = tag < 0x90 ? WIRE_MAP : WIRE_ARRAY;
		ret_value->count = tag & 0x0f;
	} else if (tag < 0xc0) {
		ret_value->type = WIRE_STR;
		ret_value->data.at = at;
		ret_value->data.bytes = tag & 0x1f;
		if ((tag & 0x1f) > cursor->end - at)
			return false;
		at += tag & 0x1f;
	} else if (tag < 0xe0) {
		return wire_next_tagged(cursor, ret_value);
	} else {
		ret_value->type = WIRE_INT;
		ret_value->sint = (int8_t)tag;
	}
	cursor->at = at;
	return true;
}

/* Skips the next value with all that it contains. Returns false at the end of the body. */
bool wire_skip(struct wire_cursor *cursor);

/* A growing byte buffer. A failed allocation is remembered in `failed`; later writes do nothing. */
struct wire_buffer {
	uint8_t *bytes; /* malloc'd, owned */
	size_t count;
	size_t capacity;
	bool failed;
};

void wire_buffer_init(struct wire_buffer *buffer);
void wire_buffer_done(struct wire_buffer *buffer);
void wire_buffer_clear(struct wire_buffer *buffer); /* keeps the memory */

/* Makes room for so many more bytes. False, and `failed`, if there is none. */
bool wire_buffer_reserve(struct wire_buffer *buffer, size_t byte_count);

/* Appends. Returns 0, or -1 if the buffer has failed. Inline, as most writes are of a few bytes,
 * and a reply has dozens. */
static inline int wire_buffer_write(
	struct wire_buffer *buffer, const void *bytes, size_t byte_count)
{
	if (buffer->failed || (byte_count > buffer->capacity - buffer->count &&
				      !wire_buffer_reserve(buffer, byte_count)))
		return -1;
	if (byte_count)
		memcpy(buffer->bytes + buffer->count, bytes, byte_count);
	buffer->count += byte_count;
	return 0;
}

/* msgpack-c's packing functions for a wire_buffer: msgpack_pack_uint32(packer, 7) is
 * wire_pack_uint32(buffer, 7), and so on. (A packer of its own would call back for each head and
 * each number.) */
#define msgpack_pack_inline_func(name)        static inline int wire_pack##name
#define msgpack_pack_inline_func_cint(name)   static inline int wire_pack##name
#define msgpack_pack_inline_func_fixint(name) static inline int wire_pack_fix##name
#define msgpack_pack_user                     struct wire_buffer *
#define msgpack_pack_append_buffer(buffer, bytes, byte_count)                                      \
	return wire_buffer_write(buffer, bytes, byte_count)
#include <msgpack/pack_template.h>

#endif
