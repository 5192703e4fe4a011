#include "wire.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES_FIRST 256

/* What the tags 0xc0 to 0xdf stand for: a type, and how many bytes of number or length follow. */
enum shape {
	SHAPE_RESERVED,
	SHAPE_EXT,
	SHAPE_NIL,
	SHAPE_FALSE,
	SHAPE_TRUE,
	SHAPE_UINT,
	SHAPE_INT,
	SHAPE_FLOAT,
	SHAPE_STR,
	SHAPE_BIN,
	SHAPE_ARRAY,
	SHAPE_MAP,
};

static const struct {
	uint8_t shape;
	uint8_t width;
} tags[32] = {
	[0x00] = {SHAPE_NIL, 0},
	[0x01] = {SHAPE_RESERVED, 0},
	[0x02] = {SHAPE_FALSE, 0},
	[0x03] = {SHAPE_TRUE, 0},
	[0x04] = {SHAPE_BIN, 1},
	[0x05] = {SHAPE_BIN, 2},
	[0x06] = {SHAPE_BIN, 4},
	[0x07] = {SHAPE_EXT, 0},
	[0x08] = {SHAPE_EXT, 0},
	[0x09] = {SHAPE_EXT, 0},
	[0x0a] = {SHAPE_FLOAT, 4},
	[0x0b] = {SHAPE_FLOAT, 8},
	[0x0c] = {SHAPE_UINT, 1},
	[0x0d] = {SHAPE_UINT, 2},
	[0x0e] = {SHAPE_UINT, 4},
	[0x0f] = {SHAPE_UINT, 8},
	[0x10] = {SHAPE_INT, 1},
	[0x11] = {SHAPE_INT, 2},
	[0x12] = {SHAPE_INT, 4},
	[0x13] = {SHAPE_INT, 8},
	[0x14] = {SHAPE_EXT, 0},
	[0x15] = {SHAPE_EXT, 0},
	[0x16] = {SHAPE_EXT, 0},
	[0x17] = {SHAPE_EXT, 0},
	[0x18] = {SHAPE_EXT, 0},
	[0x19] = {SHAPE_STR, 1},
	[0x1a] = {SHAPE_STR, 2},
	[0x1b] = {SHAPE_STR, 4},
	[0x1c] = {SHAPE_ARRAY, 2},
	[0x1d] = {SHAPE_ARRAY, 4},
	[0x1e] = {SHAPE_MAP, 2},
	[0x1f] = {SHAPE_MAP, 4},
};

/* Of 0, 1, 2, 4 or 8 bytes. */
static uint64_t load_be(const uint8_t *at, unsigned width)
{
	uint16_t two;
	uint32_t four;
	uint64_t eight;

	switch (width) {
	case 0:
		return 0;
	case 1:
		return *at;
	case 2:
		memcpy(&two, at, sizeof(two));
		return be16toh(two);
	case 4:
		memcpy(&four, at, sizeof(four));
		return be32toh(four);
	default:
		memcpy(&eight, at, sizeof(eight));
		return be64toh(eight);
	}
}

static void set_signed(struct wire_value *value, uint64_t bits, unsigned width)
{
	unsigned unused = 64 - 8 * width;
	int64_t number = (int64_t)(bits << unused) >> unused;

	if (number < 0) {
		value->type = WIRE_INT;
		value->sint = number;
	} else {
		value->type = WIRE_UINT;
		value->uint = (uint64_t)number;
	}
}

static void set_real(struct wire_value *value, uint64_t bits, unsigned width)
{
	value->type = WIRE_FLOAT;
	if (width == 4) {
		uint32_t narrow = (uint32_t)bits;
		float real;

		memcpy(&real, &narrow, sizeof(real));
		value->real = (double)real;
	} else {
		memcpy(&value->real, &bits, sizeof(value->real));
	}
}

static enum wire_fault set_data(struct wire_value *value, enum wire_type type, uint64_t bytes,
	const uint8_t **at, const uint8_t *end)
{
	if (bytes > (size_t)(end - *at))
		return WIRE_SHORT;
	value->type = type;
	value->data.at = *at;
	value->data.bytes = (uint32_t)bytes;
	*at += bytes;
	return WIRE_OK;
}

static void set_count(struct wire_value *value, enum wire_type type, uint64_t count)
{
	value->type = type;
	value->count = (uint32_t)count;
}

