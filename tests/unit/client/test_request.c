#include "tests/unit/client/peer.h"
#include "tests/unit/client/suites.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define ROWS  2u
#define STEPS 3u

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

/* Takes a draft and looks at every field as it arrived. */
static uint32_t take_draft(struct peer *p, struct draft_call *ret)
{
	struct message_fault fault;
	struct request request;

	peer_take(p, METHOD_DRAFT, &request);
	peer_check(draft_request_decode(request.message.params, ret, &fault) == 0);
	return request.message.id;
}

static uint64_t submit(uint32_t rows, uint32_t steps)
{
	struct draft_request request = peer_request(rows, steps);
	uint64_t ticket = 0;

	ck_assert_msg(draft_submit(draft, &request, &ticket) == 0, "%s", draft_error(draft));
	ck_assert_uint_ne(ticket, 0);
	return ticket;
}

START_TEST(sends_every_field)
{
	struct draft_request request = peer_request(ROWS, STEPS);
	static const int64_t slots[ROWS] = {-1, 7};
	struct draft_call got;
	uint32_t anchors[ROWS];
	int64_t wide[ROWS];
	float temperatures[ROWS];
	uint64_t ticket;

	request.slots = slots;
	request.deadline_us = 123456;
	request.priority = 1;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	take_draft(&peer, &got);
	ck_assert_uint_eq(got.rows, ROWS);
	ck_assert_uint_eq(got.steps, STEPS);
	wire_column_u32(&got.anchors, anchors);
	ck_assert_mem_eq(anchors, request.anchors, sizeof(anchors));
	wire_column_i64(&got.positions, wide);
	ck_assert_mem_eq(wide, request.positions, sizeof(wide));
	wire_column_i64(&got.seeds, wide);
	ck_assert_mem_eq(wide, request.seeds, sizeof(wide));
	wire_column_f32(&got.temperatures, temperatures);
	ck_assert_mem_eq(temperatures, request.temperatures, sizeof(temperatures));
	ck_assert(got.has_slots);
	wire_column_i64(&got.slots, wide);
	ck_assert_mem_eq(wide, slots, sizeof(wide));
	ck_assert_int_eq(got.base.kind, BULK_INLINE);
	ck_assert_uint_eq(got.base.byte_count, ROWS * STEPS * PEER_VOCAB * 2);
	ck_assert_mem_eq(got.base.bytes, request.base.data, ROWS * STEPS * PEER_VOCAB * 2);
	ck_assert_int_eq(got.logits.kind, BULK_ABSENT);
	ck_assert(got.has_deadline);
	ck_assert_uint_eq(got.deadline_us, 123456);
	ck_assert_uint_eq(got.priority, 1);
}
END_TEST

START_TEST(leaves_out_what_is_not_wanted)
{
	struct draft_call got;

	submit(1, 1);
	take_draft(&peer, &got);
	ck_assert(!got.has_slots);
	ck_assert(!got.has_deadline);
	ck_assert_uint_eq(got.priority, 0);
}
END_TEST

static bool has_arrived(struct peer *p)
{
	struct pollfd waiting = {.fd = p->fd, .events = POLLIN};

	return poll(&waiting, 1, 0) > 0;
}

/* Another connection, whose draftd takes so many requests. */
static void let_out(uint32_t max_inflight)
{
	draft_close(draft);
	peer_done(&peer);
	peer_init(&peer);
	peer.hello.limits.max_inflight = max_inflight;
	draft = peer_connect(&peer);
}

