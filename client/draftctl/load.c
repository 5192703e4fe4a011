#include "load_private.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Different base buffers, so that no cache of a request's makes the load look lighter than it is:
 * as many as fit the budget, within these bounds. */
#define BLOCKS_MIN        2
#define BLOCKS_MAX        8
#define BLOCKS_BYTES      (64u << 20)
#define WORKER_STREAM     100 /* of the seed; the next workers' follow */
#define BASE_SCALE        4.0f
#define INFLIGHT_CLOSED   8  /* if the options leave it open */
#define INFLIGHT_OPEN     64 /* the same, a connection */
#define INLINE_FRAMES     4  /* of data that draftd holds for a connection, each max_frame_bytes */
#define INLINE_FRAMES_ALL 12 /* the same of all of a user, if it has the default share */
#define FRAME_OTHER_BYTES 1024 /* of a draft request's frame beside its columns and base */
#define FRAME_ROW_BYTES   40   /* of its columns, for a row, at most */

static int lane_init(struct lane *lane, uint32_t rows)
{
	lane->anchors = malloc(rows * sizeof(*lane->anchors));
	lane->positions = malloc(rows * sizeof(*lane->positions));
	lane->seeds = malloc(rows * sizeof(*lane->seeds));
	return lane->anchors != NULL && lane->positions != NULL && lane->seeds != NULL ? 0
										       : -ENOMEM;
}

static void line_done(struct line *line)
{
	for (uint32_t i = 0; line->lanes != NULL && i < line->lane_count; i++) {
		free(line->lanes[i].anchors);
		free(line->lanes[i].positions);
		free(line->lanes[i].seeds);
		if (line->owns_logits)
			free(line->lanes[i].logits);
	}
	free(line->lanes);
	shared_done(&line->shared);
	draft_close(line->draft);
}

static int line_open_region(const struct load *load, struct line *line, struct error_text *error)
{
	uint64_t base_bytes = load->block_bytes * load->block_count;
	const bool host = load->options.base == LOAD_BASE_HOST;
	uint64_t bytes = base_bytes;
	struct error_text why;
	int r;

	if (load->options.logits)
		bytes += load->block_bytes * line->lane_count;
	r = shared_open(line->draft, bytes, host ? DRAFT_HOST : DRAFT_DEVICE, &line->shared, &why);
	if (r == 0)
		r = shared_write(&line->shared, 0, load->blocks, base_bytes, &why);
	if (r < 0)
		return error_text_set(
			error, -r, "a region of %s: %s", text_bytes(bytes).at, why.text);
	for (uint32_t i = 0; load->options.logits && i < line->lane_count; i++) {
		struct lane *lane = &line->lanes[i];

		lane->logits_offset = base_bytes + i * load->block_bytes;
		if (host)
			lane->logits = (uint16_t *)(void *)((char *)draft_region_data(
								    line->shared.region) +
							    lane->logits_offset);
	}
	return 0;
}

static int line_open(const struct load *load, struct line *line, const struct common *common,
	struct error_text *error)
{
	const struct draft_model *model;
	int r;

	line->owns_logits = load->options.logits && load->options.base != LOAD_BASE_HOST;
	line->lanes = calloc(line->lane_count, sizeof(*line->lanes));
	if (line->lanes == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < line->lane_count; i++) {
		if (lane_init(&line->lanes[i], load->rows_max) < 0)
			return error_text_set(error, ENOMEM, "out of memory");
		if (!line->owns_logits)
			continue;
		line->lanes[i].logits = malloc(load->block_bytes);
		if (line->lanes[i].logits == NULL)
			return error_text_set(error, ENOMEM, "out of memory");
	}
	if (line->draft == NULL) {
		r = command_connect_spinning(common, load->options.spin_us, &line->draft, error);
		if (r < 0)
			return r;
	}
	model = draft_model(line->draft);
	if (line->lane_count > model->max_inflight)
		return error_text_set(error, EINVAL,
			"%u requests in flight on a connection; this draftd takes %u: "
			"more --connections or less --concurrency",
			line->lane_count, model->max_inflight);
	if (load->options.base != LOAD_BASE_INLINE)
		return line_open_region(load, line, error);
	return 0;
}

