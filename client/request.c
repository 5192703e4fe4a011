/* Drafting: a request is checked against what draftd said in `hello`, encoded, and sent; results
 * come back in order of arrival. */
#include "client/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

static int missing(struct draft *draft, const char *field)
{
	return handle_fail(draft, -EINVAL, "%s of the request is NULL", field);
}

static int check_columns(struct draft *draft, const struct draft_request *request)
{
	if (request->rows == 0 || request->steps == 0)
		return handle_fail(draft, -EINVAL, "rows is %u and steps is %u; each is at least 1",
			request->rows, request->steps);
	if (request->rows > draft->model.max_rows)
		return handle_fail(draft, -DRAFT_E_TOO_LARGE, "rows is %u, the most is %u",
			request->rows, draft->model.max_rows);
	if (request->steps > draft->model.max_steps)
		return handle_fail(draft, -DRAFT_E_TOO_LARGE, "steps is %u, the most is %u",
			request->steps, draft->model.max_steps);
	if (!request->anchors)
		return missing(draft, "anchors");
	if (!request->positions)
		return missing(draft, "positions");
	if (!request->seeds)
		return missing(draft, "seeds");
	if (!request->temperatures)
		return missing(draft, "temperatures");
	if (request->priority > 1)
		return handle_fail(
			draft, -EINVAL, "priority is %u; it is 0 or 1", request->priority);
	if (request->more > 1)
		return handle_fail(draft, -EINVAL, "more is %u; it is 0 or 1", request->more);
	return 0;
}

/* Says where one of the two lies, as the wire wants it. draftd checks offsets and strides against
 * its region. */
static int describe_place(struct draft *draft, const char *field,
	const struct draft_request *request, const struct draft_place *place, struct bulk *ret)
{
	uint64_t step_bytes = (uint64_t)draft->model.vocab * sizeof(uint16_t);
	uint64_t row_bytes;
	uint64_t bytes;

	*ret = (struct bulk){.kind = BULK_ABSENT};
	if (!place->region && !place->data)
		return 0;
	/* steps is small by now only if draftd's limits are sane, and they are draftd's word. */
	if (__builtin_mul_overflow(step_bytes, request->steps, &row_bytes) ||
		__builtin_mul_overflow(row_bytes, request->rows, &bytes))
		return handle_fail(draft, -DRAFT_E_TOO_LARGE, "%s has more than 2^64 bytes", field);
	if (place->region) {
		if (place->region->draft != draft)
			return handle_fail(
				draft, -EINVAL, "the region of %s is another connection's", field);
		if (place->region->epoch != draft->epoch)
			return handle_fail(draft, -DRAFT_E_NOT_FOUND,
				"the region of %s is from before the reconnect; open a new one",
				field);
		ret->kind = BULK_REGION;
		ret->region = place->region->id;
		ret->offset = place->offset;
		ret->row_stride = place->row_stride ? place->row_stride : row_bytes;
		ret->step_stride = place->step_stride ? place->step_stride : step_bytes;
		return 0;
	}
	if (bytes > draft->model.max_frame_bytes)
		return handle_fail(draft, -DRAFT_E_TOO_LARGE,
			"%s has %llu bytes, the most in a frame is %u; use a region or fewer rows",
			field, (unsigned long long)bytes, draft->model.max_frame_bytes);
	ret->kind = BULK_INLINE;
	ret->bytes = place->data;
	ret->byte_count = bytes;
	return 0;
}

static int check_event(struct draft *draft, const struct draft_event *event)
{
	if (event && event->draft != draft)
		return handle_fail(draft, -EINVAL, "the event is another connection's");
	if (event && event->epoch != draft->epoch)
		return handle_fail(draft, -DRAFT_E_NOT_FOUND,
			"the event is from before the reconnect; import it again");
	return 0;
}

static int check_request(
	struct draft *draft, const struct draft_request *request, struct draft_params *ret)
{
	int r;

	r = check_columns(draft, request);
	if (r == 0)
		r = check_event(draft, request->event);
	if (r < 0)
		return r;
	*ret = (struct draft_params){
		.steps = request->steps,
		.rows = request->rows,
		.anchors = request->anchors,
		.positions = request->positions,
		.seeds = request->seeds,
		.temperatures = request->temperatures,
		.slots = request->slots,
		.has_deadline = request->deadline_us > 0,
		.deadline_us = request->deadline_us,
		.priority = request->priority,
		.has_event = request->event != NULL,
		.event = request->event ? request->event->id : 0,
	};
	r = describe_place(draft, "base", request, &request->base, &ret->base);
	if (r < 0)
		return r;
	if (ret->base.kind == BULK_ABSENT)
		return missing(draft, "base (its data and its region)");
	return describe_place(draft, "logits", request, &request->logits, &ret->logits);
}

/* ---- sending ---- */

static int encode(struct draft *draft, uint64_t ticket, const struct draft_params *params)
{
	uint64_t body_bytes;

	wire_buffer_clear(&draft->head);
	draft_request_encode(&draft->head, (uint32_t)ticket, params);
	if (draft->head.failed)
		return handle_fail(draft, -ENOMEM, "no memory for a request");
	body_bytes = draft->head.count - FRAME_HEADER_BYTES + params->base.byte_count;
	if (body_bytes > draft->model.max_frame_bytes)
		return handle_fail(draft, -DRAFT_E_TOO_LARGE,
			"the request has %llu bytes, the most in a frame is %u; use a region or "
			"fewer "
			"rows",
			(unsigned long long)body_bytes, draft->model.max_frame_bytes);
	return 0;
}

