/* What a socket can do to a client, and what a server that lies can. */
#include "tests/unit/client/peer.h"
#include "tests/unit/client/suites.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGE_VOCAB 2000000u /* a row of 4 MB: more than any socket holds */

static struct peer peer;
static struct draft *draft;

static void setup(void)
{
	fds_count();
	peer_init(&peer);
	draft = peer_connect(&peer);
}

static void setup_large(void)
{
	fds_count();
	peer_init(&peer);
	peer.hello.model.vocab = LARGE_VOCAB;
	peer.hello.limits.max_frame_bytes = 64 << 20;
	draft = peer_connect(&peer);
}

static void teardown(void)
{
	draft_close(draft);
	peer_done(&peer);
	fds_check();
}

static uint32_t submit_and_take(uint32_t rows, uint32_t steps)
{
	struct draft_request request = peer_request(rows, steps);
	struct request got;
	uint64_t ticket;

	ck_assert_msg(draft_submit(draft, &request, &ticket) == 0, "%s", draft_error(draft));
	peer_take(&peer, METHOD_DRAFT, &got);
	return got.message.id;
}

static void reconnect(void)
{
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect(draft), 0);
	peer_join(&peer);
}

START_TEST(takes_a_reply_in_any_two_pieces)
{
	struct draft_result *result;
	size_t length = 2; /* until the first reply is known */
	uint8_t bytes[512];

	for (size_t cut = 1; cut < length; cut++) {
		peer_encode_draft(&peer, submit_and_take(2, 3), 2, 3, 1, NULL);
		length = peer.out.count;
		ck_assert_uint_lt(length, sizeof(bytes));
		memcpy(bytes, peer.out.bytes, length);
		peer.out.count = cut;
		peer_send(&peer);
		ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
		wire_buffer_write(&peer.out, (char *)bytes + cut, length - cut);
		peer_send(&peer);
		ck_assert_int_eq(draft_poll(draft, 0, &result), 1);
		ck_assert_uint_eq(result->tokens[5], 1);
		draft_result_free(result);
	}
	ck_assert_uint_gt(length, 50);
}
END_TEST

START_TEST(notices_an_end_at_any_byte)
{
	struct draft_result *result;
	size_t length = 2;

	for (size_t cut = 0; cut < length; cut++) {
		peer_encode_draft(&peer, submit_and_take(2, 3), 2, 3, 1, NULL);
		length = peer.out.count;
		peer.out.count = cut;
		peer_send(&peer);
		peer_hang_up(&peer);
		ck_assert_int_eq(draft_poll(draft, -1, &result), -ECONNRESET);
		ck_assert_str_eq(draft_error(draft),
			cut == 0 ? "draftd closed the connection"
				 : "draftd closed the connection in the middle of a reply");
		reconnect();
	}
}
END_TEST

/* Sends what was encoded; the client must refuse it, and say so with `what`. */
static void expect_refusal(const char *what)
{
	struct draft_result *result;

	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), -EPROTO);
	ck_assert_msg(strstr(draft_error(draft), what) != NULL, "\"%s\" lacks \"%s\"",
		draft_error(draft), what);
	ck_assert_int_eq(draft_poll(draft, -1, &result), -ENOTCONN);
	reconnect();
}

START_TEST(refuses_bad_frames)
{
	uint8_t header[FRAME_HEADER_BYTES];

	submit_and_take(1, 1);
	wire_buffer_write(&peer.out, "HTTP/1.1", 8);
	expect_refusal("draftd broke the protocol");
	submit_and_take(1, 1);
	frame_put_header(header, peer.hello.limits.max_frame_bytes + 1, 0);
	wire_buffer_write(&peer.out, (char *)header, sizeof(header));
	expect_refusal("65536");
	submit_and_take(1, 1);
	frame_put_header(header, 5, 0);
	wire_buffer_write(&peer.out, (char *)header, sizeof(header));
	wire_buffer_write(&peer.out, "\xdd\x10\0\0\0", 5); /* an array of 2^28 in five bytes */
	expect_refusal("draftd broke the protocol");
	submit_and_take(1, 1);
	message_encode_request(&peer.out, 1, METHOD_PING);
	expect_refusal("it sent a request");
}
END_TEST

START_TEST(takes_the_longest_frame)
{
	struct draft_result *result;
	uint8_t header[FRAME_HEADER_BYTES];
	static char filler[65536];

	submit_and_take(1, 1);
	frame_put_header(header, peer.hello.limits.max_frame_bytes, 0);
	wire_buffer_write(&peer.out, (char *)header, sizeof(header));
	wire_buffer_write(&peer.out, filler, sizeof(filler) - 1);
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0); /* waits for its last byte */
}
END_TEST

