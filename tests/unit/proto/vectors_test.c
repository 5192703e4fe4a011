/* The recorded frames of tests/wire: a good one decodes as the message that its name says and,
 * where it is in the shortest form, encodes to the same bytes; a bad one has the fault that its
 * name says. */
#include "again.h"
#include "suites.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MAX      512
#define FILE_BYTES_MAX (128 << 10)

static char names[FILES_MAX][128];
static int name_count;

static const char *tests_folder(void)
{
	const char *folder = getenv("TESTS_DIR");

	return folder ? folder : "tests";
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void list_names(void)
{
	char path[512];
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/wire", tests_folder());
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		size_t bytes = strlen(entry->d_name);

		if (bytes > 4 && bytes < sizeof(names[0]) &&
			!strcmp(entry->d_name + bytes - 4, ".bin") && name_count < FILES_MAX)
			memcpy(names[name_count++], entry->d_name, bytes + 1);
	}
	if (folder)
		closedir(folder);
	qsort(names, (size_t)name_count, sizeof(names[0]), compare_names);
}

static size_t load(const char *name, uint8_t *bytes)
{
	char path[512];
	size_t count;
	FILE *file;

	snprintf(path, sizeof(path), "%s/wire/%s", tests_folder(), name);
	file = fopen(path, "rb");
	ck_assert_ptr_nonnull(file);
	count = fread(bytes, 1, FILE_BYTES_MAX, file);
	ck_assert_uint_lt(count, FILE_BYTES_MAX);
	fclose(file);
	return count;
}

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

/* ---- names ---- */

struct kind_of_file {
	enum message_kind kind;
	enum method method;
	bool error;
};

/* "good-region-open-reply-x.bin" is a reply to region_open. */
static struct kind_of_file kind_by_name(const char *name)
{
	static const char *const sides[] = {"-request", "-reply", "-notification"};
	struct kind_of_file file = {0};
	const char *from = strchr(name, '-') + 1;

	if (begins(from, "error-reply")) {
		file.kind = MESSAGE_RESPONSE;
		file.error = true;
		return file;
	}
	for (int method = METHOD_HELLO; method < METHOD_END; method++) {
		char dashed[32];

		snprintf(dashed, sizeof(dashed), "%s", method_name((enum method)method));
		for (char *at = strchr(dashed, '_'); at; at = strchr(at, '_'))
			*at = '-';
		if (!begins(from, dashed))
			continue;
		for (int kind = MESSAGE_REQUEST; kind <= MESSAGE_NOTIFICATION; kind++)
			if (begins(from + strlen(dashed), sides[kind])) {
				file.kind = (enum message_kind)kind;
				file.method = (enum method)method;
				return file;
			}
	}
	ck_abort_msg("%s: the name says no message", name);
	return file;
}

static int again(struct wire_buffer *buffer, const char *name, const struct message *message,
	struct message_fault *fault)
{
	struct kind_of_file file = kind_by_name(name);

	ck_assert_int_eq(message->kind, file.kind);
	ck_assert_int_eq(message->failed, file.error);
	if (file.error) {
		assert_text(message->error.name, error_lookup(message->error.code)->name);
		ck_assert_int_eq(
			message->error.retryable, error_lookup(message->error.code)->retryable);
		again_error(buffer, message);
		return 0;
	}
	if (file.kind == MESSAGE_RESPONSE)
		return again_reply(buffer, message, file.method, fault);
	ck_assert_int_eq(message->method, file.method);
	return file.kind == MESSAGE_REQUEST ? again_request(buffer, message, fault)
					    : again_notification(buffer, message, fault);
}

/* ---- the tests ---- */

/* Receives a file with as many descriptors as its header declares, unless it is about a broken
 * frame. */
