/* Accepting: a few clients a turn, up to the limit of connections, and with patience while
 * descriptors are short. */
#include "connection.h"
#include "log.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_connection(uv_poll_t *poll, int status, int events);

void server_resume_accepting(struct server *server)
{
	if (!server->accepting || !server->accept_paused)
		return;
	server->accept_paused = false;
	uv_timer_stop(&server->accept_timer);
	uv_poll_start(&server->listen_poll, UV_READABLE, on_connection);
}

static void accept_retry(uv_timer_t *timer)
{
	server_resume_accepting(timer->data);
}

/* Without a free descriptor the listener stays readable; polling it on would spin. Somebody's end,
 * or a little time, brings one. */
static void pause_accepting(struct server *server, int code)
{
	if (!server->accept_paused)
		log_warning("accepting pauses with %" PRIu32 " connection%s open: %s%s",
			server->connection_count, sentence_s(server->connection_count),
			strerror(code), error_text_remedy(code));
	server->accept_paused = true;
	uv_poll_stop(&server->listen_poll);
	uv_timer_start(&server->accept_timer, accept_retry, LIMIT_ACCEPT_RETRY_US / 1000, 0);
}

/* One client too many is told so, as far as its socket's buffer is there, and closed. */
static void refuse_client(struct server *server, int fd, const char *text)
{
	struct wire_buffer frame;

	server->stats.connections_refused++;
	server->stats.errors[ERROR_RESOURCE_EXHAUSTED]++;
	wire_buffer_init(&frame);
	message_encode_error(&frame, false, 0, ERROR_RESOURCE_EXHAUSTED, text);
	if (!frame.failed && send(fd, frame.bytes, frame.count, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_line(LOG_DEBUG, NULL, "a refused client is gone already");
	wire_buffer_done(&frame);
	close(fd);
}

/* Serves or refuses an accepted client. False: there is no memory for it. */
static bool take_client(struct server *server, int fd)
{
	const struct config *config = &server->config;
	struct ucred peer;
	socklen_t peer_bytes = sizeof(peer);
	struct user *user;
	char text[128];
	int r;

	if (server->connection_count >= config->max_connections) {
		snprintf(text, sizeof(text),
			"%" PRIu32 " connection%s %s in use, all that max_connections allows; come "
			"again later",
			config->max_connections, sentence_s(config->max_connections),
			sentence_is(config->max_connections));
		refuse_client(server, fd, text);
		return true;
	}
	/* What a client may do depends on its user. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) < 0) {
		snprintf(text, sizeof(text), "the kernel does not say who you are: %s",
			strerror(errno));
		refuse_client(server, fd, text);
		return true;
	}
	user = user_hold(&server->users, peer.uid);
	if (!user) {
		close(fd);
		return false;
	}
	if (!user_may(user, user->connections, 1, config->max_user_connections)) {
		snprintf(text, sizeof(text),
			"this user has %" PRIu32 " connection%s, max_user_connections is %" PRIu32
			"; close some, or come again later",
			user->connections, sentence_s(user->connections),
			config->max_user_connections);
		refuse_client(server, fd, text);
		user_drop(user);
		return true;
	}
	r = connection_start(server, fd, peer.pid, user);
	user_drop(user); /* the connection holds it */
	if (r < 0)
		return false;
	server->connection_count++;
	server->stats.connections++;
	return true;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct server *server = poll->data;

	(void)events;
	if (status < 0) {
		pause_accepting(server, -status);
		return;
	}
	for (unsigned i = 0; i < LIMIT_TURN_ACCEPTS; i++) {
		int fd = accept4(server->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0) {
			pause_accepting(server, errno);
			return;
		}
		if (!take_client(server, fd)) {
			pause_accepting(server, ENOMEM);
			return;
		}
	}
}

int server_listen(struct server *server, struct listener *listener, struct error_text *error)
{
	int r;

	r = listener_open(listener, server->config.socket_mode, error);
	if (r < 0)
		return r;
	r = uv_poll_init(server->loop, &server->listen_poll, listener->fd);
	if (r < 0)
		return error_text_set(
			error, -r, "the listening socket can't be watched: %s", uv_strerror(r));
	server->listener = *listener;
	*listener = (struct listener){.fd = -1, .lock_fd = -1};
	uv_timer_init(server->loop, &server->accept_timer);
	server->listen_poll.data = server->accept_timer.data = server;
	server->accepting = true;
	uv_poll_start(&server->listen_poll, UV_READABLE, on_connection);
	return 0;
}

void server_stop_accepting(struct server *server)
{
	if (!server->accepting)
		return;
	server->accepting = false;
	uv_close((uv_handle_t *)&server->listen_poll, NULL);
	uv_close((uv_handle_t *)&server->accept_timer, NULL);
	listener_close(&server->listener);
}
