#include "suites.h"

#include <errno.h>
#include <string.h>

#define COUNT(table)  (int)(sizeof(table) / sizeof((table)[0]))
#define TEXT(literal) ((struct wire_text){literal, sizeof(literal) - 1})

/* ---- request ---- */

static const struct pair request_pairs[] = {PAIR("protocol", "\x01"), PAIR("client", "\xa3\x61/1")};

#define S16         "0123456789abcdef"
#define S128        S16 S16 S16 S16 S16 S16 S16 S16
#define CLIENT_TEXT "client must be a string of 1 to 128 bytes"

static const struct {
	struct pair change;
	const char *text; /* NULL: good */
} request_changes[] = {
	{PAIR("later", "\xc0"), NULL},
	/* another version is for the server to refuse, with VERSION_MISMATCH */
	{PAIR("protocol", "\x02"), NULL},
	{PAIR("protocol", "\xa1\x31"), "protocol must be an integer from 0 to 4294967295"},
	{NO_PAIR("protocol"), "protocol is missing"},
	{PAIR("client", "\xa1\x61"), NULL},
	{PAIR("client", "\xd9\x80" S128), NULL},
	{PAIR("client", "\xd9\x81" S128 "x"), CLIENT_TEXT},
	{PAIR("client", "\xa0"), CLIENT_TEXT},
	{PAIR("client", "\xc4\x01\x61"), CLIENT_TEXT},
	{NO_PAIR("client"), "client is missing"},
};

