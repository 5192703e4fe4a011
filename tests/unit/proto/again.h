/* A decoded message, encoded again: the recorded frames and fuzz_message compare what comes out.
 * Each function appends a frame to `buffer`, or returns -EBADMSG with `fault` when the params or
 * the result are refused. */
#ifndef TESTS_PROTO_AGAIN_H
#define TESTS_PROTO_AGAIN_H

#include "proto/message.h"

#include <stdlib.h>
#include <string.h>

/* Room for `count` elements, which a message of that size proves to be few. */
static void *column(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	if (!memory)
		abort();
	return memory;
}

static void again_draft_request(
	struct wire_buffer *buffer, uint32_t id, const struct draft_call *request)
{
	uint32_t *anchors = column(request->rows, sizeof(*anchors));
	int64_t *positions = column(request->rows, sizeof(*positions));
	int64_t *seeds = column(request->rows, sizeof(*seeds));
	float *temperatures = column(request->rows, sizeof(*temperatures));
	int64_t *slots = column(request->rows, sizeof(*slots));
	const struct draft_params params = {
		.steps = request->steps,
		.rows = request->rows,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
		.slots = request->has_slots ? slots : NULL,
		.base = request->base,
		.logits = request->logits,
		.has_deadline = request->has_deadline,
		.deadline_us = request->deadline_us,
		.priority = request->priority,
		.has_event = request->has_event,
		.event = request->event,
	};

	wire_column_u32(&request->anchors, anchors);
	wire_column_i64(&request->positions, positions);
	wire_column_i64(&request->seeds, seeds);
	wire_column_f32(&request->temperatures, temperatures);
	if (request->has_slots)
		wire_column_i64(&request->slots, slots);
	draft_request_encode(buffer, id, &params);
	if (request->base.kind == BULK_INLINE)
		wire_buffer_write(
			buffer, (const char *)request->base.bytes, request->base.byte_count);
	free(anchors);
	free(positions);
	free(seeds);
	free(temperatures);
	free(slots);
}

static void again_draft_reply(
	struct wire_buffer *buffer, uint32_t id, const struct draft_reply *reply)
{
	uint32_t *tokens = column(reply->token_count, sizeof(*tokens));
	uint32_t *wide = column(reply->row_count, sizeof(*wide));
	uint8_t *flags = column(reply->row_count, sizeof(*flags));
	const struct draft_answer result = {
		.rows = reply->row_count,
		.steps = reply->token_count / reply->row_count,
		.tokens = tokens,
		.flags = flags,
		.generation = reply->generation,
		.queue_us = reply->times_us.queue,
		.device_us = reply->times_us.device,
		.total_us = reply->times_us.total,
		.has_logits = reply->has_logits,
		.logits_bytes = (uint32_t)reply->logits_bytes,
	};

	wire_column_u32(&reply->tokens, tokens);
	wire_column_u32(&reply->flags, wide);
	for (uint32_t i = 0; i < reply->row_count; i++)
		flags[i] = (uint8_t)wide[i];
	draft_reply_encode(buffer, id, &result);
	if (reply->has_logits)
		wire_buffer_write(buffer, reply->logits, reply->logits_bytes);
	free(tokens);
	free(wide);
	free(flags);
}

static int again_request(
	struct wire_buffer *buffer, const struct message *message, struct message_fault *fault)
{
	union {
		struct hello_request hello;
		struct draft_call draft;
		struct region_request region;
		struct event_request event;
		uint32_t number;
	} as;
	int rc;

