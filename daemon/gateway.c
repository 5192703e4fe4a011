#include "gateway.h"

#include "kernels/clock.h"
#include "reload.h"
#include "server.h"
#include "stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct wire_text text_of(const char *text)
{
	return (struct wire_text){.at = text, .bytes = (uint32_t)strlen(text)};
}

/* ---- hello ---- */

static void fill_hello(const struct server *server, struct hello_reply *reply)
{
	const struct markov_facts *facts = &server->facts;
	const struct config *config = &server->config;

	*reply = (struct hello_reply){
		.protocol = PROTOCOL_VERSION,
		.server = text_of("draftd/" DRAFTD_VERSION),
		.generation = server->generation,
		.model =
			{
				.name = text_of(server->model_name),
				.vocab = facts->vocab,
				.rank = facts->rank,
				.target_vocab = facts->target_vocab,
				.multiplier = facts->multiplier,
				.has_soft_cap = facts->soft_cap > 0,
				.soft_cap = facts->soft_cap,
				.dtype = text_of("bf16"),
			},
		.backend =
			{
				.name = text_of(facts->backend),
				.bias_order = text_of(facts->bias_order),
				.tensor_parallel = facts->tensor_parallel,
				.device_count = facts->device_count,
			},
		.limits =
			{
				.max_rows = config->max_rows,
				.max_steps = config->max_steps,
				.max_frame_bytes = config->max_frame_bytes,
				.max_inflight = config->max_inflight,
				.max_regions = config->max_regions,
				.max_region_bytes = config->max_region_bytes,
			},
	};
	for (uint32_t i = 0; i < facts->device_count; i++)
		reply->backend.devices[i] = (struct hello_device){
			.uuid = text_of(facts->devices[i].uuid),
			.name = text_of(facts->devices[i].name),
			.memory_bytes = facts->devices[i].memory_bytes,
		};
}

static void hello(struct connection *connection, const struct message *message)
{
	struct server *server = connection->server;
	struct log_context context = connection_context(connection);
	struct message_fault fault;
	struct hello_request request;
	struct hello_reply reply;
	struct parcel *parcel;
	char client[129];
	char text[96];

	if (hello_request_decode(message->params, &request, &fault) < 0) {
		connection_refuse(connection, true, message->id, fault.code, fault.text);
		return;
	}
	if (request.protocol != PROTOCOL_VERSION) {
		snprintf(text, sizeof(text), "protocol is %" PRIu32 ", this daemon speaks %d",
			request.protocol, PROTOCOL_VERSION);
		connection_refuse(connection, true, message->id, ERROR_VERSION_MISMATCH, text);
		return;
	}
	if (connection->state != CONNECTION_GREETING) {
		connection_refuse(
			connection, true, message->id, ERROR_BAD_REQUEST, "hello was said already");
		return;
	}
	wire_text_copy(request.client, client, sizeof(client));
	log_line(LOG_INFO, &context, "opened by %s", client);
	connection->state = CONNECTION_OPEN;
	connection->reader.body_bytes_max = server->config.max_frame_bytes;
	if (!server->draining)
		uv_timer_stop(&connection->timer);

	fill_hello(server, &reply);
	parcel = parcel_new();
	if (parcel)
		hello_reply_encode(&parcel->head, message->id, &reply);
	connection_send(connection, parcel);
}

/* ---- methods without params ---- */

static void ping(struct connection *connection, uint32_t id)
{
	struct parcel *parcel = parcel_take(&connection->server->spare_parcels);

	if (parcel)
		message_encode_empty_reply(&parcel->head, id);
	connection_send(connection, parcel);
}

static void stats(struct connection *connection, uint32_t id)
{
	struct parcel *parcel = parcel_new();
	struct gauges gauges;
	size_t frame_at;

	if (parcel) {
		server_gauges(connection->server, &gauges);
		frame_at = message_begin_reply(&parcel->head, id);
		stats_pack(&connection->server->stats, &gauges, &parcel->head);
		message_end_reply(&parcel->head, frame_at, 0);
	}
	connection->turn_over = true;
	connection_send(connection, parcel);
}

