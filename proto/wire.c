#include "wire.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES_FIRST 256

static uint16_t load_16(const uint8_t *at)
{
	uint16_t number;

	memcpy(&number, at, sizeof(number));
	return be16toh(number);
}

static uint32_t load_32(const uint8_t *at)
{
	uint32_t number;

	memcpy(&number, at, sizeof(number));
	return be32toh(number);
}

static uint64_t load_64(const uint8_t *at)
{
	uint64_t number;

	memcpy(&number, at, sizeof(number));
	return be64toh(number);
}

/* What the tags 0xc0 to 0xdf stand for, and how many bytes of number or length follow. */
enum shape {
	SHAPE_EXT,
	SHAPE_RESERVED,
	SHAPE_PLAIN, /* nil, a bool, a number */
	SHAPE_DATA,  /* str, bin */
	SHAPE_ARRAY,
	SHAPE_MAP,
};

static const struct {
	uint8_t shape;
	uint8_t width;
} tags[32] = {
	[0x00] = {SHAPE_PLAIN, 0},
	[0x01] = {SHAPE_RESERVED, 0},
	[0x02] = {SHAPE_PLAIN, 0},
	[0x03] = {SHAPE_PLAIN, 0},
	[0x04] = {SHAPE_DATA, 1},
	[0x05] = {SHAPE_DATA, 2},
	[0x06] = {SHAPE_DATA, 4},
	[0x0a] = {SHAPE_PLAIN, 4},
	[0x0b] = {SHAPE_PLAIN, 8},
	[0x0c] = {SHAPE_PLAIN, 1},
	[0x0d] = {SHAPE_PLAIN, 2},
	[0x0e] = {SHAPE_PLAIN, 4},
	[0x0f] = {SHAPE_PLAIN, 8},
	[0x10] = {SHAPE_PLAIN, 1},
	[0x11] = {SHAPE_PLAIN, 2},
	[0x12] = {SHAPE_PLAIN, 4},
	[0x13] = {SHAPE_PLAIN, 8},
	[0x19] = {SHAPE_DATA, 1},
	[0x1a] = {SHAPE_DATA, 2},
	[0x1b] = {SHAPE_DATA, 4},
	[0x1c] = {SHAPE_ARRAY, 2},
	[0x1d] = {SHAPE_ARRAY, 4},
	[0x1e] = {SHAPE_MAP, 2},
	[0x1f] = {SHAPE_MAP, 4},
};

/* A length of 1, 2 or 4 bytes. */
static uint32_t load_length(const uint8_t *at, unsigned width)
{
	return width == 1 ? *at : width == 2 ? load_16(at) : load_32(at);
}

/* ---- the scan ---- */

/* Steps over the head whose tag is at[-1], and the bytes of a str or bin. `*ret_children`: how many
 * values stand directly inside, at most 2^33 - 2, if `*ret_opens`. */
static inline enum wire_fault step_over_tagged(
	const uint8_t **at, const uint8_t *end, bool *ret_opens, uint64_t *ret_children)
{
	const uint8_t *length = *at;
	const unsigned tag = length[-1] - 0xc0u;
	const unsigned width = tags[tag].width;
	uint32_t bytes;

	if (width > (size_t)(end - length))
		return WIRE_SHORT;
	*at += width;
	switch ((enum shape)tags[tag].shape) {
	case SHAPE_EXT:
		return WIRE_EXT;
	case SHAPE_RESERVED:
		return WIRE_RESERVED;
	case SHAPE_PLAIN:
		break;
	case SHAPE_DATA:
		bytes = load_length(length, width);
		if (bytes > (size_t)(end - *at))
			return WIRE_SHORT;
		*at += bytes;
		break;
	case SHAPE_ARRAY:
		*ret_opens = true;
		*ret_children = load_length(length, width);
		break;
	case SHAPE_MAP:
		*ret_opens = true;
		*ret_children = 2 * (uint64_t)load_length(length, width);
		break;
	}
	return WIRE_OK;
}

