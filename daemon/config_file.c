/* The happy path: the file is read whole, cut into lines, handed to inih line by line, and each key
 * is found in the option table.
 *
 * inih cuts a long line silently, goes on after an error, takes ';' inside a value for a comment
 * and an indented line for a continuation. So each line is checked before inih has it, and passed
 * on only up to its '='; the value is taken from our own copy. */
#include "config_file.h"

#include "limits.h"
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES    48 /* of a section or key; inih keeps 49 bytes of either */
#define NAME_ALPHABET "abcdefghijklmnopqrstuvwxyz0123456789_"

struct config_reader {
	const char *path; /* for messages */
	const char *at, *end;
	unsigned line;
	char value[LIMIT_CONFIG_LINE_BYTES + 1]; /* of the line that inih has */
	struct config *config;
	struct refusal *refusal;
	int result; /* 0, or the first failure */
};

/* "PATH:LINE: what is wrong; what would be right", once. */
static void __attribute__((format(printf, 3, 4)))
refuse(struct config_reader *reader, int code, const char *format, ...)
{
	char text[360];
	va_list arguments;

	if (reader->result < 0)
		return;
	va_start(arguments, format);
	sentence_print(text, sizeof(text), format, arguments);
	va_end(arguments);
	reader->result = error_text_set(&reader->refusal->sentence, code, "%s", text);
	refusal_place_at(reader->refusal, reader->path, reader->line);
}

static bool is_name(const char *text, size_t bytes)
{
	char name[NAME_BYTES + 1];

	if (bytes == 0 || bytes > NAME_BYTES)
		return false;
	memcpy(name, text, bytes);
	name[bytes] = '\0';
	return strspn(name, NAME_ALPHABET) == bytes;
}

/* As much of a faulty line as a message shows. */
static int shown(const char *line, size_t bytes)
{
	return sentence_cut(line, bytes > 64 ? 64 : bytes);
}

static size_t trim(const char **text, size_t bytes)
{
	while (bytes > 0 && strchr(" \t\r", (*text)[bytes - 1]))
		bytes--;
	while (bytes > 0 && strchr(" \t", **text)) {
		(*text)++;
		bytes--;
	}
	return bytes;
}

/* Checks a line that begins with '[', and passes it on. */
static char *section_line(
	struct config_reader *reader, const char *line, size_t bytes, char *to, int to_bytes)
{
	char section[NAME_BYTES + 1], sections[128] = "";
	bool known;

	if (line[bytes - 1] != ']' || !is_name(line + 1, bytes - 2)) {
		refuse(reader, EINVAL, "\"%.*s\" is no section; write [name] alone on the line",
			shown(line, bytes), line);
		return NULL;
	}
	snprintf(section, sizeof(section), "%.*s", (int)(bytes - 2), line + 1);
	options_find(section, "", &known);
	if (!known) {
		options_list_sections(sections, sizeof(sections));
		refuse(reader, EINVAL, "there is no section [%s]; the sections are %s", section,
			sections);
		return NULL;
	}
	snprintf(to, (size_t)to_bytes, "[%s]\n", section);
	return to;
}

/* inih's reader, in the manner of fgets(): one checked line, without its value. NULL at the end or
 * after a failure. */
static char *next_line(char *to, int to_bytes, void *stream)
{
	struct config_reader *reader = stream;
	const char *line, *newline, *equals;
	size_t bytes, name_bytes;

	if (reader->result < 0 || reader->at == reader->end)
		return NULL;
	line = reader->at;
	newline = memchr(line, '\n', (size_t)(reader->end - line));
	bytes = (size_t)((newline ? newline : reader->end) - line);
	reader->at = newline ? newline + 1 : reader->end;
	reader->line++;

	if (bytes > LIMIT_CONFIG_LINE_BYTES) {
		refuse(reader, EINVAL, "the line is %zu bytes long; the most is %d", bytes,
			LIMIT_CONFIG_LINE_BYTES);
		return NULL;
	}
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)line[i] < ' ' && line[i] != '\t' &&
			!(line[i] == '\r' && i + 1 == bytes)) {
			refuse(reader, EINVAL,
				"byte %zu is 0x%02x, a control character; the file must be plain "
				"text",
				i + 1, (unsigned)(unsigned char)line[i]);
			return NULL;
		}
	bytes = trim(&line, bytes);
	if (bytes == 0 || *line == '#' || *line == ';') {
		snprintf(to, (size_t)to_bytes, "\n");
		return to;
	}
	if (*line == '[')
		return section_line(reader, line, bytes, to, to_bytes);
	equals = memchr(line, '=', bytes);
	name_bytes = equals ? (size_t)(equals - line) : bytes;
	name_bytes = trim(&line, name_bytes);
	if (!equals || !is_name(line, name_bytes)) {
		refuse(reader, EINVAL,
			"\"%.*s\" is no setting; write key = value, the key in small "
			"letters and _",
			shown(line, bytes), line);
		return NULL;
	}
	snprintf(to, (size_t)to_bytes, "%.*s=\n", (int)name_bytes, line);
	bytes -= (size_t)(equals + 1 - line);
	line = equals + 1;
	bytes = trim(&line, bytes);
	memcpy(reader->value, line, bytes);
	reader->value[bytes] = '\0';
	return to;
}