START_TEST(refuses_answers_to_nothing)
{
	struct draft_result *result;
	uint32_t id = submit_and_take(1, 1);

	message_encode_empty_reply(&peer.out, id + 1);
	expect_refusal("not in flight");
	id = submit_and_take(1, 1);
	peer_encode_draft(&peer, id, 1, 1, 0, NULL);
	peer_encode_draft(&peer, id, 1, 1, 0, NULL);
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1); /* the first was right */
	draft_result_free(result);
	ck_assert_int_eq(draft_poll(draft, -1, &result), -ENOTCONN);
	reconnect();
	/* An id of the connection before. */
	submit_and_take(1, 1);
	peer_encode_draft(&peer, id, 1, 1, 0, NULL);
	expect_refusal("not in flight");
}
END_TEST

START_TEST(refuses_drafts_that_do_not_fit)
{
	static const uint16_t logits[PEER_VOCAB * 3];
	struct draft_request request = peer_request(1, 2);
	uint16_t room[PEER_VOCAB * 2];
	struct request got;
	uint64_t ticket;

	peer_encode_draft(&peer, submit_and_take(2, 3), 3, 2, 0, NULL);
	expect_refusal("2 rows and 3 steps has 6 tokens and 3 flags");
	peer_encode_draft(&peer, submit_and_take(2, 3), 2, 2, 0, NULL);
	expect_refusal("4 tokens");
	peer_encode_draft(&peer, submit_and_take(1, 1), 1, 1, 0, logits);
	expect_refusal("10 bytes of logits where 0");
	peer.hello.model.vocab = PEER_VOCAB + 1; /* so that its last token is one too many */
	peer_encode_draft(&peer, submit_and_take(1, 1), 1, 1, PEER_VOCAB, NULL);
	peer.hello.model.vocab = PEER_VOCAB;
	expect_refusal("token 5 is not below vocab, which is 5");
	request.logits.data = room;
	for (uint32_t given = 0; given < 3; given += 2) { /* none, and too many */
		ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
		peer_take(&peer, METHOD_DRAFT, &got);
		peer.hello.model.vocab = PEER_VOCAB + given / 2;
		peer_encode_draft(&peer, got.message.id, 1, 2, 0, given ? logits : NULL);
		peer.hello.model.vocab = PEER_VOCAB;
		expect_refusal("bytes of logits where 20");
	}
}
END_TEST

START_TEST(refuses_and_closes_descriptors)
{
	struct draft_result *result;
	int fds[2 * FRAME_FDS_MAX];

	for (unsigned i = 0; i < 2 * FRAME_FDS_MAX; i++)
		fds[i] = memfd_create("surplus", MFD_CLOEXEC);
	for (unsigned count = 1; count <= 2 * FRAME_FDS_MAX; count++) {
		/* The header declares as many as it can, so that they are part of the frame. */
		peer_encode_draft(&peer, submit_and_take(1, 1), 1, 1, 0, NULL);
		peer.out.bytes[3] = (uint8_t)(count <= FRAME_FDS_MAX ? count : FRAME_FDS_MAX);
		peer_send_with(&peer, fds, count);
		ck_assert_int_eq(draft_poll(draft, -1, &result), -EPROTO);
		reconnect();
		/* Or none, so that they belong to nothing. */
		peer_encode_draft(&peer, submit_and_take(1, 1), 1, 1, 0, NULL);
		peer_send_with(&peer, fds, count);
		ck_assert_int_eq(draft_poll(draft, -1, &result), -EPROTO);
		reconnect();
	}
	goaway_encode(&peer.out, "");
	peer.out.bytes[3] = 1;
	peer_send_with(&peer, fds, 1);
	ck_assert_int_eq(draft_poll(draft, 0, &result), -EPROTO);
	for (unsigned i = 0; i < 2 * FRAME_FDS_MAX; i++)
		close(fds[i]);
}
END_TEST

START_TEST(passes_on_why_draftd_hangs_up)
{
	struct draft_result *result;

	submit_and_take(1, 1);
	message_encode_error(&peer.out, false, 0, ERROR_BAD_FRAME, "magic is wrong");
	peer_send(&peer);
	peer_hang_up(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), -DRAFT_E_BAD_FRAME);
	ck_assert_str_eq(draft_error(draft), "magic is wrong");
	ck_assert_int_eq(draft_poll(draft, -1, &result), -ENOTCONN);
}
END_TEST

