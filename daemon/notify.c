/* What sd_notify(3) says, without its waiting, and sd_listen_fds(3). A manager that can't be told
 * is no reason to stop, so results are not looked at. */
#include "notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

/* One datagram of assignments. A manager that does not read must not hold up the clients: what its
 * socket does not take at once is lost. */
static void __attribute__((format(printf, 1, 2))) tell(const char *format, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char text[512];
	va_list arguments;
	size_t length;
	int fd, n;

	length = path ? strlen(path) : 0;
	if (length < 2 || length > sizeof(address.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(address.sun_path, path, length);
	if (*path == '@')
		address.sun_path[0] = '\0'; /* an abstract name */
	va_start(arguments, format);
	n = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= sizeof(text))
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
	close(fd);
}

void notify_status(const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	/* A newline would begin another assignment. */
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ')
			*at = ' ';
	tell("STATUS=%s", text);
}

void notify_ready(void)
{
	tell("READY=1");
}

void notify_reloading(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	tell("RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		(uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
}

void notify_stopping(void)
{
	tell("STOPPING=1");
}

void notify_extend_timeout(uint64_t usec)
{
	tell("EXTEND_TIMEOUT_USEC=%" PRIu64, usec);
}

void notify_watchdog(void)
{
	tell("WATCHDOG=1");
}

uint64_t notify_watchdog_interval_us(void)
{
	uint64_t usec = 0;

	return sd_watchdog_enabled(0, &usec) > 0 ? usec / 2 : 0;
}

/* A unit of ours names its socket "draftd…" (draftd.socket, draftd@0.socket);
 * systemd-socket-activate says "unknown". Another name is a descriptor meant for something else. */
static int check_names(char **names, int count, struct error_text *error)
{
	for (int i = 0; i < count; i++)
		if (strcmp(names[i], "unknown") != 0 &&
			strncmp(names[i], "draftd", strlen("draftd")) != 0)
			return error_text_set(error, EINVAL,
				"systemd passed a descriptor named \"%.64s\"; FileDescriptorName= "
				"must begin with draftd",
				names[i]);
	if (count > 1)
		return error_text_set(error, EINVAL,
			"systemd passed %d sockets; draftd.socket must have one ListenStream=",
			count);
	return 0;
}

int notify_inherited_socket(int *ret_fd, struct error_text *error)
{
	char **names = NULL;
	int count, r;

	/* Unset: a process that draftd might start must not take the descriptor for its own. */
	count = sd_listen_fds_with_names(1, &names);
	if (count < 0)
		return error_text_set(error, -count,
			"what systemd says in LISTEN_FDS can't be read: %s", strerror(-count));
	if (count == 0) {
		*ret_fd = -1;
		return 0;
	}
	r = check_names(names, count, error);
	if (r == 0 && sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, NULL, 0) <= 0)
		r = error_text_set(error, EINVAL,
			"the descriptor that systemd passed is no listening Unix stream socket; "
			"draftd.socket must have "
			"ListenStream= with a path");
	for (int i = 0; i < count; i++) {
		if (r < 0)
			close(SD_LISTEN_FDS_START + i);
		free(names[i]);
	}
	free(names);
	if (r < 0)
		return r;
	*ret_fd = SD_LISTEN_FDS_START;
	return 0;
}
