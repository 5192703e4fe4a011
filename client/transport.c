/* The socket: never blocking once connected, all waiting in one ppoll(2).
 *
 * Happy path of a call: one sendmsg(2) of head and bulk, one ppoll(2), one recvmsg(2); with spin_us
 * instead of the ppoll(2) as many recvmsg(2) as it takes. Small requests that others follow share
 * a sendmsg(2).
 * When the socket is full: replies are taken in while we wait for room. draftd stops reading from a
 * client that does not read its replies, so a side that only writes would wait for ever. */
#include "client/private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

union descriptor_room {
	struct cmsghdr align;
	/* The kernel may deliver descriptors of two messages in no single call, so one frame's are
	 * the most. */
	char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
};

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t deadline_after(int64_t timeout_us)
{
	int64_t deadline;

	if (timeout_us < 0 || __builtin_add_overflow(now_us(), timeout_us, &deadline))
		return DEADLINE_NEVER;
	return deadline;
}

/* ---- connecting ---- */

/* How long one connect(2) may wait for a place in the listener's backlog. A socket that does not
 * block would give EAGAIN at once and has nothing to poll for, so connecting is the one thing done
 * on a blocking socket. */
static int set_connect_timeout(int fd, int64_t deadline_us)
{
	struct timeval timeout = {0};
	int64_t left_us;

	if (deadline_us != DEADLINE_NEVER) {
		left_us = deadline_us - now_us();
		if (left_us <= 0)
			return -ETIMEDOUT;
		timeout.tv_sec = (time_t)(left_us / 1000000);
		timeout.tv_usec = (suseconds_t)(left_us % 1000000);
	}
	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0 ? -errno : 0;
}

static const char *connect_remedy(int code)
{
	switch (-code) {
	case ENOENT:
	case ECONNREFUSED:
		return "; is draftd running?";
	case EACCES:
		return "; the socket's mode and group say who may (ls -l)";
	default:
		return "";
	}
}

/* connect(2) says of a folder and of a file what it says of a socket that nobody listens on. */
static int refine(int code, const char *path)
{
	struct stat status;

	if (code != -ECONNREFUSED || stat(path, &status) < 0 || S_ISSOCK(status.st_mode))
		return code;
	return S_ISDIR(status.st_mode) ? -EISDIR : -ENOTSOCK;
}

/* What stands behind a path that leads to no socket; NULL: that is not what `code` says. */
static const char *no_socket(int code)
{
	switch (-code) {
	case EISDIR:
		return "is a folder; name the socket in it, draftd.sock if nobody chose another "
		       "name";
	case ENOTSOCK:
		return "is no socket; name the one that draftd makes (draftd --socket)";
	case ENOTDIR:
		return "leads through a file as if that were a folder; name the socket that "
		       "draftd makes (draftd --socket)";
	default:
		return NULL;
	}
}

