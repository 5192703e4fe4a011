/* Private to proto/: reading a map by a table of its keys.
 *
 * A table row says which member a key fills and how. Reading walks the map once, in any order of
 * keys, allocates nothing, and leaves a fault that names the key. No globals, no ownership. */
#ifndef PROTO_FIELD_H
#define PROTO_FIELD_H

#include "message.h"

struct field;

/* Reads the next value of `cursor` into `member`. Returns 0 or -EBADMSG with `fault`. */
typedef int field_reader(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault);

struct field {
	struct wire_text key; /* as it stands on the wire */
	const char *name;     /* in texts: "base.offset" */
	field_reader *read;
	size_t offset; /* of the member that `read` fills */
	bool optional;
	size_t has_offset; /* of a bool that the key makes true; 0: none, no struct begins so */
	uint64_t min, max; /* of a number, or of a text's length in bytes */
	const struct field_table *table; /* of a nested map */
};

/* A row for a member of `type`, and one whose reader is given the whole struct. */
#define FIELD(key_, name_, read_, type, member, ...)                                               \
	{                                                                                          \
		.key = WIRE_TEXT(key_), .name = name_, .read = read_,                              \
		.offset = offsetof(type, member), __VA_ARGS__                                      \
	}
#define FIELD_WHOLE(key_, name_, read_, ...)                                                       \
	{                                                                                          \
		.key = WIRE_TEXT(key_), .name = name_, .read = read_, __VA_ARGS__                  \
	}

struct field_table {
	const char *name; /* of the map, in texts: "params" */
	const struct field *fields;
	unsigned count; /* at most 64 */
};

/* Reads the map that comes next in `cursor` into `into`, which the caller has set to what absent
 * keys mean. */
int field_read_map(struct wire_cursor *cursor, const struct field_table *table, void *into,
	struct message_fault *fault);

field_reader field_read_u32;   /* uint32_t, min to max */
field_reader field_read_u64;   /* uint64_t, min to max */
field_reader field_read_bool;  /* bool */
field_reader field_read_f32;   /* float, finite */
field_reader field_read_text;  /* struct wire_text, min to max bytes */
field_reader field_read_even;  /* uint64_t, an even number */
field_reader field_read_table; /* the nested map `table`, into the member */

/* A number of any type as float32, rounded once. False if the value is none. */
bool field_value_f32(const struct wire_value *value, float *ret);

/* Columns: struct wire_column, at least one element. */
field_reader field_read_column_u32;
field_reader field_read_column_i64;
field_reader field_read_column_bits; /* int64 or uint64 */
field_reader field_read_column_f32;  /* any number, finite or not */

#endif
