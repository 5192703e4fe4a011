#include "suites.h"

#include <errno.h>
#include <string.h>

#define BYTES(literal) literal, sizeof(literal) - 1

static int decode(const char *body, size_t bytes, struct message *ret, struct message_fault *fault)
{
	return message_decode((const uint8_t *)body, bytes, ret, fault);
}

/* ---- text ---- */

static const struct {
	const char *text;
	size_t size;
	const char *copy;
} copies[] = {
	{"abc", 4, "abc"},
	{"abc", 3, "ab"},
	{"abc", 1, ""},
	{"a\nb\x1f\x7f", 16, "a?b??"},
	{"Größe \xe2\x82\xac \xf0\x9f\x98\x80", 32, "Größe \xe2\x82\xac \xf0\x9f\x98\x80"},
	/* cut only between characters */
	{"\xe2\x82\xac\xe2\x82\xac", 7, "\xe2\x82\xac\xe2\x82\xac"},
	{"\xe2\x82\xac\xe2\x82\xac", 6, "\xe2\x82\xac"},
	/* stray, cut short, overlong, C1, surrogate, beyond U+10FFFF */
	{"\x80z", 8, "?z"},
	{"\xe2\x82", 8, "??"},
	{"\xe2zz", 8, "?zz"},
	{"\xc0\xaf", 8, "??"},
	{"\xc2\x85", 8, "??"},
	{"\xc2\xa0", 8, "\xc2\xa0"},
	{"\xe0\x9f\xbf", 8, "???"},
	{"\xed\xa0\x80", 8, "???"},
	{"\xf4\x8f\xbf\xbf", 8, "\xf4\x8f\xbf\xbf"},
	{"\xf4\x90\x80\x80", 8, "????"},
	{"\xff", 8, "?"},
	/* no lead bytes, though the bits behind them would be a character's */
	{"\xf8\x90\x80\x80", 8, "????"},
	{"\xfb\x90\x80\x80", 8, "????"},
	{"\xff\x90\x80\x80", 8, "????"},
};

START_TEST(text_copies)
{
	struct wire_text text = {copies[_i].text, (uint32_t)strlen(copies[_i].text)};
	char to[33];

	memset(to, 'X', sizeof(to));
	wire_text_copy(text, to, copies[_i].size);
	ck_assert_str_eq(to, copies[_i].copy);
	ck_assert_int_eq(to[copies[_i].size], 'X');
}
END_TEST

START_TEST(text_copies_nul_and_nothing)
{
	char to[8] = "before";

	wire_text_copy((struct wire_text){"a\0b", 3}, to, 0);
	ck_assert_str_eq(to, "before");
	wire_text_copy((struct wire_text){"a\0b", 3}, to, sizeof(to));
	ck_assert_str_eq(to, "a?b");
	wire_text_copy((struct wire_text){NULL, 0}, to, sizeof(to));
	ck_assert_str_eq(to, "");
}
END_TEST

START_TEST(refusals_are_cut_to_their_place)
{
	struct message_fault fault;
	char longer[2 * MESSAGE_FAULT_BYTES];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	ck_assert_int_eq(message_refuse(&fault, ERROR_TOO_LARGE, "%s", longer), -EBADMSG);
	ck_assert_int_eq(fault.code, ERROR_TOO_LARGE);
	ck_assert_uint_eq(strlen(fault.text), MESSAGE_FAULT_BYTES - 1);
}
END_TEST

/* ---- methods ---- */

static const struct {
	enum method method;
	const char *name;
	unsigned fds;
} methods[] = {
	{METHOD_HELLO, "hello", 0},
	{METHOD_PING, "ping", 0},
	{METHOD_DRAFT, "draft", 0},
	{METHOD_REGION_OPEN, "region_open", 0},
	{METHOD_REGION_IMPORT, "region_import", 1},
	{METHOD_REGION_CLOSE, "region_close", 0},
	{METHOD_EVENT_IMPORT, "event_import", 0},
	{METHOD_EVENT_CLOSE, "event_close", 0},
	{METHOD_STATS, "stats", 0},
	{METHOD_METRICS, "metrics", 0},
	{METHOD_DRAIN, "drain", 0},
	{METHOD_RELOAD, "reload", 0},
	{METHOD_CANCEL, "cancel", 0},
	{METHOD_GOAWAY, "goaway", 0},
};

START_TEST(methods_have_names)
{
	ck_assert_str_eq(method_name(methods[_i].method), methods[_i].name);
	ck_assert_uint_eq(method_fd_count(methods[_i].method), methods[_i].fds);
}
END_TEST

