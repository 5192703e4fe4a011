/* Frames: an 8-byte header and a body (PROTOCOL.md, "Frames").
 *
 * Sans-I/O: the caller receives bytes and descriptors into the reader and takes whole frames out.
 * One reader belongs to one connection and one thread. The reader owns what it was given until a
 * frame is taken: its buffer, and every descriptor that no frame has claimed. */
#ifndef PROTO_FRAME_H
#define PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define FRAME_MAGIC_0      0x44 /* 'D' */
#define FRAME_MAGIC_1      0x54 /* 'T' */
#define FRAME_VERSION      1
#define FRAME_HEADER_BYTES 8
#define FRAME_FDS_MAX      4

/* Linux passes at most so many descriptors at once (its SCM_MAX_FD). A receiver with room for all
 * of them sees MSG_CTRUNC only when its own process is out of descriptors. */
#define FRAME_FDS_PASSED_MAX 253

/* The body limit before `hello` is answered; afterwards `max_frame_bytes` of its reply. */
#define FRAME_HELLO_BODY_BYTES_MAX 4096

enum frame_fault {
	FRAME_OK = 0,
	FRAME_BAD_MAGIC,     /* not this protocol */
	FRAME_BAD_VERSION,   /* this protocol, another version: answered with VERSION_MISMATCH */
	FRAME_TOO_MANY_FDS,  /* the header declares more than FRAME_FDS_MAX */
	FRAME_TOO_LONG,      /* the body is longer than the limit */
	FRAME_MISSING_FDS,   /* the header declares more than arrived */
	FRAME_SURPLUS_FDS,   /* descriptors arrived that no header declares */
	FRAME_TRUNCATED_FDS, /* MSG_CTRUNC: this process is out of descriptors; answered with
				RESOURCE_EXHAUSTED */
};

/* A whole frame. `body` points into the reader and lives until the next call on the reader.
 * Descriptors pass to the caller, who closes them. */
struct frame {
	const uint8_t *body;
	uint32_t body_bytes;
	int fds[FRAME_FDS_MAX];
	unsigned fd_count;
};

struct frame_reader {
	uint8_t *bytes;  /* malloc'd; NULL while nothing has arrived */
	size_t capacity; /* bytes allocated: at most about twice what has arrived, see below */
	size_t start;    /* first byte not taken yet */
	size_t end;      /* one past the last byte received */
	uint32_t body_bytes_max;
	int fds[2 * FRAME_FDS_MAX]; /* received, not yet claimed; oldest first */
	unsigned fd_count;
	enum frame_fault fault; /* sticky: a broken stream stays broken */
};

void frame_reader_init(struct frame_reader *reader, uint32_t body_bytes_max);

/* Frees the buffer and closes every descriptor that no frame claimed. */
void frame_reader_done(struct frame_reader *reader);

/* Where to receive next: at least one byte, at most what the frame under way may still need plus a
 * read-ahead of some KiB. Memory grows with the bytes that have arrived, never with the length that
 * a header declares. Returns 0 or -ENOMEM. */
int frame_reader_space(struct frame_reader *reader, uint8_t **ret_at, size_t *ret_bytes);

/* `bytes` were received at the place that frame_reader_space() gave, with `fd_count` descriptors,
 * which the reader now owns (also on failure). `truncated` says that the kernel reported
 * MSG_CTRUNC, to a caller with room for FRAME_FDS_PASSED_MAX. */
void frame_reader_received(struct frame_reader *reader, size_t bytes, const int *fds,
	unsigned fd_count, int truncated);

/* Takes the next whole frame. Returns 1 and fills `ret_frame`, 0 when more bytes are needed, or
 * -EPROTO with the reason in `reader->fault`; after that the stream can't be read on. */
int frame_reader_next(struct frame_reader *reader, struct frame *ret_frame);

/* Right after frame_reader_next() has returned 1: hands the buffer that the frame lies in over to
 * the caller, who frees it; `frame.body` stays where it is, however the reader is used. What was
 * received behind the frame moves to a new buffer, so a long body changes owner without being
 * copied. Returns the buffer, or NULL without memory: then nothing has changed. */
uint8_t *frame_reader_detach(struct frame_reader *reader);

/* One sentence for a person, no full stop: "the frame's version is 7, this side speaks 1". */
void frame_reader_describe(const struct frame_reader *reader, char *text, size_t text_bytes);

/* Writes the header of a body of `body_bytes` with `fd_count` descriptors. */
void frame_put_header(uint8_t header[FRAME_HEADER_BYTES], uint32_t body_bytes, unsigned fd_count);

#endif
