/* The calls of a connection that are answered later: in its table by id, in its books and the
 * server's. */
#include "connection.h"

#include "event.h"
#include "region.h"
#include "server.h"

static struct request **id_slot(struct connection *connection, uint32_t id)
{
	return &connection->by_id[id % CONNECTION_ID_SLOTS];
}

struct request *connection_find(const struct connection *connection, uint32_t id)
{
	struct request *request = connection->by_id[id % CONNECTION_ID_SLOTS];

	while (request && request->id != id)
		request = request->next_same_hash;
	return request;
}

void connection_count_inflight(struct connection *connection, int change)
{
	connection->inflight += (uint32_t)change;
	connection->user->inflight += (uint32_t)change;
	connection->server->inflight += (uint32_t)change;
}

void connection_add(struct connection *connection, struct request *request)
{
	struct request **slot = id_slot(connection, request->id);

	request->connection = connection;
	request->next_same_hash = *slot;
	*slot = request;
	connection->pending++;
	connection_count_inflight(connection, 1);
	connection->held_bytes += request->held_bytes;
	connection_charge(connection, request->held_bytes, 0);
}

struct request *connection_begin(struct connection *connection, const struct message *message)
{
	struct request *request = request_new(message->id, message->method);

	if (request)
		connection_add(connection, request);
	else
		connection_refuse(
			connection, true, message->id, ERROR_RESOURCE_EXHAUSTED, "out of memory");
	return request;
}

/* Takes a call out of the books and gives its memory back. */
static void end_request(struct server *server, struct request *request)
{
	struct connection *connection = request->connection;

	if (connection) {
		struct request **slot = id_slot(connection, request->id);

		while (*slot != request)
			slot = &(*slot)->next_same_hash;
		*slot = request->next_same_hash;
		connection->pending--;
		connection->held_bytes -= request->held_bytes;
		connection_charge(connection, 0, request->held_bytes);
	} else {
		server->held_bytes -= request->held_bytes;
	}
	region_drop(request->draft.base_region);
	region_drop(request->draft.logits_region);
	event_drop(request->draft.event);
	request_recycle(&server->spare_requests, request);
}

void connection_answer(struct server *server, struct request *request, struct parcel *parcel)
{
	struct connection *connection = request->connection;

	if (!connection) {
		parcel_free(parcel);
		end_request(server, request);
		return;
	}
	end_request(server, request);
	if (parcel && !parcel->head.failed)
		parcel->ends_request = true;
	else
		connection_count_inflight(connection, -1);
	connection_send(connection, parcel);
}

void connection_answer_empty(struct server *server, struct request *request)
{
	struct parcel *parcel = request->connection ? parcel_new() : NULL;

	if (parcel)
		message_encode_empty_reply(&parcel->head, request->id);
	connection_answer(server, request, parcel);
}

void connection_answer_error(
	struct server *server, struct request *request, enum error_code code, const char *text)
{
	struct connection *connection = request->connection;
	struct parcel *parcel = NULL;

	if (connection) {
		connection_note_error(connection, request->id, code, text);
		parcel = connection_error_parcel(true, request->id, code, text);
	}
	connection_answer(server, request, parcel);
	/* The device is lost for its other calls, too: each is told so before the end. */
	if (connection && error_lookup((int)code)->closes_connection &&
		connection_reads(connection))
		connection->state = CONNECTION_FINISHING;
}

void connection_abandon_calls(struct connection *connection)
{
	for (unsigned i = 0; i < CONNECTION_ID_SLOTS; i++) {
		struct request *request = connection->by_id[i];

		connection->by_id[i] = NULL;
		while (request) {
			struct request *next = request->next_same_hash;

			request->connection = NULL;
			connection->user->held_bytes -= request->held_bytes;
			if (request->method == METHOD_DRAFT &&
				engine_cancel(connection->server->engine, request))
				connection_answer(connection->server, request, NULL);
			request = next;
		}
	}
	connection_count_inflight(connection, -(int)connection->pending);
	connection->pending = 0;
}
