#include "tests/unit/client/peer.h"
#include "tests/unit/client/suites.h"

#include <errno.h>
#include <string.h>

#define ID 5u

static struct peer peer;
static struct draft *draft;
static const char *wanted_device; /* or NULL */
static uint8_t handle[DRAFT_EVENT_HANDLE_BYTES];

static void setup(void)
{
	fds_count();
	peer_init(&peer);
	draft = peer_connect(&peer);
	wanted_device = NULL;
	for (size_t i = 0; i < sizeof(handle); i++)
		handle[i] = (uint8_t)(i + 100);
}

static void teardown(void)
{
	draft_close(draft);
	peer_done(&peer);
	fds_check();
}

static void serve_import(struct peer *p)
{
	struct event_request want;
	struct message_fault fault;
	struct request request;

	peer_take(p, METHOD_EVENT_IMPORT, &request);
	peer_check(event_request_decode(request.message.params, &want, &fault) == 0);
	peer_check(memcmp(want.handle, handle, sizeof(handle)) == 0);
	peer_check(want.has_device == (wanted_device != NULL));
	if (wanted_device)
		peer_check(want.device.bytes == strlen(wanted_device) &&
			   memcmp(want.device.at, wanted_device, want.device.bytes) == 0);
	event_reply_encode(&p->out, request.message.id, ID);
	peer_send(p);
}

static void serve_close(struct peer *p)
{
	struct message_fault fault;
	struct request request;
	uint32_t event;

	peer_take(p, METHOD_EVENT_CLOSE, &request);
	peer_check(event_close_decode(request.message.params, &event, &fault) == 0);
	peer_check(event == ID);
	message_encode_empty_reply(&p->out, request.message.id);
	peer_send(p);
}

static struct draft_event *import_event(const char *device)
{
	struct draft_event *event = NULL;

	wanted_device = device;
	peer_start(&peer, serve_import);
	ck_assert_msg(draft_event_import(draft, handle, sizeof(handle), device, &event) == 0, "%s",
		draft_error(draft));
	peer_join(&peer);
	return event;
}

START_TEST(is_named_in_a_draft)
{
	struct draft_event *event = import_event("GPU-1");
	struct draft_request request = peer_request(1, 1);
	struct message_fault fault;
	struct request taken;
	struct draft_call got;
	uint64_t ticket;

	request.event = event;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	peer_take(&peer, METHOD_DRAFT, &taken);
	ck_assert_int_eq(draft_request_decode(taken.message.params, &got, &fault), 0);
	ck_assert(got.has_event);
	ck_assert_uint_eq(got.event, ID);
	request.event = NULL;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	peer_take(&peer, METHOD_DRAFT, &taken);
	ck_assert_int_eq(draft_request_decode(taken.message.params, &got, &fault), 0);
	ck_assert(!got.has_event);
	peer_start(&peer, serve_close);
	ck_assert_int_eq(draft_event_close(event), 0);
	peer_join(&peer);
	ck_assert_int_eq(draft_event_close(NULL), 0);
	import_event(NULL); /* freed with the connection */
}
END_TEST

/* A program of an older header: its struct ends before the event. */
START_TEST(is_absent_in_an_older_request)
{
	struct draft_request request = peer_request(1, 1);
	struct message_fault fault;
	struct request taken;
	struct draft_call got;
	uint64_t ticket;

	request.size = offsetof(struct draft_request, event);
	request.event = (struct draft_event *)&request; /* is not looked at */
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	peer_take(&peer, METHOD_DRAFT, &taken);
	ck_assert_int_eq(draft_request_decode(taken.message.params, &got, &fault), 0);
	ck_assert(!got.has_event);
}
END_TEST

static void refuse_import(struct peer *p)
{
	struct request request;

	peer_take(p, METHOD_EVENT_IMPORT, &request);
	message_encode_error(&p->out, true, request.message.id, ERROR_BAD_REQUEST, "no event");
	peer_send(p);
}

START_TEST(passes_errors_on)
{
	char long_name[MESSAGE_UUID_BYTES + 1];
	struct draft_event *event = NULL;

	memset(long_name, 'x', MESSAGE_UUID_BYTES);
	long_name[MESSAGE_UUID_BYTES] = '\0';
	peer_start(&peer, refuse_import);
	ck_assert_int_eq(draft_event_import(draft, handle, sizeof(handle), NULL, &event),
		-DRAFT_E_BAD_REQUEST);
	peer_join(&peer);
	ck_assert_str_eq(draft_error(draft), "no event");
	ck_assert_int_eq(draft_event_import(draft, handle, 63, NULL, &event), -EINVAL);
	ck_assert_str_eq(
		draft_error(draft), "the handle has 63 bytes; a cudaIpcEventHandle_t has 64");
	ck_assert_int_eq(draft_event_import(draft, handle, 64, "", &event), -EINVAL);
	ck_assert_int_eq(draft_event_import(draft, handle, 64, long_name, &event), -EINVAL);
	ck_assert_ptr_null(event);
}
END_TEST

START_TEST(is_given_back_when_it_comes_too_late)
{
	struct draft_event *event;
	struct draft_result *result;

	draft->timeout_us = 1;
	ck_assert_int_eq(draft_event_import(draft, handle, 64, NULL, &event), -ETIMEDOUT);
	draft->timeout_us = -1;
	serve_import(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	serve_close(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
}
END_TEST

START_TEST(is_gone_with_its_connection)
{
	struct draft_event *event = import_event(NULL), *other = import_event(NULL);
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	uint64_t ticket;

	peer_hang_up(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), -ECONNRESET);
	ck_assert_int_eq(draft_event_close(other), 0);
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect(draft), 0);
	peer_join(&peer);
	request.event = event;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_NOT_FOUND);
	ck_assert_int_eq(draft_event_close(event), 0);
}
END_TEST

START_TEST(belongs_to_one_connection)
{
	struct draft_event *event = import_event(NULL);
	struct draft_request request = peer_request(1, 1);
	struct draft *other_one;
	struct peer other;
	uint64_t ticket;

	peer_init(&other);
	other_one = peer_connect(&other);
	request.event = event;
	ck_assert_int_eq(draft_submit(other_one, &request, &ticket), -EINVAL);
	ck_assert_str_eq(draft_error(other_one), "the event is another connection's");
	draft_close(other_one);
	peer_done(&other);
}
END_TEST

Suite *event_suite(void)
{
	Suite *suite = suite_create("client/event");
	TCase *tcase = tcase_create("event");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, is_named_in_a_draft);
	tcase_add_test(tcase, is_absent_in_an_older_request);
	tcase_add_test(tcase, passes_errors_on);
	tcase_add_test(tcase, is_given_back_when_it_comes_too_late);
	tcase_add_test(tcase, is_gone_with_its_connection);
	tcase_add_test(tcase, belongs_to_one_connection);
	suite_add_tcase(suite, tcase);
	return suite;
}
