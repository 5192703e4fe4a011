#include "tests/unit/client/peer.h"
#include "tests/unit/client/suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct peer peer;
static struct draft *draft;

static void setup(void)
{
	fds_count();
	peer_init(&peer);
	draft = peer_connect(&peer);
}

static void teardown(void)
{
	draft_close(draft);
	peer_done(&peer);
	fds_check();
}

static void answer_empty(struct peer *p)
{
	struct request request;

	peer_take(p, (enum method)p->argument, &request);
	message_encode_empty_reply(&p->out, request.message.id);
	peer_send(p);
}

static void answer_permission_denied(struct peer *p)
{
	struct request request;

	peer_take(p, (enum method)p->argument, &request);
	message_encode_error(
		&p->out, true, request.message.id, ERROR_PERMISSION_DENIED, "only for root");
	peer_send(p);
}

START_TEST(asks_and_waits)
{
	static const struct {
		int (*call)(struct draft *);
		enum method method;
	} calls[] = {{draft_ping, METHOD_PING}, {draft_drain, METHOD_DRAIN},
		{draft_reload, METHOD_RELOAD}};

	for (size_t i = 0; i < 3; i++) {
		peer.argument = (size_t)calls[i].method;
		peer_start(&peer, answer_empty);
		ck_assert_int_eq(calls[i].call(draft), 0);
		peer_join(&peer);
		peer_start(&peer, answer_permission_denied);
		ck_assert_int_eq(calls[i].call(draft), -DRAFT_E_PERMISSION_DENIED);
		ck_assert_str_eq(draft_error(draft), "only for root");
		peer_join(&peer);
	}
	draft->timeout_us = 1;
	ck_assert_int_eq(draft_ping(draft), -ETIMEDOUT);
	draft->timeout_us = -1;
	peer.argument = METHOD_PING;
	answer_empty(&peer); /* late: dropped */
	peer_start(&peer, answer_empty);
	ck_assert_int_eq(draft_ping(draft), 0);
}
END_TEST

/* MessagePack written by hand (the specification's formats), and the JSON that it has to become. */
static const struct {
	const char *bytes;
	size_t byte_count;
	const char *json; /* NULL: the connection breaks */
} values[] = {
#define VALUE(bytes, json)                                                                         \
	{                                                                                          \
		bytes, sizeof(bytes) - 1, json                                                     \
	}
	VALUE("\x80", "{}"),
	VALUE("\x83\xa1"
	      "a\x07\xa1"
	      "b\xff\xa1"
	      "c\xcb\x3f\xf8\0\0\0\0\0\0",
		"{\"a\":7,\"b\":-1,\"c\":1.5}"),
	VALUE("\x81\xa1"
	      "a\x93\xc0\xc2\xc3",
		"{\"a\":[null,false,true]}"),
	VALUE("\x81\xa3"
	      "a\"b\x81\xa1"
	      "c\xa2\xc3\xa9",
		"{\"a\\\"b\":{\"c\":\"\xc3\xa9\"}}"),
	VALUE("\x81\xa1"
	      "n\xca\x7f\xc0\0\0",
		"{\"n\":null}"),
	VALUE("\x81\xa1"
	      "u\xcf\x7f\xff\xff\xff\xff\xff\xff\xff",
		"{\"u\":9223372036854775807}"),
	VALUE("\x81\xa1"
	      "u\xcf\x80\0\0\0\0\0\0\0",
		"{\"u\":9.2233720368547758e18}"),
	VALUE("\x81\xa1"
	      "i\xd3\x80\0\0\0\0\0\0\0",
		"{\"i\":-9223372036854775808}"),
	/* Neither UTF-8 nor printable, as the page allows: the connection lives on. */
	VALUE("\x81\xa3"
	      "k\xff\x1b\xa3"
	      "\0\xe9v",
		"{\"k??\":\"??v\"}"),
	VALUE("\x91\x01", NULL),     /* no map */
	VALUE("\x81\x01\x01", NULL), /* a key that is no string */
	VALUE("\x81\xa1"
	      "b\xc4\x01\x00",
		NULL), /* bytes */
	VALUE("\x81\xa1"
	      "b\x92\x01\xc4\x01\x00",
		NULL),
#undef VALUE
};

static void answer_stats(struct peer *p)
{
	struct request request;
	size_t at;

	peer_take(p, METHOD_STATS, &request);
	at = message_begin_reply(&p->out, request.message.id);
	wire_buffer_write(&p->out, values[p->argument].bytes, values[p->argument].byte_count);
	message_end_reply(&p->out, at, 0);
	peer_send(p);
}

START_TEST(turns_stats_into_json)
{
	char *json;
	int r;

	for (peer.argument = 0; peer.argument < sizeof(values) / sizeof(values[0]);
		peer.argument++) {
		peer_start(&peer, answer_stats);
		json = NULL;
		r = draft_stats(draft, &json);
		peer_join(&peer);
		if (values[peer.argument].json) {
			ck_assert_int_eq(r, 0);
			ck_assert_str_eq(json, values[peer.argument].json);
			free(json);
			continue;
		}
		ck_assert_int_eq(r, -EPROTO);
		ck_assert_ptr_null(json);
		peer_start(&peer, peer_greet);
		ck_assert_int_eq(draft_reconnect(draft), 0);
		peer_join(&peer);
	}
}
END_TEST

static void answer_metrics(struct peer *p)
{
	struct request request;

	peer_take(p, METHOD_METRICS, &request);
	metrics_reply_encode(&p->out, request.message.id, "a 1\nb 2\n", 8);
	peer_send(p);
}

START_TEST(gives_metrics_as_text)
{
	char *text;

	peer_start(&peer, answer_metrics);
	ck_assert_int_eq(draft_metrics(draft, &text), 0);
	ck_assert_str_eq(text, "a 1\nb 2\n");
	free(text);
}
END_TEST

Suite *service_suite(void)
{
	Suite *suite = suite_create("client/service");
	TCase *tcase = tcase_create("service");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, asks_and_waits);
	tcase_add_test(tcase, turns_stats_into_json);
	tcase_add_test(tcase, gives_metrics_as_text);
	suite_add_tcase(suite, tcase);
	return suite;
}