static int draw_blocks(struct load *load, struct error_text *error)
{
	struct random random = random_start((uint64_t)load->options.seed, 1);
	const struct mix *mix = &load->options.mix;
	uint64_t fit = BLOCKS_BYTES / load->block_bytes;

	load->block_count = fit < BLOCKS_MIN   ? BLOCKS_MIN
			    : fit > BLOCKS_MAX ? BLOCKS_MAX
					       : (unsigned)fit;
	load->blocks = malloc(load->block_bytes * load->block_count);
	load->temperatures = malloc(mix->count * load->rows_max * sizeof(*load->temperatures));
	if (load->blocks == NULL || load->temperatures == NULL)
		return error_text_set(error, ENOMEM, "no memory for %u buffer%s of %s",
			load->block_count, sentence_s(load->block_count),
			text_bytes(load->block_bytes).at);
	random_bf16_normal(
		&random, BASE_SCALE, load->blocks, load->block_bytes / 2 * load->block_count);
	for (unsigned k = 0; k < mix->count; k++)
		for (uint32_t r = 0; r < load->rows_max; r++)
			load->temperatures[k * load->rows_max + r] =
				(float)mix->kinds[k].temperature;
	return 0;
}

static int check_kind(const struct load *load, const struct mix_kind *kind,
	const struct draft_model *model, struct error_text *error)
{
	uint64_t bytes = (uint64_t)kind->rows * kind->steps * model->vocab * 2;
	uint64_t frame = bytes + FRAME_OTHER_BYTES + (uint64_t)kind->rows * FRAME_ROW_BYTES;
	int r;

	r = command_check_shape(model, kind->rows, kind->steps, error);
	if (r < 0)
		return r;
	if (load->options.base == LOAD_BASE_INLINE && frame > model->max_frame_bytes)
		return error_text_set(error, EINVAL,
			"the base logits of a request are %s, a frame is at most %s: "
			"--base host or device, or fewer --rows",
			text_bytes(bytes).at, text_bytes(model->max_frame_bytes).at);
	return 0;
}

static int check_limits(
	const struct load *load, const struct draft_model *model, struct error_text *error)
{
	const struct mix *mix = &load->options.mix;
	struct error_text why;

	for (unsigned k = 0; k < mix->count; k++) {
		int r = check_kind(load, &mix->kinds[k], model, &why);

		if (r < 0 && mix->kinds[k].line > 0)
			return error_text_set(
				error, -r, "line %u of --mix: %s", mix->kinds[k].line, why.text);
		if (r < 0)
			return error_text_set(error, -r, "%s", why.text);
	}
	return 0;
}

/* The i-th part of `count` equal ones of a whole, where the first ones take what is left over. */
static uint32_t part(uint32_t whole, uint32_t count, uint32_t i)
{
	return whole / count + (i < whole % count ? 1 : 0);
}

static void share_out(struct load *load)
{
	uint32_t threads = load->options.threads, first = 0;

	for (uint32_t i = 0; i < threads; i++) {
		struct worker *worker = &load->workers[i];

		worker->load = load;
		worker->index = i;
		worker->result = &load->results[i];
		worker->lines = &load->lines[first];
		worker->polls = &load->polls[first];
		worker->line_count = part(load->options.connections, threads, i);
		worker->random = random_start((uint64_t)load->options.seed, WORKER_STREAM + i);
		first += worker->line_count;
	}
}

