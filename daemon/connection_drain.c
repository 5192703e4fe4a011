/* A connection while the daemon drains. What the client has sent is answered, and what it still
 * sends for a second; then it is finished, and ended when all is answered and on its socket. Every
 * so often each connection is looked at: one for which replies wait and that reads none of them
 * must not hold up the end, and is closed. */
#include "connection.h"

#include "poll_now.h"
#include "server.h"

#include <linux/sockios.h>
#include <stdio.h>
#include <sys/ioctl.h>

bool connection_has_caught_up(const struct connection *connection)
{
	return !connection->pending && !connection->outbox.bytes &&
	       link_alone(&connection->ready) &&
	       connection->reader.end == connection->reader.start &&
	       !poll_now(connection->fd, POLLIN);
}

/* Counts the looks in a row at which replies waited and the client had read nothing since the one
 * before. The socket becomes writable only when most of what it holds has been read, so what is
 * sent does not tell of a slow client in time; what the socket still holds does, in pieces of up to
 * 40 KiB: the time limit is made for them. */
static void look_at_reading(struct connection *connection)
{
	struct drain_look *look = &connection->drain_look;
	const uint64_t sent = connection->outbox.sent;
	int unread = 0;

	ioctl(connection->fd, SIOCOUTQ, &unread); /* if it can't be told, what is sent has to do */
	if (connection->outbox.bytes && sent == look->sent && unread == look->unread)
		look->idle++;
	else
		look->idle = 0;
	look->sent = sent;
	look->unread = unread;
}

static void on_drain_look(uv_timer_t *timer)
{
	struct connection *connection = timer->data;

	look_at_reading(connection);
	if (connection->drain_look.idle * LIMIT_DRAIN_READ_US >= LIMIT_DRAIN_UNREAD_US) {
		char reason[96];

		snprintf(reason, sizeof(reason),
			"has read none of its replies for %llu s while the daemon drains",
			LIMIT_DRAIN_UNREAD_US / 1000000);
		connection_close(connection, LOG_WARNING, reason);
	} else if (connection_reads(connection) && !connection->pending) {
		/* With calls to answer it stays open anyway: later then. */
		connection->state = CONNECTION_FINISHING;
		link_remove(&connection->ready);
		connection_touch(connection);
	}
	server_settle(connection->server);
}

void connection_drain(struct connection *connection, const char *reason)
{
	struct parcel *parcel;

	if (connection->state >= CONNECTION_CLOSING)
		return; /* which has a time limit of its own */
	uv_timer_start(&connection->timer, on_drain_look, LIMIT_DRAIN_READ_US / 1000,
		LIMIT_DRAIN_READ_US / 1000);
	look_at_reading(connection);
	connection->drain_look.idle = 0;
	if (!connection_reads(connection))
		return;
	parcel = parcel_new();
	if (parcel)
		goaway_encode(&parcel->head, reason);
	connection_send(connection, parcel);
}
