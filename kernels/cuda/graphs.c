#include "graphs.h"

#include "capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Launches of the block kernel a pass: one, or one a step and one behind the last. */
static uint32_t launches_a_pass(enum markov_cuda_form form, uint32_t steps)
{
	return form == MARKOV_CUDA_BLOCK ? 1 : steps + 1;
}

/* Each launch of the block form needs all multiprocessors, so it starts when the one before it has
 * ended; those of the step form overlap, and wait themselves. */
static int add_launch(struct graph *graph, uint32_t index, enum markov_cuda_form form,
	const struct cudaKernelNodeParams *node, struct error_text *error)
{
	const cudaLaunchAttributeValue cooperative = {.cooperative = form == MARKOV_CUDA_BLOCK};
	const cudaGraphEdgeData overlap = {
		.from_port = cudaGraphKernelNodePortProgrammatic,
		.type = cudaGraphDependencyTypeProgrammatic,
	};
	cudaGraphNode_t *at = &graph->launches[index];
	int r = CUDA_CALL(error, cudaGraphAddKernelNode(at, graph->graph, NULL, 0, node));
	if (!r)
		r = CUDA_CALL(error, cudaGraphKernelNodeSetAttribute(
					     *at, cudaLaunchAttributeCooperative, &cooperative));
	if (!r && index)
		r = CUDA_CALL(error, cudaGraphAddDependencies(graph->graph, at - 1, at,
					     form == MARKOV_CUDA_BLOCK ? NULL : &overlap, 1));
	return r;
}

static int add_passes(struct graph *graph, const struct launcher *launcher,
	enum markov_cuda_form form, uint32_t bucket, uint32_t steps, struct error_text *error)
{
	const uint32_t count = launcher_passes(bucket) * launches_a_pass(form, steps);
	struct block_pass nothing = {0};
	graph->launches = calloc(count, sizeof(*graph->launches));
	if (!graph->launches)
		return error_text_set(error, ENOMEM, "out of memory");
	int r = CUDA_CALL(error, cudaGraphCreate(&graph->graph, 0));
	for (uint32_t i = 0; !r && i < count; i++) {
		struct block_node node;
		launcher_block_node(launcher, form == MARKOV_CUDA_STEP, bucket, 0, &nothing, &node);
		r = add_launch(graph, i, form, &node.node, error);
	}
	return r;
}

/* Of one bucket and length, for every shard. */
static int build(struct graph_table *table, struct graph *graphs, struct cuda_shard *shards,
	struct collective *collective, uint32_t bucket, uint32_t steps, struct error_text *error)
{
	int r = 0;
	if (collective || table->form == MARKOV_CUDA_PLAIN)
		r = capture_graphs(graphs, shards, table->shard_count, collective, table->form,
			bucket, steps, error);
	for (uint32_t i = 0; !r && i < table->shard_count; i++) {
		r = cuda_shard_enter(&shards[i], error);
		if (!r && !graphs[i].graph)
			r = add_passes(
				&graphs[i], &shards[i].launcher, table->form, bucket, steps, error);
		if (!r)
			r = CUDA_CALL(
				error, cudaGraphInstantiate(&graphs[i].ready, graphs[i].graph, 0));
		if (!r)
			r = CUDA_CALL(error, cudaGraphUpload(graphs[i].ready, shards[i].stream));
	}
	return r;
}

/* When all shards are idle: how much of its GPU's memory each sees free. */
static int look_at_memory(const struct graph_table *table, struct cuda_shard *shards, size_t *ret,
	struct error_text *error)
{
	size_t total;
	int r = 0;
	for (uint32_t i = 0; !r && i < table->shard_count; i++) {
		r = cuda_shard_enter(&shards[i], error);
		if (!r)
			r = CUDA_CALL(error, cudaStreamSynchronize(shards[i].stream));
		if (!r)
			r = CUDA_CALL(error, cudaMemGetInfo(&ret[i], &total));
	}
	return r;
}

static struct graph *graphs_at(const struct graph_table *table, unsigned length, unsigned bucket)
{
	return &table->graphs[(length * table->bucket_count + bucket) * table->shard_count];
}

static int build_all(struct graph_table *table, struct cuda_shard *shards,
	struct collective *collective, uint64_t bytes_max,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error)
{
	size_t before[SHARDS_MAX], now[SHARDS_MAX];
	int r = look_at_memory(table, shards, before, error);
	for (unsigned length = 0; !r && length < table->length_count; length++) {
		for (unsigned b = 0; !r && b < table->bucket_count; b++)
			r = build(table, graphs_at(table, length, b), shards, collective,
				table->buckets[b], length + 1, error);
		if (!r)
			r = look_at_memory(table, shards, now, error);
		/* Other processes allocate too, so this is a bound on what went away, not on what
		 * is ours. */
		for (uint32_t i = 0; !r && i < table->shard_count; i++)
			if (before[i] > now[i] && before[i] - now[i] > table->bytes)
				table->bytes = before[i] - now[i];
		if (!r && table->bytes > bytes_max)
			r = error_text_set(error, ENOMEM,
				"the graphs took %llu bytes of device memory, over the limit of "
				"%llu: lower max_steps or "
				"max_rows, or raise the limit",
				(unsigned long long)table->bytes, (unsigned long long)bytes_max);
		if (!r && progress)
			progress(user, "capturing graphs",
				(double)(length + 1) / table->length_count);
	}
	return r;
}

