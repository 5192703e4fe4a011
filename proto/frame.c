#include "frame.h"

#include "sentence.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The smallest buffer, and how far past the frame under way is read. */
#define SPACE_BYTES_MIN 4096

/* With less room than this a read is not worth its system call: the buffer grows first. */
#define READ_BYTES_MIN 1024

static uint32_t body_length(const uint8_t *header)
{
	return (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 |
	       header[7];
}

static void close_all(const int *fds, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
}

void frame_reader_init(struct frame_reader *reader, uint32_t body_bytes_max)
{
	*reader = (struct frame_reader){.body_bytes_max = body_bytes_max};
}

void frame_reader_done(struct frame_reader *reader)
{
	close_all(reader->fds, reader->fd_count);
	free(reader->bytes);
	*reader = (struct frame_reader){0};
}

/* Looks at as much of the next header as has arrived. A byte is judged as soon as it is there, in
 * the order of the header, so that the verdict does not depend on how the stream was cut.
 * Descriptors ride on a frame's first byte: they are all here when its fourth byte is. */
static enum frame_fault judge_header(const struct frame_reader *reader)
{
	size_t have = reader->end - reader->start;
	const uint8_t *header;

	if (!have)
		return FRAME_OK;
	header = reader->bytes + reader->start;
	if (header[0] != FRAME_MAGIC_0)
		return FRAME_BAD_MAGIC;
	if (have >= 2 && header[1] != FRAME_MAGIC_1)
		return FRAME_BAD_MAGIC;
	if (have >= 3 && header[2] != FRAME_VERSION)
		return FRAME_BAD_VERSION;
	if (have >= 4 && header[3] > FRAME_FDS_MAX)
		return FRAME_TOO_MANY_FDS;
	if (have >= 4 && header[3] > reader->fd_count)
		return FRAME_MISSING_FDS;
	if (have >= FRAME_HEADER_BYTES && body_length(header) > reader->body_bytes_max)
		return FRAME_TOO_LONG;
	return FRAME_OK;
}

/* The most descriptors that the frames in the buffer, whole and partial, can claim. The kernel does
 * not say on which byte descriptors rode, and it may deliver bytes sent before them in the same
 * call, so all frames that have begun are asked. A header whose count has not arrived may claim the
 * most; a broken one is judged in its turn. */
static unsigned fds_claimable(const struct frame_reader *reader)
{
	size_t at = reader->start;
	unsigned claimed = 0;

	while (at < reader->end) {
		const uint8_t *header = reader->bytes + at;
		size_t have = reader->end - at;

		if (header[0] != FRAME_MAGIC_0 || have < 4 || header[3] > FRAME_FDS_MAX)
			return claimed + FRAME_FDS_MAX;
		claimed += header[3];
		if (have < FRAME_HEADER_BYTES || have - FRAME_HEADER_BYTES <= body_length(header))
			break;
		at += FRAME_HEADER_BYTES + (size_t)body_length(header);
	}
	return claimed;
}

/* Bytes that the frame under way still lacks, as far as its header tells. */
static size_t bytes_lacking(const struct frame_reader *reader)
{
	size_t have = reader->end - reader->start;
	size_t whole = FRAME_HEADER_BYTES;

	if (have >= FRAME_HEADER_BYTES)
		whole += body_length(reader->bytes + reader->start);
	return whole > have ? whole - have : 0;
}

int frame_reader_space(struct frame_reader *reader, uint8_t **ret_at, size_t *ret_bytes)
{
	size_t have = reader->end - reader->start;
	size_t lacking = bytes_lacking(reader);
	size_t useful = lacking + SPACE_BYTES_MIN;
	size_t wanted = lacking < READ_BYTES_MIN ? lacking + !lacking : READ_BYTES_MIN;
	size_t room;

	/* What lies behind a taken frame is at most the read-ahead, and it is moved once. */
	if (reader->start) {
		memmove(reader->bytes, reader->bytes + reader->start, have);
		reader->start = 0;
		reader->end = have;
	}
	room = reader->capacity - have;

	if (room < wanted) {
		size_t more = have > SPACE_BYTES_MIN ? have : SPACE_BYTES_MIN;
		uint8_t *grown;

		if (more > useful)
			more = useful;
		grown = realloc(reader->bytes, have + more);
		if (!grown)
			return -ENOMEM;
		reader->bytes = grown;
		reader->capacity = have + more;
		room = more;
	}
	*ret_at = reader->bytes + have;
	*ret_bytes = room < useful ? room : useful;
	return 0;
}

void frame_reader_received(
	struct frame_reader *reader, size_t bytes, const int *fds, unsigned fd_count, int truncated)
{
	bool surplus = false;

	if (reader->fault) {
		close_all(fds, fd_count);
		return;
	}
	reader->end += bytes;
	for (unsigned i = 0; i < fd_count; i++) {
		if (reader->fd_count < 2 * FRAME_FDS_MAX) {
			reader->fds[reader->fd_count++] = fds[i];
		} else {
			close(fds[i]);
			surplus = true;
		}
	}

	if (truncated)
		reader->fault = FRAME_TRUNCATED_FDS;
	else if (surplus || (reader->fd_count && reader->fd_count > fds_claimable(reader)))
		reader->fault = FRAME_SURPLUS_FDS;
}

/* Gives memory back when little is left in a buffer that grew for a frame now taken. A frame that
 * is still arriving fills at least half of what was allocated for it, so this never undoes growth
 * that is needed. */
static void shrink(struct frame_reader *reader)
{
	size_t have = reader->end - reader->start;
	uint8_t *small;

	if (reader->capacity <= 2 * SPACE_BYTES_MIN || have >= reader->capacity / 4)
		return;
	small = malloc(have + SPACE_BYTES_MIN);
	if (!small)
		return;
	memcpy(small, reader->bytes + reader->start, have);
	free(reader->bytes);
	reader->bytes = small;
	reader->capacity = have + SPACE_BYTES_MIN;
	reader->start = 0;
	reader->end = have;
}

int frame_reader_next(struct frame_reader *reader, struct frame *ret_frame)
{
	const uint8_t *header;
	struct frame frame;

	if (!reader->fault)
		reader->fault = judge_header(reader);
	if (reader->fault)
		return -EPROTO;
	if (bytes_lacking(reader)) {
		shrink(reader);
		return 0;
	}

	header = reader->bytes + reader->start;
	frame = (struct frame){
		.body = header + FRAME_HEADER_BYTES,
		.body_bytes = body_length(header),
		.fd_count = header[3],
	};
	for (unsigned i = 0; i < FRAME_FDS_MAX; i++)
		frame.fds[i] = i < frame.fd_count ? reader->fds[i] : -1;
	reader->fd_count -= frame.fd_count;
	memmove(reader->fds, reader->fds + frame.fd_count, reader->fd_count * sizeof(*reader->fds));
	reader->start += FRAME_HEADER_BYTES + (size_t)frame.body_bytes;
	*ret_frame = frame;
	return 1;
}

uint8_t *frame_reader_detach(struct frame_reader *reader)
{
	size_t have = reader->end - reader->start;
	uint8_t *detached = reader->bytes;
	uint8_t *rest;

	rest = malloc(have + SPACE_BYTES_MIN);
	if (!rest)
		return NULL;
	memcpy(rest, reader->bytes + reader->start, have);
	reader->bytes = rest;
	reader->capacity = have + SPACE_BYTES_MIN;
	reader->start = 0;
	reader->end = have;
	return detached;
}

void frame_reader_describe(const struct frame_reader *reader, char *text, size_t text_bytes)
{
	static const uint8_t nothing[FRAME_HEADER_BYTES];
	const uint8_t *header =
		reader->end > reader->start ? reader->bytes + reader->start : nothing;

	switch (reader->fault) {
	case FRAME_OK:
		snprintf(text, text_bytes, "nothing is wrong with the stream");
		break;
	case FRAME_BAD_MAGIC:
		snprintf(text, text_bytes,
			"the frame does not begin with the bytes 0x44 0x54: not this protocol");
		break;
	case FRAME_BAD_VERSION:
		snprintf(text, text_bytes, "the frame's version is %u, this side speaks %u",
			header[2], FRAME_VERSION);
		break;
	case FRAME_TOO_MANY_FDS:
		snprintf(text, text_bytes, "the frame declares %u descriptors, the most is %u",
			header[3], FRAME_FDS_MAX);
		break;
	case FRAME_TOO_LONG:
		snprintf(text, text_bytes, "the frame's body is %u bytes, the most is %u",
			body_length(header), reader->body_bytes_max);
		break;
	case FRAME_MISSING_FDS:
		snprintf(text, text_bytes,
			"the frame declares %u descriptor%s, %u came with its first byte",
			header[3], sentence_s(header[3]), reader->fd_count);
		break;
	case FRAME_SURPLUS_FDS:
		snprintf(text, text_bytes, "descriptors arrived that no frame declares");
		break;
	case FRAME_TRUNCATED_FDS:
		snprintf(text, text_bytes,
			"a descriptor could not be received: the process has no number free for "
			"it");
		break;
	}
}

void frame_put_header(uint8_t header[FRAME_HEADER_BYTES], uint32_t body_bytes, unsigned fd_count)
{
	header[0] = FRAME_MAGIC_0;
	header[1] = FRAME_MAGIC_1;
	header[2] = FRAME_VERSION;
	header[3] = (uint8_t)fd_count;
	header[4] = (uint8_t)(body_bytes >> 24);
	header[5] = (uint8_t)(body_bytes >> 16);
	header[6] = (uint8_t)(body_bytes >> 8);
	header[7] = (uint8_t)body_bytes;
}