/* Sends a request. On success its call is in flight, or answered already. */
static int start(struct draft *draft, const struct draft_request *given, struct waiter *waiter,
	int64_t deadline_us, uint64_t *ret_ticket, struct result **ret_result)
{
	struct draft_request request;
	struct draft_params params;
	struct result *result;
	struct call *call;
	uint64_t ticket;
	int r;

	r = handle_check(draft);
	if (r < 0)
		return r;
	r = handle_copy_struct(draft, "struct draft_request", given, &request, sizeof(request));
	if (r < 0)
		return r;
	r = check_request(draft, &request, &params);
	if (r < 0)
		return r;
	if (draft->tickets_out >= draft->model.max_inflight)
		return handle_fail(draft, -DRAFT_E_RESOURCE_EXHAUSTED,
			"%u tickets are out, the most is %u; take results with draft_poll",
			draft->tickets_out, draft->model.max_inflight);
	result = result_take(draft, request.rows, request.steps);
	if (!result)
		return handle_fail(draft, -ENOMEM, "no memory for a result");
	r = call_start(draft, result_read, waiter, &call);
	if (r < 0) {
		result_give_back(result);
		return r;
	}
	ticket = call->ticket;
	result->view.ticket = ticket;
	call->result = result;
	draft->tickets_out++;
	if (params.logits.kind == BULK_INLINE) {
		call->logits = request.logits.data;
		call->logits_bytes = params.logits.byte_count;
	}
	r = encode(draft, ticket, &params);
	if (r == 0 && request.more && !waiter)
		r = transport_keep(
			draft, params.base.bytes, (size_t)params.base.byte_count, deadline_us);
	else if (r == 0)
		r = transport_send(
			draft, params.base.bytes, (size_t)params.base.byte_count, -1, deadline_us);
	if (r == -EINPROGRESS) {
		call_abandon(draft, ticket);
		return -ETIMEDOUT;
	}
	/* draftd may refuse a request while it is being sent, and close: then the refusal is what
	 * counts. */
	if (r < 0 && !(waiter && waiter->done)) {
		call_drop(draft, ticket);
		return r;
	}
	*ret_ticket = ticket;
	*ret_result = result;
	return 0;
}

int draft_submit(struct draft *draft, const struct draft_request *request, uint64_t *ret_ticket)
{
	struct result *result;

	return start(draft, request, NULL, deadline_after(draft->timeout_us), ret_ticket, &result);
}

int draft_flush(struct draft *draft)
{
	int r = handle_check(draft);

	return r < 0 ? r : transport_flush(draft);
}

int draft_draft(
	struct draft *draft, const struct draft_request *request, uint32_t *tokens, uint8_t *flags)
{
	int64_t deadline_us = deadline_after(draft->timeout_us);
	struct waiter waiter = {0};
	struct result *result;
	uint64_t ticket;
	size_t token_count;
	int r;

	if (!tokens)
		return handle_fail(draft, -EINVAL, "tokens is NULL; it has room for rows*steps");
	r = start(draft, request, &waiter, deadline_us, &ticket, &result);
	if (r < 0)
		return r;
	r = call_wait(draft, ticket, &waiter, deadline_us);
	if (!waiter.done)
		return r; /* the result is still the call's, or gone with it */
	if (r == 0) {
		token_count = (size_t)result->view.rows * result->view.steps;
		memcpy(tokens, result->view.tokens, token_count * sizeof(*tokens));
		if (flags)
			memcpy(flags, result->view.flags, result->view.rows);
	}
	result_give_back(result);
	return r;
}

/* ---- results ---- */

static int next_result(struct draft *draft, struct draft_result **ret)
{
	struct result *result = draft->queue_first;

	draft->queue_first = result->next;
	if (!draft->queue_first)
		draft->queue_end = &draft->queue_first;
	draft->tickets_out--;
	*ret = &result->view;
	return 1;
}

int draft_poll(struct draft *draft, int64_t timeout_us, struct draft_result **ret)
{
	int64_t deadline_us = 0;
	uint64_t frames_before = draft->frames_received;
	bool waits = timeout_us != 0;
	int r;

	if (draft->queue_first)
		return next_result(draft, ret);
	r = handle_check(draft);
	if (r < 0)
		return r;
	if (waits)
		deadline_us = deadline_after(timeout_us);
	for (;;) {
		/* Without a ticket nothing can come, so waiting could only end at the deadline. */
		waits = waits && draft->tickets_out > 0;
		r = transport_flush(draft);
		if (r == 0)
			r = waits ? transport_await(draft, deadline_us) : transport_receive(draft);
		if (draft->queue_first)
			return next_result(draft, ret);
		if (r < 0 || (r == 0 && !waits))
			return r;
		if (r == 0)
			waits = false; /* the time is over; what is there is taken */
		/* All that is there is read, for the sake of edge-triggered loops; but more frames
		 * without a result than one a call and a goaway are a flood, and do not hold us. */
		if (!waits && draft->frames_received - frames_before > draft->call_capacity + 1)
			return 0;
	}
}

int draft_cancel(struct draft *draft, uint64_t ticket)
{
	struct call *call;
	int r;

	r = handle_check(draft);
	if (r < 0)
		return r;
	call = call_find(draft, ticket);
	if (call && call->result && !call->abandoned)
		return call_cancel(draft, call);
	for (struct result *result = draft->queue_first; result; result = result->next)
		if (result->view.ticket == ticket)
			return 0; /* too late: it has come */
	return handle_fail(draft, -ENOENT, "ticket %llu is not out", (unsigned long long)ticket);
}
