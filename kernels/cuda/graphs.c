#include "graphs.h"

#include <errno.h>

static int capture(const struct launcher *launcher, enum cuda_form form, uint32_t bucket, uint32_t steps,
	cudaStream_t stream, cudaGraphExec_t *ret, struct error_text *error)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t launch = NULL;
	int r = CUDA_CALL(error, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	if (r)
		return r;
	r = launcher_enqueue(launcher, form, bucket, steps, stream, error);
	/* Ends the capture in any case; its own failure only matters when nothing failed before. */
	const int ended = CUDA_CALL(r ? NULL : error, cudaStreamEndCapture(stream, &graph));
	if (!r)
		r = ended;
	if (!r)
		r = CUDA_CALL(error, cudaGraphInstantiate(&launch, graph, 0));
	if (!r)
		r = CUDA_CALL(error, cudaGraphUpload(launch, stream));
	if (graph)
		cudaGraphDestroy(graph);
	if (r && launch)
		cudaGraphExecDestroy(launch);
	if (!r)
		*ret = launch;
	return r;
}

int graph_table_build(struct graph_table *table, const struct launcher *launcher, enum cuda_form form,
	cudaStream_t stream, uint64_t bytes_max, void (*progress)(void *user, const char *what, double done),
	void *user, struct error_text *error)
{
	size_t before = 0, now = 0, total;
	int r = CUDA_CALL(error, cudaMemGetInfo(&before, &total));

	for (uint32_t rows = 1;; rows *= 2) {
		table->buckets[table->bucket_count++] = rows < launcher->max_rows ? rows : launcher->max_rows;
		if (rows >= launcher->max_rows)
			break;
	}
	for (uint32_t steps = 1; !r && steps <= launcher->max_steps; steps++) {
		for (unsigned b = 0; !r && b < table->bucket_count; b++)
			r = capture(launcher, form, table->buckets[b], steps, stream, &table->launch[steps - 1][b], error);
		if (!r)
			r = CUDA_CALL(error, cudaStreamSynchronize(stream));
		if (!r)
			r = CUDA_CALL(error, cudaMemGetInfo(&now, &total));
		/* Other processes allocate too, so this is a bound on what went away, not on what is ours. */
		table->bytes = before > now ? before - now : 0;
		if (!r && table->bytes > bytes_max)
			r = error_text_set(error, ENOMEM,
				"the graphs of %u of %u draft lengths took %llu bytes of device memory, over the limit of "
				"%llu: lower max_steps or max_rows, or raise the limit",
				steps, launcher->max_steps, (unsigned long long)table->bytes,
				(unsigned long long)bytes_max);
		if (!r && progress)
			progress(user, "capturing graphs", (double)steps / launcher->max_steps);
	}
	if (r)
		graph_table_done(table);
	return r;
}

void graph_table_done(struct graph_table *table)
{
	for (unsigned steps = 0; steps < CUDA_STEPS_MAX; steps++)
		for (unsigned b = 0; b < table->bucket_count; b++)
			if (table->launch[steps][b])
				cudaGraphExecDestroy(table->launch[steps][b]);
	*table = (struct graph_table){0};
}

unsigned graph_table_bucket(const struct graph_table *table, uint32_t rows)
{
	unsigned b = 0;
	while (b + 1 < table->bucket_count && table->buckets[b] < rows)
		b++;
	return b;
}
