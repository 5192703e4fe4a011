/* `region_open`, `region_import`, `region_close`: calls that are answered when a worker has mapped
 * or unmapped. */
#include "gateway.h"

#include "log.h"
#include "region.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct region *gateway_region_find(const struct connection *connection, uint32_t id)
{
	for (struct link *link = connection->regions.next; link != &connection->regions;
		link = link->next) {
		struct region *region = LINK_OWNER(link, struct region, link);

		if (region->order.id == id)
			return region;
	}
	return NULL;
}

static struct server *server_of(const struct region *region)
{
	return LINK_OWNER(region->pool, struct server, regions);
}

/* The memory of a closed region is gone. */
static void region_closed(struct region *region)
{
	struct server *server = server_of(region);
	struct request *request = region->order.waiting;

	if (!request)
		return;
	if (request->connection)
		request->connection->region_count--;
	connection_answer_empty(server, request);
	server_settle(server);
}

static struct parcel *opened_parcel(struct region *region, uint32_t id)
{
	struct parcel *parcel = parcel_new();
	struct region_reply reply = {
		.region = region->order.id,
		.has_memory = !region->imported,
		.bytes = region->bytes,
		.memory = region->order.memory,
		.device =
			{
				.at = region->device.uuid,
				.bytes = (uint32_t)strlen(region->device.uuid),
			},
	};

	if (!parcel)
		return NULL;
	region_reply_encode(&parcel->head, id, &reply);
	parcel->fd = region->order.fd;
	parcel->request = id;
	parcel->region = region->order.id;
	region->order.fd = -1;
	return parcel;
}

static void note_plain(const struct connection *connection, const struct region *region)
{
	struct log_context context;

	if (!connection || region->fault.code != ERROR_NONE || !region->device_why.text[0])
		return;
	context = connection_context(connection);
	log_line(LOG_WARNING, &context,
		"region %" PRIu32 " of %" PRIu64
		" byte%s is not pinned, so that every row of it is "
		"copied twice: %s",
		region->order.id, region->bytes, sentence_s(region->bytes),
		region->device_why.text);
}

/* A region is mapped, or it could not be. Its client may be gone. */
static void region_opened(struct region *region)
{
	struct server *server = server_of(region);
	struct request *request = region->order.waiting;
	struct connection *connection = request->connection;

	region->order.waiting = NULL;
	if (region->fault.code == ERROR_DEVICE_LOST)
		server_lose_device(server, region->device_why.text);
	else
		note_plain(connection, region);
	if (region->fault.code == ERROR_INTERNAL)
		log_error("a region can't be made: %s", region->fault.text);
	if (region->fault.code != ERROR_NONE) {
		if (connection)
			connection->region_count--;
		connection_answer_error(server, request, region->fault.code, region->fault.text);
	} else if (!connection) {
		connection_answer(server, request, NULL);
		region_close(region, NULL);
	} else {
		link_append(&connection->regions, &region->link);
		connection_answer(server, request, opened_parcel(region, request->id));
	}
	server_settle(server);
}

void gateway_region_withdraw(struct connection *connection, uint32_t id)
{
	struct region *region = gateway_region_find(connection, id);

	if (!region)
		return;
	connection->region_count--;
	region_close(region, NULL);
}

static int check_region(const struct connection *connection, const struct region_request *wire,
	struct message_fault *fault)
{
	const struct config *config = &connection->server->config;

	if (wire->memory == REGION_DEVICE &&
		!markov_memory_granularity(connection->server->regions.memory))
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"memory is \"device\", the %s backend works on \"host\" memory only here",
			connection->server->facts.backend);
	if (wire->memory == REGION_HOST && wire->has_device)
		return message_refuse(
			fault, ERROR_BAD_REQUEST, "device names a device, but memory is \"host\"");
	if (wire->bytes > config->max_region_bytes)
		return message_refuse(fault, ERROR_TOO_LARGE,
			"bytes is %" PRIu64 ", the most is %" PRIu64 " (max_region_bytes)",
			wire->bytes, config->max_region_bytes);
	if (connection->region_count >= config->max_regions)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"this connection has %" PRIu32 " region%s, the most is %" PRIu32
			" (max_regions)",
			connection->region_count, sentence_s(connection->region_count),
			config->max_regions);
	return 0;
}

/* Why region_start() returned `code`. */
static void describe_no_room(const struct server *server, const struct user *user,
	const struct region_request *wire, int code, char *text, size_t text_bytes)
{
	const struct region_pool *pool = &server->regions;
	const bool device = wire->memory == REGION_DEVICE, of_user = code == -EDQUOT;
	const struct {
		uint64_t used, most;
		const char *limit;
	} rooms[] = {
		{pool->bytes, pool->bytes_max, "max_memory_bytes"},
		{pool->device_bytes, pool->device_bytes_max, "max_device_bytes"},
		{user->bytes, pool->user_bytes_max, "max_user_memory_bytes"},
		{user->device_bytes, pool->user_device_bytes_max, "max_user_device_bytes"},
	};
	const size_t room = 2 * (size_t)of_user + device;

	if (code != -ENOBUFS && code != -EDQUOT)
		snprintf(text, text_bytes, "out of memory");
	else
		snprintf(text, text_bytes,
			"bytes is %" PRIu64 ", %s %s regions have %" PRIu64 " of at most %" PRIu64
			" (%s)",
			wire->bytes, of_user ? "this user's" : "all", device ? "device" : "host",
			rooms[room].used, rooms[room].most, rooms[room].limit);
}

void gateway_region_open(struct connection *connection, const struct message *message, int fd)
{
	struct server *server = connection->server;
	struct region_order order;
	struct region_request wire;
	struct message_fault fault;
	struct request *request;
	char text[160];
	int r;

	if (server->draining)
		r = message_refuse(&fault, ERROR_DRAINING, "the daemon is about to stop");
	else
		r = region_request_decode(message->params, &wire, &fault);
	if (r == 0)
		r = check_region(connection, &wire, &fault);
	if (r < 0) {
		connection_refuse(connection, true, message->id, fault.code, fault.text);
		goto close_fd;
	}
	request = connection_begin(connection, message);
	if (!request)
		goto close_fd;
	order = (struct region_order){
		.id = connection->next_region,
		.user = connection->user,
		.bytes = wire.bytes,
		.memory = wire.memory,
		.fd = fd,
		.waiting = request,
		.opened = region_opened,
		.closed = region_closed,
	};
	if (wire.has_device)
		wire_text_copy(wire.device, order.device, sizeof(order.device));
	r = region_start(&server->regions, &order);
	if (r < 0) {
		describe_no_room(server, connection->user, &wire, r, text, sizeof(text));
		connection_answer_error(server, request, ERROR_RESOURCE_EXHAUSTED, text);
		return;
	}
	connection->next_region++;
	connection->region_count++;
	return;
close_fd:
	if (fd >= 0)
		close(fd);
}

void gateway_region_close(struct connection *connection, const struct message *message)
{
	struct message_fault fault;
	struct request *request;
	struct region *region = NULL;
	uint32_t id;
	int r;

	r = region_close_decode(message->params, &id, &fault);
	if (r == 0) {
		region = gateway_region_find(connection, id);
		if (!region)
			r = message_refuse(&fault, ERROR_NOT_FOUND,
				"region is %" PRIu32 ", this connection has no such region", id);
	}
	if (r < 0) {
		connection_refuse(connection, true, message->id, fault.code, fault.text);
		return;
	}
	request = connection_begin(connection, message);
	if (!request)
		return;
	region_close(region, request);
}