START_TEST(keeps_what_more_follows)
{
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	struct draft_call got;
	int64_t position;
	uint64_t ticket;

	let_out(8);
	request.more = 1;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	ck_assert(!has_arrived(&peer));
	ck_assert_int_eq(draft_events(draft), POLLIN | POLLOUT);
	ck_assert_int_eq(draft_flush(draft), 0);
	take_draft(&peer, &got);
	take_draft(&peer, &got);
	ck_assert_int_eq(draft_events(draft), POLLIN);

	/* So do a request without it, and a look for results; in order. */
	request.positions = &(int64_t){77};
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	ck_assert(!has_arrived(&peer));
	submit(1, 1);
	take_draft(&peer, &got);
	wire_column_i64(&got.positions, &position);
	ck_assert_int_eq(position, 77);
	take_draft(&peer, &got);
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	ck_assert(!has_arrived(&peer));
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	take_draft(&peer, &got);

	request.more = 2;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -EINVAL);
	ck_assert_ptr_eq(strstr(draft_error(draft), "more"), draft_error(draft));
}
END_TEST

/* Who sends one for each result that was there sends all of them together. */
START_TEST(keeps_while_results_are_there)
{
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	struct draft_call got;
	uint64_t ticket;

	let_out(8);
	for (int i = 0; i < 2; i++)
		submit(1, 1);
	for (int i = 0; i < 2; i++) {
		peer_encode_draft(&peer, take_draft(&peer, &got), 1, 1, 3, NULL);
		peer_send(&peer);
	}
	request.more = 1;
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
		draft_result_free(result);
		ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
		ck_assert(!has_arrived(&peer));
	}
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	take_draft(&peer, &got);
	take_draft(&peer, &got);
}
END_TEST

START_TEST(keeps_no_more_than_it_may)
{
	struct draft_request request = peer_request(1, 1);
	uint64_t ticket;
	size_t kept = 0;

	let_out(1 << 15);
	request.more = 1;
	for (; !has_arrived(&peer); kept++)
		ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	/* A request's frame has some 100 to 200 bytes, and 64 KiB are kept. */
	ck_assert_uint_gt(kept, 65536 / 200);
	ck_assert_uint_lt(kept, 65536 / 100);
}
END_TEST

static void answer_with_logits(struct peer *p)
{
	static const uint16_t logits[ROWS * STEPS * PEER_VOCAB] = {1, 2, 3, [29] = 30};
	struct draft_call got;
	uint32_t id = take_draft(p, &got);

	peer_check(got.logits.kind == BULK_INLINE);
	peer_encode_draft(p, id, ROWS, STEPS, 3, logits);
	peer_send(p);
}

START_TEST(drafts_and_waits)
{
	static const uint32_t tokens_wanted[ROWS * STEPS] = {3, 4, 0, 1, 2, 3};
	struct draft_request request = peer_request(ROWS, STEPS);
	uint16_t logits[ROWS * STEPS * PEER_VOCAB + 1] = {[30] = 99};
	uint32_t tokens[ROWS * STEPS + 1] = {[ROWS * STEPS] = 77};
	uint8_t flags[ROWS + 1] = {[ROWS] = 55};

	request.logits.data = logits;
	peer_start(&peer, answer_with_logits);
	ck_assert_int_eq(draft_draft(draft, &request, tokens, flags), 0);
	ck_assert_mem_eq(tokens, tokens_wanted, sizeof(tokens_wanted));
	ck_assert_uint_eq(tokens[ROWS * STEPS], 77);
	ck_assert_uint_eq(flags[0], 0);
	ck_assert_uint_eq(flags[1], 1);
	ck_assert_uint_eq(flags[ROWS], 55);
	ck_assert_uint_eq(logits[2], 3);
	ck_assert_uint_eq(logits[29], 30);
	ck_assert_uint_eq(logits[30], 99);
	peer_join(&peer);
	peer_start(&peer, answer_with_logits);
	ck_assert_int_eq(draft_draft(draft, &request, tokens, NULL), 0);
	ck_assert_uint_eq(draft->tickets_out, 0);
}
END_TEST

