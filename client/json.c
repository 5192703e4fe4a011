/* MessagePack to JSON text, for statistics. The scan has bounded the depth, so recursion is bounded
 * too. */
#include "client/private.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

static json_t *read_value(struct wire_cursor *cursor);

/* JSON has to be UTF-8, and the wire's strings may be anything. */
static json_t *read_text(const struct wire_value *value)
{
	const struct wire_text text = {(const char *)value->data.at, value->data.bytes};
	char *copy = malloc((size_t)text.bytes + 1);
	json_t *string;

	if (!copy)
		return NULL;
	wire_text_copy(text, copy, (size_t)text.bytes + 1);
	string = json_string(copy);
	free(copy);
	return string;
}

static json_t *read_array(struct wire_cursor *cursor, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < count; i++) {
		/* Takes the value over, and fails for NULL. */
		if (json_array_append_new(array, read_value(cursor)) == 0)
			continue;
		json_decref(array);
		array = NULL;
	}
	return array;
}

static json_t *read_map(struct wire_cursor *cursor, uint32_t count)
{
	json_t *object = json_object();
	struct wire_value key;
	json_t *key_text;
	int r;

	for (uint32_t i = 0; object && i < count; i++) {
		key_text = NULL;
		r = -1;
		if (wire_next(cursor, &key) && key.type == WIRE_STR)
			key_text = read_text(&key);
		if (key_text)
			r = json_object_set_new(
				object, json_string_value(key_text), read_value(cursor));
		json_decref(key_text);
		if (r == 0)
			continue;
		json_decref(object);
		object = NULL;
	}
	return object;
}

/* NULL if JSON has no such value, or there is no memory. */
static json_t *read_value(struct wire_cursor *cursor)
{
	struct wire_value value;
	json_t *real;

	if (!wire_next(cursor, &value))
		return NULL;
	switch (value.type) {
	case WIRE_NIL:
		return json_null();
	case WIRE_BOOL:
		return json_boolean(value.boolean);
	case WIRE_UINT:
		if (value.uint > INT64_MAX)
			return json_real((double)value.uint);
		return json_integer((json_int_t)value.uint);
	case WIRE_INT:
		return json_integer(value.sint);
	case WIRE_FLOAT:
		real = json_real(value.real);
		return real ? real : json_null(); /* JSON knows no NaN and no infinity */
	case WIRE_STR:
		return read_text(&value);
	case WIRE_ARRAY:
		return read_array(cursor, value.count);
	case WIRE_MAP:
		return read_map(cursor, value.count);
	case WIRE_BIN:
		break;
	}
	return NULL;
}

int json_from_wire(struct wire_cursor *cursor, char **ret_text)
{
	json_t *value = read_value(cursor);
	char *text;

	if (!value || !json_is_object(value)) {
		json_decref(value);
		return -EBADMSG;
	}
	text = json_dumps(value, JSON_COMPACT);
	json_decref(value);
	if (!text)
		return -ENOMEM;
	*ret_text = text;
	return 0;
}
