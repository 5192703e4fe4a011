/* `event_import`, `event_close`: calls that are answered when a worker has opened the event or let
 * it go. */
#include "event.h"
#include "gateway.h"
#include "log.h"
#include "server.h"

#include <inttypes.h>
#include <string.h>

struct event *gateway_event_find(const struct connection *connection, uint32_t id)
{
	for (struct link *link = connection->events.next; link != &connection->events;
		link = link->next) {
		struct event *event = LINK_OWNER(link, struct event, link);

		if (event->order.id == id)
			return event;
	}
	return NULL;
}

static struct server *server_of(const struct event *event)
{
	return LINK_OWNER(event->pool, struct server, regions);
}

static void event_closed(struct event *event)
{
	struct server *server = server_of(event);
	struct request *request = event->order.waiting;

	if (!request)
		return;
	if (request->connection)
		request->connection->event_count--;
	connection_answer_empty(server, request);
	server_settle(server);
}

/* It is open, or could not be. Its client may be gone. */
static void event_opened(struct event *event)
{
	struct server *server = server_of(event);
	struct request *request = event->order.waiting;
	struct connection *connection = request->connection;
	struct parcel *parcel;

	event->order.waiting = NULL;
	if (event->fault.code == ERROR_DEVICE_LOST)
		server_lose_device(server, event->why.text);
	if (event->fault.code != ERROR_NONE) {
		if (connection)
			connection->event_count--;
		connection_answer_error(server, request, event->fault.code, event->fault.text);
	} else if (!connection) {
		connection_answer(server, request, NULL);
		event_close(event, NULL);
	} else {
		link_append(&connection->events, &event->link);
		parcel = parcel_new();
		if (parcel)
			event_reply_encode(&parcel->head, request->id, event->order.id);
		connection_answer(server, request, parcel);
	}
	server_settle(server);
}

static int check_import(const struct connection *connection, struct message_fault *fault)
{
	const struct server *server = connection->server;
	const struct user *user = connection->user;

	if (server->draining)
		return message_refuse(fault, ERROR_DRAINING, "the daemon is about to stop");
	if (!markov_event_possible(server->regions.memory))
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"the %s backend knows no CUDA events; write base before the draft is sent",
			server->facts.backend);
	if (connection->event_count >= LIMIT_EVENTS)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"this connection has %" PRIu32 " events, the most is %d",
			connection->event_count, LIMIT_EVENTS);
	if (!user_may(user, user->events, 1, server->config.max_user_events))
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"this user has %" PRIu32 " event%s, max_user_events is %" PRIu32,
			user->events, sentence_s(user->events), server->config.max_user_events);
	return 0;
}

void gateway_event_import(struct connection *connection, const struct message *message)
{
	struct server *server = connection->server;
	struct event_order order;
	struct event_request wire;
	struct message_fault fault;
	struct request *request;
	int r;

	r = event_request_decode(message->params, &wire, &fault);
	if (r == 0)
		r = check_import(connection, &fault);
	if (r < 0) {
		connection_refuse(connection, true, message->id, fault.code, fault.text);
		return;
	}
	request = connection_begin(connection, message);
	if (!request)
		return;
	order = (struct event_order){
		.id = connection->next_event,
		.user = connection->user,
		.waiting = request,
		.opened = event_opened,
		.closed = event_closed,
	};
	memcpy(order.handle, wire.handle, sizeof(order.handle));
	if (wire.has_device)
		wire_text_copy(wire.device, order.device, sizeof(order.device));
	if (event_start(&server->regions, &order) < 0) {
		connection_answer_error(server, request, ERROR_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	connection->next_event++;
	connection->event_count++;
}

void gateway_event_close(struct connection *connection, const struct message *message)
{
	struct message_fault fault;
	struct request *request;
	struct event *event = NULL;
	uint32_t id;
	int r;

	r = event_close_decode(message->params, &id, &fault);
	if (r == 0) {
		event = gateway_event_find(connection, id);
		if (!event)
			r = message_refuse(&fault, ERROR_NOT_FOUND,
				"event is %" PRIu32 ", this connection has no such event", id);
	}
	if (r < 0) {
		connection_refuse(connection, true, message->id, fault.code, fault.text);
		return;
	}
	request = connection_begin(connection, message);
	if (!request)
		return;
	event_close(event, request);
}