START_TEST(one_key_of_the_request_changed)
{
	struct hello_request request = {.protocol = 77};
	struct message_fault fault = {0};
	struct wire_buffer buffer;
	int rc;

	wire_buffer_init(&buffer);
	rc = hello_request_decode(
		map_of(&buffer, request_pairs, COUNT(request_pairs), &request_changes[_i].change),
		&request, &fault);
	if (request_changes[_i].text) {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
		ck_assert_str_eq(fault.text, request_changes[_i].text);
		ck_assert_uint_eq(request.protocol, 77);
	} else {
		ck_assert_int_eq(rc, 0);
	}
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(request_comes_back)
{
	const struct hello_request sent = {PROTOCOL_VERSION, TEXT("example/1.0")};
	struct hello_request got;
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	hello_request_encode(&buffer, 1, &sent);
	ck_assert_int_eq(hello_request_decode(params_of(&buffer, &message), &got, &fault), 0);
	ck_assert_int_eq(message.method, METHOD_HELLO);
	ck_assert_uint_eq(got.protocol, 1);
	assert_text(got.client, "example/1.0");
	wire_buffer_done(&buffer);
}
END_TEST

/* ---- reply ---- */

static struct hello_reply sample(uint32_t devices)
{
	struct hello_reply reply = {
		.protocol = 1,
		.server = TEXT("draftd/1.0.0"),
		.generation = 9,
		.model = {TEXT("tiny"), 151936, 256, 151937, 0.5f, true, 30.0f, TEXT("bf16")},
		.backend = {.name = TEXT("cpu"),
			.bias_order = TEXT("mma16"),
			.tensor_parallel = 2,
			.device_count = devices},
		.limits = {64, 8, 1u << 26, 65, 16, UINT64_MAX},
	};

	for (uint32_t i = 0; i < devices; i++)
		reply.backend.devices[i] =
			(struct hello_device){TEXT("CPU"), TEXT("x86-64"), UINT64_MAX - i};
	return reply;
}

START_TEST(reply_comes_back)
{
	const uint32_t devices = (uint32_t)_i;
	struct hello_reply sent = sample(devices);
	struct message_fault fault;
	struct wire_buffer buffer;
	struct hello_reply got;
	struct message message;

	wire_buffer_init(&buffer);
	hello_reply_encode(&buffer, 1, &sent);
	ck_assert_int_eq(hello_reply_decode(params_of(&buffer, &message), &got, &fault), 0);
	ck_assert_uint_eq(got.protocol, 1);
	assert_text(got.server, "draftd/1.0.0");
	ck_assert_uint_eq(got.generation, 9);
	assert_text(got.model.name, "tiny");
	ck_assert_uint_eq(got.model.vocab, 151936);
	ck_assert_uint_eq(got.model.rank, 256);
	ck_assert_uint_eq(got.model.target_vocab, 151937);
	ck_assert(got.model.multiplier == 0.5f);
	ck_assert(got.model.has_soft_cap && got.model.soft_cap == 30.0f);
	assert_text(got.model.dtype, "bf16");
	assert_text(got.backend.name, "cpu");
	assert_text(got.backend.bias_order, "mma16");
	ck_assert_uint_eq(got.backend.tensor_parallel, 2);
	ck_assert_uint_eq(got.backend.device_count, devices);
	for (uint32_t i = 0; i < devices; i++) {
		assert_text(got.backend.devices[i].uuid, "CPU");
		assert_text(got.backend.devices[i].name, "x86-64");
		ck_assert_uint_eq(got.backend.devices[i].memory_bytes, UINT64_MAX - i);
	}
	ck_assert_uint_eq(got.limits.max_rows, 64);
	ck_assert_uint_eq(got.limits.max_steps, 8);
	ck_assert_uint_eq(got.limits.max_frame_bytes, 1u << 26);
	ck_assert_uint_eq(got.limits.max_inflight, 65);
	ck_assert_uint_eq(got.limits.max_regions, 16);
	ck_assert_uint_eq(got.limits.max_region_bytes, UINT64_MAX);

	wire_buffer_clear(&buffer);
	sent.model.has_soft_cap = false;
	hello_reply_encode(&buffer, 1, &sent);
	ck_assert_int_eq(hello_reply_decode(params_of(&buffer, &message), &got, &fault), 0);
	ck_assert(!got.model.has_soft_cap);
	wire_buffer_done(&buffer);
}
END_TEST

static const struct pair model_pairs[] = {
	PAIR("name", "\xa0"),
	PAIR("vocab", "\x01"),
	PAIR("rank", "\x01"),
	PAIR("target_vocab", "\x01"),
	PAIR("multiplier", "\x01"),
	PAIR("soft_cap", "\xc0"),
	PAIR("dtype", "\xa4\x62\x66\x31\x36"),
};
static const struct pair backend_pairs[] = {
	PAIR("name", "\xa3\x63pu"),
	PAIR("bias_order", "\xa5mma16"),
	PAIR("tensor_parallel", "\x01"),
	PAIR("devices", "\x90"),
};
static const struct pair limits_pairs[] = {
	PAIR("max_rows", "\x01"),
	PAIR("max_steps", "\x01"),
	PAIR("max_frame_bytes", "\x01"),
	PAIR("max_inflight", "\x01"),
	PAIR("max_regions", "\x00"),
	PAIR("max_region_bytes", "\x00"),
};
static const struct pair outer_pairs[] = {
	PAIR("protocol", "\x01"),
	PAIR("server", "\xa1s"),
	PAIR("generation", "\x01"),
};

enum part { OUTER, MODEL, BACKEND, LIMITS };

#define DEVICE(uuid) "\x83\xa4uuid" uuid "\xa4name\xa0\xacmemory_bytes\x00"
#define DEVICE_2     DEVICE("\xa1\x61") DEVICE("\xa1\x61")
#define DEVICE_32                                                                                  \
	DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2  \
		DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2 DEVICE_2
#define S255 S128 S16 S16 S16 S16 S16 S16 S16 "0123456789abcde"

static const struct {
	enum part part;
	struct pair change;
	const char *text;
} reply_changes[] = {
	{OUTER, PAIR("later", "\xc0"), NULL},
	{OUTER, PAIR("server", "\xd9\xff" S255), NULL},
	{OUTER, PAIR("server", "\xda\x01\x00" S128 S128),
		"server must be a string of 1 to 255 bytes"},
	{OUTER, PAIR("server", "\xa0"), "server must be a string of 1 to 255 bytes"},
	{OUTER, NO_PAIR("generation"), "generation is missing"},
	{OUTER, PAIR("model", "\x01"), "model must be a map"},
	{MODEL, PAIR("vocab", "\x00"), "model.vocab must be an integer from 1 to 4294967295"},
	{MODEL, PAIR("rank", "\x00"), "model.rank must be an integer from 1 to 4294967295"},
	{MODEL, PAIR("target_vocab", "\x00"),
		"model.target_vocab must be an integer from 1 to 4294967295"},
	{MODEL, PAIR("vocab", "\xce\xff\xff\xff\xff"), NULL},
	{MODEL, PAIR("multiplier", "\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"), NULL},
	{MODEL, PAIR("multiplier", "\xca\x7f\xc0\x00\x00"),
		"model.multiplier must be a finite number"},
	{MODEL, PAIR("multiplier", "\xcb\x7f\xef\xff\xff\xff\xff\xff\xff"),
		"model.multiplier must be a finite number"},
	{MODEL, PAIR("multiplier", "\xc0"), "model.multiplier must be a finite number"},
	{MODEL, PAIR("soft_cap", "\x1e"), NULL},
	{MODEL, PAIR("soft_cap", "\xca\x7f\x80\x00\x00"), "model.soft_cap must be a finite number"},
	{MODEL, NO_PAIR("soft_cap"), "model.soft_cap is missing"},
	{MODEL, PAIR("dtype", "\xa0"), "model.dtype must be a string of 1 to 255 bytes"},
	{BACKEND, PAIR("devices", "\xdc\x00\x20" DEVICE_32), NULL},
	{BACKEND, PAIR("devices", "\xdc\x00\x21" DEVICE_32 DEVICE("\xa1\x61")),
		"backend.devices must be an array of at most 32 elements"},
	{BACKEND, PAIR("devices", "\x80"),
		"backend.devices must be an array of at most 32 elements"},
	{BACKEND, PAIR("devices", "\x91\x01"), "devices must be a map"},
	{BACKEND, PAIR("devices", "\x91" DEVICE("\xd9\x3f" S16 S16 S16 "0123456789abcde")), NULL},
	{BACKEND, PAIR("devices", "\x91" DEVICE("\xd9\x40" S16 S16 S16 S16)),
		"devices.uuid must be a string of 1 to 63 bytes"},
	{BACKEND, PAIR("devices", "\x91" DEVICE("\x00")),
		"devices.uuid must be a string of 1 to 63 bytes"},
	{BACKEND, PAIR("tensor_parallel", "\x00"),
		"backend.tensor_parallel must be an integer from 1 to 4294967295"},
	{LIMITS, PAIR("max_rows", "\x00"),
		"limits.max_rows must be an integer from 1 to 4294967295"},
	{LIMITS, PAIR("max_steps", "\x00"),
		"limits.max_steps must be an integer from 1 to 4294967295"},
	{LIMITS, PAIR("max_frame_bytes", "\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
		"limits.max_frame_bytes must be an integer from 1 to 4294967295"},
	{LIMITS, NO_PAIR("max_region_bytes"), "limits.max_region_bytes is missing"},
};

static void append_map(struct wire_buffer *buffer, const char *key, const struct pair *pairs,
	int count, const struct pair *change)
{
	struct wire_buffer map;

	wire_buffer_init(&map);
	map_of(&map, pairs, (size_t)count, change);
	wire_pack_str(buffer, strlen(key));
	wire_pack_str_body(buffer, key, strlen(key));
	wire_buffer_write(buffer, map.bytes, map.count);
	wire_buffer_done(&map);
}

START_TEST(one_key_of_the_reply_changed)
{
	const struct pair *change = &reply_changes[_i].change;
	enum part part = reply_changes[_i].part;
	struct message_fault fault = {0};
	struct wire_buffer buffer;
	struct wire_cursor cursor;
	struct hello_reply reply;
	int rc;

	wire_buffer_init(&buffer);
	map_of(&buffer, outer_pairs, COUNT(outer_pairs), part == OUTER ? change : NULL);
	buffer.bytes[0] = (uint8_t)(buffer.bytes[0] + 3);
	append_map(
		&buffer, "model", model_pairs, COUNT(model_pairs), part == MODEL ? change : NULL);
	append_map(&buffer, "backend", backend_pairs, COUNT(backend_pairs),
		part == BACKEND ? change : NULL);
	append_map(&buffer, "limits", limits_pairs, COUNT(limits_pairs),
		part == LIMITS ? change : NULL);
	ck_assert_int_eq(wire_scan(buffer.bytes, buffer.count), WIRE_OK);
	wire_cursor_init(&cursor, buffer.bytes, buffer.count);
	rc = hello_reply_decode(cursor, &reply, &fault);
	if (!reply_changes[_i].text) {
		ck_assert_msg(rc == 0, "%s", fault.text);
	} else {
		ck_assert_int_eq(rc, -EBADMSG);
		ck_assert_str_eq(fault.text, reply_changes[_i].text);
	}
	wire_buffer_done(&buffer);
}
END_TEST

Suite *hello_suite(void)
{
	Suite *suite = suite_create("hello");
	TCase *tcase = tcase_create("hello");

	tcase_add_loop_test(tcase, one_key_of_the_request_changed, 0, COUNT(request_changes));
	tcase_add_test(tcase, request_comes_back);
	tcase_add_loop_test(tcase, reply_comes_back, 0, MESSAGE_DEVICES_MAX + 1);
	tcase_add_loop_test(tcase, one_key_of_the_reply_changed, 0, COUNT(reply_changes));
	suite_add_tcase(suite, tcase);
	return suite;
}
