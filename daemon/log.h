/* The daemon's log. Any thread. Never payload, never from libraries or kernels: one line a failure,
 * where it is decided.
 *
 * Where it goes, chosen once:
 * - $JOURNAL_STREAM names stderr: to the journal, with fields (DRAFTD_CONNECTION=,
 * DRAFTD_PEER_PID=, DRAFTD_PEER_UID=, DRAFTD_REQUEST=, DRAFTD_ERROR=);
 * - under systemd without it ($INVOCATION_ID, no terminal): "<4>draftd: text", which systemd reads
 * as a priority;
 * - else, for people: "draftd: warning: text". Both kinds of lines end in the fields: "(connection
 * 3, pid 77, BAD_FRAME)".
 *
 * A line is one write(2), so lines of several threads and processes never mix. Control characters
 * are escaped, and in lines about a client everything that is no printable ASCII. No line ever
 * waits for its reader: what stderr or the journal does not take at once is lost, and so are lines
 * about clients beyond LIMIT_LOG_LINES_PER_S; how many, the next line that goes out is preceded by.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdint.h>
#include <sys/types.h>
#include <syslog.h>

/* Chooses the journal if $JOURNAL_STREAM names stderr, and drops what is above `level` (LOG_ERR …
 * LOG_DEBUG). */
void log_init(int level);
void log_set_level(int level);

/* Whom a line is about; zero fields are left out, and `uid` without a `pid`. */
struct log_context {
	uint64_t connection; /* not 0: the line is about a client */
	pid_t pid;
	uid_t uid;
	uint32_t request;
	const char *error; /* "BAD_FRAME" */
};

/* `errno` is kept. Never blocks. */
void log_line(int priority, const struct log_context *context, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for a constant of up to 100 bytes without control characters, in a handler of signals:
 * to stderr, with the prefix that log_line() would give it. */
void log_in_handler(int priority, const char *text);

#define log_error(...)   log_line(LOG_ERR, NULL, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, NULL, __VA_ARGS__)
#define log_notice(...)  log_line(LOG_NOTICE, NULL, __VA_ARGS__)
#define log_info(...)    log_line(LOG_INFO, NULL, __VA_ARGS__)

#endif