static void metrics(struct connection *connection, uint32_t id)
{
	struct parcel *parcel = parcel_new();
	struct wire_buffer text;
	struct gauges gauges;

	wire_buffer_init(&text);
	if (parcel) {
		server_gauges(connection->server, &gauges);
		stats_print(&connection->server->stats, &gauges, &text);
		if (text.failed)
			parcel->head.failed = true;
		else
			metrics_reply_encode(
				&parcel->head, id, (const char *)text.bytes, text.count);
	}
	wire_buffer_done(&text);
	connection->turn_over = true;
	connection_send(connection, parcel);
}

/* What only root and the daemon's own user may ask for. */
static bool may_command(struct connection *connection, const struct message *message)
{
	if (user_is_operator(connection->user->uid))
		return true;
	connection_refuse(connection, true, message->id, ERROR_PERMISSION_DENIED,
		"only root and the daemon's own user may ask for this");
	return false;
}

static void drain(struct connection *connection, const struct message *message)
{
	struct server *server = connection->server;

	if (!may_command(connection, message))
		return;
	ping(connection, message->id);
	server_drain(server, "a client asked for it");
}

static void reload(struct connection *connection, const struct message *message)
{
	struct server *server = connection->server;
	struct request *request;

	if (!may_command(connection, message))
		return;
	request = connection_begin(connection, message);
	if (!request)
		return;
	reload_begin(server, request);
}

static void without_params(struct connection *connection, const struct message *message)
{
	struct message_fault fault;

	if (empty_params_decode(message->params, &fault) < 0) {
		connection_refuse(connection, true, message->id, fault.code, fault.text);
		return;
	}
	switch (message->method) {
	case METHOD_PING:
		ping(connection, message->id);
		break;
	case METHOD_STATS:
		stats(connection, message->id);
		break;
	case METHOD_METRICS:
		metrics(connection, message->id);
		break;
	case METHOD_DRAIN:
		drain(connection, message);
		break;
	case METHOD_RELOAD:
		reload(connection, message);
		break;
	default:
		break;
	}
}

/* ---- the envelope ---- */

/* A draft that has not been launched is dropped. For one that has, and for any other call, it is
 * too late: the answer comes. */
static void cancel(struct connection *connection, const struct message *message)
{
	struct server *server = connection->server;
	struct message_fault fault;
	struct request *request;
	uint32_t id;

	if (cancel_decode(message->params, &id, &fault) < 0) {
		connection_refuse(connection, false, 0, fault.code, fault.text);
		return;
	}
	request = connection_find(connection, id);
	if (request && request->method == METHOD_DRAFT && engine_cancel(server->engine, request))
		connection_answer_error(
			server, request, ERROR_CANCELLED, "cancelled before its launch");
}

static void unknown_method(struct connection *connection, const struct message *message)
{
	char method[65];
	char text[128];

	wire_text_copy(message->method_text, method, sizeof(method));
	snprintf(text, sizeof(text), "there is no method \"%s\"", method);
	connection_refuse(connection, true, message->id, ERROR_UNKNOWN_METHOD, text);
}

