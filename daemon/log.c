/* A line is built whole in a buffer of its own and sent in one piece, or not at all when that would
 * block: a lock covers the look and the write, so that only another process that writes to the same
 * pipe could come between. */
#include "log.h"

#include "kernels/clock.h"
#include "limits.h"
#include "poll_now.h"
#include "proto/sentence.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LINE_BYTES  2048 /* under PIPE_BUF: a pipe takes the line whole */
#define FIELD_BYTES 48
#define FIELDS_MAX  8

enum destination {
	TO_PEOPLE,
	TO_SYSTEMD,
	TO_JOURNAL,
};

/* Written by log_init() before the second thread exists. */
static enum destination destination = TO_PEOPLE;
static int journal_fd = -1; /* a socket for datagrams; stays open */
static atomic_int level = LOG_INFO;

/* What was not written, and the bucket of tokens for lines about clients. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t lost;       /* because the reader was not ready */
static uint64_t suppressed; /* because there were too many about clients */
static double tokens;
static uint64_t filled_us; /* 0: nothing was taken yet, the bucket is full */

/* True if $JOURNAL_STREAM ("device:inode") names what stderr is: then systemd connected it, and
 * nobody redirected it since. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t device, inode;
	struct stat st;

	return stream && sscanf(stream, "%ju:%ju", &device, &inode) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == (dev_t)device &&
	       st.st_ino == (ino_t)inode;
}

void log_init(int new_level)
{
	destination = stderr_is_journal()                                 ? TO_JOURNAL
		      : getenv("INVOCATION_ID") && !isatty(STDERR_FILENO) ? TO_SYSTEMD
									  : TO_PEOPLE;
	lost = suppressed = filled_us = 0;
	if (destination == TO_JOURNAL && journal_fd < 0)
		journal_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	log_set_level(new_level);
}

void log_set_level(int new_level)
{
	atomic_store(&level, new_level);
}

/* Appends what fits; `*used` never passes `size - 1`. */
static void __attribute__((format(printf, 4, 0)))
append(char *text, size_t size, size_t *used, const char *format, va_list arguments)
{
	int n = vsnprintf(text + *used, size - *used, format, arguments);

	if (n > 0)
		*used = *used + (size_t)n < size ? *used + (size_t)n : size - 1;
}

static void __attribute__((format(printf, 4, 5)))
add(char *text, size_t size, size_t *used, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	append(text, size, used, format, arguments);
	va_end(arguments);
}

/* Copies `from` with control characters as \n, \xNN; of text that a client may have chosen
 * (`foreign`) everything that is no printable ASCII, since there is more than controls that makes a
 * line look like what it isn't. Ends in "…" if it did not fit. */
static void escape(const char *from, bool foreign, char *to, size_t size)
{
	static const char cut[] = "…";
	const size_t room = size - sizeof(cut);
	size_t used = 0;

	for (; *from; from++) {
		unsigned char c = (unsigned char)*from;

		if (used + 4 > room) {
			memcpy(to + sentence_cut(to, used), cut, sizeof(cut));
			return;
		}
		if (c == '\n')
			used += (size_t)sprintf(to + used, "\\n");
		else if (c < ' ' || c == 0x7f || (foreign && c > 0x7f))
			used += (size_t)sprintf(to + used, "\\x%02x", c);
		else
			to[used++] = (char)c;
	}
	to[used] = '\0';
}

/* One field in both of its forms: for the journal, and for the end of a line. */
struct field {
	char journal[FIELD_BYTES];
	char line[FIELD_BYTES];
};

static size_t fields_of(const struct log_context *context, struct field *fields)
{
	size_t n = 0;

	if (!context)
		return 0;
#define FIELD(condition, key, word, format, value)                                                 \
	if (condition) {                                                                           \
		snprintf(fields[n].journal, FIELD_BYTES, "DRAFTD_" key "=" format, value);         \
		snprintf(fields[n].line, FIELD_BYTES, word format, value);                         \
		n++;                                                                               \
	}
	FIELD(context->connection, "CONNECTION", "connection ", "%" PRIu64, context->connection)
	FIELD(context->pid, "PEER_PID", "pid ", "%ld", (long)context->pid)
	/* Known together; 0 is a user, too. */
	FIELD(context->pid, "PEER_UID", "uid ", "%lu", (unsigned long)context->uid)
	FIELD(context->request, "REQUEST", "request ", "%" PRIu32, context->request)
	FIELD(context->error, "ERROR", "", "%s", context->error)
#undef FIELD
	return n;
}

/* The journal's own protocol, a datagram of KEY=value lines (no value has a newline): libsystemd's
 * function blocks while the journal does not read. 0 or -errno. */