/* inih's handler. Non-zero: go on. */
static int take_setting(void *user, const char *section, const char *key, const char *value)
{
	struct config_reader *reader = user;
	const struct option_info *option;
	struct error_text error;
	size_t index;
	bool known;
	int r;

	(void)value;
	if (section[0] == '\0') {
		refuse(reader, EINVAL,
			"%s stands before any section; write a line like [limits] before it", key);
		return 0;
	}
	option = options_find(section, key, &known);
	if (!option) {
		refuse(reader, EINVAL, "[%s] has no key %s; draftd --help lists the keys", section,
			key);
		return 0;
	}
	index = (size_t)(option - options);
	if (reader->config->origins[index] > 0) {
		refuse(reader, EINVAL, "[%s] %s was set in line %u already; remove one of the two",
			section, key, reader->config->origins[index]);
		return 0;
	}
	reader->config->origins[index] = reader->line;
	r = option_set(option, reader->value, reader->config, &error);
	if (r < 0) {
		refuse(reader, -r, "[%s] %s %s", section, key, error.text);
		return 0;
	}
	return 1;
}

int config_file_parse(const char *path, const char *text, size_t text_bytes, struct config *config,
	struct refusal *refusal)
{
	struct config_reader reader = {.path = path,
		.at = text,
		.end = text + text_bytes,
		.config = config,
		.refusal = refusal};
	int r = ini_parse_stream(next_line, &reader, take_setting, &reader);

	/* inih has no complaint of its own left, after what next_line() lets through. */
	if (r != 0)
		refuse(&reader, EINVAL, "the line can't be read; write [section] or key = value");
	return reader.result;
}

static int read_file(const char *path, char **ret_text, size_t *ret_bytes, struct error_text *error)
{
	struct stat st;
	char *text = NULL;
	size_t bytes = 0;
	int fd, r;

	/* Not blocking: a FIFO would hang here instead of being refused. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0) {
		r = error_text_set(error, errno, "can't be opened: %s%s", strerror(errno),
			error_text_remedy(errno));
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		r = error_text_set(error, EINVAL, "is %s; the configuration must be a regular file",
			S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
		goto out;
	}
	text = malloc(LIMIT_CONFIG_FILE_BYTES + 1);
	if (!text) {
		r = error_text_set(error, ENOMEM, "can't be read: out of memory");
		goto out;
	}
	while (bytes <= LIMIT_CONFIG_FILE_BYTES) {
		ssize_t n = read(fd, text + bytes, LIMIT_CONFIG_FILE_BYTES + 1 - bytes);

		if (n < 0) {
			r = error_text_set(error, errno, "can't be read: %s", strerror(errno));
			goto out;
		}
		if (n == 0)
			break;
		bytes += (size_t)n;
	}
	if (bytes > LIMIT_CONFIG_FILE_BYTES) {
		r = error_text_set(error, EFBIG,
			"is longer than %d bytes; that is the most for a configuration",
			LIMIT_CONFIG_FILE_BYTES);
		goto out;
	}
	*ret_text = text;
	*ret_bytes = bytes;
	text = NULL;
	r = 0;
out:
	if (fd >= 0)
		close(fd);
	free(text);
	return r;
}

int config_file_read(const char *path, struct config *config, struct refusal *refusal)
{
	char *text = NULL;
	size_t bytes = 0;
	int r = read_file(path, &text, &bytes, &refusal->sentence);

	if (r < 0) {
		refusal_place_at(refusal, path, 0);
		return r;
	}
	r = config_file_parse(path, text, bytes, config, refusal);
	free(text);
	return r;
}