START_TEST(methods_outside_are_unknown)
{
	ck_assert_uint_eq(sizeof(methods) / sizeof(methods[0]), METHOD_END - 1);
	ck_assert_str_eq(method_name(METHOD_UNKNOWN), "unknown");
	ck_assert_str_eq(method_name(METHOD_END), "unknown");
	ck_assert_str_eq(method_name((enum method) - 1), "unknown");
}
END_TEST

/* ---- envelope ---- */

START_TEST(request)
{
	static const char body[] = "\x94\x00\xce\xff\xff\xff\xff\xa4ping\x81\xa1\x61\x01";
	struct message_fault fault;
	struct message message;

	ck_assert_int_eq(decode(body, sizeof(body) - 1, &message, &fault), 0);
	ck_assert_int_eq(message.kind, MESSAGE_REQUEST);
	ck_assert(message.has_id);
	ck_assert_uint_eq(message.id, UINT32_MAX);
	ck_assert_int_eq(message.method, METHOD_PING);
	assert_text(message.method_text, "ping");
	ck_assert_ptr_eq(message.params.at, body + 12);
	ck_assert_ptr_eq(message.params.end, body + sizeof(body) - 1);
}
END_TEST

/* A method counts only among those of its kind of message. */
static const struct {
	const char *body;
	size_t bytes;
	enum method method;
	const char *text;
} by_kind[] = {
	{BYTES("\x94\x00\x01\xa6\x63\x61ncel\x80"), METHOD_UNKNOWN, "cancel"},
	{BYTES("\x93\x02\xa6\x63\x61ncel\x80"), METHOD_CANCEL, "cancel"},
	{BYTES("\x93\x02\xa6goaway\x80"), METHOD_GOAWAY, "goaway"},
	{BYTES("\x93\x02\xa4ping\x80"), METHOD_UNKNOWN, "ping"},
	{BYTES("\x94\x00\x01\xa5pings\x80"), METHOD_UNKNOWN, "pings"},
	{BYTES("\x94\x00\x01\xa3pin\x80"), METHOD_UNKNOWN, "pin"},
	{BYTES("\x94\x00\x01\xa0\x80"), METHOD_UNKNOWN, ""},
	{BYTES("\x94\x00\x01\xa7unknown\x80"), METHOD_UNKNOWN, "unknown"},
};

START_TEST(methods_by_kind)
{
	struct message_fault fault;
	struct message message;

	ck_assert_int_eq(decode(by_kind[_i].body, by_kind[_i].bytes, &message, &fault), 0);
	ck_assert_int_eq(message.method, by_kind[_i].method);
	assert_text(message.method_text, by_kind[_i].text);
}
END_TEST

