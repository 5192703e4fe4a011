/* systemd: readiness, status, watchdog, and the inherited socket. Loop thread (and main before the
 * loop). Without NOTIFY_SOCKET every call does nothing; none waits for a manager that does not
 * read. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include "kernels/error_text.h"

#include <stdint.h>

void notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
void notify_ready(void);
void notify_reloading(void); /* with MONOTONIC_USEC; notify_ready() ends it */
void notify_stopping(void);
void notify_extend_timeout(uint64_t usec);
void notify_watchdog(void);

/* Half of $WATCHDOG_USEC, in microseconds: how often to call notify_watchdog(). 0: no watchdog
 * asked for. */
uint64_t notify_watchdog_interval_us(void);

/* The one listening AF_UNIX stream socket that systemd passed, or -1 when it passed none. -errno
 * with `error` when it passed several, or one of another kind. */
int notify_inherited_socket(int *ret_fd, struct error_text *error);

#endif
