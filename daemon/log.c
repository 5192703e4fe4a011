/* A line is built whole in a buffer of its own, so that no lock is needed, and sent in one piece.
 */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
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
static atomic_int level = LOG_INFO;

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

/* Copies `from` with control characters as \n, \xNN; ends in "…" if it did not fit. */
static void escape(const char *from, char *to, size_t size)
{
	static const char cut[] = "…";
	const size_t room = size - sizeof(cut);
	size_t used = 0;

	for (; *from; from++) {
		unsigned char c = (unsigned char)*from;

		if (used + 4 > room) {
			memcpy(to + used, cut, sizeof(cut));
			return;
		}
		if (c == '\n')
			used += (size_t)sprintf(to + used, "\\n");
		else if (c < ' ' || c == 0x7f)
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
	FIELD(context->uid, "PEER_UID", "uid ", "%lu", (unsigned long)context->uid)
	FIELD(context->request, "REQUEST", "request ", "%" PRIu32, context->request)
	FIELD(context->error, "ERROR", "", "%s", context->error)
#undef FIELD
	return n;
}

static bool send_to_journal(int priority, const char *text, struct field *fields, size_t count)
{
	char message[LINE_BYTES + 8], number[16];
	struct iovec parts[FIELDS_MAX];
	int n = 0;

	snprintf(message, sizeof(message), "MESSAGE=%s", text);
	snprintf(number, sizeof(number), "PRIORITY=%d", priority);
	parts[n++].iov_base = message;
	parts[n++].iov_base = number;
	parts[n++].iov_base = (char[]){"SYSLOG_IDENTIFIER=draftd"};
	for (size_t i = 0; i < count; i++)
		parts[n++].iov_base = fields[i].journal;
	for (int i = 0; i < n; i++)
		parts[i].iov_len = strlen(parts[i].iov_base);
	return sd_journal_sendv(parts, n) == 0;
}

static void write_line(int priority, const char *text, const struct field *fields, size_t count)
{
	static const char *const words[] = {
		"emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"};
	char line[LINE_BYTES + 512];
	size_t used = 0;

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
	while (write(STDERR_FILENO, line, used) < 0 && errno == EINTR)
		;
}

void log_line(int priority, const struct log_context *context, const char *format, ...)
{
	char raw[LINE_BYTES], text[LINE_BYTES];
	struct field fields[FIELDS_MAX];
	const int saved = errno;
	va_list arguments;
	size_t count, used = 0;

	if (priority > atomic_load_explicit(&level, memory_order_relaxed))
		return;
	va_start(arguments, format);
	append(raw, sizeof(raw), &used, format, arguments);
	va_end(arguments);
	escape(raw, text, sizeof(text));
	count = fields_of(context, fields);
	if (destination != TO_JOURNAL || !send_to_journal(priority, text, fields, count))
		write_line(priority, text, fields, count);
	errno = saved;
}
