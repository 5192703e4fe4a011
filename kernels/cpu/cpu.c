/* The CPU backend of markov.h. A launch only takes note of the batch; the thread that waits
 * computes it, with the pool's help. Happy path of a step: prepare the rows (embeddings, noise
 * prefixes), let all threads take chunks until none is left, merge their winners. Nothing can fail
 * between open and close. */
#include "kernels/backend.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/bias.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/noise.h"
#include "kernels/cpu/pool.h"
#include "kernels/reference.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Products in a step below which waking another thread costs more than it brings. */
#define ALONE_PRODUCTS_MAX (UINT64_C(2) << 20)

struct cpu {
	struct model model;
	struct pool *pool;
	struct scratch *scratches; /* one a thread */
	struct row_step *rows;     /* [max_rows] */
	struct embedding memory;   /* of all rows */
	uint32_t chunk_tiles, chunk_count;

	const struct markov_batch *batch;
	atomic_uint next_chunk;
};

/* ---- a step ---- */

static void load_embedding(const struct tables *tables, uint32_t token, struct row_step *row)
{
	uint32_t known = token < tables->target_vocab ? token : tables->target_vocab - 1;
	const uint16_t *values = tables->w1 + (size_t)known * tables->rank;
	struct embedding *embedding = &row->embedding;
	double squares = 0, peaks = 0, peak = 0;

	row->range = RANGE_NONE;
	for (uint32_t k = 0; k < tables->rank; k++) {
		float value = bf16_widen(values[k]);
		double magnitude = (double)fabsf(value);

		embedding->values[k] = value;
		embedding->powers[k] = float_of(float_bits(value) & 0x7f800000u);
		embedding->bits[k] = values[k];
		embedding->pairs[k / 2] =
			(k % 2 ? embedding->pairs[k / 2] : 0) | (uint32_t)values[k] << (k % 2 * 16);
		range_add(&row->range, values[k]);
		squares += magnitude * magnitude;
		peak = magnitude > peak ? magnitude : peak;
		if (k % BIAS_BLOCK == BIAS_BLOCK - 1 || k == tables->rank - 1) {
			peaks += peak;
			peak = 0;
		}
	}
	/* In double: a factor alone may be so small that FP32 would round the bound down. */
	row->slack_norm = sqrt(squares) * (double)SLACK_NORM;
	row->slack_peak = peaks * (double)SLACK_PEAK;
}

static void prepare_row(struct cpu *cpu, uint32_t r, uint32_t step)
{
	const struct markov_batch *batch = cpu->batch;
	struct row_step *row = &cpu->rows[r];
	size_t cell = (size_t)r * batch->steps + step;
	size_t trace = cell * cpu->model.tables.vocab;
	bool padding = batch->slots[r] < 0;
	float temperature = padding ? 0.0f : batch->temperatures[r];

	load_embedding(
		&cpu->model.tables, step == 0 ? batch->anchors[r] : batch->tokens[cell - 1], row);
	row->tempering = (struct tempering){
		.sampled = temperature != 0.0f,
		.divisor = sfu_divisor(temperature),
		.prefix = noise_prefix(padding ? 0 : batch->seeds[r], batch->positions[r], step),
	};
	row->base = (const unsigned char *)batch->base[r] + step * batch->base_strides[r];
	row->logits = padding || !batch->logits[r]
			      ? NULL
			      : (unsigned char *)batch->logits[r] + step * batch->logits_strides[r];
	row->trace_bias = batch->trace_bias ? batch->trace_bias + trace : NULL;
	row->trace_values = batch->trace_values ? batch->trace_values + trace : NULL;
}

static void take_chunks(void *user, unsigned lane)
{
	struct cpu *cpu = user;
	struct scratch *scratch = &cpu->scratches[lane];
	uint32_t chunk;

	while ((chunk = atomic_fetch_add_explicit(&cpu->next_chunk, 1, memory_order_relaxed)) <
		cpu->chunk_count) {
		uint32_t first = chunk * cpu->chunk_tiles;
		uint32_t left = cpu->model.tables.tiles - first;

		chunk_run(&cpu->model, cpu->rows, cpu->batch->rows, first,
			left < cpu->chunk_tiles ? left : cpu->chunk_tiles, scratch);
	}
}

