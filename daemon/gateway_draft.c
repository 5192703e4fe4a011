/* `draft`: from the decoded message to a request in the queue, and from a finished request to its
 * reply. */
#include "gateway.h"

#include "event.h"
#include "kernels/clock.h"
#include "region.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The head of a reply around its logits: envelope, keys, times. Each token takes up to 5 bytes,
 * each flag 1. */
#define REPLY_HEAD_BYTES_MAX 512

struct sizes {           /* of a request whose rows and steps are within the limits */
	uint64_t values; /* bytes of rows*K*V values */
	uint64_t reply_head;
};

static int check_limits(
	const struct config *config, const struct draft_call *wire, struct message_fault *fault)
{
	if (wire->steps > config->max_steps)
		return message_refuse(fault, ERROR_TOO_LARGE,
			"steps is %" PRIu32 ", the most is %" PRIu32 " (max_steps)", wire->steps,
			config->max_steps);
	if (wire->rows > config->max_rows)
		return message_refuse(fault, ERROR_TOO_LARGE,
			"rows is %" PRIu32 ", the most is %" PRIu32 " (max_rows)", wire->rows,
			config->max_rows);
	return 0;
}

static int check_inline(const struct config *config, const struct draft_call *wire,
	const struct sizes *sizes, struct message_fault *fault)
{
	if (wire->base.kind == BULK_INLINE && wire->base.byte_count != sizes->values)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"base has %" PRIu64 " byte%s, rows*steps*vocab*2 is %" PRIu64,
			wire->base.byte_count, sentence_s(wire->base.byte_count), sizes->values);
	if (wire->logits.kind == BULK_INLINE &&
		sizes->values + sizes->reply_head > config->max_frame_bytes)
		return message_refuse(fault, ERROR_TOO_LARGE,
			"logits would make a reply of %" PRIu64 " bytes, the most is %" PRIu32
			" (max_frame_bytes); use a region or fewer rows",
			sizes->values + sizes->reply_head, config->max_frame_bytes);
	return 0;
}

/* Bytes that the request will hold beyond its columns, and whether there is room for them. */
static int check_held(const struct connection *connection, const struct draft_call *wire,
	const struct sizes *sizes, struct message_fault *fault)
{
	uint64_t reply = wire->logits.kind == BULK_INLINE ? sizes->values : 0;
	uint64_t base = wire->base.kind == BULK_INLINE ? sizes->values : 0;
	uint64_t most = config_held_max_connection(&connection->server->config);

	if (connection->held_bytes + reply + base > most)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"this connection's inline data in flight would be %" PRIu64
			" bytes, the most is %" PRIu64 " (%d times max_frame_bytes, and %llu MiB); "
			"wait for replies, or use regions",
			connection->held_bytes + reply + base, most, LIMIT_HELD_FRAMES_CONNECTION,
			LIMIT_HELD_BYTES_CONNECTION >> 20);
	/* The base is there already, in the reader. */
	return connection_check_held(connection, reply, fault);
}

/* Holds the region for as long as the request names it, also when every row is padding. */
static int take_region(const struct connection *connection, const char *what,
	const struct bulk *bulk, struct region **ret, struct message_fault *fault)
{
	struct region *region = gateway_region_find(connection, bulk->region);

	if (!region)
		return message_refuse(fault, ERROR_NOT_FOUND,
			"%s.region is %" PRIu32 ", this connection has no such region", what,
			bulk->region);
	region_hold(region);
	*ret = region;
	return 0;
}

/* Of a checked place. */
static struct placement place_in_region(const struct region *region, const struct bulk *bulk)
{
	return (struct placement){
		.at = region->memory + bulk->offset,
		.row_stride = bulk->row_stride,
		.step_stride = bulk->step_stride,
		.memory = region->kind,
	};
}

/* Base in the frame: a short one was copied behind the columns, a long one stays where it arrived,
 * moved by one byte if it lies at an odd address. */
static int place_inline_base(struct connection *connection, const struct draft_call *wire,
	uint8_t *copy, struct request *request, struct message_fault *fault)
{
	struct draft *draft = &request->draft;
	size_t bytes = wire->base.byte_count;
	size_t capacity = connection->reader.capacity;
	size_t offset;

	if (bytes <= LIMIT_COPY_BYTES) {
		memcpy(copy, wire->base.bytes, bytes);
		draft->base.at = copy;
		return 0;
	}
	offset = (size_t)(wire->base.bytes - connection->reader.bytes);
	draft->frame = frame_reader_detach(&connection->reader);
	if (!draft->frame)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED, "out of memory for base");
	request->held_bytes += capacity;
	if ((uintptr_t)(draft->frame + offset) & 1) {
		memmove(draft->frame + offset - 1, draft->frame + offset, bytes);
		offset--;
	}
	draft->base.at = draft->frame + offset;
	return 0;
}

