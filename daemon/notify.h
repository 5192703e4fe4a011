/* systemd: readiness, status, watchdog, and the inherited socket. Main before the loop, then the
 * loop thread, except notify_load(). Without NOTIFY_SOCKET every call does nothing; none waits for
 * a manager that does not read. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include "kernels/error_text.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes $NOTIFY_SOCKET, before any other thread exists. -errno when there is one and nothing can be
 * sent to it: the manager would wait for READY=1 in vain. */
int notify_init(struct error_text *error);

/* What the manager must learn: it is told in this order (a reload that begins after READY=1 was
 * said comes after it), each with its STATUS= in one datagram. True: the manager knows all that it
 * was told. False: its socket is full; call notify_retry() now and then until that is true. */
bool notify_reloading(void); /* with MONOTONIC_USEC; notify_ready() ends it */
bool notify_ready(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool notify_stopping(uint64_t usec, const char *format, ...)
	__attribute__((format(printf, 2, 3))); /* EXTEND_TIMEOUT_USEC: it takes at most `usec` */
bool notify_retry(void);

/* How far a load is, "starting", "testing the model", 50: asks for more time, too. Any thread. */
void notify_load(const char *doing, const char *what, int percent);

void notify_watchdog(void);

/* Half of $WATCHDOG_USEC, in microseconds: how often to call notify_watchdog(). 0: no watchdog
 * asked for. */
uint64_t notify_watchdog_interval_us(void);

/* The one listening AF_UNIX stream socket that systemd passed, or -1 when it passed none. -errno
 * with `error` when it passed several, or one of another kind. */
int notify_inherited_socket(int *ret_fd, struct error_text *error);

#endif
