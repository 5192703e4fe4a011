#include "connection.h"

#include "event.h"
#include "gateway.h"
#include "region.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct log_context connection_context(const struct connection *connection)
{
	return (struct log_context){
		.connection = connection->number,
		.pid = connection->pid,
		.uid = connection->user->uid,
	};
}

bool connection_reads(const struct connection *connection)
{
	return connection->state == CONNECTION_GREETING || connection->state == CONNECTION_OPEN;
}

void connection_touch(struct connection *connection)
{
	if (link_alone(&connection->dirty))
		link_append(&connection->server->dirty, &connection->dirty);
}

static void on_poll(uv_poll_t *poll_handle, int status, int events);

/* ---- what is held ---- */

void connection_charge(struct connection *connection, uint64_t more, uint64_t less)
{
	connection->server->held_bytes += more - less;
	connection->user->held_bytes += more - less;
}

static bool user_has_room(const struct connection *connection, uint64_t more)
{
	const struct user *user = connection->user;

	return user_may(
		user, user->held_bytes, more, connection->server->config.max_user_inline_bytes);
}

int connection_check_held(
	const struct connection *connection, uint64_t more, struct message_fault *fault)
{
	const struct server *server = connection->server;
	const uint64_t most = config_held_max(&server->config);

	if (!user_has_room(connection, more))
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"this user's inline data, unread replies and unfinished frames would be "
			"%" PRIu64 " bytes, max_user_inline_bytes is %" PRIu64
			"; wait for replies, or use regions",
			connection->user->held_bytes + more, server->config.max_user_inline_bytes);
	if (server->held_bytes + more > most)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"the daemon holds as much inline data as it may, %" PRIu64
			" bytes (%d times max_frame_bytes, and %llu MiB); wait for replies, or use "
			"regions",
			most, LIMIT_HELD_FRAMES_TOTAL, LIMIT_HELD_BYTES_TOTAL >> 20);
	return 0;
}

/* Keeps the books about the memory of unread replies. */
static void charge_outbox(struct connection *connection)
{
	connection_charge(connection, connection->outbox.memory, connection->outbox_bytes);
	connection->outbox_bytes = connection->outbox.memory;
	if (connection->outbox_peak < connection->outbox_bytes)
		connection->outbox_peak = connection->outbox_bytes;
}

/* ---- the end ---- */

static void handle_closed(uv_handle_t *handle)
{
	struct connection *connection = handle->data;

	if (--connection->handles == 0)
		free(connection);
}

static void abandon_events(struct connection *connection)
{
	while (!link_alone(&connection->events))
		event_close(LINK_OWNER(connection->events.next, struct event, link), NULL);
}

static void abandon_regions(struct connection *connection)
{
	while (!link_alone(&connection->regions))
		region_close(LINK_OWNER(connection->regions.next, struct region, link), NULL);
}

void connection_close(struct connection *connection, int priority, const char *reason)
{
	struct server *server = connection->server;
	struct log_context context = connection_context(connection);

	if (connection->state == CONNECTION_CLOSED)
		return;
	connection->state = CONNECTION_CLOSED;
	log_line(priority, &context, "closed: %s", reason);

	connection_abandon_calls(connection);
	abandon_events(connection);
	abandon_regions(connection);
	outbox_done(&connection->outbox);
	charge_outbox(connection);
	frame_reader_done(&connection->reader);
	connection_charge(connection, 0, connection->reader_bytes);
	connection->reader_bytes = 0;
	link_remove(&connection->link);
	link_remove(&connection->ready);
	link_remove(&connection->dirty);
	uv_close((uv_handle_t *)&connection->poll, handle_closed);
	uv_close((uv_handle_t *)&connection->timer, handle_closed);
	close(connection->fd);
	connection->fd = -1;
	if (connection->outbox_peak > LIMIT_TRIM_BYTES)
		malloc_trim(0); /* many pieces, below which the heap does not shrink by itself */
	connection->user->connections--;
	user_drop(connection->user);
	connection->user = NULL;
	server_connection_closed(server);
}

static void close_timeout(uv_timer_t *timer)
{
	struct connection *connection = timer->data;

	connection_close(connection, LOG_INFO, "did not read the reason why it was closed");
	server_settle(connection->server);
}

void connection_begin_closing(struct connection *connection)
{
	if (connection->state >= CONNECTION_CLOSING)
		return;
	connection->state = CONNECTION_CLOSING;
	connection_abandon_calls(connection);
	link_remove(&connection->ready);
	uv_timer_start(&connection->timer, close_timeout, LIMIT_CLOSE_TIMEOUT_US / 1000, 0);
	connection_touch(connection);
}