int graph_table_build(struct graph_table *table, struct cuda_shard *shards, uint32_t shard_count,
	struct collective *collective, enum markov_cuda_form form, uint64_t bytes_max,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error)
{
	const struct launcher *launcher = &shards->launcher;
	table->form = form;
	table->shard_count = shard_count;
	table->length_count = form == MARKOV_CUDA_BLOCK ? 1 : launcher->max_steps;
	for (uint32_t rows = 1;; rows *= 2) {
		table->buckets[table->bucket_count++] =
			rows < launcher->max_rows ? rows : launcher->max_rows;
		if (rows >= launcher->max_rows)
			break;
	}
	table->graphs = calloc((size_t)table->length_count * table->bucket_count * shard_count,
		sizeof(*table->graphs));
	if (!table->graphs)
		return error_text_set(error, ENOMEM, "out of memory");
	const int r = build_all(table, shards, collective, bytes_max, progress, user, error);
	if (r)
		graph_table_done(table);
	return r;
}

void graph_table_done(struct graph_table *table)
{
	const size_t count = (size_t)table->length_count * table->bucket_count * table->shard_count;
	for (size_t i = 0; table->graphs && i < count; i++) {
		if (table->graphs[i].ready)
			cudaGraphExecDestroy(table->graphs[i].ready);
		if (table->graphs[i].graph)
			cudaGraphDestroy(table->graphs[i].graph);
		free(table->graphs[i].launches);
	}
	free(table->graphs);
	*table = (struct graph_table){0};
}

unsigned graph_table_bucket(const struct graph_table *table, uint32_t rows)
{
	unsigned b = 0;
	while (b + 1 < table->bucket_count && table->buckets[b] < rows)
		b++;
	return b;
}

/* Gives the launches of a pass their rows. */
static int set_pass(const struct graph_table *table, struct graph *graph,
	const struct launcher *launcher, uint32_t bucket, uint32_t pass, uint64_t sequence,
	struct error_text *error)
{
	const struct draft_columns *columns = launcher->columns;
	const struct draft_row *rows = (const struct draft_row *)(columns + 1);
	const uint32_t before = pass * BLOCK_ROWS_MAX,
		       count = launches_a_pass(table->form, columns->steps);
	const bool by_step = table->form == MARKOV_CUDA_STEP;
	struct block_pass batch;
	struct block_node node;
	int r = 0;
	batch.rows = columns->rows > before ? (int32_t)(columns->rows - before) : 0;
	if (batch.rows > BLOCK_ROWS_MAX)
		batch.rows = BLOCK_ROWS_MAX;
	batch.steps = (int32_t)columns->steps;
	batch.first_number = (sequence + pass) * DRAFT_STEPS_MAX;
	memcpy(batch.row, rows + before, (size_t)batch.rows * sizeof(*rows));
	for (uint32_t i = 0; !r && i < count; i++) {
		batch.begin = by_step ? (int32_t)i : 0;
		batch.end = by_step && i < columns->steps ? (int32_t)i + 1 : batch.steps;
		launcher_block_node(launcher, by_step, bucket, pass, &batch, &node);
		r = CUDA_CALL(error, cudaGraphExecKernelNodeSetParams(graph->ready,
					     graph->launches[pass * count + i], &node.node));
	}
	return r;
}

int graph_table_launch(struct graph_table *table, const struct cuda_shard *shards,
	uint64_t sequence, struct error_text *error)
{
	const struct draft_columns *columns = shards->launcher.columns;
	const unsigned b = graph_table_bucket(table, columns->rows);
	struct graph *graphs =
		graphs_at(table, table->form == MARKOV_CUDA_BLOCK ? 0 : columns->steps - 1, b);
	const uint32_t passes = graphs->launches ? launcher_passes(table->buckets[b]) : 0;
	int r = 0;
	for (uint32_t i = 0; !r && i < table->shard_count; i++) {
		if (table->shard_count > 1)
			r = cuda_shard_enter(&shards[i], error);
		for (uint32_t pass = 0; !r && pass < passes; pass++)
			r = set_pass(table, &graphs[i], &shards[i].launcher, table->buckets[b],
				pass, sequence, error);
	}
	for (uint32_t i = 0; !r && i < table->shard_count; i++) {
		if (table->shard_count > 1)
			r = cuda_shard_enter(&shards[i], error);
		if (!r)
			r = CUDA_CALL(error, cudaGraphLaunch(graphs[i].ready, shards[i].stream));
	}
	return r;
}