static void run_step(struct cpu *cpu, uint32_t step)
{
	const struct markov_batch *batch = cpu->batch;
	const struct tables *tables = &cpu->model.tables;
	uint64_t products =
		(uint64_t)batch->rows * tables->tiles * tables->blocks * (TILE_IDS * BIAS_BLOCK);
	unsigned threads = pool_threads(cpu->pool);

	for (uint32_t r = 0; r < batch->rows; r++) {
		prepare_row(cpu, r, step);
		for (unsigned lane = 0; lane < threads; lane++)
			cpu->scratches[lane].winners[r] = (struct winner){-INFINITY, UINT32_MAX};
	}
	atomic_store_explicit(&cpu->next_chunk, 0, memory_order_relaxed);
	if (products <= ALONE_PRODUCTS_MAX)
		take_chunks(cpu, 0);
	else
		pool_run(cpu->pool, take_chunks, cpu);
	for (uint32_t r = 0; r < batch->rows; r++) {
		struct winner winner = {-INFINITY, UINT32_MAX};

		for (unsigned lane = 0; lane < threads; lane++)
			winner_merge(&winner, cpu->scratches[lane].winners[r]);
		batch->tokens[(size_t)r * batch->steps + step] = winner.id;
		if (isnan(winner.value))
			batch->flags[r] |= MARKOV_FLAG_NAN;
	}
}

static int cpu_launch(void *state, const struct markov_batch *batch, struct error_text *error)
{
	struct cpu *cpu = state;

	(void)error;
	cpu->batch = batch;
	return 0;
}

static int cpu_wait(void *state, struct error_text *error)
{
	struct cpu *cpu = state;

	(void)error;
	memset(cpu->batch->flags, 0, cpu->batch->rows);
	for (uint32_t step = 0; step < cpu->batch->steps; step++)
		run_step(cpu, step);
	return 0;
}

/* ---- open and close ---- */

static void cpu_close(void *state)
{
	struct cpu *cpu = state;

	if (!cpu)
		return;
	for (unsigned lane = 0; cpu->scratches && lane < pool_threads(cpu->pool); lane++)
		scratch_done(&cpu->scratches[lane]);
	free(cpu->scratches);
	pool_stop(cpu->pool);
	free(cpu->memory.values);
	free(cpu->memory.powers);
	free(cpu->memory.bits);
	free(cpu->memory.pairs);
	free(cpu->rows);
	free(cpu->model.logit_of);
	tables_done(&cpu->model.tables);
	free(cpu);
}

/* Everything past x is a function of x, and x has 16 bits. */
static uint16_t *tabulate_logits(float multiplier, float soft_cap)
{
	uint16_t *logit_of = malloc(65536 * sizeof(*logit_of));

	for (uint32_t x = 0; logit_of && x < 65536; x++)
		logit_of[x] = reference_logit((uint16_t)x, multiplier, soft_cap);
	return logit_of;
}