START_TEST(gives_results_in_order_of_arrival)
{
	struct draft_call got;
	struct draft_result *results[3];
	struct draft_result *none;
	uint64_t tickets[3];
	uint32_t ids[3];

	for (uint32_t i = 0; i < 3; i++) {
		tickets[i] = submit(i + 1, 1);
		ids[i] = take_draft(&peer, &got);
		ck_assert_uint_eq(got.rows, i + 1);
	}
	ck_assert(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
	ck_assert_int_eq(draft_poll(draft, 0, &none), 0);
	peer_encode_draft(&peer, ids[2], 3, 1, 2, NULL);
	message_encode_error(&peer.out, true, ids[0], ERROR_DEADLINE_EXCEEDED, "too late");
	peer_encode_draft(&peer, ids[1], 2, 1, 4, NULL);
	peer_send(&peer);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(draft_poll(draft, -1, &results[i]), 1);
	ck_assert_int_eq(draft_poll(draft, -1, &none), 0); /* none is out: no wait */
	ck_assert_uint_eq(results[0]->ticket, tickets[2]);
	ck_assert_int_eq(results[0]->code, 0);
	ck_assert_str_eq(results[0]->error, "");
	ck_assert_uint_eq(results[0]->rows, 3);
	ck_assert_uint_eq(results[0]->steps, 1);
	ck_assert_uint_eq(results[0]->tokens[0], 2);
	ck_assert_uint_eq(results[0]->tokens[2], 4);
	ck_assert_uint_eq(results[0]->flags[1], 1);
	ck_assert_uint_eq(results[0]->generation, 4);
	ck_assert_uint_eq(results[0]->queue_us, 11);
	ck_assert_uint_eq(results[0]->device_us, 22);
	ck_assert_uint_eq(results[0]->total_us, 44);
	ck_assert_uint_eq(results[1]->ticket, tickets[0]);
	ck_assert_int_eq(results[1]->code, -DRAFT_E_DEADLINE_EXCEEDED);
	ck_assert_str_eq(results[1]->error, "too late");
	ck_assert_uint_eq(results[2]->ticket, tickets[1]);
	ck_assert_uint_eq(results[2]->tokens[1], 0);
	draft_result_free(results[0]);
	draft_result_free(results[2]); /* the other one goes with the connection */
}
END_TEST

static void answer_both(struct peer *p)
{
	struct draft_call got;
	uint32_t first = take_draft(p, &got);
	uint32_t second = take_draft(p, &got);

	peer_encode_draft(p, first, 1, 2, 1, NULL);
	message_encode_error(
		&p->out, true, second, ERROR_OUT_OF_RANGE, "offset is 3, the most is 2");
	peer_send(p);
}

START_TEST(keeps_results_while_another_call_waits)
{
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	uint64_t ticket = submit(1, 2);
	uint32_t token = 88;

	peer_start(&peer, answer_both);
	ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), -DRAFT_E_OUT_OF_RANGE);
	ck_assert_str_eq(draft_error(draft), "offset is 3, the most is 2");
	ck_assert_uint_eq(token, 88);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 1);
	ck_assert_uint_eq(result->ticket, ticket);
	ck_assert_uint_eq(result->tokens[1], 2);
	draft_result_free(result);
}
END_TEST

START_TEST(fits_an_event_loop)
{
	struct pollfd pollfd = {.fd = draft_fd(draft), .events = draft_events(draft)};
	struct draft_call got;
	struct draft_result *result;
	uint32_t id;

	submit(1, 1);
	ck_assert_int_eq(poll(&pollfd, 1, 0), 0);
	id = take_draft(&peer, &got);
	peer_encode_draft(&peer, id, 1, 1, 0, NULL);
	peer_send(&peer);
	ck_assert_int_eq(poll(&pollfd, 1, -1), 1);
	ck_assert_int_eq(pollfd.revents, POLLIN);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 1);
	draft_result_free(result);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	ck_assert_int_eq(poll(&pollfd, 1, 0), 0);
}
END_TEST

