#include "tests/unit/client/peer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROWS_MAX 8
#define HANG_US  30000000

void peer_check_at(bool condition, const char *text, const char *file, int line)
{
	if (condition)
		return;
	fprintf(stderr, "%s:%d: the peer expected %s\n", file, line, text);
	abort();
}

void peer_init(struct peer *peer)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*peer = (struct peer){.listener = -1, .fd = -1};
	strcpy(peer->directory, "/tmp/libdraft-XXXXXX");
	peer_check(mkdtemp(peer->directory) != NULL);
	snprintf(peer->path, sizeof(peer->path), "%s/sock", peer->directory);
	strcpy(address.sun_path, peer->path);
	peer->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	peer_check(bind(peer->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	peer_check(listen(peer->listener, 0) == 0);
	frame_reader_init(&peer->reader, FRAME_BYTES_MAX);
	wire_buffer_init(&peer->out);
	peer->hello = (struct hello_reply){
		.protocol = 1,
		.server = {"draftd/9.8.7", 12},
		.generation = 3,
		.model = {.name = {"tiny", 4},
			.vocab = PEER_VOCAB,
			.rank = 16,
			.target_vocab = 7,
			.multiplier = 0.5f,
			.has_soft_cap = true,
			.soft_cap = 30.0f,
			.dtype = {"bf16", 4}},
		.backend = {.name = {"cpu", 3},
			.bias_order = {"mma16", 5},
			.tensor_parallel = 1,
			.device_count = 2,
			.devices = {{{"GPU-1", 5}, {"first", 5}, 1000},
				{{"GPU-2", 5}, {"second", 6}, 2000}}},
		.limits = {.max_rows = 4,
			.max_steps = 3,
			.max_frame_bytes = 65536,
			.max_inflight = 3,
			.max_regions = 2,
			.max_region_bytes = 1 << 20},
	};
}

void peer_hang_up(struct peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
}

void peer_done(struct peer *peer)
{
	peer_join(peer);
	peer_hang_up(peer);
	close(peer->listener);
	unlink(peer->path);
	rmdir(peer->directory);
	frame_reader_done(&peer->reader);
	wire_buffer_done(&peer->out);
}

static void *run(void *argument)
{
	struct peer *peer = argument;

	peer->script(peer);
	return NULL;
}

void peer_start(struct peer *peer, void (*script)(struct peer *peer))
{
	peer->script = script;
	peer_check(pthread_create(&peer->thread, NULL, run, peer) == 0);
	peer->running = true;
}

void peer_join(struct peer *peer)
{
	if (peer->running)
		pthread_join(peer->thread, NULL);
	peer->running = false;
}

void peer_accept(struct peer *peer)
{
	peer_hang_up(peer);
	frame_reader_done(&peer->reader);
	frame_reader_init(&peer->reader, FRAME_BYTES_MAX);
	peer->fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
	peer_check(peer->fd >= 0);
}

void peer_greet(struct peer *peer)
{
	struct hello_request hello;
	struct message_fault fault;
	struct request request;

	peer_accept(peer);
	peer_take(peer, METHOD_HELLO, &request);
	peer_check(hello_request_decode(request.message.params, &hello, &fault) == 0);
	peer_check(hello.protocol == 1);
	hello_reply_encode(&peer->out, request.message.id, &peer->hello);
	peer_send(peer);
}

struct draft_options peer_options(const struct peer *peer)
{
	return (struct draft_options){
		.size = sizeof(struct draft_options),
		.socket_path = peer->path,
		.timeout_us = HANG_US,
	};
}

struct draft *peer_connect(struct peer *peer)
{
	struct draft_options options = peer_options(peer);
	struct draft *draft;
	char error[256] = "";

	peer_start(peer, peer_greet);
	ck_assert_msg(draft_connect(&options, &draft, error, sizeof(error)) == 0, "%s", error);
	peer_join(peer);
	return draft;
}

void peer_take(struct peer *peer, enum method method, struct request *ret)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
	} room;
	struct message_fault fault;
	struct iovec piece;
	struct cmsghdr *control;
	struct msghdr header;
	uint8_t *at;
	ssize_t got;

	while (frame_reader_next(&peer->reader, &ret->frame) == 0) {
		peer_check(frame_reader_space(&peer->reader, &at, &piece.iov_len) == 0);
		piece.iov_base = at;
		header = (struct msghdr){.msg_iov = &piece,
			.msg_iovlen = 1,
			.msg_control = room.bytes,
			.msg_controllen = sizeof(room.bytes)};
		got = recvmsg(peer->fd, &header, MSG_CMSG_CLOEXEC);
		peer_check(got > 0);
		control = CMSG_FIRSTHDR(&header);
		frame_reader_received(&peer->reader, (size_t)got,
			control ? (const int *)(const void *)CMSG_DATA(control) : NULL,
			control ? (unsigned)((control->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0,
			0);
	}
	peer_check(peer->reader.fault == FRAME_OK);
	peer_check(
		message_decode(ret->frame.body, ret->frame.body_bytes, &ret->message, &fault) == 0);
	peer_check(ret->message.method == method);
}

void peer_send_with(struct peer *peer, const int *fds, unsigned fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * FRAME_FDS_MAX * sizeof(int))];
	} room;
	struct iovec piece = {.iov_base = peer->out.bytes, .iov_len = peer->out.count};
	struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1};
	ssize_t sent;

	peer_check(!peer->out.failed);
	if (fd_count > 0) {
		memset(&room, 0, sizeof(room));
		header.msg_control = room.bytes;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		room.align.cmsg_level = SOL_SOCKET;
		room.align.cmsg_type = SCM_RIGHTS;
		room.align.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(&room.align), fds, fd_count * sizeof(int));
	}
	while (piece.iov_len > 0) {
		sent = sendmsg(peer->fd, &header, MSG_NOSIGNAL);
		if (sent < 0)
			break; /* a client that closes early is the test's subject */
		piece.iov_base = (char *)piece.iov_base + sent;
		piece.iov_len -= (size_t)sent;
		header.msg_control = NULL;
		header.msg_controllen = 0;
	}
	wire_buffer_clear(&peer->out);
}

