/* Requests in flight, and what is done with each frame that comes back. */
#include "client/private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_FIRST 8u /* places of the first table; it doubles */

static int grow_table(struct draft *draft)
{
	uint32_t capacity = draft->call_capacity ? 2 * draft->call_capacity : CALLS_FIRST;
	struct call *calls;

	if (draft->call_capacity == CALLS_MAX)
		return handle_fail(draft, -DRAFT_E_RESOURCE_EXHAUSTED,
			"%u requests are in flight, the most is %u; wait for replies", CALLS_MAX,
			CALLS_MAX);
	calls = realloc(draft->calls, capacity * sizeof(*calls));
	if (!calls)
		return handle_fail(draft, -ENOMEM, "no memory for %u requests", capacity);
	for (uint32_t i = draft->call_capacity; i < capacity; i++)
		calls[i] = (struct call){.next_free = i + 1 < capacity ? i + 1 : CALLS_MAX};
	draft->call_free = draft->call_capacity;
	draft->calls = calls;
	draft->call_capacity = capacity;
	return 0;
}

int call_start(struct draft *draft, call_take *take, struct waiter *waiter, struct call **ret)
{
	struct call *call;
	uint32_t index;
	int r;

	if (draft->call_free == CALLS_MAX) {
		r = grow_table(draft);
		if (r < 0)
			return r;
	}
	index = draft->call_free;
	call = &draft->calls[index];
	draft->call_free = call->next_free;
	*call = (struct call){
		.ticket = ++draft->call_serial << CALL_INDEX_BITS | index,
		.take = take,
		.waiter = waiter,
	};
	*ret = call;
	return 0;
}

struct call *call_find(struct draft *draft, uint64_t ticket)
{
	uint32_t index = (uint32_t)ticket & (CALLS_MAX - 1);

	if (ticket == 0 || index >= draft->call_capacity || draft->calls[index].ticket != ticket)
		return NULL;
	return &draft->calls[index];
}

static struct call *find_by_id(struct draft *draft, uint32_t id)
{
	uint32_t index = id & (CALLS_MAX - 1);

	if (index >= draft->call_capacity || draft->calls[index].ticket == 0 ||
		(uint32_t)draft->calls[index].ticket != id)
		return NULL;
	return &draft->calls[index];
}

static void free_place(struct draft *draft, struct call *call)
{
	uint32_t index = (uint32_t)(call - draft->calls);

	*call = (struct call){.next_free = draft->call_free};
	draft->call_free = index;
}

void call_drop(struct draft *draft, uint64_t ticket)
{
	struct call *call = call_find(draft, ticket);

	if (!call)
		return;
	if (call->result) {
		result_give_back(call->result);
		draft->tickets_out--;
	}
	free_place(draft, call);
}

int call_cancel(struct draft *draft, struct call *call)
{
	if (call->cancelled)
		return 0;
	call->cancelled = true;
	cancel_encode(&draft->unsent, (uint32_t)call->ticket);
	return transport_flush(draft);
}

void call_abandon(struct draft *draft, uint64_t ticket)
{
	struct call *call = call_find(draft, ticket);

	if (!call)
		return;
	call->waiter = NULL;
	call->abandoned = true;
	call->logits = NULL;
	if (call->result && !draft->broken)
		call_cancel(draft, call);
}

int call_wait(struct draft *draft, uint64_t ticket, struct waiter *waiter, int64_t deadline_us)
{
	int r;

	while (!waiter->done) {
		r = transport_await(draft, deadline_us);
		if (r == 0) {
			call_abandon(draft, ticket);
			return handle_fail(draft, -ETIMEDOUT,
				"draftd did not answer within the timeout of %g s",
				(double)draft->timeout_us / 1e6);
		}
		if (r > 0 && draft->unsent.count > 0)
			r = transport_flush(draft);
		if (r < 0 && !waiter->done) {
			call_drop(draft, ticket);
			return r;
		}
	}
	if (waiter->code < 0)
		handle_fail(draft, waiter->code, "%s", waiter->error);
	return waiter->code;
}

int call_begin(struct draft *draft, call_take *take, struct waiter *waiter, struct call **ret)
{
	wire_buffer_clear(&draft->head);
	return call_start(draft, take, waiter, ret);
}

int call_run(struct draft *draft, const struct call *call, int fd, int64_t deadline_us)
{
	/* The call's place is another one's as soon as its reply has been read. */
	struct waiter *waiter = call->waiter;
	const uint64_t ticket = call->ticket;
	int r;

	if (draft->head.failed)
		r = handle_fail(draft, -ENOMEM, "no memory for a request");
	else
		r = transport_send(draft, NULL, 0, fd, deadline_us);
	if (r == -EINPROGRESS) {
		call_abandon(draft, ticket);
		return -ETIMEDOUT;
	}
	/* A request that draftd refused while it was being sent has its answer although sending
	 * failed. */
	if (r < 0 && !waiter->done) {
		call_drop(draft, ticket);
		return r;
	}
	return call_wait(draft, ticket, waiter, deadline_us);
}

