#include "client.h"

#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t anchors[CLIENT_ROWS] = {1, 2, 3, 5};
static const int64_t positions[CLIENT_ROWS] = {10, 20, 30, 40}, seeds[CLIENT_ROWS] = {1, 2, 3, 4};
static const float temperatures[CLIENT_ROWS] = {0, 1, 1, 0.5f};

void client_make_model(const char *programs, const char *path)
{
	char program[4096];
	snprintf(program, sizeof(program), "%s/draftctl", programs);
	if (run_program((const char *const[]){program, "model", "make", "--force", "--vocab",
		    CLIENT_VOCAB_TEXT, "--rank", "256", "--seed", "1", path, NULL}))
		die("no model %s", path);
}

struct draft_request client_request(const struct client *c, struct draft_region *region)
{
	return (struct draft_request){
		.size = sizeof(struct draft_request),
		.rows = CLIENT_ROWS,
		.steps = CLIENT_STEPS,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
		.base = {.region = region},
		.logits = {.region = region, .offset = c->bytes / 2},
	};
}

void client_open(struct client *c, const struct service *service)
{
	uint16_t *zeros = room((size_t)CLIENT_ROWS * CLIENT_STEPS * CLIENT_VOCAB, sizeof(*zeros));
	c->draft = service_connect(service);
	c->bytes = (uint64_t)CLIENT_ROWS * CLIENT_STEPS * CLIENT_VOCAB * 2 * 2;
	struct draft_request request = client_request(c, NULL);
	request.base = (struct draft_place){.data = zeros};
	request.logits = (struct draft_place){0};
	if (draft_draft(c->draft, &request, c->expected, NULL))
		die("%s", draft_error(c->draft));
	free(zeros);
}

bool client_drafts_well(struct client *c, struct draft_region *region)
{
	const struct draft_request request = client_request(c, region);
	uint32_t tokens[CLIENT_ROWS * CLIENT_STEPS] = {0};
	return draft_draft(c->draft, &request, tokens, NULL) == 0 &&
	       !memcmp(tokens, c->expected, sizeof(tokens));
}
