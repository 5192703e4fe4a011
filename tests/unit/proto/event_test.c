#include "suites.h"

#include <errno.h>
#include <string.h>

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))
#define S16          "0123456789abcdef"
#define S64          S16 S16 S16 S16
#define HANDLE_TEXT  "handle must be a bin of 64 bytes"
#define DEVICE_TEXT  "device must be a string of 1 to 63 bytes"

static const struct pair request_pairs[] = {PAIR("handle", "\xc4\x40" S64)};

static const struct {
	struct pair change;
	const char *text; /* NULL: good */
} request_changes[] = {
	{PAIR("later", "\xc0"), NULL},
	{PAIR("handle", "\xc5\x00\x40" S64), NULL},
	{PAIR("handle", "\xc4\x41" S64 "x"), HANDLE_TEXT},
	{PAIR("handle", "\xc4\x3f" S16 S16 S16 "0123456789abcde"), HANDLE_TEXT},
	{PAIR("handle", "\xc4\x00"), HANDLE_TEXT},
	{PAIR("handle", "\xd9\x40" S64), HANDLE_TEXT},
	{PAIR("handle", "\x00"), HANDLE_TEXT},
	{NO_PAIR("handle"), "handle is missing"},
	{PAIR("device", "\xd9\x3f" S16 S16 S16 "0123456789abcde"), NULL},
	{PAIR("device", "\xd9\x40" S64), DEVICE_TEXT},
	{PAIR("device", "\xa0"), DEVICE_TEXT},
	{PAIR("device", "\x00"), DEVICE_TEXT},
};

START_TEST(one_key_of_the_request_changed)
{
	struct event_request request = {.handle = NULL};
	struct message_fault fault = {0};
	struct wire_buffer buffer;
	int rc;

	wire_buffer_init(&buffer);
	rc = event_request_decode(
		map_of(&buffer, request_pairs, COUNT(request_pairs), &request_changes[_i].change),
		&request, &fault);
	if (request_changes[_i].text) {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
		ck_assert_str_eq(fault.text, request_changes[_i].text);
		ck_assert_ptr_null(request.handle);
	} else {
		ck_assert_int_eq(rc, 0);
		ck_assert_mem_eq(request.handle, S64, 64);
	}
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(requests_come_back)
{
	struct event_request sent = {.handle = (const uint8_t *)S64};
	struct message_fault fault;
	struct event_request got;
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	if (_i) {
		sent.has_device = true;
		sent.device = (struct wire_text){"GPU-1", 5};
	}
	event_request_encode(&buffer, 4, &sent);
	ck_assert_uint_eq(buffer.bytes[3], 0);
	ck_assert_int_eq(event_request_decode(params_of(&buffer, &message), &got, &fault), 0);
	ck_assert_int_eq(message.method, METHOD_EVENT_IMPORT);
	ck_assert_mem_eq(got.handle, S64, 64);
	ck_assert_int_eq(got.has_device, _i);
	if (_i)
		assert_text(got.device, "GPU-1");
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(ids_come_back)
{
	static const struct pair none[] = {PAIR("later", "\xc0")};
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;
	uint32_t event = 77;

	wire_buffer_init(&buffer);
	ck_assert_int_eq(
		event_close_decode(map_of(&buffer, none, 1, NULL), &event, &fault), -EBADMSG);
	ck_assert_str_eq(fault.text, "event is missing");
	wire_buffer_clear(&buffer);
	ck_assert_int_eq(
		event_reply_decode(map_of(&buffer, none, 1, NULL), &event, &fault), -EBADMSG);
	ck_assert_str_eq(fault.text, "event is missing");
	ck_assert_uint_eq(event, 77);
	wire_buffer_clear(&buffer);
	event_close_encode(&buffer, 5, UINT32_MAX);
	ck_assert_int_eq(event_close_decode(params_of(&buffer, &message), &event, &fault), 0);
	ck_assert_int_eq(message.method, METHOD_EVENT_CLOSE);
	ck_assert_uint_eq(event, UINT32_MAX);
	wire_buffer_clear(&buffer);
	event_reply_encode(&buffer, 5, 3);
	ck_assert_int_eq(event_reply_decode(params_of(&buffer, &message), &event, &fault), 0);
	ck_assert_uint_eq(event, 3);
	wire_buffer_done(&buffer);
}
END_TEST

Suite *event_suite(void)
{
	Suite *suite = suite_create("event");
	TCase *tcase = tcase_create("event");

	tcase_add_loop_test(tcase, one_key_of_the_request_changed, 0, COUNT(request_changes));
	tcase_add_loop_test(tcase, requests_come_back, 0, 2);
	tcase_add_test(tcase, ids_come_back);
	suite_add_tcase(suite, tcase);
	return suite;
}