static int send_to_journal(int priority, const char *text, const struct field *fields, size_t count)
{
	static const struct sockaddr_un address = {
		.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
	char entry[LINE_BYTES + 512];
	size_t used = 0;

	add(entry, sizeof(entry), &used, "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=draftd\n",
		text, priority);
	for (size_t i = 0; i < count; i++)
		add(entry, sizeof(entry), &used, "%s\n", fields[i].journal);
	if (sendto(journal_fd, entry, used, MSG_DONTWAIT | MSG_NOSIGNAL,
		    (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return 0;
}

static const char *const words[] = {
	"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"};

static bool write_line(int priority, const char *text, const struct field *fields, size_t count)
{
	char line[LINE_BYTES + 512];
	size_t used = 0;

	/* A pipe that takes anything takes a line whole; what can't be polled is left to write(2).
	 */
	if (!poll_now(STDERR_FILENO, POLLOUT))
		return false;
	/* A journal that can't be reached leaves systemd's pipe: the same prefix. */
	if (destination == TO_PEOPLE)
		add(line, sizeof(line), &used, "draftd: %s: %s", words[priority & LOG_PRIMASK],
			text);
	else
		add(line, sizeof(line), &used, "<%d>draftd: %s", priority & LOG_PRIMASK, text);
	for (size_t i = 0; i < count; i++)
		add(line, sizeof(line), &used, "%s%s%s", i == 0 ? " (" : ", ", fields[i].line,
			i + 1 == count ? ")" : "");
	line[used++] = '\n';
	while (write(STDERR_FILENO, line, used) < 0)
		if (errno != EINTR)
			return errno != EAGAIN;
	return true;
}

/* False: it would have blocked. */
static bool deliver(int priority, const char *text, const struct field *fields, size_t count)
{
	int r;

	if (destination != TO_JOURNAL)
		return write_line(priority, text, fields, count);
	r = send_to_journal(priority, text, fields, count);
	if (r == -EAGAIN)
		return false;
	return r == 0 || write_line(priority, text, fields, count);
}

/* Whether there is a token for one more line about a client. */
static bool take_token(void)
{
	uint64_t now_us = clock_us();

	tokens += (double)(now_us - filled_us) * LIMIT_LOG_LINES_PER_S / 1e6;
	if (!filled_us || tokens > LIMIT_LOG_LINES_BURST)
		tokens = LIMIT_LOG_LINES_BURST;
	filled_us = now_us;
	if (tokens < 1)
		return false;
	tokens -= 1;
	return true;
}

/* Says what has been left out, by a `format` of the count, an "s" and "was" or "were", as soon as
 * that can be said. False: it can't yet. */
static bool tell(uint64_t *count, const char *format)
{
	char text[128];

	if (!*count)
		return true;
	snprintf(text, sizeof(text), format, *count, sentence_s(*count),
		*count == 1 ? "was" : "were");
	if (!deliver(LOG_WARNING, text, NULL, 0))
		return false;
	*count = 0;
	return true;
}

void log_line(int priority, const struct log_context *context, const char *format, ...)
{
	char raw[LINE_BYTES], text[LINE_BYTES];
	struct field fields[FIELDS_MAX];
	const bool foreign = context && context->connection;
	const int saved = errno;
	va_list arguments;
	size_t count, used = 0;

	if (priority > atomic_load_explicit(&level, memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	if (foreign && !take_token()) {
		suppressed++;
		goto unlock;
	}
	va_start(arguments, format);
	append(raw, sizeof(raw), &used, format, arguments);
	va_end(arguments);
	escape(raw, foreign, text, sizeof(text));
	count = fields_of(context, fields);
	if (!tell(&lost, "%" PRIu64 " line%s %s lost: the log was not read") ||
		!tell(&suppressed, "%" PRIu64 " line%s about clients %s left out: too many") ||
		!deliver(priority, text, fields, count))
		lost++;
unlock:
	pthread_mutex_unlock(&lock);
	errno = saved;
}

/* Of the functions here only such as a handler may call. */
void log_in_handler(int priority, const char *text)
{
	char line[128] = "<0>draftd: ";
	char *end;

	if (priority > atomic_load_explicit(&level, memory_order_relaxed) ||
		!poll_now(STDERR_FILENO, POLLOUT))
		return;
	line[1] = (char)('0' + priority);
	if (destination == TO_PEOPLE)
		end = stpcpy(stpcpy(stpcpy(line, "draftd: "), words[priority]), ": ");
	else
		end = line + strlen(line);
	end = stpcpy(stpcpy(end, text), "\n");
	if (write(STDERR_FILENO, line, (size_t)(end - line)) < 0)
		return; /* there is nobody left to be told */
}
