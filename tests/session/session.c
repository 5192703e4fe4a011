/* One session of a program that uses all of libdraft: inline logits and regions of both kinds,
 * calls that wait and tickets, a cancelled one, an event, the service's calls, reconnects, closing
 * in both orders. Whatever fails ends it with libdraft's sentence and exit status 1, with
 * everything closed; tokens that differ from one way to the other are an abort. Usage: session
 * SOCKET */
#include "draft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	ROWS = 3,
	STEPS = 3,
	TOKENS = ROWS * STEPS,
	TICKETS = 4,
	VOCAB_MAX = 4096,
	VALUES_MAX = TOKENS * VOCAB_MAX,
	WAIT_US = 60000000, /* for what must come */
};

static const uint32_t anchors[ROWS] = {1, 2, 3};
static const int64_t positions[ROWS] = {10, 20, 30}, seeds[ROWS] = {7, 8, 9};
static const float temperatures[ROWS] = {0.0f, 0.7f, 1.0f};
static uint16_t base[VALUES_MAX], logits[VALUES_MAX];
static uint32_t expected[TOKENS];
static const char *doing = "draft"; /* for the error's sentence */

static struct draft_request request_from(void *data, struct draft_region *region)
{
	return (struct draft_request){
		.size = sizeof(struct draft_request),
		.rows = ROWS,
		.steps = STEPS,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
		.base = {.data = data, .region = region},
	};
}

static void check(const uint32_t *tokens)
{
	if (memcmp(tokens, expected, sizeof(expected)) != 0)
		abort();
}

/* The memory's base logits, without a copy; it is closed before the connection or with it. */
static int draft_in(struct draft *draft, struct draft_region *region, int close_it)
{
	struct draft_request request = request_from(NULL, region);
	uint32_t tokens[TOKENS];
	int r;

	memcpy(draft_region_data(region), base, TOKENS * draft_model(draft)->vocab * sizeof(*base));
	r = draft_draft(draft, &request, tokens, NULL);
	if (r == 0)
		check(tokens);
	if (close_it) {
		int closed = draft_region_close(region);

		r = r < 0 ? r : closed;
	}
	return r;
}

static int use_regions(struct draft *draft)
{
	uint64_t bytes = TOKENS * draft_model(draft)->vocab * sizeof(*base);
	struct draft_region *region;
	int fd, r;

	doing = "regions";
	r = draft_region_open(draft, bytes, DRAFT_HOST, &region);
	if (r == 0)
		r = draft_in(draft, region, 1);
	if (r < 0)
		return r;
	fd = memfd_create("session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		abort(); /* these calls are the session's own, and are not let fail */
	r = draft_region_import(draft, fd, bytes, &region);
	close(fd);
	return r < 0 ? r : draft_in(draft, region, 0);
}

/* Several at once, one of which is taken back. */
static int use_tickets(struct draft *draft)
{
	struct draft_request request = request_from(base, NULL);
	struct draft_result *result;
	uint64_t ticket = 0;
	int r;

	doing = "tickets";
	for (unsigned i = 0; i < TICKETS; i++) {
		r = draft_submit(draft, &request, &ticket);
		if (r < 0)
			return r;
	}
	r = draft_cancel(draft, ticket);
	if (r < 0 && r != -DRAFT_E_NOT_FOUND)
		return r;
	for (unsigned i = 0; i < TICKETS; i++) {
		r = draft_poll(draft, WAIT_US, &result);
		if (r == 0)
			abort(); /* an answer is missing */
		if (r < 0)
			return r;
		r = result->code;
		if (r == 0)
			check(result->tokens);
		else if (r == -DRAFT_E_CANCELLED && result->ticket == ticket)
			r = 0;
		draft_result_free(result);
		if (r < 0)
			return r;
	}
	return 0;
}

static int use_service(struct draft *draft)
{
	static const char handle[64];
	struct draft_event *event;
	char *text;
	int r;

	doing = "service";
	r = draft_ping(draft);
	if (r == 0)
		r = draft_stats(draft, &text);
	if (r == 0) {
		free(text);
		r = draft_metrics(draft, &text);
	}
	if (r == 0) {
		free(text);
		r = draft_event_import(draft, handle, sizeof(handle), NULL, &event);
		if (r == -DRAFT_E_BAD_REQUEST) { /* the CPU backend knows none */
			doing = "reload";
			r = draft_reload(draft);
		}
	}
	return r;
}

static int use(struct draft *draft)
{
	struct draft_request request = request_from(base, NULL);
	int r;

	request.logits.data = logits;
	r = draft_draft(draft, &request, expected, NULL);
	if (r == 0)
		r = use_regions(draft);
	if (r == 0)
		r = use_tickets(draft);
	if (r == 0)
		r = use_service(draft);
	if (r == 0) {
		doing = "reconnect";
		r = draft_reconnect(draft);
	}
	if (r == 0)
		r = use_regions(draft);
	if (r == 0) {
		doing = "reconnect within";
		r = draft_reconnect_within(draft, WAIT_US);
	}
	if (r == 0)
		r = use_tickets(draft);
	return r;
}

int main(int argc, char **argv)
{
	struct draft_options options = {
		.size = sizeof(options), .client_name = "session", .timeout_us = WAIT_US};
	struct draft *draft;
	char error[256];
	int r;

	if (argc != 2)
		return 2;
	options.socket_path = argv[1];
	r = draft_connect(&options, &draft, error, sizeof(error));
	if (r < 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	if (draft_model(draft)->vocab > VOCAB_MAX)
		abort();
	for (unsigned i = 0; i < VALUES_MAX; i++) /* BF16 of -4 to 4 */
		base[i] = (uint16_t)((rand() & 1) << 15 | (0x3f00 + rand() % 0x180));
	r = use(draft);
	if (r < 0)
		fprintf(stderr, "%s (%s): %s\n", draft_error_name(r), doing, draft_error(draft));
	draft_close(draft);
	return r < 0;
}
