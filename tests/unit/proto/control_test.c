#include "suites.h"

#include <errno.h>

static const struct pair stranger[] = {PAIR("later", "\xc0")};

START_TEST(metrics_come_back)
{
	struct wire_text text = {NULL, 77};
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	ck_assert_int_eq(
		metrics_reply_decode(map_of(&buffer, stranger, 1, NULL), &text, &fault), -EBADMSG);
	ck_assert_str_eq(fault.text, "text is missing");
	ck_assert_uint_eq(text.bytes, 77);
	wire_buffer_clear(&buffer);
	metrics_reply_encode(&buffer, 2, "draftd_up 1\nmore", 12);
	ck_assert_int_eq(metrics_reply_decode(params_of(&buffer, &message), &text, &fault), 0);
	assert_text(text, "draftd_up 1\n");

	wire_buffer_clear(&buffer);
	metrics_reply_encode(&buffer, 2, "", (size_t)UINT32_MAX + 1);
	ck_assert(buffer.failed);
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(cancel_comes_back)
{
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;
	uint32_t id = 77;

	wire_buffer_init(&buffer);
	ck_assert_int_eq(cancel_decode(map_of(&buffer, stranger, 1, NULL), &id, &fault), -EBADMSG);
	ck_assert_str_eq(fault.text, "id is missing");
	ck_assert_uint_eq(id, 77);
	wire_buffer_clear(&buffer);
	cancel_encode(&buffer, UINT32_MAX);
	ck_assert_int_eq(cancel_decode(params_of(&buffer, &message), &id, &fault), 0);
	ck_assert(message.kind == MESSAGE_NOTIFICATION && message.method == METHOD_CANCEL);
	ck_assert_uint_eq(id, UINT32_MAX);
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(goaway_comes_back)
{
	struct wire_text reason = {NULL, 77};
	struct message_fault fault;
	struct wire_buffer buffer;
	struct message message;

	wire_buffer_init(&buffer);
	ck_assert_int_eq(
		goaway_decode(map_of(&buffer, stranger, 1, NULL), &reason, &fault), -EBADMSG);
	ck_assert_str_eq(fault.text, "reason is missing");
	ck_assert_uint_eq(reason.bytes, 77);
	wire_buffer_clear(&buffer);
	goaway_encode(&buffer, "draining");
	ck_assert_int_eq(goaway_decode(params_of(&buffer, &message), &reason, &fault), 0);
	ck_assert(message.kind == MESSAGE_NOTIFICATION && message.method == METHOD_GOAWAY);
	assert_text(reason, "draining");
	wire_buffer_done(&buffer);
}
END_TEST

Suite *control_suite(void)
{
	Suite *suite = suite_create("control");
	TCase *tcase = tcase_create("control");

	tcase_add_test(tcase, metrics_come_back);
	tcase_add_test(tcase, cancel_comes_back);
	tcase_add_test(tcase, goaway_comes_back);
	suite_add_tcase(suite, tcase);
	return suite;
}