int call_take_empty(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	(void)draft;
	(void)call;
	(void)frame;
	return empty_params_decode(message->params, fault);
}

int call_close(struct draft *draft, call_close_encode *encode, uint32_t what)
{
	struct waiter waiter = {0};
	struct call *call;
	int r;

	r = call_begin(draft, call_take_empty, &waiter, &call);
	if (r < 0)
		return r;
	encode(&draft->head, (uint32_t)call->ticket, what);
	return call_run(draft, call, -1, deadline_after(draft->timeout_us));
}

int call_close_later(struct draft *draft, call_close_encode *encode, uint32_t what)
{
	struct call *call;
	int r;

	r = call_start(draft, call_take_empty, NULL, &call);
	if (r < 0)
		return r;
	call->abandoned = true;
	encode(&draft->unsent, (uint32_t)call->ticket, what);
	return 0;
}

/* ---- frames ---- */

static int broke_protocol(struct draft *draft, const char *what)
{
	return handle_break(draft, -EPROTO, "draftd broke the protocol: %s", what);
}

/* The sentence of an error reply. Codes of a later protocol keep their number and name in it. */
static void describe_error(const struct message_error *error, char *text, size_t text_bytes)
{
	char message[MESSAGE_FAULT_BYTES];
	char name[32];

	if (error_lookup(error->code)) {
		wire_text_copy(error->text, text, text_bytes);
		return;
	}
	wire_text_copy(error->text, message, sizeof(message));
	wire_text_copy(error->name, name, sizeof(name));
	snprintf(text, text_bytes, "error %d (%s): %s", error->code, name, message);
}

/* Of every request, nearly always "": so without snprintf(). */
static void copy_error(char to[ERROR_TEXT_BYTES], const char *text)
{
	const size_t count = strnlen(text, ERROR_TEXT_BYTES - 1);

	memcpy(to, text, count);
	to[count] = '\0';
}

/* The call is answered: to its waiter, to the queue, or to nobody. */
static void finish(struct draft *draft, const struct call *call, int code, const char *text)
{
	struct result *result = call->result;

	if (call->waiter) {
		call->waiter->code = code;
		copy_error(call->waiter->error, text);
		call->waiter->done = true;
		if (result)
			draft->tickets_out--; /* the waiter has the result */
	} else if (result && call->abandoned) {
		draft->tickets_out--;
		result_give_back(result);
	} else if (result) {
		result->view.code = code;
		copy_error(result->error, text);
		result_queue(result);
	}
}

static int handle_response(struct draft *draft, struct message *message, struct frame *frame)
{
	struct message_fault fault;
	char text[ERROR_TEXT_BYTES];
	struct call call;
	struct call *place;
	int r;

	if (message->failed)
		describe_error(&message->error, text, sizeof(text));
	if (!message->has_id) {
		if (message->failed)
			return handle_break(
				draft, error_from_wire(message->error.code), "%s", text);
		return broke_protocol(draft, "a reply names no request");
	}
	place = find_by_id(draft, message->id);
	if (!place)
		return broke_protocol(draft, "a reply names a request that is not in flight");
	if (frame->fd_count != (message->failed ? 0 : place->reply_fds))
		return broke_protocol(draft, "a reply carries a wrong number of descriptors");
	call = *place;
	if (message->failed) {
		free_place(draft, place);
		finish(draft, &call, error_from_wire(message->error.code), text);
		return 0;
	}
	r = call.take(draft, &call, message, frame, &fault);
	if (r == -EBADMSG)
		return broke_protocol(draft, fault.text);
	if (r < 0)
		return r;
	/* The table may have moved, the place in it is the same. */
	free_place(draft, &draft->calls[message->id & (CALLS_MAX - 1)]);
	finish(draft, &call, 0, "");
	return 0;
}

static int handle_notification(struct draft *draft, struct message *message, struct frame *frame)
{
	struct message_fault fault;
	struct wire_text reason;

	if (frame->fd_count > 0)
		return broke_protocol(draft, "a notification carries descriptors");
	if (message->method != METHOD_GOAWAY)
		return 0; /* of a later protocol: not for us */
	if (goaway_decode(message->params, &reason, &fault) < 0)
		return broke_protocol(draft, fault.text);
	draft->going_away = true;
	wire_text_copy(reason, draft->goaway_reason, sizeof(draft->goaway_reason));
	return 0;
}

int call_reply(struct draft *draft, struct frame *frame)
{
	struct message message;
	struct message_fault fault;
	int r;

	if (message_decode(frame->body, frame->body_bytes, &message, &fault) < 0)
		r = broke_protocol(draft, fault.text);
	else if (message.kind == MESSAGE_RESPONSE)
		r = handle_response(draft, &message, frame);
	else if (message.kind == MESSAGE_NOTIFICATION)
		r = handle_notification(draft, &message, frame);
	else
		r = broke_protocol(draft, "it sent a request");
	for (unsigned i = 0; i < frame->fd_count; i++)
		if (frame->fds[i] >= 0)
			close(frame->fds[i]);
	return r;
}
