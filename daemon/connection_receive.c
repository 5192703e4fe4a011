/* From the socket to whole frames: bytes and descriptors into the reader, a turn's worth of frames
 * to the gateway, within the time that a frame may take. */
#include "connection.h"

#include "gateway.h"
#include "poll_now.h"
#include "server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Keeps the books about the reader's buffer. A frame for which there is no room can't be
 * skipped, so that client is closed and told to come again. */
static void charge_reader(struct connection *connection)
{
	struct message_fault fault;

	connection_charge(connection, connection->reader.capacity, connection->reader_bytes);
	connection->reader_bytes = connection->reader.capacity;
	if (connection->reader_bytes > LIMIT_SPARED_BYTES && connection_reads(connection) &&
		connection_check_held(connection, 0, &fault) < 0) {
		connection_refuse(connection, false, 0, fault.code, fault.text);
		connection_begin_closing(connection);
	}
}

static void end_of_stream(struct connection *connection)
{
	if (poll_now(connection->fd, 0) & (POLLHUP | POLLERR)) {
		connection_close(connection, LOG_INFO, "the client is gone");
		return;
	}
	connection->state = CONNECTION_FINISHING;
	connection->client_ended = true;
	if (!connection->server->draining) /* then it is about what the client reads */
		uv_timer_stop(&connection->timer);
	if (connection->reader.end > connection->reader.start) {
		connection_note_error(
			connection, 0, ERROR_BAD_FRAME, "the stream ends within a frame");
		connection_send(connection, connection_error_parcel(false, 0, ERROR_BAD_FRAME,
						    "the stream ends within a frame"));
	}
	connection_touch(connection);
}

/* One recvmsg(). Returns true when there may be more at once. */
static bool receive_once(struct connection *connection, size_t *received)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * FRAME_FDS_PASSED_MAX)];
	} control;
	struct iovec vector;
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	int fds[FRAME_FDS_PASSED_MAX];
	unsigned fd_count = 0;
	uint8_t *at;
	ssize_t n;

	if (frame_reader_space(&connection->reader, &at, &vector.iov_len) < 0) {
		connection_close(connection, LOG_WARNING, "out of memory for a frame");
		return false;
	}
	vector.iov_base = at;
	do
		n = recvmsg(connection->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EWOULDBLOCK)
		return false;
	if (n < 0) {
		connection_close(connection, LOG_INFO, "the client is gone");
		return false;
	}
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header;
		header = CMSG_NXTHDR(&message, header)) {
		size_t bytes = header->cmsg_len - CMSG_LEN(0);

		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds + fd_count, CMSG_DATA(header), bytes);
		fd_count += (unsigned)(bytes / sizeof(int));
	}
	if (n == 0) {
		end_of_stream(connection);
		return false;
	}
	frame_reader_received(&connection->reader, (size_t)n, fds, fd_count,
		(message.msg_flags & MSG_CTRUNC) != 0);
	*received += (size_t)n;
	return (size_t)n == vector.iov_len;
}

static void refuse_stream(struct connection *connection)
{
	char text[MESSAGE_FAULT_BYTES];

	frame_reader_describe(&connection->reader, text, sizeof(text));
	connection_refuse(connection, false, 0,
		connection->reader.fault == FRAME_BAD_VERSION     ? ERROR_VERSION_MISMATCH
		: connection->reader.fault == FRAME_TRUNCATED_FDS ? ERROR_RESOURCE_EXHAUSTED
								  : ERROR_BAD_FRAME,
		text);
	connection_begin_closing(connection);
}

static void frame_timeout(uv_timer_t *timer)
{
	struct connection *connection = timer->data;

	if (!connection_reads(connection))
		return;
	/* The daemon may have stood still itself, and what lies in the socket came in time. */
	if (!connection_take_turn(connection) && connection_reads(connection))
		connection_refuse(connection, false, 0, ERROR_BAD_FRAME,
			"the frame was not whole within frame_timeout of its first byte");
	server_settle(connection->server);
}

/* Starts the clock with the first byte of a frame; the last one stops it. Before hello, and while
 * the daemon drains, the timer has another use, and is stricter. */
static void watch_frame(struct connection *connection, bool taken)
{
	const struct server *server = connection->server;

	if (connection->state != CONNECTION_OPEN || server->draining)
		return;
	if (connection->reader.end == connection->reader.start)
		uv_timer_stop(&connection->timer);
	else if (taken || !uv_is_active((uv_handle_t *)&connection->timer))
		uv_timer_start(&connection->timer, frame_timeout,
			server->config.frame_timeout_us / 1000, 0);
}

/* Handles whole frames until there are none or the turn is over. True: the turn is over. */
static bool handle_frames(struct connection *connection, unsigned *handled)
{
	struct frame frame;
	int r = 0;

	while (connection_reads(connection) && *handled < LIMIT_TURN_FRAMES) {
		r = frame_reader_next(&connection->reader, &frame);
		if (r <= 0)
			break;
		++*handled;
		gateway_handle(connection, &frame);
		if (connection->turn_over)
			*handled = LIMIT_TURN_FRAMES;
		connection->turn_over = false;
	}
	if (!connection_reads(connection))
		return true;
	if (r < 0) {
		refuse_stream(connection);
		return true;
	}
	if (*handled < LIMIT_TURN_FRAMES)
		return false;
	if (link_alone(&connection->ready))
		server_more_to_do(connection->server, &connection->ready);
	return true;
}

static void end_turn(struct connection *connection, unsigned handled)
{
	if (connection->state == CONNECTION_CLOSED)
		return;
	charge_reader(connection);
	watch_frame(connection, handled > 0);
	connection_touch(connection);
}

bool connection_take_turn(struct connection *connection)
{
	size_t received = 0;
	unsigned handled = 0;
	bool more = true;

	/* What has arrived comes first. */
	while (!handle_frames(connection, &handled)) {
		charge_reader(connection);
		if (!more || !connection_reads(connection) || received >= LIMIT_TURN_BYTES)
			break;
		more = receive_once(connection, &received);
	}
	connection->greedy = handled >= LIMIT_TURN_FRAMES || received >= LIMIT_TURN_BYTES;
	end_turn(connection, handled);
	return handled > 0;
}

void connection_receive(struct connection *connection)
{
	if (connection->greedy && link_alone(&connection->ready))
		server_more_to_do(connection->server, &connection->ready);
	if (link_alone(&connection->ready))
		connection_take_turn(connection);
}

void connection_discard(struct connection *connection)
{
	static char nowhere[64 << 10];
	size_t discarded = 0;
	ssize_t n;

	/* Descriptors go the same way: the kernel closes what is not asked for. */
	while (discarded < LIMIT_TURN_BYTES) {
		n = recv(connection->fd, nowhere, sizeof(nowhere), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EWOULDBLOCK)
			return;
		if (n <= 0) {
			connection_close(connection, LOG_INFO, "drained");
			return;
		}
		discarded += (size_t)n;
	}
}