/* The same for any tag. Inline, as most values are a byte or a short string. */
static inline enum wire_fault step_over(
	const uint8_t **at, const uint8_t *end, bool *ret_opens, uint64_t *ret_children)
{
	uint8_t tag;

	if (*at == end)
		return WIRE_SHORT;
	tag = *(*at)++;
	if (tag < 0x80 || tag >= 0xe0)
		return WIRE_OK;
	if (tag >= 0xc0)
		return step_over_tagged(at, end, ret_opens, ret_children);
	if (tag >= 0xa0) {
		if ((tag & 0x1f) > end - *at)
			return WIRE_SHORT;
		*at += tag & 0x1f;
		return WIRE_OK;
	}
	*ret_opens = true;
	*ret_children = tag < 0x90 ? 2 * (tag & 0x0fu) : tag & 0x0fu;
	return WIRE_OK;
}

enum wire_fault wire_scan(const uint8_t *bytes, size_t byte_count)
{
	const uint8_t *at = bytes;
	const uint8_t *end = bytes + byte_count;
	uint64_t outer[WIRE_DEPTH_MAX]; /* values still to come at each level that is open, but the
					   innermost */
	uint64_t left = 1;              /* at the innermost */
	uint64_t owed = 1;              /* at all of them */
	uint64_t declared = 1;
	unsigned depth = 0;

	if (!byte_count)
		return WIRE_EMPTY;

	for (;;) {
		bool opens = false;
		uint64_t children;
		enum wire_fault fault;

		if (!left) {
			if (!depth)
				break;
			left = outer[--depth];
			continue;
		}
		fault = step_over(&at, end, &opens, &children);
		if (fault)
			return fault;
		left--;
		owed--;
		if (!opens)
			continue;

		if (depth == WIRE_DEPTH_MAX)
			return WIRE_TOO_DEEP;
		outer[depth++] = left;
		left = children;
		owed += children;
		declared += children;
		/* A value takes at least one byte, so this is the earliest sign of a lie. */
		if (owed > (size_t)(end - at))
			return WIRE_SHORT;
		/* A body of many small values would keep its reader's thread busy for long. */
		if (declared > WIRE_VALUES_MAX)
			return WIRE_TOO_MANY;
	}
	return at == end ? WIRE_OK : WIRE_TRAILING;
}

const char *wire_fault_text(enum wire_fault fault)
{
	switch (fault) {
	case WIRE_OK:
		return "nothing is wrong";
	case WIRE_EMPTY:
		return "the body is empty";
	case WIRE_SHORT:
		return "a length runs past the end of the body";
	case WIRE_TRAILING:
		return "bytes follow the value";
	case WIRE_TOO_DEEP:
		return "arrays and maps are nested more than 8 levels deep";
	case WIRE_TOO_MANY:
		return "there are more than 65536 values";
	case WIRE_EXT:
		return "an ext value, which this protocol does not use";
	case WIRE_RESERVED:
		return "the byte 0xc1, which MessagePack never uses";
	}
	return "an unknown fault";
}

_Static_assert(WIRE_DEPTH_MAX == 8, "the text of WIRE_TOO_DEEP names the limit");
_Static_assert(WIRE_VALUES_MAX == 65536, "the text of WIRE_TOO_MANY names the limit");

/* ---- the cursor ---- */

void wire_cursor_init(struct wire_cursor *cursor, const uint8_t *bytes, size_t byte_count)
{
	cursor->at = bytes;
	cursor->end = bytes + byte_count;
}

static void set_uint(struct wire_value *value, uint64_t number)
{
	value->type = WIRE_UINT;
	value->uint = number;
}

static void set_int(struct wire_value *value, int64_t number)
{
	if (number >= 0) {
		set_uint(value, (uint64_t)number);
		return;
	}
	value->type = WIRE_INT;
	value->sint = number;
}

static void set_float(struct wire_value *value, uint32_t bits)
{
	float narrow;

	memcpy(&narrow, &bits, sizeof(narrow));
	value->type = WIRE_FLOAT;
	value->real = (double)narrow;
}

