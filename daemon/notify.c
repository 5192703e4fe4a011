/* What sd_notify(3) says, without its waiting, and sd_listen_fds(3). The clients' thread says it,
 * so a manager that does not read is never waited for: what it must learn is kept and sent later.
 */
#include "notify.h"

#include "kernels/clock.h"
#include "limits.h"

#include <ctype.h>
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
#include <unistd.h>

#define MESSAGE_BYTES 512
#define STATUS_BYTES  256

/* Written by notify_init(), before the second thread exists. */
static int manager_fd = -1;
static struct sockaddr_un manager_address;
static socklen_t manager_address_bytes;

/* What the manager must learn, in the order in which it is told. The last of each kind is enough:
 * one that is not sent yet is replaced, and a reload that begins takes back the end of the one
 * before. */
enum word {
	WORD_RELOADING,
	WORD_READY,
	WORD_STOPPING,
	WORDS,
};
static char pending[WORDS][MESSAGE_BYTES]; /* "": nothing */

int notify_init(struct error_text *error)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;

	memset(pending, 0, sizeof(pending));
	if (manager_fd >= 0)
		close(manager_fd);
	manager_fd = -1;
	manager_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (length < 2 || length > sizeof(manager_address.sun_path) ||
		(*path != '/' && *path != '@'))
		return 0;
	memcpy(manager_address.sun_path, path, length);
	if (*path == '@')
		manager_address.sun_path[0] = '\0'; /* an abstract name */
	manager_address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (manager_fd < 0)
		return error_text_set(error, errno, "no socket can be made to NOTIFY_SOCKET: %s",
			strerror(errno));
	return 0;
}

/* One datagram of assignments, or none of it. False: its socket is full, and later it may not be.
 * A manager that is gone is not waited for. */
static bool tell(const char *text)
{
	if (manager_fd < 0 ||
		sendto(manager_fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
			(const struct sockaddr *)&manager_address, manager_address_bytes) >= 0)
		return true;
	return errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM && errno != EINTR;
}

bool notify_retry(void)
{
	for (unsigned word = 0; word < WORDS; word++) {
		if (pending[word][0] && !tell(pending[word]))
			return false;
		pending[word][0] = '\0';
	}
	return true;
}

/* Appends "STATUS=…". A newline in it would begin another assignment. */
static void __attribute__((format(printf, 2, 0)))
append_status(char *message, const char *format, va_list arguments)
{
	char text[STATUS_BYTES];
	size_t used = strlen(message);

	sentence_print(text, sizeof(text), format, arguments);
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ')
			*at = ' ';
	snprintf(message + used, MESSAGE_BYTES - used, "STATUS=%s", text);
}

bool notify_ready(const char *format, ...)
{
	va_list arguments;

	strcpy(pending[WORD_READY], "READY=1\n");
	va_start(arguments, format);
	append_status(pending[WORD_READY], format, arguments);
	va_end(arguments);
	return notify_retry();
}

bool notify_reloading(void)
{
	pending[WORD_READY][0] = '\0';
	snprintf(pending[WORD_RELOADING], MESSAGE_BYTES,
		"RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=Reloading", clock_us());
	return notify_retry();
}

bool notify_stopping(uint64_t usec, const char *format, ...)
{
	va_list arguments;

	snprintf(pending[WORD_STOPPING], MESSAGE_BYTES,
		"STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\n", usec);
	va_start(arguments, format);
	append_status(pending[WORD_STOPPING], format, arguments);
	va_end(arguments);
	return notify_retry();
}

void notify_load(const char *doing, const char *what, int percent)
{
	char text[MESSAGE_BYTES];

	snprintf(text, sizeof(text), "STATUS=%c%s: %s, %d%%\nEXTEND_TIMEOUT_USEC=%llu",
		toupper((unsigned char)doing[0]), doing + 1, what, percent,
		LIMIT_LOAD_EXTENSION_US);
	tell(text); /* the next one comes soon */
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
				"systemd passed a descriptor named \"%.*s\"; FileDescriptorName= "
				"must begin with draftd",
				CUT(64, names[i]));
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
