#include "stream.h"

#include "harness.h"
#include "kernels/cuda/tables.h"

#include <stdlib.h>

#define REPLAYS      31
#define RESIDENT_MAX 3

/* Of everything here that can fail. */
static void must(int result, const struct error_text *error)
{
	if (result)
		die("%s", error->text);
}

struct streaming {
	struct cuda_device device;
	struct cuda_tables tables;
	CUtensorMap w2;
	cudaStream_t stream;
	cudaEvent_t begun, done;
};

/* `before` is what `node` passes as the steps so far. */
static float replay(const struct streaming *s, cudaGraphExec_t ready, cudaGraphNode_t node,
	const struct cudaKernelNodeParams *parameters, int steps, int *before)
{
	float us[REPLAYS];
	struct error_text error;
	for (int i = -3; i < REPLAYS; i++) {
		float ms = 0;
		must(CUDA_CALL(&error, cudaGraphExecKernelNodeSetParams(ready, node, parameters)),
			&error);
		must(CUDA_CALL(&error, cudaEventRecord(s->begun, s->stream)), &error);
		must(CUDA_CALL(&error, cudaGraphLaunch(ready, s->stream)), &error);
		must(CUDA_CALL(&error, cudaEventRecord(s->done, s->stream)), &error);
		must(CUDA_CALL(&error, cudaEventSynchronize(s->done)), &error);
		must(CUDA_CALL(&error, cudaEventElapsedTime(&ms, s->begun, s->done)), &error);
		if (i >= 0)
			us[i] = ms * 1000;
		*before += steps;
	}
	return median(us, REPLAYS);
}

static float measure(struct streaming *s, uint32_t vocab, struct block_plan plan, int steps)
{
	int before = 0;
	void *parameters[] = {&s->w2, &vocab, &s->tables.rank, &plan, &steps, &before};
	const size_t bytes = (size_t)plan.stages * STREAM_STAGE_BYTES;
	cudaGraph_t graph;
	cudaGraphExec_t ready;
	struct error_text error;
	must(CUDA_CALL(&error, cudaFuncSetAttribute(stream_kernel(),
				       cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)),
		&error);
	const struct cudaKernelNodeParams node = {
		.func = (void *)(uintptr_t)stream_kernel(),
		.gridDim = {(unsigned)s->device.multiprocessors, 1, 1},
		.blockDim = {STREAM_THREADS, 1, 1},
		.sharedMemBytes = (unsigned)bytes,
		.kernelParams = parameters,
	};
	cudaGraphNode_t added;
	must(CUDA_CALL(&error, cudaGraphCreate(&graph, 0)), &error);
	must(CUDA_CALL(&error, cudaGraphAddKernelNode(&added, graph, NULL, 0, &node)), &error);
	must(CUDA_CALL(&error, cudaGraphInstantiate(&ready, graph, 0)), &error);
	const float us = replay(s, ready, added, &node, steps, &before);
	cudaGraphExecDestroy(ready);
	cudaGraphDestroy(graph);
	return us;
}

float stream_us(const struct checkpoint *checkpoint, int steps)
{
	static const double pinned_bytes[] = {0, 26e6, 30e6, 34e6};
	struct streaming s = {0};
	struct error_text error;
	float best = 1e30f;
	struct cuda_device chosen[MARKOV_DEVICES_MAX];
	uint32_t count;
	must(cuda_devices_choose(NULL, false, chosen, &count, &error), &error);
	s.device = chosen[0];
	must(cuda_tables_load(checkpoint, 0, checkpoint->vocab, NULL, NULL, &s.tables, &error),
		&error);
	must(cuda_tables_map(&s.tables, checkpoint->vocab, STREAM_CHUNKS, &s.w2, &error), &error);
	must(CUDA_CALL(&error, cudaStreamCreate(&s.stream)), &error);
	must(CUDA_CALL(&error, cudaEventCreate(&s.begun)), &error);
	must(CUDA_CALL(&error, cudaEventCreate(&s.done)), &error);
	const int room = (s.device.shared_bytes - 1024) / STREAM_STAGE_BYTES;
	const int parts = (int)(s.tables.rank / TABLE_CHUNK + STREAM_CHUNKS - 1) / STREAM_CHUNKS;
	const double tile = (double)s.device.multiprocessors * TILE_ROWS * s.tables.rank * 2;
	for (int resident = 0; resident <= RESIDENT_MAX && room - resident * parts >= 2;
		resident++) {
		for (size_t i = 0; i < sizeof(pinned_bytes) / sizeof(*pinned_bytes); i++) {
			const struct block_plan plan = {
				.stages = room - resident * parts,
				.resident = resident,
				.pinned = (int)(pinned_bytes[i] / tile + 0.5),
			};
			const float us = measure(&s, checkpoint->vocab, plan, steps);
			best = us < best ? us : best;
		}
	}
	cudaCtxResetPersistingL2Cache(); /* nothing of it stays in the way of who comes next */
	cudaEventDestroy(s.begun);
	cudaEventDestroy(s.done);
	cudaStreamDestroy(s.stream);
	cuda_tables_free(&s.tables);
	return best;
}