static void set_double(struct wire_value *value, uint64_t bits)
{
	value->type = WIRE_FLOAT;
	memcpy(&value->real, &bits, sizeof(value->real));
}

/* nil, a bool or a number; `at` is behind the tag. */
static void set_plain(struct wire_value *value, uint8_t tag, const uint8_t *at)
{
	switch (tag) {
	case 0xc0:
		value->type = WIRE_NIL;
		break;
	case 0xc2:
	case 0xc3:
		value->type = WIRE_BOOL;
		value->boolean = tag == 0xc3;
		break;
	case 0xca:
		set_float(value, load_32(at));
		break;
	case 0xcb:
		set_double(value, load_64(at));
		break;
	case 0xcc:
		set_uint(value, *at);
		break;
	case 0xcd:
		set_uint(value, load_16(at));
		break;
	case 0xce:
		set_uint(value, load_32(at));
		break;
	case 0xcf:
		set_uint(value, load_64(at));
		break;
	case 0xd0:
		set_int(value, (int8_t)*at);
		break;
	case 0xd1:
		set_int(value, (int16_t)load_16(at));
		break;
	case 0xd2:
		set_int(value, (int32_t)load_32(at));
		break;
	case 0xd3:
		set_int(value, (int64_t)load_64(at));
		break;
	}
}

bool wire_next_tagged(struct wire_cursor *cursor, struct wire_value *ret_value)
{
	const uint8_t tag = *cursor->at;
	const uint8_t *const head = cursor->at + 1; /* the number or length */
	const unsigned width = tags[tag - 0xc0].width;
	const uint8_t *at = head;
	bool opens;
	uint64_t children;

	if (step_over_tagged(&at, cursor->end, &opens, &children))
		return false;
	switch ((enum shape)tags[tag - 0xc0].shape) {
	case SHAPE_EXT: /* refused above, as is the next */
	case SHAPE_RESERVED:
		break;
	case SHAPE_PLAIN:
		set_plain(ret_value, tag, head);
		break;
	case SHAPE_DATA:
		ret_value->type = tag < 0xd9 ? WIRE_BIN : WIRE_STR;
		ret_value->data.at = head + width;
		ret_value->data.bytes = (uint32_t)(at - ret_value->data.at);
		break;
	case SHAPE_ARRAY:
		ret_value->type = WIRE_ARRAY;
		ret_value->count = load_length(head, width);
		break;
	case SHAPE_MAP:
		ret_value->type = WIRE_MAP;
		ret_value->count = load_length(head, width);
		break;
	}
	cursor->at = at;
	return true;
}

bool wire_skip(struct wire_cursor *cursor)
{
	const uint8_t *at = cursor->at;

	for (uint64_t owed = 1; owed; owed--) {
		bool opens = false;
		uint64_t children;

		if (step_over(&at, cursor->end, &opens, &children))
			return false;
		if (opens)
			owed += children;
	}
	cursor->at = at;
	return true;
}

/* ---- the buffer ---- */

void wire_buffer_init(struct wire_buffer *buffer)
{
	*buffer = (struct wire_buffer){0};
}

void wire_buffer_done(struct wire_buffer *buffer)
{
	free(buffer->bytes);
	wire_buffer_init(buffer);
}

void wire_buffer_clear(struct wire_buffer *buffer)
{
	buffer->count = 0;
	buffer->failed = false;
}

bool wire_buffer_reserve(struct wire_buffer *buffer, size_t byte_count)
{
	size_t capacity = buffer->capacity ? buffer->capacity : BUFFER_BYTES_FIRST;
	uint8_t *grown = NULL;

	while (capacity - buffer->count < byte_count && capacity <= SIZE_MAX / 4)
		capacity *= 2;
	if (capacity - buffer->count >= byte_count)
		grown = realloc(buffer->bytes, capacity);
	if (!grown) {
		buffer->failed = true;
		return false;
	}
	buffer->bytes = grown;
	buffer->capacity = capacity;
	return true;
}