static int receive(struct frame_reader *reader, const char *name, const uint8_t *bytes,
	size_t count, struct frame *ret_frame)
{
	int fds[FRAME_FDS_MAX];
	unsigned fd_count = begins(name, "bad-frame-") || count < 4 ? 0 : bytes[3];
	size_t done = 0;
	int rc;

	ck_assert_uint_le(fd_count, FRAME_FDS_MAX);
	for (unsigned i = 0; i < fd_count; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	frame_reader_init(
		reader, begins(name, "bad-frame-") ? FRAME_HELLO_BODY_BYTES_MAX : FILE_BYTES_MAX);
	while (done < count) {
		uint8_t *at;
		size_t space;

		ck_assert_int_eq(frame_reader_space(reader, &at, &space), 0);
		if (space > count - done)
			space = count - done;
		memcpy(at, bytes + done, space);
		frame_reader_received(reader, space, fds, fd_count, 0);
		fd_count = 0;
		done += space;
	}
	rc = frame_reader_next(reader, ret_frame);
	if (rc == 1)
		for (unsigned i = 0; i < ret_frame->fd_count; i++)
			close(ret_frame->fds[i]);
	return rc;
}

static void check_good(
	const char *name, const uint8_t *bytes, size_t count, const struct frame *frame)
{
	struct message_fault fault = {0};
	struct wire_buffer buffer;
	struct message message;
	int rc;

	ck_assert_int_eq(message_decode(frame->body, frame->body_bytes, &message, &fault), 0);
	wire_buffer_init(&buffer);
	rc = again(&buffer, name, &message, &fault);
	ck_assert_msg(rc == 0, "%s: %s", name, fault.text);
	ck_assert(!buffer.failed);
	if (!strstr(name, "-noncanonical")) {
		ck_assert_uint_eq(buffer.count, count);
		ck_assert_mem_eq(buffer.bytes, bytes, count);
	}
	wire_buffer_done(&buffer);
}

static void check_bad_body(const char *name, const struct frame *frame)
{
	static const struct {
		const char *name;
		enum wire_fault fault;
	} scans[] = {
		{"bad-scan-empty", WIRE_EMPTY},
		{"bad-scan-short", WIRE_SHORT},
		{"bad-scan-trailing", WIRE_TRAILING},
		{"bad-scan-too-deep", WIRE_TOO_DEEP},
		{"bad-scan-too-many", WIRE_TOO_MANY},
		{"bad-scan-ext", WIRE_EXT},
		{"bad-scan-reserved", WIRE_RESERVED},
		{"bad-", WIRE_OK},
	};
	struct message_fault fault = {0};
	struct wire_buffer buffer;
	struct message message;
	int rc, row = 0;

	while (!begins(name, scans[row].name))
		row++;
	ck_assert_int_eq(wire_scan(frame->body, frame->body_bytes), scans[row].fault);
	rc = message_decode(frame->body, frame->body_bytes, &message, &fault);
	if (begins(name, "bad-scan-") || begins(name, "bad-envelope-")) {
		ck_assert_int_eq(rc, -EBADMSG);
	} else {
		ck_assert_int_eq(rc, 0);
		wire_buffer_init(&buffer);
		ck_assert_int_eq(again(&buffer, name, &message, &fault), -EBADMSG);
		wire_buffer_done(&buffer);
	}
	ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
	ck_assert_uint_gt(strlen(fault.text), 0);
}

static void check_bad_frame(const char *name, enum frame_fault fault)
{
	static const struct {
		const char *name;
		enum frame_fault fault;
	} faults[] = {
		{"bad-frame-magic", FRAME_BAD_MAGIC},
		{"bad-frame-version", FRAME_BAD_VERSION},
		{"bad-frame-too-many-fds", FRAME_TOO_MANY_FDS},
		{"bad-frame-too-long", FRAME_TOO_LONG},
		{"bad-frame-missing-fds", FRAME_MISSING_FDS},
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (begins(name, faults[i].name)) {
			ck_assert_int_eq(fault, faults[i].fault);
			return;
		}
	ck_abort_msg("%s: the name says no fault", name);
}

START_TEST(recorded_frame)
{
	const char *name = names[_i];
	uint8_t bytes[FILE_BYTES_MAX];
	size_t count = load(name, bytes);
	struct frame_reader reader;
	struct frame frame;
	int rc = receive(&reader, name, bytes, count, &frame);

	if (begins(name, "bad-frame-")) {
		ck_assert_int_eq(rc, -EPROTO);
		check_bad_frame(name, reader.fault);
	} else {
		ck_assert_int_eq(rc, 1);
		ck_assert_uint_eq(frame.body_bytes + FRAME_HEADER_BYTES, count);
		if (begins(name, "good-"))
			check_good(name, bytes, count, &frame);
		else
			check_bad_body(name, &frame);
	}
	frame_reader_done(&reader);
}
END_TEST

START_TEST(there_are_recorded_frames)
{
	ck_assert_msg(name_count > 100,
		"%d files in %s/wire: run from the repository's root or set TESTS_DIR", name_count,
		tests_folder());
}
END_TEST

Suite *vectors_suite(void)
{
	Suite *suite = suite_create("vectors");
	TCase *tcase = tcase_create("wire");

	list_names();
	tcase_add_test(tcase, there_are_recorded_frames);
	tcase_add_loop_test(tcase, recorded_frame, 0, name_count);
	suite_add_tcase(suite, tcase);
	return suite;
}