/* What can be read of a bad body, so that the refusal finds its request. */
static const struct {
	const char *body;
	size_t bytes;
	enum message_kind kind;
	bool has_id;
	uint32_t id;
	const char *text;
} bad[] = {
	{BYTES(""), MESSAGE_REQUEST, false, 0,
		"the body is not one MessagePack value within the rules: the body is empty"},
	{BYTES("\x94"), MESSAGE_REQUEST, false, 0,
		"the body is not one MessagePack value within the rules: a length runs past the "
		"end of the body"},
	{BYTES("\x94\x00\x07\xa4ping\x81\xa1\x61\xc1"), MESSAGE_REQUEST, true, 7,
		"the body is not one MessagePack value within the rules: the byte 0xc1, which "
		"MessagePack never uses"},
	{BYTES("\x94\x00\xcd\x01\x00\xa4ping\xd4\x00\x00"), MESSAGE_REQUEST, true, 256,
		"the body is not one MessagePack value within the rules: an ext value, which this "
		"protocol does not use"},
	{BYTES("\x94\x00\xcd\x01"), MESSAGE_REQUEST, false, 0,
		"the body is not one MessagePack value within the rules: a length runs past the "
		"end of the body"},
	{BYTES("\x94\x01\x07\xc1\xc0"), MESSAGE_RESPONSE, true, 7,
		"the body is not one MessagePack value within the rules: the byte 0xc1, which "
		"MessagePack never uses"},
	{BYTES("\x93\x02\xa6\x63\x61ncel\xc1"), MESSAGE_NOTIFICATION, false, 0,
		"the body is not one MessagePack value within the rules: the byte 0xc1, which "
		"MessagePack never uses"},
	{BYTES("\x94\x00\x07\xa4ping\x80\x80"), MESSAGE_REQUEST, true, 7,
		"the body is not one MessagePack value within the rules: bytes follow the value"},
	{BYTES("\xdd\xff\xff\xff\xff\x00\x07"), MESSAGE_REQUEST, true, 7,
		"the body is not one MessagePack value within the rules: a length runs past the "
		"end of the body"},
	{BYTES("\x80"), MESSAGE_REQUEST, false, 0,
		"the body must be an array that begins with 0 (request), 1 (response) or 2 "
		"(notification)"},
	{BYTES("\x90"), MESSAGE_REQUEST, false, 0,
		"the body must be an array that begins with 0 (request), 1 (response) or 2 "
		"(notification)"},
	{BYTES("\x94\x03\x07\xa4ping\x80"), MESSAGE_REQUEST, false, 0,
		"the body must be an array that begins with 0 (request), 1 (response) or 2 "
		"(notification)"},
	{BYTES("\x91\x00"), MESSAGE_REQUEST, false, 0,
		"a request must be an array of 4 elements, this one has 1"},
	{BYTES("\x93\x00\x07\xa4ping"), MESSAGE_REQUEST, true, 7,
		"a request must be an array of 4 elements, this one has 3"},
	{BYTES("\x95\x01\x07\xc0\x80\x80"), MESSAGE_RESPONSE, true, 7,
		"a response must be an array of 4 elements, this one has 5"},
	{BYTES("\x94\x02\x07\xa4ping\x80"), MESSAGE_NOTIFICATION, false, 0,
		"a notification must be an array of 3 elements, this one has 4"},
	{BYTES("\x94\x00\xc0\xa4ping\x80"), MESSAGE_REQUEST, false, 0,
		"the id of a request must be an integer from 0 to 4294967295"},
	{BYTES("\x94\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00\xa4ping\x80"), MESSAGE_REQUEST, false,
		0, "the id of a request must be an integer from 0 to 4294967295"},
	{BYTES("\x94\x00\xff\xa4ping\x80"), MESSAGE_REQUEST, false, 0,
		"the id of a request must be an integer from 0 to 4294967295"},
	{BYTES("\x94\x00\x07\x01\x80"), MESSAGE_REQUEST, true, 7, "the method must be a string"},
	{BYTES("\x93\x02\xc4\x01\x61\x80"), MESSAGE_NOTIFICATION, false, 0,
		"the method must be a string"},
	{BYTES("\x94\x01\xa1\x61\xc0\x80"), MESSAGE_RESPONSE, false, 0,
		"the id of a response must be nil or an integer from 0 to 4294967295"},
	{BYTES("\x94\x01\xc0\xc0\x80"), MESSAGE_RESPONSE, false, 0,
		"a response without an error must have an id"},
	{BYTES("\x94\x01\x07\x01\xc0"), MESSAGE_RESPONSE, true, 7, "error must be a map"},
	{BYTES("\x94\x01\x07\x80\xc0"), MESSAGE_RESPONSE, true, 7, "error.code is missing"},
};

START_TEST(bad_bodies)
{
	struct message_fault fault = {0};
	struct message message;

	ck_assert_int_eq(decode(bad[_i].body, bad[_i].bytes, &message, &fault), -EBADMSG);
	ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
	ck_assert_str_eq(fault.text, bad[_i].text);
	ck_assert_int_eq(message.kind, bad[_i].kind);
	ck_assert_int_eq(message.has_id, bad[_i].has_id);
	ck_assert_uint_eq(message.id, bad[_i].id);
}
END_TEST

/* ---- errors ---- */