START_TEST(lets_max_inflight_out_and_not_one_more)
{
	struct draft_request request = peer_request(1, 1);
	struct draft_call got;
	struct draft_result *result;
	uint64_t ticket;
	uint32_t id;

	for (int i = 0; i < 3; i++)
		submit(1, 1);
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_RESOURCE_EXHAUSTED);
	ck_assert_ptr_nonnull(strstr(draft_error(draft), "3 tickets are out, the most is 3"));
	id = take_draft(&peer, &got);
	peer_encode_draft(&peer, id, 1, 1, 0, NULL);
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	draft_result_free(result);
	submit(1, 1);
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_RESOURCE_EXHAUSTED);
}
END_TEST

START_TEST(keeps_to_rows_steps_and_frame)
{
	struct draft_request request = peer_request(4, 3);
	uint64_t ticket;

	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	request.rows = 5;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_TOO_LARGE);
	ck_assert_str_eq(draft_error(draft), "rows is 5, the most is 4");
	request.rows = 4;
	request.steps = 4;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_TOO_LARGE);
	ck_assert_str_eq(draft_error(draft), "steps is 4, the most is 3");
	request.rows = 0;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -EINVAL);
	/* The whole body counts, not only the logits. */
	request = peer_request(1, 1);
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	draft->model.max_frame_bytes =
		(uint32_t)draft->head.count - FRAME_HEADER_BYTES + PEER_VOCAB * 2;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	draft->model.max_frame_bytes--;
	draft->model.max_inflight++;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_TOO_LARGE);
	draft->model.max_frame_bytes = PEER_VOCAB * 2 - 1;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(draft_error(draft), "base has 10 bytes"));
}
END_TEST

START_TEST(survives_limits_that_overflow)
{
	struct draft_request request = peer_request(1, 1);
	uint64_t ticket;

	draft->model.max_rows = draft->model.max_steps = draft->model.vocab = UINT32_MAX;
	request.rows = request.steps = UINT32_MAX;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_TOO_LARGE);
	ck_assert_ptr_null(result_take(draft, UINT32_MAX, UINT32_MAX));
}
END_TEST

START_TEST(names_the_field_that_is_missing)
{
	uint64_t ticket;
	uint32_t token;

	for (int i = 0; i < 7; i++) {
		static const char *const names[] = {"anchors", "positions", "seeds", "temperatures",
			"base", "priority", "size"};
		struct draft_request request = peer_request(1, 1);

		request.anchors = i == 0 ? NULL : request.anchors;
		request.positions = i == 1 ? NULL : request.positions;
		request.seeds = i == 2 ? NULL : request.seeds;
		request.temperatures = i == 3 ? NULL : request.temperatures;
		request.base.data = i == 4 ? NULL : request.base.data;
		request.priority = i == 5 ? 2 : 0;
		request.size = i == 6 ? 0 : request.size;
		ck_assert_int_eq(draft_submit(draft, &request, &ticket), -EINVAL);
		ck_assert_ptr_eq(strstr(draft_error(draft), names[i]), draft_error(draft));
		ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), -EINVAL);
	}
}
END_TEST

START_TEST(cancels_a_ticket_once)
{
	struct draft_call got;
	struct message_fault fault;
	struct draft_result *result;
	struct request request;
	uint64_t ticket = submit(1, 1);
	uint32_t id = take_draft(&peer, &got);
	uint32_t cancelled;

	ck_assert_int_eq(draft_cancel(draft, ticket + 1), -ENOENT);
	ck_assert_int_eq(draft_cancel(draft, 0), -ENOENT);
	ck_assert_int_eq(draft_cancel(draft, ticket), 0);
	ck_assert_int_eq(draft_cancel(draft, ticket), 0);
	peer_take(&peer, METHOD_CANCEL, &request);
	ck_assert_int_eq(cancel_decode(request.message.params, &cancelled, &fault), 0);
	ck_assert_uint_eq(cancelled, id);
	submit(1, 1);
	take_draft(&peer, &got); /* and no second cancel before it */
	message_encode_error(&peer.out, true, id, ERROR_CANCELLED, "cancelled");
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	ck_assert_uint_eq(result->ticket, ticket);
	ck_assert_int_eq(result->code, -DRAFT_E_CANCELLED);
	draft_result_free(result);
	ck_assert_int_eq(draft_cancel(draft, ticket), -ENOENT);
}
END_TEST

