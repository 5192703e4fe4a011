#include "client/private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The limits bound what this side allocates and multiplies later on. */
static int check_reply(const struct hello_reply *reply, struct message_fault *fault)
{
	if (reply->protocol != PROTOCOL_VERSION)
		return message_refuse(fault, ERROR_VERSION_MISMATCH,
			"draftd speaks protocol %u, this libdraft %u", reply->protocol,
			PROTOCOL_VERSION);
	if (reply->model.vocab == 0 || reply->model.rank == 0 || reply->model.target_vocab == 0)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"model has vocab %u, rank %u, target_vocab %u; each is at least 1",
			reply->model.vocab, reply->model.rank, reply->model.target_vocab);
	if (reply->limits.max_rows == 0 || reply->limits.max_steps == 0 ||
		reply->limits.max_inflight == 0)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"limits have max_rows %u, max_steps %u, max_inflight %u; each is at least "
			"1",
			reply->limits.max_rows, reply->limits.max_steps,
			reply->limits.max_inflight);
	if (reply->limits.max_frame_bytes < FRAME_HELLO_BODY_BYTES_MAX ||
		reply->limits.max_frame_bytes > FRAME_BYTES_MAX)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"max_frame_bytes is %u; it is %u to %u", reply->limits.max_frame_bytes,
			FRAME_HELLO_BODY_BYTES_MAX, FRAME_BYTES_MAX);
	return 0;
}

int hello_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	struct draft_model *model = &draft->model;
	struct hello_reply reply;

	(void)call;
	(void)frame;
	if (hello_reply_decode(message->params, &reply, fault) < 0 ||
		check_reply(&reply, fault) < 0)
		return -EBADMSG;
	wire_text_copy(reply.server, draft->model_text.server, NAME_BYTES);
	wire_text_copy(reply.model.name, draft->model_text.name, NAME_BYTES);
	wire_text_copy(reply.backend.name, draft->model_text.backend, NAME_BYTES);
	wire_text_copy(reply.backend.bias_order, draft->model_text.bias_order, NAME_BYTES);
	*model = (struct draft_model){
		.server = draft->model_text.server,
		.name = draft->model_text.name,
		.backend = draft->model_text.backend,
		.bias_order = draft->model_text.bias_order,
		.generation = reply.generation,
		.vocab = reply.model.vocab,
		.rank = reply.model.rank,
		.target_vocab = reply.model.target_vocab,
		.multiplier = reply.model.multiplier,
		.soft_cap = reply.model.has_soft_cap ? reply.model.soft_cap : 0.0f,
		.tensor_parallel = reply.backend.tensor_parallel,
		.device_count = reply.backend.device_count,
		.max_rows = reply.limits.max_rows,
		.max_steps = reply.limits.max_steps,
		.max_frame_bytes = reply.limits.max_frame_bytes,
		.max_inflight = reply.limits.max_inflight,
		.max_regions = reply.limits.max_regions,
		.max_region_bytes = reply.limits.max_region_bytes,
	};
	for (uint32_t i = 0; i < model->device_count; i++) {
		wire_text_copy(reply.backend.devices[i].uuid, draft->devices[i].uuid,
			sizeof(draft->devices[i].uuid));
		wire_text_copy(reply.backend.devices[i].name, draft->devices[i].name, NAME_BYTES);
		draft->devices[i].memory_bytes = reply.backend.devices[i].memory_bytes;
	}
	draft->reader.body_bytes_max = model->max_frame_bytes;
	return 0;
}

int hello_exchange(struct draft *draft, int64_t deadline_us)
{
	struct hello_request request = {
		.protocol = PROTOCOL_VERSION,
		.client = {draft->client_name, (uint32_t)strlen(draft->client_name)},
	};
	struct waiter waiter = {0};
	struct call *call;
	int r;

	r = call_begin(draft, hello_read, &waiter, &call);
	if (r < 0)
		return r;
	hello_request_encode(&draft->head, (uint32_t)call->ticket, &request);
	return call_run(draft, call, -1, deadline_us);
}