static int allocate_rows(struct cpu *cpu, uint32_t max_rows)
{
	size_t ranks = (size_t)cpu->model.tables.blocks * BIAS_BLOCK;
	unsigned threads = pool_threads(cpu->pool);

	cpu->rows = calloc(max_rows, sizeof(*cpu->rows));
	cpu->memory.values = calloc(max_rows, ranks * sizeof(float));
	cpu->memory.powers = calloc(max_rows, ranks * sizeof(float));
	cpu->memory.bits = calloc(max_rows, ranks * sizeof(uint16_t));
	cpu->memory.pairs = calloc(max_rows, ranks / 2 * sizeof(uint32_t));
	cpu->scratches = calloc(threads, sizeof(*cpu->scratches));
	if (!cpu->rows || !cpu->memory.values || !cpu->memory.powers || !cpu->memory.bits ||
		!cpu->memory.pairs || !cpu->scratches)
		return -ENOMEM;
	for (uint32_t r = 0; r < max_rows; r++) {
		cpu->rows[r].embedding = (struct embedding){
			.values = cpu->memory.values + r * ranks,
			.powers = cpu->memory.powers + r * ranks,
			.bits = cpu->memory.bits + r * ranks,
			.pairs = cpu->memory.pairs + r * ranks / 2,
		};
	}
	for (unsigned lane = 0; lane < threads; lane++)
		if (scratch_init(&cpu->scratches[lane], &cpu->model.tables, max_rows) < 0)
			return -ENOMEM;
	return 0;
}

/* The processor's name is for people; without /proc it is just "processor". */
static void describe_processor(struct markov_device *device)
{
	FILE *info = fopen("/proc/cpuinfo", "re");
	char line[256];

	strcpy(device->uuid, "CPU");
	strcpy(device->name, "processor");
	device->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	while (info && fgets(line, sizeof(line), info)) {
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
			snprintf(device->name, sizeof(device->name), "%.*s",
				(int)strcspn(strchr(line, ':') + 2, "\n"), strchr(line, ':') + 2);
			break;
		}
	}
	if (info)
		fclose(info);
}

/* At least one, even when more heads than cores share them. */
static unsigned choose_threads(const struct markov_options *options)
{
	unsigned shares = options->shares ? options->shares : 1;
	unsigned usable = pool_usable_threads();

	if (options->threads)
		return options->threads;
	return usable > shares ? usable / shares : 1;
}

int cpu_open(const struct markov_options *options, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_facts *facts, void **ret_state, struct error_text *error)
{
	struct cpu *cpu = calloc(1, sizeof(*cpu));
	struct tables *tables;
	int result;

	if (!cpu)
		return error_text_set(error, ENOMEM, "no memory for a head");
	tables = &cpu->model.tables;
	result = path_choose(&cpu->model.path, error);
	if (result == 0)
		result = pool_start(choose_threads(options), &cpu->pool, error);
	if (result == 0)
		result = tables_init(tables, checkpoint, progress, user, error);
	if (result < 0)
		goto out;
	cpu->chunk_tiles = CHUNK_BYTES_MAX / (tables->blocks * BIAS_BLOCK * TILE_IDS * 2);
	if (cpu->chunk_tiles < 1)
		cpu->chunk_tiles = 1;
	if (cpu->chunk_tiles > CHUNK_TILES_MAX)
		cpu->chunk_tiles = CHUNK_TILES_MAX;
	cpu->chunk_count = (tables->tiles - 1) / cpu->chunk_tiles + 1;
	cpu->model.multiplier = checkpoint->multiplier;
	if (checkpoint->soft_cap != 0.0f) {
		cpu->model.logit_of = tabulate_logits(checkpoint->multiplier, checkpoint->soft_cap);
		if (!cpu->model.logit_of)
			result = -ENOMEM;
	}
	if (result == 0)
		result = allocate_rows(cpu, options->max_rows);
	if (result < 0)
		error_text_set(error, ENOMEM,
			"no memory for %u row%s on %u thread%s: lower max_rows or threads",
			options->max_rows, sentence_s(options->max_rows), pool_threads(cpu->pool),
			sentence_s(pool_threads(cpu->pool)));
out:
	if (result < 0) {
		cpu_close(cpu);
		return result;
	}
	facts->variant = cpu->model.path->name;
	facts->bias_order = "mma16";
	facts->tensor_parallel = 1;
	facts->device_count = 1;
	facts->table_bytes = tables->byte_count;
	describe_processor(&facts->devices[0]);
	*ret_state = cpu;
	return 0;
}

const struct backend cpu_backend = {.launch = cpu_launch, .wait = cpu_wait, .close = cpu_close};
