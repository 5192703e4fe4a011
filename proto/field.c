#include "field.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- maps ---- */

/* Keys that no row of the table knows, kept so that a second one is noticed. */
struct strangers {
	struct wire_text keys[MESSAGE_KEYS_MAX];
	unsigned count;
};

static int refuse_twice(
	struct message_fault *fault, const struct field_table *table, struct wire_text key)
{
	char text[64];

	wire_text_copy(key, text, sizeof(text));
	return message_refuse(fault, ERROR_BAD_REQUEST, "%s stands twice in %s", text, table->name);
}

static int read_key(struct wire_cursor *cursor, const struct field_table *table,
	struct wire_text *ret_key, struct message_fault *fault)
{
	struct wire_value value;

	if (!wire_next(cursor, &value) || value.type != WIRE_STR)
		return message_refuse(
			fault, ERROR_BAD_REQUEST, "every key of %s must be a string", table->name);
	if (value.data.bytes > MESSAGE_KEY_BYTES_MAX)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"a key of %s is %" PRIu32 " bytes, the most is %d", table->name,
			value.data.bytes, MESSAGE_KEY_BYTES_MAX);
	*ret_key = (struct wire_text){(const char *)value.data.at, value.data.bytes};
	return 0;
}

/* Its place in the table, or the table's end. Most writers keep to the table's order, so `first` is
 * where to look first. */
static unsigned find_field(const struct field_table *table, struct wire_text key, unsigned first)
{
	for (unsigned n = 0, i = first; n < table->count; n++, i++) {
		if (i >= table->count)
			i = 0;
		if (wire_text_equal(key, table->fields[i].key))
			return i;
	}
	return table->count;
}

static int skip_stranger(struct wire_cursor *cursor, const struct field_table *table,
	struct strangers *strangers, struct wire_text key, struct message_fault *fault)
{
	for (unsigned i = 0; i < strangers->count; i++)
		if (wire_text_equal(strangers->keys[i], key))
			return refuse_twice(fault, table, key);
	strangers->keys[strangers->count++] = key;
	wire_skip(cursor);
	return 0;
}

static int read_field(struct wire_cursor *cursor, const struct field *field, uint8_t *into,
	struct message_fault *fault)
{
	int rc = field->read(cursor, field, into + field->offset, fault);

	if (rc)
		return rc;
	if (field->has_offset)
		*(bool *)(into + field->has_offset) = true;
	return 0;
}

int field_read_map(struct wire_cursor *cursor, const struct field_table *table, void *into,
	struct message_fault *fault)
{
	struct strangers strangers; /* its keys as far as there are any: a KiB is not cleared */
	struct wire_value map;
	unsigned next = 0;
	uint64_t seen = 0;

	if (!wire_next(cursor, &map) || map.type != WIRE_MAP)
		return message_refuse(fault, ERROR_BAD_REQUEST, "%s must be a map", table->name);
	if (map.count > MESSAGE_KEYS_MAX)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"%s has %" PRIu32 " keys, the most is %d", table->name, map.count,
			MESSAGE_KEYS_MAX);

	strangers.count = 0;
	for (uint32_t pair = 0; pair < map.count; pair++) {
		struct wire_text key;
		unsigned i;
		int rc = read_key(cursor, table, &key, fault);

		if (rc)
			return rc;
		i = find_field(table, key, next);
		next = i + 1;
		if (i == table->count) {
			rc = skip_stranger(cursor, table, &strangers, key, fault);
		} else if (seen >> i & 1) {
			rc = refuse_twice(fault, table, key);
		} else {
			seen |= UINT64_C(1) << i;
			rc = read_field(cursor, &table->fields[i], into, fault);
		}
		if (rc)
			return rc;
	}

	for (unsigned i = 0; i < table->count; i++)
		if (!table->fields[i].optional && !(seen >> i & 1))
			return message_refuse(
				fault, ERROR_BAD_REQUEST, "%s is missing", table->fields[i].name);
	return 0;
}

/* ---- single values ---- */

static int read_uint(struct wire_cursor *cursor, const struct field *field, uint64_t *ret,
	struct message_fault *fault)
{
	struct wire_value value;

	if (!wire_next(cursor, &value) || value.type != WIRE_UINT || value.uint < field->min ||
		value.uint > field->max)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"%s must be an integer from %" PRIu64 " to %" PRIu64, field->name,
			field->min, field->max);
	*ret = value.uint;
	return 0;
}

int field_read_u64(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	return read_uint(cursor, field, member, fault);
}

int field_read_u32(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	uint64_t value = 0;
	int rc = read_uint(cursor, field, &value, fault);

	if (rc)
		return rc;
	*(uint32_t *)member = (uint32_t)value;
	return 0;
}

int field_read_even(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	uint64_t value = 0;
	int rc = read_uint(cursor, field, &value, fault);

	if (rc)
		return rc;
	if (value % 2)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"%s is %" PRIu64 ", it must be a multiple of 2", field->name, value);
	*(uint64_t *)member = value;
	return 0;
}

int field_read_bool(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct wire_value value;

	if (!wire_next(cursor, &value) || value.type != WIRE_BOOL)
		return message_refuse(
			fault, ERROR_BAD_REQUEST, "%s must be true or false", field->name);
	*(bool *)member = value.boolean;
	return 0;
}

bool field_value_f32(const struct wire_value *value, float *ret)
{
	switch (value->type) {
	case WIRE_UINT:
		*ret = (float)value->uint;
		return true;
	case WIRE_INT:
		*ret = (float)value->sint;
		return true;
	case WIRE_FLOAT:
		*ret = (float)value->real;
		return true;
	default:
		return false;
	}
}

int field_read_f32(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct wire_value value;
	float number;

	if (!wire_next(cursor, &value) || !field_value_f32(&value, &number) || !isfinite(number))
		return message_refuse(
			fault, ERROR_BAD_REQUEST, "%s must be a finite number", field->name);
	*(float *)member = number;
	return 0;
}

int field_read_text(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct wire_value value;

	if (!wire_next(cursor, &value) || value.type != WIRE_STR || value.data.bytes < field->min ||
		value.data.bytes > field->max)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"%s must be a string of %" PRIu64 " to %" PRIu64 " bytes", field->name,
			field->min, field->max);
	*(struct wire_text *)member =
		(struct wire_text){(const char *)value.data.at, value.data.bytes};
	return 0;
}

int field_read_table(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	return field_read_map(cursor, field->table, member, fault);
}