static enum wire_fault read_tagged(
	uint8_t tag, const uint8_t **at, const uint8_t *end, struct wire_value *ret)
{
	enum shape shape = tags[tag - 0xc0].shape;
	unsigned width = tags[tag - 0xc0].width;
	uint64_t bits;

	if (width > (size_t)(end - *at))
		return WIRE_SHORT;
	bits = load_be(*at, width);
	*at += width;

	switch (shape) {
	case SHAPE_RESERVED:
		return WIRE_RESERVED;
	case SHAPE_EXT:
		return WIRE_EXT;
	case SHAPE_NIL:
		ret->type = WIRE_NIL;
		break;
	case SHAPE_FALSE:
	case SHAPE_TRUE:
		ret->type = WIRE_BOOL;
		ret->boolean = shape == SHAPE_TRUE;
		break;
	case SHAPE_UINT:
		ret->type = WIRE_UINT;
		ret->uint = bits;
		break;
	case SHAPE_INT:
		set_signed(ret, bits, width);
		break;
	case SHAPE_FLOAT:
		set_real(ret, bits, width);
		break;
	case SHAPE_STR:
		return set_data(ret, WIRE_STR, bits, at, end);
	case SHAPE_BIN:
		return set_data(ret, WIRE_BIN, bits, at, end);
	case SHAPE_ARRAY:
		set_count(ret, WIRE_ARRAY, bits);
		break;
	case SHAPE_MAP:
		set_count(ret, WIRE_MAP, bits);
		break;
	}
	return WIRE_OK;
}

/* Reads one value's head, and for str and bin steps over the bytes. Never looks past `end`. Inline,
 * since most values are a byte or a short string, and a body has them twice: scanned, then read. */
static inline enum wire_fault read_value(
	const uint8_t **at, const uint8_t *end, struct wire_value *ret)
{
	uint8_t tag;

	if (*at == end)
		return WIRE_SHORT;
	tag = *(*at)++;

	if (tag < 0x80) {
		ret->type = WIRE_UINT;
		ret->uint = tag;
	} else if (tag < 0x90) {
		set_count(ret, WIRE_MAP, tag & 0x0f);
	} else if (tag < 0xa0) {
		set_count(ret, WIRE_ARRAY, tag & 0x0f);
	} else if (tag < 0xc0) {
		return set_data(ret, WIRE_STR, tag & 0x1f, at, end);
	} else if (tag < 0xe0) {
		return read_tagged(tag, at, end, ret);
	} else {
		set_signed(ret, tag, 1);
	}
	return WIRE_OK;
}

/* How many values stand directly inside this one: at most 2^33 - 2. */
static uint64_t child_count(const struct wire_value *value)
{
	switch (value->type) {
	case WIRE_ARRAY:
		return value->count;
	case WIRE_MAP:
		return 2 * (uint64_t)value->count;
	default:
		return 0;
	}
}

enum wire_fault wire_scan(const uint8_t *bytes, size_t byte_count)
{
	const uint8_t *at = bytes;
	const uint8_t *end = bytes + byte_count;
	uint64_t outer[WIRE_DEPTH_MAX]; /* values still to come at each level that is open, but the
					   innermost */
	uint64_t left = 1;              /* at the innermost */
	uint64_t declared = 1, seen = 0;
	unsigned depth = 0;

	if (!byte_count)
		return WIRE_EMPTY;

	for (;;) {
		struct wire_value value;
		enum wire_fault fault;

		if (!left) {
			if (!depth)
				break;
			left = outer[--depth];
			continue;
		}
		fault = read_value(&at, end, &value);
		if (fault)
			return fault;
		left--;
		seen++;
		if (value.type != WIRE_ARRAY && value.type != WIRE_MAP)
			continue;

		if (depth == WIRE_DEPTH_MAX)
			return WIRE_TOO_DEEP;
		outer[depth++] = left;
		left = child_count(&value);
		declared += left;
		/* A value takes at least one byte, so this is the earliest sign of a lie. */
		if (declared - seen > (size_t)(end - at))
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

void wire_cursor_init(struct wire_cursor *cursor, const uint8_t *bytes, size_t byte_count)
{
	cursor->at = bytes;
	cursor->end = bytes + byte_count;
}

bool wire_next(struct wire_cursor *cursor, struct wire_value *ret_value)
{
	const uint8_t *at = cursor->at;

	if (read_value(&at, cursor->end, ret_value))
		return false;
	cursor->at = at;
	return true;
}

bool wire_skip(struct wire_cursor *cursor)
{
	struct wire_cursor ahead = *cursor;

	for (uint64_t owed = 1; owed; owed--) {
		struct wire_value value;

		if (!wire_next(&ahead, &value))
			return false;
		owed += child_count(&value);
	}
	*cursor = ahead;
	return true;
}

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

static bool grow(struct wire_buffer *buffer, size_t byte_count)
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

int wire_buffer_write(void *data, const char *bytes, size_t byte_count)
{
	struct wire_buffer *buffer = data;

	if (buffer->failed)
		return -1;
	if (byte_count > buffer->capacity - buffer->count && !grow(buffer, byte_count))
		return -1;
	if (byte_count)
		memcpy(buffer->bytes + buffer->count, bytes, byte_count);
	buffer->count += byte_count;
	return 0;
}
