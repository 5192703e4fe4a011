#include "proto/frame.h"
#include "suites.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT 4096

static int open_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static int new_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Feeds bytes through the space that the reader offers, descriptors with the first of them. */
static void feed(struct frame_reader *reader, const void *data, size_t bytes, unsigned fd_count)
{
	const uint8_t *from = data;
	int fds[64];

	for (unsigned i = 0; i < fd_count; i++)
		fds[i] = new_fd();
	do {
		uint8_t *at;
		size_t space;

		ck_assert_int_eq(frame_reader_space(reader, &at, &space), 0);
		ck_assert_uint_ge(space, 1);
		if (space > bytes)
			space = bytes;
		if (space)
			memcpy(at, from, space);
		frame_reader_received(reader, space, fds, fd_count, 0);
		fd_count = 0;
		from += space;
		bytes -= space;
	} while (bytes);
}

static void assert_broken(struct frame_reader *reader, enum frame_fault fault, const char *text)
{
	struct frame frame = {.body_bytes = 77};
	char described[128];

	ck_assert_int_eq(frame_reader_next(reader, &frame), -EPROTO);
	ck_assert_int_eq(reader->fault, fault);
	ck_assert_uint_eq(frame.body_bytes, 77);
	ck_assert_int_eq(frame_reader_next(reader, &frame), -EPROTO);
	frame_reader_describe(reader, described, sizeof(described));
	ck_assert_str_eq(described, text);
}

/* `fds` and the four bytes of the length. */
#define HEADER(fds, length) "DT\x01" fds length

START_TEST(header_is_the_pages)
{
	uint8_t header[FRAME_HEADER_BYTES];

	frame_put_header(header, 0x01020304, 4);
	ck_assert_mem_eq(header, "\x44\x54\x01\x04\x01\x02\x03\x04", 8);
}
END_TEST

START_TEST(frames_cut_at_every_byte)
{
	static const char stream[] = HEADER("\0", "\0\0\0\x03") "abc" HEADER("\0", "\0\0\0\0")
		HEADER("\0", "\0\0\0\x01") "d";
	static const char *const bodies[] = {"abc", "", "d"};
	size_t total = sizeof(stream) - 1;

	for (size_t step = 1; step <= total; step++) {
		struct frame_reader reader;
		struct frame frame;
		unsigned got = 0;

		frame_reader_init(&reader, LIMIT);
		ck_assert_int_eq(frame_reader_next(&reader, &frame), 0);
		for (size_t at = 0; at < total; at += step) {
			feed(&reader, stream + at, at + step < total ? step : total - at, 0);
			while (frame_reader_next(&reader, &frame) == 1) {
				ck_assert_uint_lt(got, 3);
				ck_assert_uint_eq(frame.body_bytes, strlen(bodies[got]));
				ck_assert_mem_eq(frame.body, bodies[got], frame.body_bytes);
				ck_assert_uint_eq(frame.fd_count, 0);
				got++;
			}
			ck_assert_int_eq(reader.fault, FRAME_OK);
		}
		ck_assert_uint_eq(got, 3);
		frame_reader_done(&reader);
	}
}
END_TEST

static const struct {
	const char *bytes;
	size_t count; /* the fewest that give the fault away */
	enum frame_fault fault;
	const char *text;
} broken[] = {
	{"X", 1, FRAME_BAD_MAGIC,
		"the frame does not begin with the bytes 0x44 0x54: not this protocol"},
	{"DX", 2, FRAME_BAD_MAGIC,
		"the frame does not begin with the bytes 0x44 0x54: not this protocol"},
	{"DT\x07", 3, FRAME_BAD_VERSION, "the frame's version is 7, this side speaks 1"},
	{"DT\x00", 3, FRAME_BAD_VERSION, "the frame's version is 0, this side speaks 1"},
	{"DT\x01\x05", 4, FRAME_TOO_MANY_FDS, "the frame declares 5 descriptors, the most is 4"},
	{"DT\x01\x01", 4, FRAME_MISSING_FDS,
		"the frame declares 1 descriptor, 0 came with its first byte"},
	{HEADER("\0", "\0\0\x10\x01"), 8, FRAME_TOO_LONG,
		"the frame's body is 4097 bytes, the most is 4096"},
	{HEADER("\0", "\xff\xff\xff\xff"), 8, FRAME_TOO_LONG,
		"the frame's body is 4294967295 bytes, the most is 4096"},
};