START_TEST(a_late_cancel_is_no_error)
{
	struct draft_call got;
	struct draft_result *result;
	uint64_t early = submit(1, 1);
	uint64_t late;

	peer_encode_draft(&peer, take_draft(&peer, &got), 1, 1, 0, NULL);
	late = submit(1, 1);
	peer_encode_draft(&peer, take_draft(&peer, &got), 1, 1, 0, NULL);
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	ck_assert_uint_eq(result->ticket, early);
	draft_result_free(result);
	ck_assert_int_eq(draft_cancel(draft, late), 0); /* taken in, not returned yet */
}
END_TEST

static void answer_ping(struct peer *p)
{
	struct request request;

	peer_take(p, METHOD_PING, &request);
	message_encode_empty_reply(&p->out, request.message.id);
	peer_send(p);
}

START_TEST(gives_up_and_drops_the_late_result)
{
	struct draft_request request = peer_request(1, 1);
	uint16_t logits[PEER_VOCAB] = {9, 9, 9, 9, 9};
	static const uint16_t sent[PEER_VOCAB] = {1, 2, 3, 4, 5};
	struct draft_call got;
	struct message_fault fault;
	struct draft_result *result;
	struct request cancel;
	uint32_t cancelled;
	uint32_t token = 66;
	uint32_t id;

	request.logits.data = logits;
	draft->timeout_us = 1;
	ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), -ETIMEDOUT);
	draft->timeout_us = -1;
	id = take_draft(&peer, &got);
	peer_take(&peer, METHOD_CANCEL, &cancel);
	ck_assert_int_eq(cancel_decode(cancel.message.params, &cancelled, &fault), 0);
	ck_assert_uint_eq(cancelled, id);
	ck_assert_uint_eq(draft->tickets_out, 1); /* it counts until draftd has answered */
	peer_encode_draft(&peer, id, 1, 1, 0, sent);
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 0);
	peer_start(&peer, answer_ping);
	ck_assert_int_eq(draft_ping(draft), 0);
	ck_assert_uint_eq(token, 66);
	ck_assert_uint_eq(logits[0], 9); /* may be gone by then: must not be written */
	ck_assert_uint_eq(draft->tickets_out, 0);
}
END_TEST

START_TEST(poll_waits_no_longer_than_told)
{
	struct draft_result *result;

	submit(1, 1);
	ck_assert_int_eq(draft_poll(draft, 1000, &result), 0);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
}
END_TEST

/* What is there is given although no time is left to wait for it. */
START_TEST(poll_takes_what_is_there)
{
	struct draft_result *result;
	struct draft_call got;

	for (int64_t timeout_us = -1; timeout_us <= 1; timeout_us++) {
		uint64_t ticket = submit(1, 1);

		peer_encode_draft(&peer, take_draft(&peer, &got), 1, 1, 0, NULL);
		peer_send(&peer);
		ck_assert_int_eq(draft_poll(draft, timeout_us, &result), 1);
		ck_assert_uint_eq(result->ticket, ticket);
		draft_result_free(result);
	}
}
END_TEST

static void answer_a_draft(struct peer *p)
{
	struct draft_call got;
	uint32_t id = take_draft(p, &got);

	peer_encode_draft(p, id, 1, 1, 3, NULL);
	peer_send(p);
}