int transport_connect(struct draft *draft, int64_t deadline_us)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;
	int r;

	memcpy(address.sun_path, draft->socket_path, sizeof(draft->socket_path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return handle_fail(
			draft, -errno, "cannot make a socket: %s", strerrordesc_np(errno));
	do {
		r = set_connect_timeout(fd, deadline_us);
		if (r == 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
			r = -errno;
	} while (r == -EINTR || r == -EAGAIN);
	if (r == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r < 0)
		goto fail;
	draft->fd = fd;
	return 0;
fail:
	close(fd);
	if (r == -ETIMEDOUT)
		return handle_fail(draft, r,
			"%s is busy: draftd accepted no connection within the timeout of %g s",
			draft->socket_path, (double)draft->timeout_us / 1e6);
	r = refine(r, draft->socket_path);
	if (no_socket(r))
		return handle_fail(draft, r, "%s%s %s", draft->socket_path, draft->socket_origin,
			no_socket(r));
	return handle_fail(draft, r, "cannot connect to %s%s: %s%s", draft->socket_path,
		draft->socket_origin, strerrordesc_np(-r), connect_remedy(r));
}

/* ---- waiting ---- */

int transport_wait(struct draft *draft, short events, int64_t deadline_us)
{
	struct pollfd poll_fd = {.fd = draft->fd, .events = events};
	struct timespec timeout;
	int64_t left_us;
	int r;

	for (;;) {
		/* Looked at first, so that a peer that always has something cannot hold us past the
		 * deadline. */
		left_us = deadline_us == DEADLINE_NEVER ? INT64_MAX : deadline_us - now_us();
		if (left_us <= 0)
			return 0;
		timeout.tv_sec = (time_t)(left_us / 1000000);
		timeout.tv_nsec = (long)(left_us % 1000000) * 1000;
		r = ppoll(&poll_fd, 1, deadline_us == DEADLINE_NEVER ? NULL : &timeout, NULL);
		if (r > 0)
			return 1;
		if (r < 0 && errno != EINTR)
			return handle_break(draft, -errno, "cannot wait for the socket: %s",
				strerrordesc_np(errno));
	}
}

/* ---- receiving ---- */

static int receive_failed(struct draft *draft, int code)
{
	const struct frame_reader *reader = &draft->reader;
	const char *where = reader->end != reader->start ? " in the middle of a reply" : "";

	if (code == 0 || code == -ECONNRESET)
		return handle_break(draft, -ECONNRESET, "draftd closed the connection%s", where);
	return handle_break(
		draft, code, "cannot receive from draftd%s: %s", where, strerrordesc_np(-code));
}

static int handle_frames(struct draft *draft)
{
	char why[MESSAGE_FAULT_BYTES];
	struct frame frame;
	int r;

	while ((r = frame_reader_next(&draft->reader, &frame)) > 0) {
		draft->frames_received++;
		r = call_reply(draft, &frame);
		if (r < 0)
			return r;
	}
	if (r == 0)
		return 0;
	frame_reader_describe(&draft->reader, why, sizeof(why));
	return handle_break(draft, -EPROTO, "draftd broke the protocol: %s", why);
}

int transport_receive(struct draft *draft)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FRAME_FDS_PASSED_MAX * sizeof(int))];
	} room;
	struct iovec piece;
	struct msghdr message = {
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = room.bytes,
		.msg_controllen = sizeof(room.bytes),
	};
	int fds[FRAME_FDS_PASSED_MAX];
	unsigned fd_count = 0;
	uint8_t *at;
	ssize_t got;
	int r;

	r = frame_reader_space(&draft->reader, &at, &piece.iov_len);
	if (r < 0)
		return handle_break(draft, r, "no memory for a reply");
	piece.iov_base = at;
	do
		got = recvmsg(draft->fd, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (got <= 0)
		return receive_failed(draft, got < 0 ? -errno : 0);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		fd_count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), fd_count * sizeof(int));
	}
	frame_reader_received(
		&draft->reader, (size_t)got, fds, fd_count, (message.msg_flags & MSG_CTRUNC) != 0);
	r = handle_frames(draft);
	return r < 0 ? r : 1;
}

int transport_await(struct draft *draft, int64_t deadline_us)
{
	int64_t end_us;
	int r;

	/* What is unsent needs a poll for room. */
	if (draft->spin_us > 0 && draft->unsent.count == 0) {
		end_us = deadline_after(draft->spin_us);
		if (end_us > deadline_us)
			end_us = deadline_us;
		do {
			r = transport_receive(draft);
			if (r != 0)
				return r;
		} while (now_us() < end_us);
	}
	r = transport_wait(draft, draft_events(draft), deadline_us);
	if (r <= 0)
		return r;
	r = transport_receive(draft);
	return r < 0 ? r : 1;
}

/* ---- sending ---- */

/* The peer takes nothing more. What it said last (why it closes, replies to other calls) may still
 * be in the socket. */
static int send_failed(struct draft *draft, int code)
{
	int r;

	do
		r = transport_receive(draft);
	while (r > 0);
	if (r < 0)
		return r;
	return handle_break(draft, code == -EPIPE ? -ECONNRESET : code, "cannot send to draftd: %s",
		strerrordesc_np(-code));
}

/* One sendmsg(2). The number of bytes, 0 if the socket is full, or -errno. */
static ssize_t send_pieces(struct draft *draft, struct iovec *pieces, size_t piece_count, int fd)
{
	union descriptor_room room;
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = piece_count};
	struct cmsghdr *control;
	ssize_t sent;

	if (fd >= 0) {
		message.msg_control = room.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int));
		memset(&room, 0, sizeof(room));
		control = CMSG_FIRSTHDR(&message);
		control->cmsg_level = SOL_SOCKET;
		control->cmsg_type = SCM_RIGHTS;
		control->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(control), &fd, sizeof(int));
	}
	do
		sent = sendmsg(draft->fd, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
	return sent;
}

