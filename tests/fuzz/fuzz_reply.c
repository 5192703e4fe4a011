/* The client's reply path: bytes and descriptors of a hostile server, through frame reader,
 * decoders and result checks, into everything that a caller of libdraft can see. There is no
 * socket: what would be sent piles up in a buffer.
 *
 * The first byte of the input says how many descriptors arrive, the second in how large pieces the
 * rest does. */
#include "client/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROWS         3u
#define STEPS        2u
#define VOCAB        5u
#define LOGITS_BYTES (ROWS * STEPS * VOCAB * 2)

static void expect(bool condition)
{
	if (!condition)
		abort();
}

/* A region that the fuzzed server may grant. */
static int memfd(void)
{
	static int fd = -1;

	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (fd < 0 || ftruncate(fd, 4096) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
			abort();
	}
	return fd;
}

/* What the calls that block wait for. */
struct waiting {
	struct waiter hello, ping, open, import, stats, metrics, event;
	struct region_grant opened, imported;
	uint32_t event_id;
	char *json, *text;
};

static struct call *start(struct draft *draft, call_take *take, struct waiter *waiter, void *into)
{
	struct call *call;

	expect(call_start(draft, take, waiter, &call) == 0);
	if (waiter)
		waiter->into = into;
	return call;
}

/* Calls of every kind, whose ids are 0x10000, 0x20001, 0x30002 and so on in this order. */
static void start_calls(struct draft *draft, struct waiting *waiting, uint8_t *logits)
{
	struct call *call;

	/* Three drafts: the second wants logits, and so did the third, which was given up. */
	for (int i = 0; i < 3; i++) {
		call = start(draft, result_read, NULL, NULL);
		call->result = result_take(draft, ROWS, STEPS);
		expect(call->result != NULL);
		call->result->view.ticket = call->ticket;
		draft->tickets_out++;
		call->logits = i == 1 ? logits : NULL;
		call->logits_bytes = i > 0 ? LOGITS_BYTES : 0;
		call->abandoned = i == 2;
	}
	start(draft, hello_read, &waiting->hello, NULL);
	start(draft, call_take_empty, &waiting->ping, NULL);
	start(draft, stats_read, &waiting->stats, &waiting->json);
	start(draft, metrics_read, &waiting->metrics, &waiting->text);
	start(draft, region_read_import, &waiting->import, &waiting->imported);
	start(draft, region_read_open, &waiting->open, &waiting->opened)->reply_fds = 1;
	/* Given up: a region that still comes has to be given back. */
	call = start(draft, region_read_open, NULL, NULL);
	call->reply_fds = 1;
	call->abandoned = true;
	start(draft, event_read_import, &waiting->event, &waiting->event_id);
	start(draft, event_read_import, NULL, NULL)->abandoned = true;
}

static void receive(struct draft *draft, const uint8_t *data, size_t size)
{
	unsigned fd_count = size > 0 ? data[0] % (FRAME_FDS_MAX + 1) : 0;
	size_t piece_max = size > 1 && data[1] > 0 ? data[1] : SIZE_MAX;
	int fds[FRAME_FDS_MAX];
	struct frame frame;
	uint8_t *at;
	size_t piece;

	for (size_t used = 2; used < size && !draft->broken; used += piece) {
		expect(frame_reader_space(&draft->reader, &at, &piece) == 0);
		expect(piece > 0);
		piece = piece < piece_max ? piece : piece_max;
		piece = piece < size - used ? piece : size - used;
		memcpy(at, data + used, piece);
		for (unsigned i = 0; i < fd_count; i++)
			fds[i] = dup(memfd());
		frame_reader_received(&draft->reader, piece, fds, fd_count, 0);
		fd_count = 0;
		while (!draft->broken && frame_reader_next(&draft->reader, &frame) > 0)
			call_reply(draft, &frame);
		if (draft->reader.fault != FRAME_OK)
			break;
	}
}

static void check_results(struct draft *draft)
{
	struct draft_result *result;

	while (draft->queue_first) {
		expect(draft_poll(draft, 0, &result) == 1);
		expect(result->rows == ROWS && result->steps == STEPS && result->code <= 0);
		expect(strlen(result->error) < ERROR_TEXT_BYTES);
		for (uint32_t i = 0; result->code == 0 && i < ROWS * STEPS; i++)
			expect(result->tokens[i] < draft->model.vocab);
		draft_result_free(result);
	}
	expect(draft->tickets_out <= 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct draft *draft = handle_new();
	struct waiting waiting = {
		.opened = {.memory = REGION_HOST, .bytes = 4096, .fd = -1},
		.imported = {.fd = -1},
	};
	uint8_t logits[LOGITS_BYTES];

	expect(draft != NULL);
	draft->model.vocab = VOCAB;
	start_calls(draft, &waiting, logits);
	receive(draft, data, size);
	check_results(draft);
	expect(strlen(draft->goaway_reason) < NAME_BYTES);
	expect(draft->model.device_count <= MESSAGE_DEVICES_MAX);
	expect(!waiting.stats.done || waiting.stats.code < 0 || waiting.json[0] == '{');
	expect(!waiting.open.done || waiting.open.code < 0 || waiting.opened.fd >= 0);
	if (waiting.opened.fd >= 0)
		close(waiting.opened.fd);
	free(waiting.json);
	free(waiting.text);
	handle_free(draft);
	return 0;
}