START_TEST(reads_the_last_words_when_sending_fails)
{
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	uint32_t id = submit_and_take(1, 1);
	uint64_t ticket;

	message_encode_error(&peer.out, true, id, ERROR_DEVICE_LOST, "the device is lost");
	peer_send(&peer);
	peer_hang_up(&peer);
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -ECONNRESET);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	ck_assert_int_eq(result->code, -DRAFT_E_DEVICE_LOST);
	draft_result_free(result);
	ck_assert_int_eq(draft_poll(draft, -1, &result), -ENOTCONN);
}
END_TEST

START_TEST(keeps_the_number_of_a_later_error)
{
	struct draft_result *result;

	message_encode_error(&peer.out, true, submit_and_take(1, 1), ERROR_INTERNAL, "boo");
	/* The number alone is changed: a one-byte integer behind its key. */
	for (size_t i = FRAME_HEADER_BYTES; i + 5 < peer.out.count; i++)
		if (memcmp(peer.out.bytes + i,
			    "\xa4"
			    "code",
			    5) == 0)
			peer.out.bytes[i + 5] = 99;
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	ck_assert_int_eq(result->code, -DRAFT_E_INTERNAL);
	ck_assert_str_eq(result->error, "error 99 (INTERNAL): boo");
	draft_result_free(result);
}
END_TEST

/* ---- a full socket ---- */

static struct draft_request large_request(void)
{
	struct draft_request request = peer_request(1, 1);

	request.base.data = malloc((size_t)LARGE_VOCAB * 2);
	ck_assert_ptr_nonnull(request.base.data);
	memset(request.base.data, 0x5a, (size_t)LARGE_VOCAB * 2);
	return request;
}

static void check_large(const struct request *request)
{
	struct draft_call got;
	struct message_fault fault;

	peer_check(draft_request_decode(request->message.params, &got, &fault) == 0);
	peer_check(got.base.byte_count == (uint64_t)LARGE_VOCAB * 2);
	for (size_t i = 0; i < got.base.byte_count; i++)
		peer_check(got.base.bytes[i] == 0x5a);
}

/* A server whose replies have to be read before it reads on. */
static void answer_before_reading_on(struct peer *p)
{
	uint16_t *logits = calloc(LARGE_VOCAB, 2);
	struct request first;
	struct request second;

	peer_check(logits != NULL);
	logits[LARGE_VOCAB - 1] = 42;
	peer_take(p, METHOD_DRAFT, &first);
	peer_encode_draft(p, first.message.id, 1, 1, 5, logits);
	peer_send(p);
	peer_take(p, METHOD_DRAFT, &second);
	check_large(&second);
	peer_encode_draft(p, second.message.id, 1, 1, 6, NULL);
	peer_send(p);
	free(logits);
}

START_TEST(reads_while_it_waits_to_write)
{
	struct draft_request request = large_request();
	uint16_t *logits = calloc(LARGE_VOCAB, 2);
	struct draft_result *result;
	uint64_t first;
	uint32_t token;

	peer_start(&peer, answer_before_reading_on);
	request.logits.data = logits;
	ck_assert_int_eq(draft_submit(draft, &request, &first), 0);
	request.logits.data = NULL;
	ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), 0);
	ck_assert_uint_eq(token, 6);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	ck_assert_uint_eq(result->ticket, first);
	ck_assert_uint_eq(logits[LARGE_VOCAB - 1], 42);
	draft_result_free(result);
	free(logits);
	free(request.base.data);
}
END_TEST

static void take_the_rest(struct peer *p)
{
	struct request request;
	uint32_t id;

	peer_take(p, METHOD_DRAFT, &request);
	check_large(&request);
	id = request.message.id;
	peer_take(p, METHOD_CANCEL, &request);
	message_encode_error(&p->out, true, id, ERROR_CANCELLED, "cancelled");
	peer_take(p, METHOD_PING, &request);
	message_encode_empty_reply(&p->out, request.message.id);
	peer_send(p);
}

START_TEST(outlives_a_timeout_in_the_middle_of_a_request)
{
	struct draft_request request = large_request();
	uint32_t token;
	uint64_t ticket;

	draft->timeout_us = 2000;
	ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), -ETIMEDOUT);
	ck_assert_str_eq(draft_error(draft),
		"draftd did not take the request within the timeout of 0.002 s");
	ck_assert_int_eq(draft_events(draft), POLLIN | POLLOUT);
	memset(request.base.data, 0, (size_t)LARGE_VOCAB * 2); /* the caller's again */
	/* Nothing of the next one fits: it never started. */
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -ETIMEDOUT);
	ck_assert_uint_eq(draft->tickets_out, 1);
	draft->timeout_us = -1;
	peer_start(&peer, take_the_rest);
	ck_assert_int_eq(draft_ping(draft), 0);
	peer_join(&peer);
	ck_assert_int_eq(draft_events(draft), POLLIN);
	ck_assert_uint_eq(draft->tickets_out, 0);
	free(request.base.data);
}
END_TEST