START_TEST(broken_headers)
{
	struct frame_reader reader;
	struct frame frame;

	frame_reader_init(&reader, LIMIT);
	feed(&reader, broken[_i].bytes, broken[_i].count - 1, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 0);
	feed(&reader, broken[_i].bytes + broken[_i].count - 1, 1, 0);
	assert_broken(&reader, broken[_i].fault, broken[_i].text);
	frame_reader_done(&reader);
}
END_TEST

START_TEST(body_at_the_limit)
{
	struct frame_reader reader;
	struct frame frame;
	char body[LIMIT] = {0};
	char text[64];

	frame_reader_init(&reader, LIMIT);
	feed(&reader, HEADER("\0", "\0\0\x10\0"), 8, 0);
	feed(&reader, body, sizeof(body), 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.body_bytes, LIMIT);
	frame_reader_describe(&reader, text, sizeof(text));
	ck_assert_str_eq(text, "nothing is wrong with the stream");
	frame_reader_done(&reader);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_follows_what_arrived)
{
	size_t total = FRAME_HEADER_BYTES + (32u << 20);
	uint8_t *stream = calloc(1, total);
	struct frame_reader reader;
	struct frame frame;
	size_t arrived = 0, reads = 0;

	frame_put_header(stream, 32u << 20, 0);
	frame_reader_init(&reader, UINT32_MAX);
	while (arrived < total) {
		uint8_t *at;
		size_t space;

		ck_assert_int_eq(frame_reader_next(&reader, &frame), 0);
		ck_assert_int_eq(frame_reader_space(&reader, &at, &space), 0);
		ck_assert_uint_le(reader.capacity, 2 * arrived + 8192);
		ck_assert_uint_le(reader.capacity, total + 4096);
		ck_assert_uint_le(space, total - arrived + 4096 + FRAME_HEADER_BYTES);
		if (space > total - arrived)
			space = total - arrived;
		memcpy(at, stream + arrived, space);
		frame_reader_received(&reader, space, NULL, 0, 0);
		arrived += space;
		reads++;
	}
	ck_assert_uint_le(reads, 20);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.body_bytes, 32u << 20);
	ck_assert_mem_eq(frame.body, stream + FRAME_HEADER_BYTES, frame.body_bytes);

	/* Idle again, it is small again, and it goes on. */
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 0);
	ck_assert_uint_le(reader.capacity, 8192);
	feed(&reader, HEADER("\0", "\0\0\0\x01") "x", 9, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.body[0], 'x');
	frame_reader_done(&reader);
	free(stream);
}
END_TEST

START_TEST(a_declared_length_alone_costs_nothing)
{
	struct frame_reader reader;
	struct frame frame;
	uint8_t *at;
	size_t space;

	frame_reader_init(&reader, UINT32_MAX);
	feed(&reader, HEADER("\0", "\xff\xff\xff\xff") "a", 9, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 0);
	ck_assert_int_eq(frame_reader_space(&reader, &at, &space), 0);
	ck_assert_uint_le(reader.capacity, 8192);
	frame_reader_done(&reader);
}
END_TEST

START_TEST(the_beginning_of_the_next_frame_survives_shrinking)
{
	size_t body = 1u << 20;
	uint8_t *stream = calloc(1, FRAME_HEADER_BYTES + body + 12);
	struct frame_reader reader;
	struct frame frame;

	frame_put_header(stream, (uint32_t)body, 0);
	memcpy(stream + FRAME_HEADER_BYTES + body, HEADER("\0", "\0\0\0\x05") "wor", 11);
	frame_reader_init(&reader, UINT32_MAX);
	feed(&reader, stream, FRAME_HEADER_BYTES + body + 11, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 0);
	ck_assert_uint_le(reader.capacity, 8192);
	feed(&reader, "ld", 2, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.body_bytes, 5);
	ck_assert_mem_eq(frame.body, "world", 5);
	frame_reader_done(&reader);
	free(stream);
}
END_TEST