/* Checks what holds for every request. False: it is refused. */
static bool admit(struct connection *connection, const struct message *message)
{
	const struct config *config = &connection->server->config;
	const struct user *user = connection->user;
	bool answered_later =
		message->method == METHOD_DRAFT || message->method == METHOD_REGION_OPEN ||
		message->method == METHOD_REGION_IMPORT || message->method == METHOD_REGION_CLOSE ||
		message->method == METHOD_EVENT_IMPORT || message->method == METHOD_EVENT_CLOSE ||
		message->method == METHOD_RELOAD;
	char text[96];

	if (message->method == METHOD_UNKNOWN || message->method == METHOD_CANCEL ||
		message->method == METHOD_GOAWAY) {
		unknown_method(connection, message);
		return false;
	}
	if (connection->state == CONNECTION_GREETING && message->method != METHOD_HELLO) {
		connection_refuse(connection, true, message->id, ERROR_BAD_REQUEST,
			"the first request of a connection must be hello");
		return false;
	}
	if (connection_find(connection, message->id)) {
		snprintf(text, sizeof(text), "id %" PRIu32 " belongs to a request in flight",
			message->id);
		connection_refuse(connection, true, message->id, ERROR_BAD_REQUEST, text);
		return false;
	}
	if (answered_later && connection->inflight >= config->max_inflight) {
		snprintf(text, sizeof(text),
			"%" PRIu32 " request%s %s in flight, the most is %" PRIu32
			" (max_inflight); wait for replies",
			connection->inflight, sentence_s(connection->inflight),
			sentence_is(connection->inflight), config->max_inflight);
		connection_refuse(connection, true, message->id, ERROR_RESOURCE_EXHAUSTED, text);
		return false;
	}
	if (answered_later && !user_may(user, user->inflight, 1, config->max_user_inflight)) {
		snprintf(text, sizeof(text),
			"%" PRIu32 " request%s of this user %s in flight, max_user_inflight is "
			"%" PRIu32,
			user->inflight, sentence_s(user->inflight), sentence_is(user->inflight),
			config->max_user_inflight);
		connection_refuse(connection, true, message->id, ERROR_RESOURCE_EXHAUSTED, text);
		return false;
	}
	return true;
}

/* Takes the descriptor that it hands on out of `fd`. */
static void request(struct connection *connection, const struct message *message, int *fd)
{
	int import_fd;

	connection->server->stats.requests[message->method]++;
	if (!admit(connection, message))
		return;
	switch (message->method) {
	case METHOD_HELLO:
		hello(connection, message);
		break;
	case METHOD_DRAFT:
		gateway_draft(connection, message);
		break;
	case METHOD_REGION_OPEN:
	case METHOD_REGION_IMPORT:
		import_fd = *fd;
		*fd = -1;
		gateway_region_open(connection, message, import_fd);
		break;
	case METHOD_REGION_CLOSE:
		gateway_region_close(connection, message);
		break;
	case METHOD_EVENT_IMPORT:
		gateway_event_import(connection, message);
		break;
	case METHOD_EVENT_CLOSE:
		gateway_event_close(connection, message);
		break;
	default:
		without_params(connection, message);
		break;
	}
}

static void refuse_fds(
	struct connection *connection, const struct frame *frame, const struct message *message)
{
	char text[96];

	snprintf(text, sizeof(text), "%s carries %u descriptor%s, it must carry %u",
		method_name(message->method), frame->fd_count, sentence_s(frame->fd_count),
		method_fd_count(message->method));
	connection_refuse(
		connection, message->kind == MESSAGE_REQUEST, message->id, ERROR_BAD_FRAME, text);
}

void gateway_handle(struct connection *connection, const struct frame *frame)
{
	struct message message = {0};
	struct message_fault fault;
	int fds[FRAME_FDS_MAX];

	memcpy(fds, frame->fds, sizeof(fds));
	if (message_decode(frame->body, frame->body_bytes, &message, &fault) < 0)
		connection_refuse(connection, message.has_id, message.id, fault.code, fault.text);
	else if (message.kind == MESSAGE_RESPONSE)
		connection_refuse(
			connection, false, 0, ERROR_BAD_REQUEST, "a client sends no responses");
	else if (frame->fd_count != method_fd_count(message.method))
		refuse_fds(connection, frame, &message);
	else if (message.kind == MESSAGE_REQUEST)
		request(connection, &message, &fds[0]);
	else if (message.method == METHOD_CANCEL) {
		connection->server->stats.requests[METHOD_CANCEL]++;
		cancel(connection, &message);
	} /* other notifications ask for nothing, and nobody waits for an answer */

	for (unsigned i = 0; i < frame->fd_count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}
