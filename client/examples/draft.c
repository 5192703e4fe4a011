/* Draws three blocks of draft tokens from a draftd on this host, over random base logits in shared
 * memory. Build: cc draft.c $(pkg-config --cflags --libs libdraft). Usage: draft [SOCKET] */
#include <draft.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 3 };

int main(int argc, char **argv)
{
	struct draft_options options = {.size = sizeof(options), .client_name = "example"};
	const uint32_t anchors[ROWS] = {1, 2, 3};     /* the last token that each sequence has */
	const int64_t positions[ROWS] = {10, 20, 30}; /* of the first token to draw */
	const int64_t seeds[ROWS] = {7, 8, 9};
	const float temperatures[ROWS] = {0.0f, 0.7f, 1.0f}; /* 0 is greedy */
	const struct draft_model *model;
	struct draft_region *region;
	struct draft *draft;
	uint32_t *tokens = NULL;
	char error[256];

	if (argc > 1)
		options.socket_path = argv[1];
	if (draft_connect(&options, &draft, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		return 1;
	}
	model = draft_model(draft);

	/* In a serving engine the drafter's forward pass writes base logits [rows, K, vocab] here.
	 */
	size_t count = (size_t)ROWS * model->max_steps * model->vocab;
	if (draft_region_open(draft, count * sizeof(uint16_t), DRAFT_HOST, &region) < 0)
		goto fail;
	uint16_t *logits = draft_region_data(region);
	for (size_t i = 0; i < count; i++) /* BF16 of -4 to 4 */
		logits[i] = (uint16_t)((rand() & 1) << 15 | (0x3f00 + rand() % 0x180));

	struct draft_request request = {
		.size = sizeof(request),
		.rows = ROWS,
		.steps = model->max_steps,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
		.base = {.region = region},
	};
	tokens = calloc((size_t)ROWS * model->max_steps, sizeof(*tokens));
	if (!tokens || draft_draft(draft, &request, tokens, NULL) < 0)
		goto fail;
	for (uint32_t row = 0; row < ROWS; row++) {
		printf("after %u:", anchors[row]);
		for (uint32_t step = 0; step < model->max_steps; step++)
			printf(" %u", tokens[row * model->max_steps + step]);
		printf("\n");
	}
	free(tokens);
	draft_close(draft); /* the region goes with it */
	return 0;
fail:
	fprintf(stderr, "%s\n", draft_error(draft));
	free(tokens);
	draft_close(draft);
	return 1;
}