/* Long enough for every reply to be found by looking, and then too short for any. */
START_TEST(a_wait_that_spins)
{
	static const int64_t spins_us[] = {SPIN_MAX_US, 1};
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	uint32_t token;

	for (size_t i = 0; i < 2; i++) {
		draft->spin_us = spins_us[i];
		for (unsigned n = 0; n < 20; n++) {
			peer_start(&peer, answer_a_draft);
			token = 0;
			ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), 0);
			ck_assert_uint_eq(token, 3);
			peer_join(&peer);
			peer_start(&peer, answer_a_draft);
			submit(1, 1);
			ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
			draft_result_free(result);
			peer_join(&peer);
		}
	}
}
END_TEST

/* The timeout is shorter than the spin. */
START_TEST(a_spin_ends_with_the_timeout)
{
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	int64_t begin_us;
	uint32_t token;

	draft->spin_us = SPIN_MAX_US;
	draft->timeout_us = 1000;
	begin_us = deadline_after(0);
	ck_assert_int_eq(draft_draft(draft, &request, &token, NULL), -ETIMEDOUT);
	submit(1, 1);
	ck_assert_int_eq(draft_poll(draft, 1000, &result), 0);
	ck_assert_int_lt(deadline_after(0) - begin_us, SPIN_MAX_US);
	/* The end of the stream is found by looking, too. */
	peer_hang_up(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), -ECONNRESET);
}
END_TEST

START_TEST(reconnecting_forgets_tickets_and_keeps_returned_results)
{
	struct draft_call got;
	struct draft_result *kept;
	struct draft_result *result;
	uint64_t first = submit(1, 2);
	uint64_t second;
	uint64_t third;

	peer_encode_draft(&peer, take_draft(&peer, &got), 1, 2, 3, NULL);
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &kept), 1);
	second = submit(1, 1);
	peer_encode_draft(&peer, take_draft(&peer, &got), 1, 1, 0, NULL);
	third = submit(1, 1);
	peer_encode_draft(&peer, take_draft(&peer, &got), 1, 1, 0, NULL);
	peer_send(&peer);
	peer_hang_up(&peer);
	/* What arrived before the end is not lost by it. */
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	ck_assert_uint_eq(result->ticket, second);
	draft_result_free(result);
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect(draft), 0);
	peer_join(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 0);
	ck_assert_int_eq(draft_cancel(draft, third), -ENOENT);
	ck_assert_uint_gt(submit(1, 1), third);
	ck_assert_uint_eq(kept->ticket, first);
	ck_assert_uint_eq(kept->tokens[1], 4);
	draft_result_free(kept);
}
END_TEST

Suite *request_suite(void)
{
	Suite *suite = suite_create("client/request");
	TCase *tcase = tcase_create("request");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, sends_every_field);
	tcase_add_test(tcase, leaves_out_what_is_not_wanted);
	tcase_add_test(tcase, keeps_what_more_follows);
	tcase_add_test(tcase, keeps_no_more_than_it_may);
	tcase_add_test(tcase, keeps_while_results_are_there);
	tcase_add_test(tcase, drafts_and_waits);
	tcase_add_test(tcase, gives_results_in_order_of_arrival);
	tcase_add_test(tcase, keeps_results_while_another_call_waits);
	tcase_add_test(tcase, fits_an_event_loop);
	tcase_add_test(tcase, lets_max_inflight_out_and_not_one_more);
	tcase_add_test(tcase, keeps_to_rows_steps_and_frame);
	tcase_add_test(tcase, survives_limits_that_overflow);
	tcase_add_test(tcase, names_the_field_that_is_missing);
	tcase_add_test(tcase, cancels_a_ticket_once);
	tcase_add_test(tcase, a_late_cancel_is_no_error);
	tcase_add_test(tcase, gives_up_and_drops_the_late_result);
	tcase_add_test(tcase, poll_waits_no_longer_than_told);
	tcase_add_test(tcase, poll_takes_what_is_there);
	tcase_add_test(tcase, a_wait_that_spins);
	tcase_add_test(tcase, a_spin_ends_with_the_timeout);
	tcase_add_test(tcase, reconnecting_forgets_tickets_and_keeps_returned_results);
	suite_add_tcase(suite, tcase);
	return suite;
}
