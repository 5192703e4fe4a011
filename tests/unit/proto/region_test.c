#include "suites.h"

#include <errno.h>
#include <string.h>

#define COUNT(table)  (int)(sizeof(table) / sizeof((table)[0]))
#define TEXT(literal) ((struct wire_text){literal, sizeof(literal) - 1})
#define S16           "0123456789abcdef"
#define U64           "\xcf\xff\xff\xff\xff\xff\xff\xff\xff"

#define BYTES_TEXT  "bytes must be an integer from 1 to 18446744073709551615"
#define MEMORY_TEXT "memory must be \"host\" or \"device\""

static const struct pair request_pairs[] = {PAIR("bytes", "\x01"), PAIR("memory", "\xa4host")};

static const struct {
	struct pair change;
	const char *text; /* NULL: good */
} request_changes[] = {
	{PAIR("later", "\xc0"), NULL},
	{PAIR("bytes", U64), NULL},
	{PAIR("bytes", "\x00"), BYTES_TEXT},
	{PAIR("bytes", "\xff"), BYTES_TEXT},
	{NO_PAIR("bytes"), "bytes is missing"},
	{PAIR("memory", "\xa6\x64\x65vice"), NULL},
	{PAIR("memory", "\xa5hosts"), MEMORY_TEXT},
	{PAIR("memory", "\xa3hos"), MEMORY_TEXT},
	{PAIR("memory", "\x00"), MEMORY_TEXT},
	{NO_PAIR("memory"), "memory is missing"},
	{PAIR("device", "\xd9\x3f" S16 S16 S16 "0123456789abcde"), NULL},
	{PAIR("device", "\xd9\x40" S16 S16 S16 S16), "device must be a string of 1 to 63 bytes"},
	{PAIR("device", "\xa0"), "device must be a string of 1 to 63 bytes"},
	{PAIR("device", "\x00"), "device must be a string of 1 to 63 bytes"},
};

START_TEST(one_key_of_the_request_changed)
{
	struct region_request request = {.bytes = 77};
	struct message_fault fault = {0};
	struct wire_buffer buffer;
	int rc;

	wire_buffer_init(&buffer);
	rc = region_request_decode(
		map_of(&buffer, request_pairs, COUNT(request_pairs), &request_changes[_i].change),
		&request, &fault);
	if (request_changes[_i].text) {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
		ck_assert_str_eq(fault.text, request_changes[_i].text);
		ck_assert_uint_eq(request.bytes, 77);
	} else {
		ck_assert_int_eq(rc, 0);
	}
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(requests_come_back)
{
	static const enum method methods[] = {METHOD_REGION_OPEN, METHOD_REGION_IMPORT};
	const struct region_request sent = {1u << 20, REGION_DEVICE, true, TEXT("GPU-1")};
	struct message_fault fault;
	struct region_request got;
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	region_request_encode(&buffer, 4, methods[_i], &sent);
	ck_assert_uint_eq(buffer.bytes[3], method_fd_count(methods[_i]));
	ck_assert_int_eq(region_request_decode(params_of(&buffer, &message), &got, &fault), 0);
	ck_assert_int_eq(message.method, methods[_i]);
	ck_assert_uint_eq(got.bytes, 1u << 20);
	ck_assert_int_eq(got.memory, REGION_DEVICE);
	ck_assert(got.has_device);
	assert_text(got.device, "GPU-1");
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(replies_come_back)
{
	struct region_reply sent = {.region = UINT32_MAX};
	struct message_fault fault;
	struct wire_buffer buffer;
	struct region_reply got;
	struct message message;

	wire_buffer_init(&buffer);
	region_reply_encode(&buffer, 4, &sent);
	ck_assert_uint_eq(buffer.bytes[3], 0);
	ck_assert_int_eq(region_reply_decode(params_of(&buffer, &message), &got, &fault), 0);
	ck_assert_uint_eq(got.region, UINT32_MAX);
	ck_assert(!got.has_memory);

	wire_buffer_clear(&buffer);
	sent = (struct region_reply){1, true, 4096, REGION_HOST, TEXT("")};
	region_reply_encode(&buffer, 4, &sent);
	ck_assert_uint_eq(buffer.bytes[3], 1);
	ck_assert_int_eq(region_reply_decode(params_of(&buffer, &message), &got, &fault), 0);
	ck_assert(got.has_memory);
	ck_assert_uint_eq(got.bytes, 4096);
	ck_assert_int_eq(got.memory, REGION_HOST);
	assert_text(got.device, "");
	wire_buffer_done(&buffer);
}
END_TEST

static const struct pair reply_pairs[] = {
	PAIR("region", "\x01"),
	PAIR("bytes", "\x01"),
	PAIR("memory", "\xa4host"),
	PAIR("device", "\xa0"),
};
#define TOGETHER "bytes, memory and device must stand together or be absent together"

static const struct {
	struct pair change;
	const char *text;
} reply_changes[] = {
	{PAIR("later", "\xc0"), NULL},
	{PAIR("region", "\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
		"region must be an integer from 0 to 4294967295"},
	{NO_PAIR("region"), "region is missing"},
	{NO_PAIR("bytes"), TOGETHER},
	{NO_PAIR("memory"), TOGETHER},
	{NO_PAIR("device"), TOGETHER},
	{PAIR("bytes", "\x00"), BYTES_TEXT},
	{PAIR("memory", "\xa0"), MEMORY_TEXT},
	{PAIR("device", "\xd9\x40" S16 S16 S16 S16), "device must be a string of 0 to 63 bytes"},
};

START_TEST(one_key_of_the_reply_changed)
{
	struct message_fault fault = {0};
	struct region_reply reply;
	struct wire_buffer buffer;
	int rc;

	wire_buffer_init(&buffer);
	rc = region_reply_decode(
		map_of(&buffer, reply_pairs, COUNT(reply_pairs), &reply_changes[_i].change), &reply,
		&fault);
	if (reply_changes[_i].text) {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_str_eq(fault.text, reply_changes[_i].text);
	} else {
		ck_assert_int_eq(rc, 0);
	}
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(close_comes_back)
{
	static const struct pair none[] = {PAIR("later", "\xc0")};
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;
	uint32_t region = 77;

	wire_buffer_init(&buffer);
	ck_assert_int_eq(
		region_close_decode(map_of(&buffer, none, 1, NULL), &region, &fault), -EBADMSG);
	ck_assert_str_eq(fault.text, "region is missing");
	ck_assert_uint_eq(region, 77);
	wire_buffer_clear(&buffer);
	region_close_encode(&buffer, 5, UINT32_MAX);
	ck_assert_int_eq(region_close_decode(params_of(&buffer, &message), &region, &fault), 0);
	ck_assert_int_eq(message.method, METHOD_REGION_CLOSE);
	ck_assert_uint_eq(region, UINT32_MAX);
	wire_buffer_done(&buffer);
}
END_TEST

Suite *region_suite(void)
{
	Suite *suite = suite_create("region");
	TCase *tcase = tcase_create("region");

	tcase_add_loop_test(tcase, one_key_of_the_request_changed, 0, COUNT(request_changes));
	tcase_add_loop_test(tcase, requests_come_back, 0, 2);
	tcase_add_test(tcase, replies_come_back);
	tcase_add_loop_test(tcase, one_key_of_the_reply_changed, 0, COUNT(reply_changes));
	tcase_add_test(tcase, close_comes_back);
	suite_add_tcase(suite, tcase);
	return suite;
}