START_TEST(error_replies_come_back)
{
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	message_encode_error(&buffer, true, 9, (enum error_code)_i, "steps is 12, the most is 8");
	params_of(&buffer, &message);
	ck_assert_int_eq(message.kind, MESSAGE_RESPONSE);
	ck_assert(message.has_id && message.failed);
	ck_assert_uint_eq(message.id, 9);
	ck_assert_int_eq(message.error.code, _i);
	assert_text(message.error.name, error_lookup(_i)->name);
	assert_text(message.error.text, "steps is 12, the most is 8");
	ck_assert_int_eq(message.error.retryable, error_lookup(_i)->retryable);
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(error_reply_without_id)
{
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	message_encode_error(&buffer, false, 9, ERROR_BAD_FRAME, "");
	params_of(&buffer, &message);
	ck_assert(!message.has_id && message.failed);
	ck_assert_int_eq(message.error.code, ERROR_BAD_FRAME);
	wire_buffer_done(&buffer);
}
END_TEST

static const struct pair error_pairs[] = {
	PAIR("code", "\x63"),
	PAIR("name", "\xa4NEWS"),
	PAIR("message", "\xa2hi"),
	PAIR("retryable", "\xc3"),
};

static const struct {
	struct pair change;
	const char *text; /* NULL: good */
} error_changes[] = {
	{PAIR("code", "\x63"), NULL},
	{PAIR("code", "\xce\x7f\xff\xff\xff"), NULL},
	{PAIR("code", "\xce\x80\x00\x00\x00"),
		"error.code must be an integer from 1 to 2147483647"},
	{PAIR("code", "\x00"), "error.code must be an integer from 1 to 2147483647"},
	{PAIR("code", "\x01"), NULL},
	{NO_PAIR("name"), "error.name is missing"},
	{PAIR("name", "\xc4\x01\x61"), "error.name must be a string of 0 to 4294967295 bytes"},
	{NO_PAIR("message"), "error.message is missing"},
	{NO_PAIR("retryable"), "error.retryable is missing"},
	{PAIR("retryable", "\x01"), "error.retryable must be true or false"},
	{PAIR("later", "\xc0"), NULL},
};

START_TEST(error_maps)
{
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;
	int rc;

	wire_buffer_init(&buffer);
	wire_buffer_write(&buffer, "\x94\x01\x07", 3);
	{
		struct wire_buffer map;

		wire_buffer_init(&map);
		map_of(&map, error_pairs, 4, &error_changes[_i].change);
		wire_buffer_write(&buffer, map.bytes, map.count);
		wire_buffer_done(&map);
	}
	wire_buffer_write(&buffer, "\xc0", 1);
	rc = message_decode(buffer.bytes, buffer.count, &message, &fault);
	if (error_changes[_i].text) {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_str_eq(fault.text, error_changes[_i].text);
	} else {
		ck_assert_int_eq(rc, 0);
		ck_assert(message.failed && message.error.retryable);
	}

	/* An error beside a result is neither. */
	buffer.bytes[buffer.count - 1] = 0x80;
	ck_assert_int_eq(message_decode(buffer.bytes, buffer.count, &message, &fault), -EBADMSG);
	wire_buffer_done(&buffer);
}
END_TEST

/* ---- empty messages, and what a caller packs itself ---- */

START_TEST(empty_messages)
{
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	message_encode_request(&buffer, 5, METHOD_STATS);
	ck_assert_int_eq(empty_params_decode(params_of(&buffer, &message), &fault), 0);
	ck_assert_int_eq(message.method, METHOD_STATS);
	ck_assert_uint_eq(message.id, 5);

	wire_buffer_clear(&buffer);
	message_encode_empty_reply(&buffer, 6);
	ck_assert_int_eq(empty_params_decode(params_of(&buffer, &message), &fault), 0);
	ck_assert(message.kind == MESSAGE_RESPONSE && message.id == 6 && !message.failed);
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(frames_are_appended)
{
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;
	size_t first, second;

	wire_buffer_init(&buffer);
	message_encode_request(&buffer, 1, METHOD_PING);
	first = buffer.count;
	second = message_begin_reply(&buffer, 2);
	ck_assert_uint_eq(second, first);
	wire_buffer_write(&buffer, "\x81\xa1\x61\x01", 4);
	message_end_reply(&buffer, second, 3);
	ck_assert_mem_eq(buffer.bytes + first,
		"DT\x01\x03\x00\x00\x00\x08\x94\x01\x02\xc0\x81\xa1\x61\x01", 16);
	ck_assert_uint_eq(buffer.count, first + 16);
	ck_assert_int_eq(message_decode(buffer.bytes + 8, first - 8, &message, &fault), 0);
	ck_assert_int_eq(message.method, METHOD_PING);
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(a_failed_buffer_stays_failed)
{
	struct wire_buffer buffer;

	wire_buffer_init(&buffer);
	buffer.failed = true;
	message_encode_request(&buffer, 1, METHOD_PING);
	message_encode_error(&buffer, true, 1, ERROR_INTERNAL, "x");
	ck_assert(buffer.failed);
	ck_assert_uint_eq(buffer.count, 0);
	wire_buffer_done(&buffer);
}
END_TEST

/* ---- maps ---- */

static int read_empty(const struct wire_buffer *buffer, struct message_fault *fault)
{
	struct wire_cursor cursor;

	ck_assert_int_eq(wire_scan(buffer->bytes, buffer->count), WIRE_OK);
	wire_cursor_init(&cursor, buffer->bytes, buffer->count);
	return empty_params_decode(cursor, fault);
}

START_TEST(keys_at_their_limits)
{
	struct message_fault fault;
	struct wire_buffer buffer;
	char key[MESSAGE_KEY_BYTES_MAX + 1];

	wire_buffer_init(&buffer);
	for (unsigned keys = MESSAGE_KEYS_MAX; keys <= MESSAGE_KEYS_MAX + 1; keys++) {
		wire_buffer_clear(&buffer);
		wire_pack_map(&buffer, keys);
		for (unsigned i = 0; i < keys; i++) {
			char name[2] = {(char)('0' + i / 10), (char)('0' + i % 10)};

			wire_pack_str(&buffer, 2);
			wire_pack_str_body(&buffer, name, 2);
			wire_pack_nil(&buffer);
		}
		ck_assert_int_eq(
			read_empty(&buffer, &fault), keys > MESSAGE_KEYS_MAX ? -EBADMSG : 0);
	}
	ck_assert_str_eq(fault.text, "params has 65 keys, the most is 64");

	memset(key, 'k', sizeof(key));
	for (size_t bytes = MESSAGE_KEY_BYTES_MAX; bytes <= MESSAGE_KEY_BYTES_MAX + 1; bytes++) {
		wire_buffer_clear(&buffer);
		wire_pack_map(&buffer, 1);
		wire_pack_str(&buffer, bytes);
		wire_pack_str_body(&buffer, key, bytes);
		wire_pack_nil(&buffer);
		ck_assert_int_eq(
			read_empty(&buffer, &fault), bytes > MESSAGE_KEY_BYTES_MAX ? -EBADMSG : 0);
	}
	ck_assert_str_eq(fault.text, "a key of params is 256 bytes, the most is 255");
	wire_buffer_done(&buffer);
}
END_TEST

static const struct {
	const char *bytes;
	size_t count;
	const char *text; /* NULL: good */
} maps[] = {
	{BYTES("\x80"), NULL},
	{BYTES("\x82\xa1\x61\x92\x01\x81\xa1\x61\x02\xa1\x62\x01"), NULL},
	/* what an ignored value contains is not looked at */
	{BYTES("\x81\xa1\x61\x82\xa1\x62\x01\xa1\x62\x01"), NULL},
	{BYTES("\x82\xa1\x61\x01\xa1\x61\x01"), "a stands twice in params"},
	{BYTES("\x83\xa1\x61\x01\xa1\x62\x01\xa1\x61\x01"), "a stands twice in params"},
	{BYTES("\x81\x01\x01"), "every key of params must be a string"},
	{BYTES("\x81\xc4\x01\x61\x01"), "every key of params must be a string"},
	{BYTES("\x81\x90\x01"), "every key of params must be a string"},
	{BYTES("\x90"), "params must be a map"},
	{BYTES("\xc0"), "params must be a map"},
};

START_TEST(maps_of_unknown_keys)
{
	struct message_fault fault;
	struct wire_cursor cursor;
	int rc;

	ck_assert_int_eq(wire_scan((const uint8_t *)maps[_i].bytes, maps[_i].count), WIRE_OK);
	wire_cursor_init(&cursor, (const uint8_t *)maps[_i].bytes, maps[_i].count);
	rc = empty_params_decode(cursor, &fault);
	if (maps[_i].text) {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
		ck_assert_str_eq(fault.text, maps[_i].text);
	} else {
		ck_assert_int_eq(rc, 0);
	}
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

Suite *message_suite(void)
{
	Suite *suite = suite_create("message");
	TCase *tcase = tcase_create("message");

	tcase_add_loop_test(tcase, text_copies, 0, COUNT(copies));
	tcase_add_test(tcase, text_copies_nul_and_nothing);
	tcase_add_test(tcase, refusals_are_cut_to_their_place);
	tcase_add_loop_test(tcase, methods_have_names, 0, COUNT(methods));
	tcase_add_test(tcase, methods_outside_are_unknown);
	tcase_add_test(tcase, request);
	tcase_add_loop_test(tcase, methods_by_kind, 0, COUNT(by_kind));
	tcase_add_loop_test(tcase, bad_bodies, 0, COUNT(bad));
	tcase_add_loop_test(tcase, error_replies_come_back, 1, ERROR_CODE_END);
	tcase_add_test(tcase, error_reply_without_id);
	tcase_add_loop_test(tcase, error_maps, 0, COUNT(error_changes));
	tcase_add_test(tcase, empty_messages);
	tcase_add_test(tcase, frames_are_appended);
	tcase_add_test(tcase, a_failed_buffer_stays_failed);
	tcase_add_test(tcase, keys_at_their_limits);
	tcase_add_loop_test(tcase, maps_of_unknown_keys, 0, COUNT(maps));
	suite_add_tcase(suite, tcase);
	return suite;
}