/* ---- sending ---- */

static void parcel_gone(void *user, const struct parcel *parcel)
{
	struct connection *connection = user;

	connection->held_bytes -= parcel->bulk_bytes;
	connection->bulk_bytes -= parcel->bulk_bytes;
	if (parcel->ends_request)
		connection_count_inflight(connection, -1);
}

void connection_send(struct connection *connection, struct parcel *parcel)
{
	if (connection->state == CONNECTION_CLOSED) {
		parcel_free(parcel);
		return;
	}
	if (!parcel || parcel->head.failed) {
		parcel_free(parcel);
		connection_close(connection, LOG_WARNING, "out of memory for a reply");
		return;
	}
	connection->held_bytes += parcel->bulk_bytes;
	connection->bulk_bytes += parcel->bulk_bytes;
	outbox_put(&connection->outbox, parcel);
	charge_outbox(connection);
	connection_touch(connection);
}

struct parcel *connection_error_parcel(
	bool has_id, uint32_t id, enum error_code code, const char *text)
{
	struct parcel *parcel = parcel_new();

	if (parcel)
		message_encode_error(&parcel->head, has_id, id, code, text);
	return parcel;
}

/* What a client did wrong is for its own log, unless it ends the connection. What is wrong with the
 * daemon is logged where it is found, not once a request. */
void connection_note_error(
	struct connection *connection, uint32_t id, enum error_code code, const char *text)
{
	const struct error_info *info = error_lookup((int)code);
	struct log_context context = connection_context(connection);

	connection->server->stats.errors[code]++;
	context.request = id;
	context.error = info->name;
	log_line(info->closes_connection && code != ERROR_DEVICE_LOST ? LOG_WARNING : LOG_DEBUG,
		&context, "%s", text);
}

void connection_refuse(struct connection *connection, bool has_id, uint32_t id,
	enum error_code code, const char *text)
{
	if (connection->state == CONNECTION_CLOSED)
		return;
	connection_note_error(connection, id, code, text);
	connection_send(connection, connection_error_parcel(has_id, id, code, text));
	if (error_lookup((int)code)->closes_connection)
		connection_begin_closing(connection);
}

/* A region's descriptor can't be passed on: the region is closed and its request is answered with
 * an error in the place of the reply. False: the connection is closed. */
static bool withdraw_first(struct connection *connection)
{
	static const char text[] = "the kernel has too many descriptors on their way for the "
				   "daemon's user; clients must read theirs first";
	struct parcel *parcel = outbox_take_first(&connection->outbox);
	struct parcel *error =
		connection_error_parcel(true, parcel->request, ERROR_RESOURCE_EXHAUSTED, text);

	connection_note_error(connection, parcel->request, ERROR_RESOURCE_EXHAUSTED, text);
	gateway_region_withdraw(connection, parcel->region);
	if (error && !error->head.failed) {
		error->ends_request = parcel->ends_request;
		outbox_put_first(&connection->outbox, error);
		error = NULL;
	} else {
		parcel_gone(connection, parcel);
		connection_close(connection, LOG_WARNING, "out of memory for a reply");
	}
	parcel_free(parcel);
	parcel_free(error);
	return connection->state != CONNECTION_CLOSED;
}

/* False: the connection is closed. */
static bool flush(struct connection *connection)
{
	int r;

	while ((r = outbox_flush(&connection->outbox, connection->fd)) == -ETOOMANYREFS)
		if (!withdraw_first(connection))
			return false;
	charge_outbox(connection);
	if (r < 0 && r != -EAGAIN)
		connection_close(connection, LOG_INFO, "the client is gone");
	return connection->state != CONNECTION_CLOSED;
}

/* One reply alone is never too much: max_frame_bytes bounds it. Nor, for the user, are bulk
 * replies: there was room for them when they were asked for, and it is what comes on top that tips
 * over. */
static bool reads_too_little(const struct connection *connection)
{
	const struct server *server = connection->server;
	const struct outbox *outbox = &connection->outbox;

	if (outbox->memory > server->config.max_output_bytes &&
		outbox->parcels.next != outbox->parcels.prev)
		return true;
	if (outbox->memory > LIMIT_SPARED_BYTES &&
		server->held_bytes > config_held_max(&server->config))
		return true;
	return outbox->memory - connection->bulk_bytes > LIMIT_SPARED_BYTES &&
	       !user_has_room(connection, 0);
}

