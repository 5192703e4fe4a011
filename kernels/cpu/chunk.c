/* Happy path: screen every tile for every row, mix the sums into the base logits, redo the few ids
 * where the screen can't tell the BF16 result, turn x into logits, store them, bound the values,
 * and evaluate those that can still win. */
#include "kernels/cpu/chunk.h"

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/bias.h"
#include "kernels/cpu/noise.h"
#include "kernels/reference.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_IDS (CHUNK_TILES_MAX * TILE_IDS)

int scratch_init(struct scratch *scratch, const struct tables *tables, uint32_t max_rows)
{
	size_t ranks = (size_t)tables->blocks * BIAS_BLOCK;

	*scratch = (struct scratch){
		.sums = aligned_alloc(64, CHUNK_ROWS * sizeof(scratch->sums[0])),
		.fixed = malloc(CHUNK_ROWS * sizeof(scratch->fixed[0])),
		.packed = aligned_alloc(64, ranks / 2 * TILE_IDS * sizeof(uint32_t)),
		.column = malloc(ranks * sizeof(uint16_t)),
		.winners = calloc(max_rows, sizeof(struct winner)),
	};
	if (!scratch->sums || !scratch->fixed || !scratch->packed || !scratch->column ||
		!scratch->winners) {
		scratch_done(scratch);
		return -ENOMEM;
	}
	memset(scratch->packed, 0, ranks / 2 * TILE_IDS * sizeof(uint32_t));
	return 0;
}

void scratch_done(struct scratch *scratch)
{
	free(scratch->winners);
	free(scratch->column);
	free(scratch->packed);
	free(scratch->fixed);
	free(scratch->sums);
	*scratch = (struct scratch){0};
}

void winner_merge(struct winner *winner, struct winner other)
{
	if (other.id != UINT32_MAX &&
		(winner->id == UINT32_MAX ||
			reference_beats(other.value, other.id, winner->value, winner->id)))
		*winner = other;
}

/* ---- the bias ---- */

/* A row whose operands the screen can't take, or whose bias is wanted itself, gets an endless
 * interval: every id is doubtful. */
static bool screened(const struct model *model, const struct row_step *row, uint32_t tile)
{
	return model->path->screen && !row->trace_bias &&
	       range_fits(model->tables.bounds[tile].range, row->range);
}

static void screen_tile(const struct model *model, const struct row_step *rows, uint32_t row_count,
	uint32_t tile, uint32_t place, struct scratch *scratch)
{
	const struct tile_bounds *bounds = &model->tables.bounds[tile];
	const struct embedding *embeddings[CHUNK_ROWS];
	struct tile_sums *sums[CHUNK_ROWS];
	unsigned count = 0;

	for (uint32_t r = 0; r < row_count; r++) {
		struct tile_sums *to = &scratch->sums[r][place];

		if (screened(model, &rows[r], tile)) {
			embeddings[count] = &rows[r].embedding;
			sums[count++] = to;
			scratch->fixed[r][place] =
				(float)((double)bounds->norm * rows[r].slack_norm +
					(double)bounds->largest * rows[r].slack_peak);
		} else {
			memset(to, 0, sizeof(*to));
			scratch->fixed[r][place] = INFINITY;
		}
	}
	if (count > 0)
		model->path->screen(tables_tile(&model->tables, tile), model->tables.blocks, count,
			embeddings, sums);
}

/* An id to redo: its place in the chunk. */
struct redo {
	const struct model *model;
	const struct row_step *row;
	uint32_t first_tile;
	const uint16_t *base;
	uint16_t *x;
};

static void settle(const struct redo *redo, uint32_t place, float sum)
{
	uint16_t bias = bf16_round(sum);

	redo->x[place] = reference_mix(redo->base[place], bias);
	if (redo->row->trace_bias)
		redo->row->trace_bias[redo->first_tile * TILE_IDS + place] = bias;
}

static float sum_by_reference(
	const struct redo *redo, const uint32_t *tile, unsigned lane, struct scratch *scratch)
{
	uint32_t blocks = redo->model->tables.blocks;

	tile_column(tile, blocks, lane, scratch->column);
	return bias_sum(scratch->column, redo->row->embedding.bits, blocks * BIAS_BLOCK);
}

/* The exact rule over up to 16 ids that were gathered into one tile. */
static void redo_packed(
	const struct redo *redo, const uint32_t *places, uint32_t count, struct scratch *scratch)
{
	const struct model *model = redo->model;
	float sums[TILE_IDS];

	model->path->exact(scratch->packed, model->tables.blocks, &redo->row->embedding, sums);
	for (uint32_t i = 0; i < count; i++)
		settle(redo, places[i], sums[i]);
}

/* Most are. */
static bool four_settled(const uint16_t *doubt)
{
	uint64_t four;

	memcpy(&four, doubt, sizeof(four));
	return four == 0;
}