void peer_send(struct peer *peer)
{
	peer_send_with(peer, NULL, 0);
}

void peer_encode_draft(struct peer *peer, uint32_t id, uint32_t rows, uint32_t steps,
	uint32_t first, const uint16_t *logits)
{
	struct draft_answer result = {
		.rows = rows,
		.steps = steps,
		.generation = 4,
		.queue_us = 11,
		.device_us = 22,
		.total_us = 44,
		.has_logits = logits != NULL,
		.logits_bytes = (uint32_t)(logits ? rows * steps * peer->hello.model.vocab * 2 : 0),
	};
	uint32_t *tokens = calloc((size_t)rows * steps + 1, sizeof(*tokens));
	uint8_t *flags = calloc(rows + 1, 1);

	peer_check(tokens && flags);
	for (uint32_t i = 0; i < rows * steps; i++)
		tokens[i] = (first + i) % peer->hello.model.vocab;
	for (uint32_t i = 0; i < rows; i++)
		flags[i] = i % 2;
	result.tokens = tokens;
	result.flags = flags;
	draft_reply_encode(&peer->out, id, &result);
	if (logits)
		wire_buffer_write(&peer->out, (const char *)logits, result.logits_bytes);
	free(tokens);
	free(flags);
}

struct draft_request peer_request(uint32_t rows, uint32_t steps)
{
	static const uint32_t anchors[ROWS_MAX] = {6, 5, 4, 3, 2, 1};
	static const int64_t positions[ROWS_MAX] = {INT64_MIN, -1, 0, INT64_MAX};
	static const int64_t seeds[ROWS_MAX] = {-1, 2, INT64_MIN, 4};
	static const float temperatures[ROWS_MAX] = {0.0f, 1.5f};
	static uint16_t base[ROWS_MAX * 4 * PEER_VOCAB];

	for (size_t i = 0; i < sizeof(base) / sizeof(base[0]); i++)
		base[i] = (uint16_t)(i * 257);
	return (struct draft_request){
		.size = sizeof(struct draft_request),
		.rows = rows,
		.steps = steps,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
		.base = {.data = base},
	};
}

/* ---- descriptors ---- */

static int fds_before;

static int fds_open(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	peer_check(directory != NULL);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

void fds_count(void)
{
	fds_before = fds_open();
}

void fds_check(void)
{
	ck_assert_int_eq(fds_open(), fds_before);
}