static int place_base(struct connection *connection, const struct draft_call *wire, uint32_t vocab,
	uint8_t *copy, struct request *request, struct message_fault *fault)
{
	struct draft *draft = &request->draft;
	int r;

	if (wire->base.kind == BULK_INLINE) {
		draft->base.step_stride = (uint64_t)vocab * 2;
		draft->base.row_stride = draft->base.step_stride * wire->steps;
		return place_inline_base(connection, wire, copy, request, fault);
	}
	r = take_region(connection, "base", &wire->base, &draft->base_region, fault);
	if (r < 0)
		return r;
	r = placement_check("base", &wire->base, wire->rows - 1, wire->steps, vocab,
		draft->base_region->bytes, fault);
	if (r < 0)
		return r;
	draft->base = place_in_region(draft->base_region, &wire->base);
	return 0;
}

/* Logits that go into the reply, in the order of the rows. Padding rows have zeros there: nothing
 * of the heap leaks. */
static int place_reply_logits(const struct draft_call *wire, uint32_t vocab,
	struct request *request, struct message_fault *fault)
{
	struct draft *draft = &request->draft;
	size_t row_bytes = (size_t)wire->steps * vocab * 2;

	draft->reply_logits = malloc(row_bytes * wire->rows);
	if (!draft->reply_logits)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED, "out of memory for logits");
	draft->reply_logits_bytes = (uint32_t)(row_bytes * wire->rows);
	request->held_bytes += draft->reply_logits_bytes;
	draft->logits = (struct placement){
		.at = draft->reply_logits,
		.row_stride = row_bytes,
		.step_stride = (uint64_t)vocab * 2,
	};
	for (uint32_t row = 0; row < wire->rows; row++)
		if (draft->slots[row] < 0)
			memset(draft->reply_logits + row * row_bytes, 0, row_bytes);
	return 0;
}

static int place_logits(struct connection *connection, const struct draft_call *wire,
	uint32_t vocab, struct request *request, struct message_fault *fault)
{
	struct draft *draft = &request->draft;
	int64_t slot_last;
	int r;

	if (wire->logits.kind == BULK_ABSENT)
		return 0;
	if (wire->logits.kind == BULK_INLINE)
		return place_reply_logits(wire, vocab, request, fault);
	r = take_region(connection, "logits", &wire->logits, &draft->logits_region, fault);
	if (r < 0)
		return r;
	r = placement_check_slots(
		&wire->logits, draft->slots, wire->rows, wire->steps, vocab, &slot_last, fault);
	if (r == -ENOMEM)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED, "out of memory for slots");
	if (r < 0 || slot_last < 0)
		return r;
	r = placement_check("logits", &wire->logits, (uint64_t)slot_last, wire->steps, vocab,
		draft->logits_region->bytes, fault);
	if (r < 0)
		return r;
	draft->logits = place_in_region(draft->logits_region, &wire->logits);
	draft->logits_by_slot = true;
	return 0;
}

/* Holds the event for as long as the engine may ask it. */
static int attach_event(struct connection *connection, const struct draft_call *wire,
	struct request *request, struct message_fault *fault)
{
	struct draft *draft = &request->draft;
	struct event *event;

	if (!wire->has_event)
		return 0;
	event = gateway_event_find(connection, wire->event);
	if (!event)
		return message_refuse(fault, ERROR_NOT_FOUND,
			"event is %" PRIu32 ", this connection has no such event", wire->event);
	event_hold(event);
	draft->event = event;
	draft->event_until_us = draft->arrival_us + connection->server->config.event_timeout_us;
	return 0;
}

/* Makes the request. On failure nothing is left. */
static int build(struct connection *connection, uint32_t id, const struct draft_call *wire,
	struct request **ret, struct message_fault *fault)
{
	struct server *server = connection->server;
	uint32_t vocab = server->facts.vocab;
	struct sizes sizes;
	struct request *request = NULL;
	uint32_t copy_bytes = 0;
	uint8_t *copy;
	int r;