int transport_flush(struct draft *draft)
{
	struct wire_buffer *unsent = &draft->unsent;
	struct iovec piece;
	ssize_t sent;

	if (unsent->failed)
		return handle_break(draft, -ENOMEM, "no memory for a request");
	while (draft->unsent_at < unsent->count) {
		piece.iov_base = unsent->bytes + draft->unsent_at;
		piece.iov_len = unsent->count - draft->unsent_at;
		sent = send_pieces(draft, &piece, 1, -1);
		if (sent < 0)
			return send_failed(draft, (int)sent);
		if (sent == 0)
			return 0;
		draft->unsent_at += (size_t)sent;
	}
	wire_buffer_clear(unsent);
	draft->unsent_at = 0;
	return 0;
}

/* Waits for room in the socket and takes in what arrives meanwhile. 0, -ETIMEDOUT, or broken. */
static int wait_for_room(struct draft *draft, int64_t deadline_us)
{
	int r = transport_wait(draft, POLLIN | POLLOUT, deadline_us);

	if (r == 0)
		return handle_fail(draft, -ETIMEDOUT,
			"draftd did not take the request within the timeout of %g s",
			(double)draft->timeout_us / 1e6);
	if (r > 0)
		r = transport_receive(draft);
	return r < 0 ? r : 0;
}

/* Keeps the rest of a frame, in front of what was queued while it was being sent. */
static int keep_rest(struct draft *draft, const struct iovec pieces[2])
{
	struct wire_buffer rest;

	wire_buffer_init(&rest);
	for (size_t i = 0; i < 2; i++)
		wire_buffer_write(&rest, pieces[i].iov_base, pieces[i].iov_len);
	wire_buffer_write(&rest, (const char *)draft->unsent.bytes, draft->unsent.count);
	if (rest.failed || draft->unsent.failed) {
		wire_buffer_done(&rest);
		return handle_break(draft, -ENOMEM, "no memory for a request");
	}
	wire_buffer_done(&draft->unsent);
	draft->unsent = rest;
	return -EINPROGRESS;
}

int transport_send(
	struct draft *draft, const void *bulk, size_t bulk_bytes, int fd, int64_t deadline_us)
{
	struct iovec pieces[2] = {
		{.iov_base = draft->head.bytes, .iov_len = draft->head.count},
		{.iov_base = (void *)(uintptr_t)bulk, .iov_len = bulk_bytes},
	};
	bool started = false;
	size_t part;
	ssize_t sent;
	int r;

	for (;;) {
		r = transport_flush(draft);
		if (r < 0)
			return r;
		if (draft->unsent_at == draft->unsent.count)
			break;
		r = wait_for_room(draft, deadline_us);
		if (r < 0)
			return r;
	}
	while (pieces[0].iov_len + pieces[1].iov_len > 0) {
		sent = send_pieces(draft, pieces, 2, started ? -1 : fd);
		if (sent < 0)
			return send_failed(draft, (int)sent);
		if (sent == 0) {
			r = wait_for_room(draft, deadline_us);
			if (r == -ETIMEDOUT && started)
				return keep_rest(draft, pieces);
			if (r < 0)
				return r;
			continue;
		}
		started = true;
		for (size_t i = 0; i < 2; i++) {
			part = (size_t)sent < pieces[i].iov_len ? (size_t)sent : pieces[i].iov_len;
			pieces[i].iov_base = (char *)pieces[i].iov_base + part;
			pieces[i].iov_len -= part;
			sent -= (ssize_t)part;
		}
	}
	return transport_flush(draft);
}

int transport_keep(struct draft *draft, const void *bulk, size_t bulk_bytes, int64_t deadline_us)
{
	struct wire_buffer *unsent = &draft->unsent;
	const size_t bytes = draft->head.count + bulk_bytes;
	int r;

	if (unsent->count - draft->unsent_at + bytes > TOGETHER_BYTES_MAX) {
		r = transport_flush(draft);
		if (r < 0)
			return r;
	}
	if (unsent->count - draft->unsent_at + bytes > TOGETHER_BYTES_MAX)
		return transport_send(draft, bulk, bulk_bytes, -1, deadline_us);
	wire_buffer_write(unsent, (const char *)draft->head.bytes, draft->head.count);
	wire_buffer_write(unsent, bulk, bulk_bytes);
	return unsent->failed ? transport_flush(draft) : 0; /* which says so */
}