static void linger_timeout(uv_timer_t *timer)
{
	struct connection *connection = timer->data;

	connection_close(connection, LOG_INFO, "drained; the client did not close in time");
	server_settle(connection->server);
}

/* Nothing is left to answer or to send. A close while the client still sends would be a reset to
 * it, which may hide the last replies: so the daemon ends its own stream first. */
static void end_well(struct connection *connection)
{
	if (connection->state == CONNECTION_CLOSING) {
		connection_close(connection, LOG_INFO, "refused");
	} else if (connection->client_ended) {
		connection_close(connection, LOG_INFO, "done");
	} else {
		connection->state = CONNECTION_LINGERING;
		link_remove(&connection->ready);
		shutdown(connection->fd, SHUT_WR);
		uv_timer_start(&connection->timer, linger_timeout, LIMIT_LINGER_US / 1000, 0);
	}
}

void connection_settle(struct connection *connection)
{
	const struct server *server = connection->server;
	int events = 0;

	link_remove(&connection->dirty);
	if (connection->state == CONNECTION_CLOSED || !flush(connection))
		return;
	if (reads_too_little(connection)) {
		connection_close(connection, LOG_WARNING, "does not read its replies");
		return;
	}
	if (server->draining && connection_reads(connection) &&
		connection_has_caught_up(connection))
		connection->state = CONNECTION_FINISHING;
	if (!connection_reads(connection) && !connection->pending && !connection->outbox.bytes &&
		connection->state != CONNECTION_LINGERING)
		end_well(connection);
	if (connection->state == CONNECTION_CLOSED)
		return;

	if (connection_reads(connection) || connection->state == CONNECTION_LINGERING)
		events |= UV_READABLE;
	if (connection->outbox.bytes)
		events |= UV_WRITABLE;
	if (!events)
		events = UV_PRIORITIZED; /* never comes, but a poll for it reports a client that is
					    gone */
	if (events != connection->poll_events) {
		connection->poll_events = events;
		uv_poll_start(&connection->poll, events, on_poll);
	}
}

static void on_poll(uv_poll_t *poll_handle, int status, int events)
{
	struct connection *connection = poll_handle->data;
	struct server *server = connection->server;

	if (status < 0 || (events & UV_PRIORITIZED)) {
		connection_close(connection, LOG_INFO, "the client is gone");
	} else {
		if ((events & UV_READABLE) && connection->state == CONNECTION_LINGERING)
			connection_discard(connection);
		else if (events & UV_READABLE)
			connection_receive(connection);
		/* Who waits for another turn is sent more in that. */
		if ((events & UV_WRITABLE) && connection->state != CONNECTION_CLOSED &&
			link_alone(&connection->ready))
			connection_touch(connection);
	}
	server_settle(server);
}

/* ---- the beginning ---- */

static void hello_timeout(uv_timer_t *timer)
{
	struct connection *connection = timer->data;

	/* The daemon may have stood still itself, and its hello lies in the socket. */
	connection_take_turn(connection);
	if (connection->state == CONNECTION_GREETING)
		connection_close(connection, LOG_WARNING, "said no hello in time");
	server_settle(connection->server);
}

int connection_start(struct server *server, int fd, pid_t pid, struct user *user)
{
	struct connection *connection;
	struct log_context context;
	int r;

	connection = calloc(1, sizeof(*connection));
	if (!connection) {
		close(fd);
		return -ENOMEM;
	}
	r = uv_poll_init(server->loop, &connection->poll, fd);
	if (r < 0) {
		close(fd);
		free(connection);
		return r;
	}
	uv_timer_init(server->loop, &connection->timer);
	connection->poll.data = connection->timer.data = connection;
	connection->handles = 2;

	link_init(&connection->ready);
	link_init(&connection->dirty);
	link_init(&connection->regions);
	link_init(&connection->events);
	scheduler_flow_init(&connection->flow);
	connection->server = server;
	connection->number = server->next_connection++;
	connection->next_region = connection->next_event = 1;
	connection->pid = pid;
	connection->user = user;
	user->holds++;
	user->connections++;
	connection->fd = fd;
	frame_reader_init(&connection->reader, FRAME_HELLO_BODY_BYTES_MAX);
	outbox_init(&connection->outbox, parcel_gone, connection);
	link_append(&server->connections, &connection->link);
	connection->poll_events = UV_READABLE;
	uv_poll_start(&connection->poll, UV_READABLE, on_poll);
	uv_timer_start(
		&connection->timer, hello_timeout, server->config.hello_timeout_us / 1000, 0);
	context = connection_context(connection);
	log_line(LOG_DEBUG, &context, "accepted");
	return 0;
}
