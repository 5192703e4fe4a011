/* An echo that speaks the protocol: answers every draft request with the same tokens, as many
 * replies to a write as there were requests in a read. What a load tool reaches against it is the
 * tool's own speed. To other load tools, on the same socket, it speaks HTTP: a GET gets 100 bytes,
 * which is about what a draft does.
 *
 * draft_echo SOCKET VOCAB ROWS STEPS [DELAY_US] says "listening" and serves until it is killed;
 * every connection is a process's, and requests must be of that shape, with inline base logits.
 * Each write comes DELAY_US after its read: what a load tool must measure at least. */
#include "proto/message.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20) /* a request must fit */

static uint32_t vocab, rows, steps;
static int64_t delay_us;

static void __attribute__((noreturn)) give_up(const char *what)
{
	fprintf(stderr, "draft_echo: %s: %s\n", what, strerrordesc_np(errno));
	exit(EXIT_FAILURE);
}

static void encode_hello(struct wire_buffer *out, uint32_t id)
{
	struct hello_reply reply = {
		.protocol = PROTOCOL_VERSION,
		.server = {"draft_echo/1", 12},
		.generation = 1,
		.model = {.name = {"echo", 4},
			.vocab = vocab,
			.rank = 16,
			.target_vocab = vocab,
			.multiplier = 1,
			.dtype = {"bf16", 4}},
		.backend = {.name = {"cpu", 3}, .bias_order = {"mma16", 5}, .tensor_parallel = 1},
		.limits = {.max_rows = rows,
			.max_steps = steps,
			.max_frame_bytes = BUFFER_BYTES,
			.max_inflight = 1024,
			.max_regions = 1,
			.max_region_bytes = 4096},
	};

	hello_reply_encode(out, id, &reply);
}

static void answer(const struct frame *frame, struct wire_buffer *out, const uint32_t *tokens,
	const uint8_t *flags)
{
	const struct draft_answer same = {
		.rows = rows, .steps = steps, .tokens = tokens, .flags = flags, .generation = 1};
	struct message message;
	struct message_fault fault;

	if (message_decode(frame->body, frame->body_bytes, &message, &fault) < 0) {
		fprintf(stderr, "draft_echo: %s\n", fault.text);
		exit(EXIT_FAILURE);
	}
	if (message.method == METHOD_HELLO)
		encode_hello(out, message.id);
	else if (message.method == METHOD_DRAFT)
		draft_reply_encode(out, message.id, &same);
	else
		message_encode_error(out, true, message.id, ERROR_UNKNOWN_METHOD, "not by an echo");
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* To the microsecond: without sleeping. */
static void wait_until(int64_t at_ns)
{
	while (now_ns() < at_ns)
		;
}

static void send_all(int fd, const uint8_t *bytes, size_t count)
{
	while (count > 0) {
		ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);

		if (sent < 0)
			exit(EXIT_SUCCESS); /* the client went away */
		bytes += sent;
		count -= (size_t)sent;
	}
}

/* Answers the whole requests without a body at the front, the same way. */
static size_t answer_http(const uint8_t *bytes, size_t count, struct wire_buffer *out)
{
	static char reply[256];
	const uint8_t *end;
	size_t at = 0;

	if (!reply[0])
		snprintf(reply, sizeof(reply),
			"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n%0100d", 0);
	while ((end = memmem(bytes + at, count - at, "\r\n\r\n", 4))) {
		wire_buffer_write(out, reply, strlen(reply));
		at = (size_t)(end - bytes) + 4;
	}
	return at;
}

/* Answers the whole frames at the front; how many bytes they were. (frame_reader reads little
 * ahead, so as to bound a daemon's memory; an echo need not.) */
static size_t answer_all(const uint8_t *bytes, size_t count, struct wire_buffer *out,
	const uint32_t *tokens, const uint8_t *flags)
{
	size_t at = 0;

	while (count - at >= FRAME_HEADER_BYTES) {
		const uint8_t *header = bytes + at;
		struct frame frame = {
			.body = header + FRAME_HEADER_BYTES,
			.body_bytes = (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 |
				      (uint32_t)header[6] << 8 | header[7],
		};

		if (count - at - FRAME_HEADER_BYTES < frame.body_bytes)
			break;
		answer(&frame, out, tokens, flags);
		at += FRAME_HEADER_BYTES + frame.body_bytes;
	}
	return at;
}

static void __attribute__((noreturn)) serve(int fd)
{
	uint32_t *tokens = calloc((size_t)rows * steps, sizeof(*tokens));
	uint8_t *flags = calloc(rows, 1);
	uint8_t *bytes = malloc(BUFFER_BYTES);
	struct wire_buffer out;
	size_t count = 0, taken;
	ssize_t got;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	wire_buffer_init(&out);
	while ((got = recv(fd, bytes + count, BUFFER_BYTES - count, 0)) > 0) {
		count += (size_t)got;
		wire_buffer_clear(&out);
		taken = bytes[0] == 'G' ? answer_http(bytes, count, &out)
					: answer_all(bytes, count, &out, tokens, flags);
		if (delay_us > 0 && out.count > 0)
			wait_until(now_ns() + delay_us * 1000);
		count -= taken;
		memmove(bytes, bytes + taken, count);
		send_all(fd, out.bytes, out.count);
	}
	exit(EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener, fd;

	if (argc < 5 || argc > 6 || strlen(argv[1]) >= sizeof(address.sun_path)) {
		fprintf(stderr, "usage: draft_echo SOCKET VOCAB ROWS STEPS [DELAY_US]\n");
		return 2;
	}
	strcpy(address.sun_path, argv[1]);
	vocab = (uint32_t)strtoul(argv[2], NULL, 10);
	rows = (uint32_t)strtoul(argv[3], NULL, 10);
	steps = (uint32_t)strtoul(argv[4], NULL, 10);
	delay_us = argc > 5 ? strtol(argv[5], NULL, 10) : 0;
	signal(SIGCHLD, SIG_IGN);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(listener, 64) < 0)
		give_up(argv[1]);
	puts("listening");
	fflush(stdout);
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		if (fork() == 0)
			serve(fd);
		close(fd);
	}
	give_up("accept");
}