static int allocate(struct load *load, struct error_text *error)
{
	uint32_t connections = load->options.connections, threads = load->options.threads;

	load->lines = calloc(connections, sizeof(*load->lines));
	load->polls = calloc(connections, sizeof(*load->polls));
	load->workers = calloc(threads, sizeof(*load->workers));
	load->results = calloc(threads, sizeof(*load->results));
	if (load->lines == NULL || load->polls == NULL || load->workers == NULL ||
		load->results == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	share_out(load);
	return 0;
}

/* Requests for whose data draftd has room on a connection: inline in frames and replies, else
 * their logits behind the base in a region. At least one, which is then told what is too little. */
static uint64_t connection_room(const struct load *load, const struct draft_model *model)
{
	const struct load_options *o = &load->options;
	const uint64_t base_bytes = load->block_bytes * load->block_count;
	const uint64_t frame_bytes = model->max_frame_bytes;
	uint64_t room = UINT64_MAX;

	if (o->base == LOAD_BASE_INLINE) {
		room = INLINE_FRAMES_ALL * frame_bytes / o->connections;
		if (room > INLINE_FRAMES * frame_bytes)
			room = INLINE_FRAMES * frame_bytes;
		room /= load->block_bytes << o->logits;
	} else if (o->logits) {
		room = model->max_region_bytes > base_bytes
			       ? (model->max_region_bytes - base_bytes) / load->block_bytes
			       : 0;
	}
	return room > 0 ? room : 1;
}

/* How many requests are in flight where the user did not say: no more than draftd takes. */
static uint32_t default_concurrency(const struct load *load, const struct draft_model *model)
{
	const uint64_t connections = load->options.connections;
	const uint64_t room = connection_room(load, model);
	uint64_t most = connections * (room < model->max_inflight ? room : model->max_inflight);
	uint64_t wanted = connections * INFLIGHT_OPEN;

	if (!load_is_open(&load->options))
		wanted = connections > INFLIGHT_CLOSED ? connections : INFLIGHT_CLOSED;
	if (most > LOAD_INFLIGHT_MAX)
		most = LOAD_INFLIGHT_MAX;
	return (uint32_t)(wanted < most ? wanted : most);
}

int load_open(struct load_options *options, const struct common *common, struct load **ret,
	struct error_text *error)
{
	uint32_t connections = options->connections;
	const struct draft_model *model;
	struct load *load;
	int r;

	load = calloc(1, sizeof(*load));
	if (load == NULL)
		return error_text_set(error, ENOMEM, "out of memory");
	load->options = *options;
	load->timeout_ns = (int64_t)(common->timeout_s * 1e9);
	load->rows_max = mix_rows_max(&options->mix);
	r = allocate(load, error);
	if (r < 0)
		goto out;
	/* The first connection tells the vocabulary, and with it how large everything is. */
	r = command_connect_spinning(common, options->spin_us, &load->lines[0].draft, error);
	if (r < 0)
		goto out;
	model = draft_model(load->lines[0].draft);
	load->block_bytes = mix_cells_max(&options->mix) * model->vocab * 2;
	r = check_limits(load, model, error);
	if (r == 0)
		r = draw_blocks(load, error);
	if (r == 0 && options->concurrency == 0)
		options->concurrency = default_concurrency(load, model);
	load->options.concurrency = options->concurrency;
	for (uint32_t i = 0; r == 0 && i < connections; i++) {
		load->lines[i].lane_count = part(options->concurrency, connections, i);
		r = line_open(load, &load->lines[i], common, error);
	}
out:
	if (r < 0)
		load_close(load);
	else
		*ret = load;
	return r;
}

void load_close(struct load *load)
{
	if (load == NULL)
		return;
	for (uint32_t i = 0; load->lines != NULL && i < load->options.connections; i++)
		line_done(&load->lines[i]);
	free(load->lines);
	free(load->polls);
	free(load->workers);
	free(load->results);
	free(load->blocks);
	free(load->temperatures);
	free(load);
}

void load_set_rate(struct load *load, double rate)
{
	load->options.rate = rate;
}

bool load_is_open(const struct load_options *options)
{
	return options->rate > 0 || options->schedule.count > 0;
}

const struct draft *load_draft(const struct load *load)
{
	return load->lines[0].draft;
}
