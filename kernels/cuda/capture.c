#include "capture.h"

#include <errno.h>
#include <stdlib.h>

struct capture {
	struct graph *graphs;
	struct cuda_shard *shards;
	uint32_t shard_count;
	struct collective *collective;
	uint32_t bucket, steps;
};

int capture_gather(struct cuda_shard *shards, uint32_t shard_count, struct collective *collective,
	uint32_t step, struct error_text *error)
{
	uint64_t *blocks[SHARDS_MAX];
	cudaStream_t streams[SHARDS_MAX];
	const size_t pitch = shards->launcher.head.step_keys_pitch;

	if (!collective)
		return 0;
	for (uint32_t i = 0; i < shard_count; i++) {
		blocks[i] =
			(uint64_t *)shards[i].launcher.head.step_keys + step * shard_count * pitch;
		streams[i] = shards[i].stream;
	}
	return collective_gather(collective, blocks, pitch, streams, error);
}

/* The node of the kernel that was launched last on a stream that is captured. */
static int last_node(cudaStream_t stream, cudaGraphNode_t *ret, struct error_text *error)
{
	enum cudaStreamCaptureStatus status;
	const cudaGraphNode_t *nodes = NULL;
	size_t count = 0;
	const int r = CUDA_CALL(
		error, cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &count));
	if (r)
		return r;
	if (count != 1)
		return error_text_set(
			error, EIO, "a captured launch has %zu nodes behind it", count);
	*ret = nodes[0];
	return 0;
}

/* Launch `index` of a pass, on every shard. The rows are set when it is launched. */
static int enqueue_launch(
	const struct capture *c, uint32_t pass, uint32_t index, struct error_text *error)
{
	struct block_pass nothing = {.begin = (int32_t)index, .end = (int32_t)index + 1};
	struct block_node node;
	int r = 0;

	if (index == c->steps)
		nothing.end = nothing.begin;
	for (uint32_t i = 0; !r && i < c->shard_count; i++) {
		const struct cuda_shard *shard = &c->shards[i];
		r = cuda_shard_enter(shard, error);
		launcher_block_node(&shard->launcher, true, c->bucket, pass, &nothing, &node);
		if (!r)
			r = launcher_enqueue_node(&node, shard->stream, error);
		if (!r)
			r = last_node(shard->stream,
				&c->graphs[i].launches[pass * (c->steps + 1) + index], error);
	}
	return r;
}

static int enqueue_step_form(const struct capture *c, struct error_text *error)
{
	const uint32_t passes = launcher_passes(c->bucket);
	int r = 0;

	for (uint32_t i = 0; i < c->shard_count; i++) {
		c->graphs[i].launches =
			calloc((size_t)passes * (c->steps + 1), sizeof(cudaGraphNode_t));
		if (!c->graphs[i].launches)
			return error_text_set(error, ENOMEM, "out of memory");
	}
	for (uint32_t pass = 0; !r && pass < passes; pass++) {
		for (uint32_t i = 0; !r && i <= c->steps; i++) {
			r = enqueue_launch(c, pass, i, error);
			if (!r && i < c->steps)
				r = capture_gather(
					c->shards, c->shard_count, c->collective, i, error);
		}
	}
	return r;
}

static int enqueue_plain_step(struct cuda_shard *shards, uint32_t shard_count, uint32_t bucket,
	uint32_t step, struct error_text *error)
{
	int r = 0;
	for (uint32_t i = 0; !r && i < shard_count; i++) {
		const struct cuda_shard *shard = &shards[i];
		r = cuda_shard_enter(shard, error);
		if (!r && step == 0)
			r = launcher_enqueue_columns(
				&shard->launcher, bucket, shard->stream, error);
		if (!r)
			r = launcher_enqueue_plain_step(
				&shard->launcher, bucket, step, shard->stream, error);
	}
	return r;
}

int capture_plain(struct cuda_shard *shards, uint32_t shard_count, struct collective *collective,
	uint32_t bucket, uint32_t steps, struct error_text *error)
{
	int r = 0;
	for (uint32_t step = 0; !r && step < steps; step++) {
		r = enqueue_plain_step(shards, shard_count, bucket, step, error);
		if (!r)
			r = capture_gather(shards, shard_count, collective, step, error);
	}
	for (uint32_t i = 0; !r && i < shard_count; i++) {
		r = cuda_shard_enter(&shards[i], error);
		if (!r)
			r = launcher_enqueue_plain_end(
				&shards[i].launcher, shards[i].stream, error);
	}
	return r;
}

int capture_graphs(struct graph *graphs, struct cuda_shard *shards, uint32_t shard_count,
	struct collective *collective, enum markov_cuda_form form, uint32_t bucket, uint32_t steps,
	struct error_text *error)
{
	const struct capture c = {graphs, shards, shard_count, collective, bucket, steps};
	uint32_t begun = 0;
	int r = 0;

	while (!r && begun < shard_count) {
		r = cuda_shard_enter(&shards[begun], error);
		if (!r)
			r = CUDA_CALL(error, cudaStreamBeginCapture(shards[begun].stream,
						     cudaStreamCaptureModeThreadLocal));
		if (!r)
			begun++;
	}
	if (!r)
		r = form == MARKOV_CUDA_PLAIN
			    ? capture_plain(shards, shard_count, collective, bucket, steps, error)
			    : enqueue_step_form(&c, error);
	/* Ends the captures in any case; failures to do so only matter when nothing failed before.
	 */
	for (uint32_t i = 0; i < begun; i++) {
		int ended = cuda_shard_enter(&shards[i], r ? NULL : error);
		if (!ended)
			ended = CUDA_CALL(r ? NULL : error,
				cudaStreamEndCapture(shards[i].stream, &graphs[i].graph));
		if (!r)
			r = ended;
	}
	return r;
}