static void redo_doubtful(
	const struct redo *redo, const uint16_t *doubt, uint32_t count, struct scratch *scratch)
{
	const struct tables *tables = &redo->model->tables;
	uint32_t places[TILE_IDS], packed = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t tile = redo->first_tile + i / TILE_IDS;
		const uint32_t *words = tables_tile(tables, tile) + i % TILE_IDS;

		if (i % 4 == 0 && four_settled(doubt + i))
			i += 3;
		if (!doubt[i])
			continue;
		if (!redo->model->path->exact ||
			!range_fits(tables->bounds[tile].range, redo->row->range)) {
			settle(redo, i,
				sum_by_reference(
					redo, words - i % TILE_IDS, i % TILE_IDS, scratch));
			continue;
		}
		for (uint32_t pair = 0; pair < tables->blocks * 8; pair++)
			scratch->packed[pair * TILE_IDS + packed] = words[pair * TILE_IDS];
		places[packed++] = i;
		if (packed == TILE_IDS) {
			redo_packed(redo, places, packed, scratch);
			packed = 0;
		}
	}
	if (packed > 0)
		redo_packed(redo, places, packed, scratch);
}

/* ---- logits, values, the winner ---- */

static void make_logits(const struct model *model, uint16_t *x, uint32_t count)
{
	uint16_t logits[CHUNK_IDS];

	if (model->logit_of) {
		for (uint32_t i = 0; i < count; i++)
			x[i] = model->logit_of[x[i]];
	} else if (model->multiplier != 1.0f) {
		model->path->multiply(x, count, model->multiplier, logits);
		memcpy(x, logits, count * sizeof(*x));
	}
}

static float value_of(const struct tempering *tempering, uint16_t logit, uint32_t place)
{
	float value = bf16_widen(logit);

	if (!tempering->sampled)
		return value;
	return sfu_divide(value, tempering->divisor) -
	       noise_gumbel(noise_hash(tempering->prefix, tempering->first_id + place));
}

/* Ids rise within a thread, so a value that is only as large as the best one loses, and so does
 * every one after a NaN. A bound costs a hash; the logarithms are for values whose bound lies above
 * the best so far. */
static void find_winner(const struct model *model, const struct tempering *tempering,
	const uint16_t *logits, uint32_t count, struct winner *winner)
{
	float bounds[CHUNK_IDS];
	bool none = winner->id == UINT32_MAX;

	if (!none && isnan(winner->value))
		return;
	if (!model->path->bound(logits, count, tempering, winner->value, bounds) && !none)
		return;
	for (uint32_t i = 0; i < count; i++) {
		float value;

		if (!none && bounds[i] <= winner->value)
			continue;
		value = value_of(tempering, logits[i], i);
		if (none || !(value <= winner->value)) {
			*winner = (struct winner){value, tempering->first_id + i};
			none = false;
			if (isnan(value))
				return;
		}
	}
}

static void finish_row(const struct model *model, const struct row_step *row, uint32_t first_tile,
	uint32_t tiles, uint32_t slot, struct winner *winner, struct scratch *scratch)
{
	uint16_t base[CHUNK_IDS], x[CHUNK_IDS], doubt[CHUNK_IDS];
	struct tempering tempering = row->tempering;
	uint32_t first_id = first_tile * TILE_IDS;
	uint32_t count = model->tables.vocab - first_id < tiles * TILE_IDS
				 ? model->tables.vocab - first_id
				 : tiles * TILE_IDS;
	struct redo redo = {model, row, first_tile, base, x};

	tempering.first_id = first_id;
	memcpy(base, row->base + (size_t)first_id * 2, count * sizeof(*base));
	memset(base + count, 0, (tiles * TILE_IDS - count) * sizeof(*base));
	if (row->trace_bias)
		memset(doubt, 1, sizeof(doubt));
	if (row->trace_bias ||
		model->path->mix(scratch->sums[slot], scratch->fixed[slot], tiles, base, x, doubt))
		redo_doubtful(&redo, doubt, count, scratch);
	make_logits(model, x, count);
	if (row->logits)
		memcpy(row->logits + (size_t)first_id * 2, x, count * sizeof(*x));
	if (row->trace_values)
		for (uint32_t i = 0; i < count; i++)
			row->trace_values[first_id + i] = value_of(&tempering, x[i], i);
	find_winner(model, &tempering, x, count, winner);
}

void chunk_run(const struct model *model, const struct row_step *rows, uint32_t row_count,
	uint32_t first_tile, uint32_t tiles, struct scratch *scratch)
{
	for (uint32_t first = 0; first < row_count; first += CHUNK_ROWS) {
		uint32_t count = row_count - first < CHUNK_ROWS ? row_count - first : CHUNK_ROWS;

		for (uint32_t t = 0; t < tiles; t++)
			screen_tile(model, rows + first, count, first_tile + t, t, scratch);
		for (uint32_t r = 0; r < count; r++)
			finish_row(model, &rows[first + r], first_tile, tiles, r,
				&scratch->winners[first + r], scratch);
	}
}
