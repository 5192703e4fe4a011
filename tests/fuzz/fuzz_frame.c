/* The frame reader, fed in chunks with descriptors in between, against the stream as it was sent.
 *
 * Input: a byte that chooses the body limit, whether frames are detached, and whether the kernel
 * drops a descriptor of the second chunk; then chunks: a byte whose low six bits are the chunk's
 * length (0 stands for 4096) and whose high two bits count its descriptors, then its bytes. */
#include "proto/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count);

struct sent {
	uint8_t *bytes; /* all chunks, joined */
	size_t count;
	size_t taken; /* bytes of the frames that came out */
	unsigned fds; /* all time */
	unsigned fds_taken;
	bool truncated; /* a descriptor was lost */
};

static void require(bool condition)
{
	if (!condition)
		abort();
}

/* The lowest free descriptor: the same before and after if none leaked. */
static int lowest_fd(void)
{
	int fd = fcntl(0, F_DUPFD_CLOEXEC, 3);

	require(fd >= 0);
	close(fd);
	return fd;
}

static uint32_t length_at(const uint8_t *header)
{
	return (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 |
	       header[7];
}

/* A frame must be the next bytes of the stream. */
static void check_frame(struct sent *sent, const struct frame *frame, uint32_t body_bytes_max)
{
	const uint8_t *header = sent->bytes + sent->taken;

	require(sent->count - sent->taken >= FRAME_HEADER_BYTES + (size_t)frame->body_bytes);
	require(header[0] == 'D' && header[1] == 'T' && header[2] == 1);
	require(header[3] == frame->fd_count && frame->fd_count <= FRAME_FDS_MAX);
	require(length_at(header) == frame->body_bytes && frame->body_bytes <= body_bytes_max);
	require(!memcmp(frame->body, header + FRAME_HEADER_BYTES, frame->body_bytes));
	for (unsigned i = 0; i < FRAME_FDS_MAX; i++) {
		require((frame->fds[i] >= 0) == (i < frame->fd_count));
		if (frame->fds[i] >= 0)
			require(!close(frame->fds[i]));
	}
	sent->taken += FRAME_HEADER_BYTES + (size_t)frame->body_bytes;
	sent->fds_taken += frame->fd_count;
	require(sent->fds_taken <= sent->fds);
}

/* When no frame comes out, none is whole, and what is there of a header is good. */
static void check_waiting(const struct sent *sent, uint32_t body_bytes_max)
{
	const uint8_t *header = sent->bytes + sent->taken;
	size_t have = sent->count - sent->taken;

	require(have < 1 || header[0] == 'D');
	require(have < 2 || header[1] == 'T');
	require(have < 3 || header[2] == 1);
	require(have < 4 || header[3] <= FRAME_FDS_MAX);
	require(have < 4 || header[3] <= sent->fds - sent->fds_taken);
	require(have < 8 || length_at(header) <= body_bytes_max);
	require(have < 8 || have - 8 < length_at(header));
}

static void check_fault(
	const struct frame_reader *reader, const struct sent *sent, uint32_t body_bytes_max)
{
	const uint8_t *header = sent->bytes + sent->taken;
	size_t have = sent->count - sent->taken;
	char text[128];

	frame_reader_describe(reader, text, sizeof(text));
	require(strlen(text) > 0);
	switch (reader->fault) {
	case FRAME_BAD_MAGIC:
		require(have >= 1 && (header[0] != 'D' || (have >= 2 && header[1] != 'T')));
		break;
	case FRAME_BAD_VERSION:
		require(have >= 3 && header[2] != 1);
		break;
	case FRAME_TOO_MANY_FDS:
		require(have >= 4 && header[3] > FRAME_FDS_MAX);
		break;
	case FRAME_MISSING_FDS:
		require(have >= 4 && header[3] > sent->fds - sent->fds_taken);
		break;
	case FRAME_TOO_LONG:
		require(have >= 8 && length_at(header) > body_bytes_max);
		break;
	case FRAME_SURPLUS_FDS:
		require(sent->fds > sent->fds_taken);
		break;
	case FRAME_TRUNCATED_FDS:
		require(sent->truncated);
		break;
	default:
		abort();
	}
}

static void take_frames(struct frame_reader *reader, struct sent *sent, bool detach)
{
	uint32_t body_bytes_max = reader->body_bytes_max;
	struct frame frame;
	int rc;

	while ((rc = frame_reader_next(reader, &frame)) == 1) {
		uint8_t *detached = detach ? frame_reader_detach(reader) : NULL;

		check_frame(sent, &frame, body_bytes_max);
		free(detached);
	}
	if (rc == 0)
		check_waiting(sent, body_bytes_max);
	else
		check_fault(reader, sent, body_bytes_max);
}

static void feed(struct frame_reader *reader, struct sent *sent, const uint8_t *chunk, size_t bytes,
	unsigned fd_count)
{
	int fds[3];

	for (unsigned i = 0; i < fd_count; i++) {
		fds[i] = fcntl(0, F_DUPFD_CLOEXEC, 3);
		require(fds[i] >= 0);
	}
	sent->fds += fd_count;
	do {
		uint8_t *at;
		size_t space;

		require(!frame_reader_space(reader, &at, &space));
		require(space >= 1);
		require(reader->capacity <= 4 * (sent->count - sent->taken) + 12288);
		if (space > bytes)
			space = bytes;
		memcpy(at, chunk, space);
		memcpy(sent->bytes + sent->count, chunk, space);
		sent->count += space;
		frame_reader_received(reader, space, fds, fd_count, sent->truncated);
		fd_count = 0;
		chunk += space;
		bytes -= space;
		if (bytes && !reader->fault)
			take_frames(reader, sent, false);
	} while (bytes && !reader->fault);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	static const uint32_t limits[] = {0, 16, FRAME_HELLO_BODY_BYTES_MAX, UINT32_MAX};
	struct frame_reader reader;
	struct sent sent = {0};
	int lowest = lowest_fd();
	size_t at = 1;

	if (!byte_count)
		return 0;
	sent.bytes = malloc(byte_count);
	require(sent.bytes);
	frame_reader_init(&reader, limits[bytes[0] & 3]);
	while (at < byte_count && !reader.fault) {
		size_t length = bytes[at] & 0x3f ? bytes[at] & 0x3f : 4096;
		unsigned fd_count = bytes[at] >> 6;

		at++;
		if (length > byte_count - at)
			length = byte_count - at;
		if (!length)
			break;
		sent.truncated = (bytes[0] & 8) && sent.count > 0;
		feed(&reader, &sent, bytes + at, length, fd_count);
		take_frames(&reader, &sent, bytes[0] & 4);
		at += length;
	}
	frame_reader_done(&reader);
	free(sent.bytes);
	require(lowest_fd() == lowest);
	return 0;
}