START_TEST(a_detached_body_stays)
{
	struct frame_reader reader;
	struct frame frame, next;
	uint8_t *buffer;

	frame_reader_init(&reader, LIMIT);
	feed(&reader, HEADER("\0", "\0\0\0\x03") "abc" HEADER("\0", "\0\0\0\x02") "d", 20, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	buffer = frame_reader_detach(&reader);
	ck_assert_ptr_nonnull(buffer);
	feed(&reader, "e", 1, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &next), 1);
	ck_assert_mem_eq(next.body, "de", 2);
	frame_reader_done(&reader);
	ck_assert_mem_eq(frame.body, "abc", 3);
	free(buffer);
}
END_TEST

/* ---- descriptors ---- */

START_TEST(descriptors_go_to_their_frames_in_order)
{
	struct frame_reader reader;
	struct frame frame;
	int before = open_fds();
	int fds[3] = {new_fd(), new_fd(), new_fd()};
	uint8_t *at;
	size_t space;

	/* Two frames in one receive: 1 and 2 descriptors; a third without any. */
	frame_reader_init(&reader, LIMIT);
	ck_assert_int_eq(frame_reader_space(&reader, &at, &space), 0);
	memcpy(at, HEADER("\1", "\0\0\0\0") HEADER("\2", "\0\0\0\0") HEADER("\0", "\0\0\0\0"), 24);
	frame_reader_received(&reader, 24, fds, 3, 0);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.fd_count, 1);
	ck_assert_int_eq(frame.fds[0], fds[0]);
	ck_assert_int_eq(frame.fds[1], -1);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.fd_count, 2);
	ck_assert_int_eq(frame.fds[0], fds[1]);
	ck_assert_int_eq(frame.fds[1], fds[2]);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.fd_count, 0);
	frame_reader_done(&reader);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(close(fds[i]), 0);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(descriptors_ride_on_the_first_byte)
{
	static const char stream[] = HEADER("\4", "\0\0\0\x01") "x";
	struct frame_reader reader;
	struct frame frame;
	int before = open_fds();

	frame_reader_init(&reader, LIMIT);
	feed(&reader, stream, 1, 4);
	for (int i = 1; i < 9; i++) {
		ck_assert_int_eq(frame_reader_next(&reader, &frame), 0);
		feed(&reader, stream + i, 1, 0);
	}
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_uint_eq(frame.fd_count, FRAME_FDS_MAX);
	for (unsigned i = 0; i < frame.fd_count; i++)
		ck_assert_int_eq(close(frame.fds[i]), 0);
	frame_reader_done(&reader);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

/* Bytes, the descriptors that come with the last of them, and what is made of it. */
static const struct {
	const char *bytes;
	size_t count;
	unsigned fds;
	enum frame_fault fault;
} riders[] = {
	{HEADER("\0", "\0\0\0\0"), 8, 1, FRAME_SURPLUS_FDS},
	{HEADER("\1", "\0\0\0\0"), 8, 1, FRAME_OK},
	{HEADER("\1", "\0\0\0\0"), 8, 2, FRAME_SURPLUS_FDS},
	{HEADER("\4", "\0\0\0\0"), 8, 4, FRAME_OK},
	{HEADER("\4", "\0\0\0\0"), 8, 5, FRAME_SURPLUS_FDS},
	/* a frame whose body is under way has had its own */
	{HEADER("\0", "\0\0\0\x05") "ab", 10, 1, FRAME_SURPLUS_FDS},
	{HEADER("\0", "\0\0\0\x02") "ab", 10, 1, FRAME_SURPLUS_FDS},
	/* a frame that has only begun may claim up to 4 */
	{"D", 1, 4, FRAME_OK},
	{"D", 1, 5, FRAME_SURPLUS_FDS},
	{"DT\x01", 3, 4, FRAME_OK},
	{"DT\x01\x00", 4, 1, FRAME_SURPLUS_FDS},
	{"DT\x01\x01", 4, 1, FRAME_OK},
	{HEADER("\0", "\0\0\0\x02") "abD", 11, 4, FRAME_OK},
	{HEADER("\0", "\0\0\0\x02") "abD", 11, 5, FRAME_SURPLUS_FDS},
	{HEADER("\0", "\0\0\0\x02") "ab" HEADER("\2", "\0\0\0\x09"), 18, 2, FRAME_OK},
	{HEADER("\0", "\0\0\0\x02") "ab" HEADER("\2", "\0\0\0\x09"), 18, 3, FRAME_SURPLUS_FDS},
	/* 8 wait for two frames; a ninth has no place */
	{HEADER("\4", "\0\0\0\0") HEADER("\4", "\0\0\0\0"), 16, 8, FRAME_OK},
	{HEADER("\4", "\0\0\0\0") HEADER("\4", "\0\0\0\0") "D", 17, 9, FRAME_SURPLUS_FDS},
	{HEADER("\4", "\0\0\0\0") HEADER("\4", "\0\0\0\0") "D", 17, 64, FRAME_SURPLUS_FDS},
};

START_TEST(surplus_is_what_no_frame_can_claim)
{
	struct frame_reader reader;
	int before = open_fds();
	int fds[64];
	uint8_t *at;
	size_t space;

	for (unsigned i = 0; i < riders[_i].fds; i++)
		fds[i] = new_fd();
	frame_reader_init(&reader, LIMIT);
	ck_assert_int_eq(frame_reader_space(&reader, &at, &space), 0);
	memcpy(at, riders[_i].bytes, riders[_i].count);
	frame_reader_received(&reader, riders[_i].count, fds, riders[_i].fds, 0);
	ck_assert_int_eq(reader.fault, riders[_i].fault);
	if (riders[_i].fault)
		assert_broken(
			&reader, FRAME_SURPLUS_FDS, "descriptors arrived that no frame declares");
	frame_reader_done(&reader);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(surplus_shows_when_the_header_comes)
{
	struct frame_reader reader;
	int before = open_fds();

	frame_reader_init(&reader, LIMIT);
	feed(&reader, "DT\x01", 3, 2);
	ck_assert_int_eq(reader.fault, FRAME_OK);
	feed(&reader, "\x01", 1, 0);
	ck_assert_int_eq(reader.fault, FRAME_SURPLUS_FDS);
	/* Whatever still comes is closed, and its bytes are dropped. */
	feed(&reader, "abc", 3, 2);
	assert_broken(&reader, FRAME_SURPLUS_FDS, "descriptors arrived that no frame declares");
	frame_reader_done(&reader);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(descriptors_without_bytes_are_surplus)
{
	struct frame_reader reader;
	int before = open_fds();
	int fd = new_fd();

	frame_reader_init(&reader, LIMIT);
	frame_reader_received(&reader, 0, &fd, 1, 0);
	assert_broken(&reader, FRAME_SURPLUS_FDS, "descriptors arrived that no frame declares");
	frame_reader_done(&reader);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(missing_and_truncated)
{
	struct frame_reader reader;
	struct frame frame;
	int before = open_fds();
	int fd = new_fd();
	uint8_t *at;
	size_t space;

	/* The second frame's descriptor did not come. */
	frame_reader_init(&reader, LIMIT);
	feed(&reader, HEADER("\1", "\0\0\0\0") HEADER("\1", "\0\0\0\0"), 16, 1);
	ck_assert_int_eq(frame_reader_next(&reader, &frame), 1);
	ck_assert_int_eq(close(frame.fds[0]), 0);
	assert_broken(&reader, FRAME_MISSING_FDS,
		"the frame declares 1 descriptor, 0 came with its first byte");
	frame_reader_done(&reader);

	frame_reader_init(&reader, LIMIT);
	ck_assert_int_eq(frame_reader_space(&reader, &at, &space), 0);
	memcpy(at, HEADER("\1", "\0\0\0\0"), 8);
	frame_reader_received(&reader, 8, &fd, 1, 1);
	assert_broken(&reader, FRAME_TRUNCATED_FDS,
		"a descriptor could not be received: the process has no number free for it");
	frame_reader_done(&reader);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

/* The kernel's own delivery: plain bytes may come in the same call as the segment with descriptors
 * behind them. */
START_TEST(descriptors_over_a_socket)
{
	static const char first[] = HEADER("\0", "\0\0\0\x01") "a";
	static const char second[] = HEADER("\2", "\0\0\0\x01") "b";
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} rights = {.header = {.cmsg_level = SOL_SOCKET,
			    .cmsg_type = SCM_RIGHTS,
			    .cmsg_len = CMSG_LEN(2 * sizeof(int))}};
	struct iovec piece = {(void *)second, sizeof(second) - 1};
	struct msghdr message = {.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = &rights,
		.msg_controllen = sizeof(rights)};
	struct frame_reader reader;
	struct frame frame;
	int before = open_fds();
	int pair[2], fds[2] = {new_fd(), new_fd()};
	unsigned got = 0;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	memcpy(CMSG_DATA(&rights.header), fds, sizeof(fds));
	ck_assert_int_eq(send(pair[0], first, sizeof(first) - 1, 0), (ssize_t)sizeof(first) - 1);
	ck_assert_int_eq(sendmsg(pair[0], &message, 0), (ssize_t)sizeof(second) - 1);
	close(fds[0]);
	close(fds[1]);

	frame_reader_init(&reader, LIMIT);
	while (got < 2) {
		struct cmsghdr *cmsg;
		uint8_t *at;
		ssize_t bytes;
		unsigned fd_count = 0;

		ck_assert_int_eq(frame_reader_space(&reader, &at, &piece.iov_len), 0);
		piece.iov_base = at;
		message.msg_controllen = sizeof(rights);
		bytes = recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC);
		ck_assert_int_gt(bytes, 0);
		cmsg = CMSG_FIRSTHDR(&message);
		if (cmsg) {
			fd_count = (unsigned)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(cmsg), fd_count * sizeof(int));
		}
		frame_reader_received(
			&reader, (size_t)bytes, fds, fd_count, message.msg_flags & MSG_CTRUNC);
		while (frame_reader_next(&reader, &frame) == 1) {
			ck_assert_int_eq(frame.body[0], "ab"[got]);
			ck_assert_uint_eq(frame.fd_count, got ? 2 : 0);
			for (unsigned i = 0; i < frame.fd_count; i++)
				ck_assert_int_eq(close(frame.fds[i]), 0);
			got++;
		}
		ck_assert_int_eq(reader.fault, FRAME_OK);
	}
	frame_reader_done(&reader);
	close(pair[0]);
	close(pair[1]);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

Suite *frame_suite(void)
{
	Suite *suite = suite_create("frame");
	TCase *tcase = tcase_create("frame");

	tcase_add_test(tcase, header_is_the_pages);
	tcase_add_test(tcase, frames_cut_at_every_byte);
	tcase_add_loop_test(tcase, broken_headers, 0, sizeof(broken) / sizeof(broken[0]));
	tcase_add_test(tcase, body_at_the_limit);
	tcase_add_test(tcase, memory_follows_what_arrived);
	tcase_add_test(tcase, a_declared_length_alone_costs_nothing);
	tcase_add_test(tcase, the_beginning_of_the_next_frame_survives_shrinking);
	tcase_add_test(tcase, a_detached_body_stays);
	tcase_add_test(tcase, descriptors_go_to_their_frames_in_order);
	tcase_add_test(tcase, descriptors_ride_on_the_first_byte);
	tcase_add_loop_test(
		tcase, surplus_is_what_no_frame_can_claim, 0, sizeof(riders) / sizeof(riders[0]));
	tcase_add_test(tcase, surplus_shows_when_the_header_comes);
	tcase_add_test(tcase, descriptors_without_bytes_are_surplus);
	tcase_add_test(tcase, missing_and_truncated);
	tcase_add_test(tcase, descriptors_over_a_socket);
	suite_add_tcase(suite, tcase);
	return suite;
}