	r = check_limits(&server->config, wire, fault);
	if (r < 0)
		return r;
	scheduler_flow_prefetch(&connection->flow, wire->priority, wire->steps);
	sizes.values = (uint64_t)wire->rows * wire->steps * vocab * 2;
	sizes.reply_head = REPLY_HEAD_BYTES_MAX + (uint64_t)wire->rows * (wire->steps * 5u + 1);
	r = check_inline(&server->config, wire, &sizes, fault);
	if (r < 0)
		return r;
	r = check_held(connection, wire, &sizes, fault);
	if (r < 0)
		return r;
	if (wire->base.kind == BULK_INLINE && sizes.values <= LIMIT_COPY_BYTES)
		copy_bytes = (uint32_t)sizes.values;

	request = request_new_draft(&server->spare_requests, id, wire, copy_bytes, &copy);
	if (!request)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"out of memory for %" PRIu32 " row%s", wire->rows, sentence_s(wire->rows));
	request->draft.arrival_us = clock_us();
	request->draft.deadline_us =
		wire->has_deadline ? request->draft.arrival_us + wire->deadline_us : UINT64_MAX;

	/* The base last: until then the message lies in the reader. */
	r = attach_event(connection, wire, request, fault);
	if (r == 0)
		r = place_logits(connection, wire, vocab, request, fault);
	if (r == 0)
		r = place_base(connection, wire, vocab, copy, request, fault);
	if (r < 0) {
		region_drop(request->draft.base_region);
		region_drop(request->draft.logits_region);
		event_drop(request->draft.event);
		request_recycle(&server->spare_requests, request);
		return r;
	}
	*ret = request;
	return 0;
}

void gateway_draft(struct connection *connection, const struct message *message)
{
	struct server *server = connection->server;
	struct draft_call wire;
	struct message_fault fault;
	struct request *request = NULL;
	char text[96];
	int r;

	if (server->draining) {
		connection_refuse(connection, true, message->id, ERROR_DRAINING,
			"the daemon is about to stop");
		return;
	}
	r = draft_request_decode(message->params, &wire, &fault);
	if (r == 0)
		r = build(connection, message->id, &wire, &request, &fault);
	if (r < 0) {
		connection_refuse(connection, true, message->id, fault.code, fault.text);
		return;
	}
	connection_add(connection, request);
	r = engine_submit(server->engine, &connection->flow, request);
	if (r == -EIO) {
		connection_answer_error(server, request, ERROR_DEVICE_LOST, "the device is lost");
	} else if (r < 0) {
		snprintf(text, sizeof(text), "the queue is full: %" PRIu32 " request%s (max_queue)",
			server->config.max_queue,
			server->config.max_queue == 1 ? " waits" : "s wait");
		connection_answer_error(server, request, ERROR_RESOURCE_EXHAUSTED, text);
	} else {
		server_spin(server, request->draft.arrival_us);
	}
}

/* ---- the way back ---- */

static const char *outcome_text(const struct draft *draft)
{
	if (draft->reason)
		return draft->reason;
	switch (draft->error) {
	case ERROR_DEADLINE_EXCEEDED:
		return "deadline_us passed before the launch; nothing was computed";
	case ERROR_CANCELLED:
		return "cancelled before its launch";
	case ERROR_DEVICE_LOST:
		return "the device is lost; the daemon stops";
	default:
		return "the launch failed; the daemon's log has the reason";
	}
}

void gateway_draft_done(struct server *server, struct request *request)
{
	struct draft *draft = &request->draft;
	uint64_t total_us = clock_us() - draft->arrival_us;
	struct draft_answer result;
	struct parcel *parcel;

	if (draft->error == ERROR_NONE)
		stats_count_launch(&server->stats, draft, server->facts.max_rows);
	if (!request->connection) {
		connection_answer(server, request, NULL);
		return;
	}
	if (draft->error != ERROR_NONE) {
		connection_answer_error(server, request, draft->error, outcome_text(draft));
		return;
	}
	stats_count_draft(&server->stats, draft, total_us);
	result = (struct draft_answer){
		.rows = draft->rows,
		.steps = draft->steps,
		.tokens = draft->tokens,
		.flags = draft->flags,
		.generation = draft->generation,
		.queue_us = draft->queue_us,
		.device_us = draft->device_us,
		.total_us = total_us,
		.has_logits = draft->reply_logits != NULL,
		.logits_bytes = draft->reply_logits_bytes,
	};
	parcel = parcel_take(&server->spare_parcels);
	if (parcel) {
		draft_reply_encode(&parcel->head, request->id, &result);
		parcel->bulk = draft->reply_logits;
		parcel->bulk_bytes = draft->reply_logits_bytes;
		draft->reply_logits = NULL;
	}
	connection_answer(server, request, parcel);
}
