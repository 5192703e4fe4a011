#include "field.h"

#include <inttypes.h>

/* ---- checking ---- */

static bool fits_u32(const struct wire_value *value)
{
	return value->type == WIRE_UINT && value->uint <= UINT32_MAX;
}

static bool fits_i64(const struct wire_value *value)
{
	return value->type == WIRE_INT || (value->type == WIRE_UINT && value->uint <= INT64_MAX);
}

static bool fits_bits(const struct wire_value *value)
{
	return value->type == WIRE_INT || value->type == WIRE_UINT;
}

static bool fits_f32(const struct wire_value *value)
{
	return fits_bits(value) || value->type == WIRE_FLOAT;
}

static int read_column(struct wire_cursor *cursor, const struct field *field,
	struct wire_column *ret, bool (*fits)(const struct wire_value *), const char *what,
	struct message_fault *fault)
{
	struct wire_value array, value;
	struct wire_column column;

	if (!wire_next(cursor, &array) || array.type != WIRE_ARRAY || !array.count)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"%s must be an array of at least 1 element, each %s", field->name, what);
	column = (struct wire_column){.values = *cursor, .count = array.count};
	for (uint32_t i = 0; i < array.count; i++)
		if (!wire_next(cursor, &value) || !fits(&value))
			return message_refuse(fault, ERROR_BAD_REQUEST,
				"element %" PRIu32 " of %s must be %s", i, field->name, what);
	*ret = column;
	return 0;
}

int field_read_column_u32(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	return read_column(
		cursor, field, member, fits_u32, "an integer from 0 to 4294967295", fault);
}

int field_read_column_i64(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	return read_column(cursor, field, member, fits_i64,
		"an integer from -9223372036854775808 to 9223372036854775807", fault);
}

int field_read_column_bits(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	return read_column(
		cursor, field, member, fits_bits, "an integer of at most 64 bits", fault);
}

int field_read_column_f32(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	return read_column(cursor, field, member, fits_f32, "a number", fault);
}

/* ---- reading out ---- */

void wire_column_u32(const struct wire_column *column, uint32_t *out)
{
	struct wire_cursor cursor = column->values;
	struct wire_value value;

	for (uint32_t i = 0; i < column->count && wire_next(&cursor, &value); i++)
		out[i] = (uint32_t)value.uint;
}

void wire_column_i64(const struct wire_column *column, int64_t *out)
{
	struct wire_cursor cursor = column->values;
	struct wire_value value;

	for (uint32_t i = 0; i < column->count && wire_next(&cursor, &value); i++)
		out[i] = value.type == WIRE_INT ? value.sint : (int64_t)value.uint;
}

void wire_column_f32(const struct wire_column *column, float *out)
{
	struct wire_cursor cursor = column->values;
	struct wire_value value;

	for (uint32_t i = 0; i < column->count && wire_next(&cursor, &value); i++)
		field_value_f32(&value, &out[i]);
}