/* Grants a region to a caller who has given up: it is queued to be given back. */
static void grant_late(void)
{
	struct region_reply reply = {
		.region = 9, .has_memory = true, .bytes = 1, .memory = REGION_HOST};
	struct request request;
	int fd = memfd_create("late", MFD_CLOEXEC);

	peer_take(&peer, METHOD_REGION_OPEN, &request);
	region_reply_encode(&peer.out, request.message.id, &reply);
	peer.out.bytes[3] = 1;
	peer_send_with(&peer, &fd, 1);
	close(fd);
}

static void take_the_rest_and_a_region(struct peer *p)
{
	struct request request;

	peer_take(p, METHOD_DRAFT, &request);
	check_large(&request);
	peer_take(p, METHOD_REGION_CLOSE, &request);
	peer_take(p, METHOD_CANCEL, &request);
	peer_take(p, METHOD_PING, &request);
	message_encode_empty_reply(&p->out, request.message.id);
	peer_send(p);
}

START_TEST(keeps_frames_apart_when_one_is_queued_inside_another)
{
	struct draft_request request = large_request();
	struct draft_region *region;
	uint32_t token;

	draft->timeout_us = 1;
	ck_assert_int_eq(draft_region_open(draft, 1, DRAFT_HOST, &region), -ETIMEDOUT);
	grant_late();
	draft->timeout_us = 50000; /* time to send a part, and to read the grant */
	ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), -ETIMEDOUT);
	draft->timeout_us = -1;
	peer_start(&peer, take_the_rest_and_a_region);
	ck_assert_int_eq(draft_ping(draft), 0);
	peer_join(&peer);
	free(request.base.data);
}
END_TEST

START_TEST(a_flood_does_not_hold_a_poll)
{
	struct draft_result *result;
	int unread;

	submit_and_take(1, 1);
	while (peer.out.count < 60000)
		goaway_encode(&peer.out, "again");
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	ck_assert(draft_going_away(draft));
	ck_assert_int_eq(ioctl(draft_fd(draft), FIONREAD, &unread), 0);
	ck_assert_int_gt(unread, 0);
}
END_TEST

/* The most that an honest server has to say besides results. */
START_TEST(a_poll_reads_all_that_is_honest)
{
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	struct request got;
	char text[3000]; /* so that one receive does not take all of it */
	uint32_t token;
	int unread;

	memset(text, 't', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	draft->timeout_us = 1;
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), -ETIMEDOUT);
		peer_take(&peer, METHOD_DRAFT, &got);
		message_encode_error(&peer.out, true, got.message.id, ERROR_CANCELLED, text);
		peer_take(&peer, METHOD_CANCEL, &got);
	}
	peer_send(&peer);
	goaway_encode(&peer.out, "");
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	ck_assert_int_eq(ioctl(draft_fd(draft), FIONREAD, &unread), 0);
	ck_assert_int_eq(unread, 0);
}
END_TEST

Suite *transport_suite(void)
{
	Suite *suite = suite_create("client/transport");
	TCase *tcase = tcase_create("transport");
	TCase *large = tcase_create("full socket");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, takes_a_reply_in_any_two_pieces);
	tcase_add_test(tcase, notices_an_end_at_any_byte);
	tcase_add_test(tcase, refuses_bad_frames);
	tcase_add_test(tcase, takes_the_longest_frame);
	tcase_add_test(tcase, refuses_answers_to_nothing);
	tcase_add_test(tcase, refuses_drafts_that_do_not_fit);
	tcase_add_test(tcase, refuses_and_closes_descriptors);
	tcase_add_test(tcase, passes_on_why_draftd_hangs_up);
	tcase_add_test(tcase, reads_the_last_words_when_sending_fails);
	tcase_add_test(tcase, keeps_the_number_of_a_later_error);
	tcase_add_test(tcase, a_flood_does_not_hold_a_poll);
	tcase_add_test(tcase, a_poll_reads_all_that_is_honest);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(large, setup_large, teardown);
	tcase_set_timeout(large, 60);
	tcase_add_test(large, reads_while_it_waits_to_write);
	tcase_add_test(large, outlives_a_timeout_in_the_middle_of_a_request);
	tcase_add_test(large, keeps_frames_apart_when_one_is_queued_inside_another);
	suite_add_tcase(suite, large);
	return suite;
}