	switch (message->method) {
	case METHOD_HELLO:
		rc = hello_request_decode(message->params, &as.hello, fault);
		if (!rc)
			hello_request_encode(buffer, message->id, &as.hello);
		return rc;
	case METHOD_DRAFT:
		rc = draft_request_decode(message->params, &as.draft, fault);
		if (!rc)
			again_draft_request(buffer, message->id, &as.draft);
		return rc;
	case METHOD_REGION_OPEN:
	case METHOD_REGION_IMPORT:
		rc = region_request_decode(message->params, &as.region, fault);
		if (!rc)
			region_request_encode(buffer, message->id, message->method, &as.region);
		return rc;
	case METHOD_REGION_CLOSE:
		rc = region_close_decode(message->params, &as.number, fault);
		if (!rc)
			region_close_encode(buffer, message->id, as.number);
		return rc;
	case METHOD_EVENT_IMPORT:
		rc = event_request_decode(message->params, &as.event, fault);
		if (!rc)
			event_request_encode(buffer, message->id, &as.event);
		return rc;
	case METHOD_EVENT_CLOSE:
		rc = event_close_decode(message->params, &as.number, fault);
		if (!rc)
			event_close_encode(buffer, message->id, as.number);
		return rc;
	default:
		rc = empty_params_decode(message->params, fault);
		if (!rc)
			message_encode_request(buffer, message->id, message->method);
		return rc;
	}
}

static int again_reply(struct wire_buffer *buffer, const struct message *message,
	enum method method, struct message_fault *fault)
{
	union {
		struct hello_reply hello;
		struct draft_reply draft;
		struct region_reply region;
		uint32_t number;
		struct wire_text text;
		size_t frame_at;
	} as;
	int rc;

	switch (method) {
	case METHOD_HELLO:
		rc = hello_reply_decode(message->params, &as.hello, fault);
		if (!rc)
			hello_reply_encode(buffer, message->id, &as.hello);
		return rc;
	case METHOD_DRAFT:
		rc = draft_reply_decode(message->params, &as.draft, fault);
		if (!rc)
			again_draft_reply(buffer, message->id, &as.draft);
		return rc;
	case METHOD_REGION_OPEN:
	case METHOD_REGION_IMPORT:
		rc = region_reply_decode(message->params, &as.region, fault);
		if (!rc)
			region_reply_encode(buffer, message->id, &as.region);
		return rc;
	case METHOD_EVENT_IMPORT:
		rc = event_reply_decode(message->params, &as.number, fault);
		if (!rc)
			event_reply_encode(buffer, message->id, as.number);
		return rc;
	case METHOD_METRICS:
		rc = metrics_reply_decode(message->params, &as.text, fault);
		if (!rc)
			metrics_reply_encode(buffer, message->id, as.text.at, as.text.bytes);
		return rc;
	case METHOD_STATS: /* its map is for its reader to take apart */
		as.frame_at = message_begin_reply(buffer, message->id);
		wire_buffer_write(buffer, message->params.at,
			(size_t)(message->params.end - message->params.at));
		message_end_reply(buffer, as.frame_at, 0);
		return 0;
	default:
		rc = empty_params_decode(message->params, fault);
		if (!rc)
			message_encode_empty_reply(buffer, message->id);
		return rc;
	}
}

/* Text as it stands, behind a NUL. */
static char *again_text(struct wire_text text)
{
	char *copy = column((size_t)text.bytes + 1, 1);

	memcpy(copy, text.at, text.bytes);
	return copy;
}

/* Only of a code that the table knows. */
static void again_error(struct wire_buffer *buffer, const struct message *message)
{
	char *text = again_text(message->error.text);

	message_encode_error(
		buffer, message->has_id, message->id, (enum error_code)message->error.code, text);
	free(text);
}

static int again_notification(
	struct wire_buffer *buffer, const struct message *message, struct message_fault *fault)
{
	struct wire_text reason;
	char *text;
	uint32_t id;
	int rc;

	if (message->method == METHOD_CANCEL) {
		rc = cancel_decode(message->params, &id, fault);
		if (!rc)
			cancel_encode(buffer, id);
		return rc;
	}
	rc = goaway_decode(message->params, &reason, fault);
	if (rc)
		return rc;
	text = again_text(reason);
	goaway_encode(buffer, text);
	free(text);
	return 0;
}

#endif
