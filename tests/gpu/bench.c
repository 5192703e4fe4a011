/* Microseconds a block of 7 steps: graph replays, medians of 41. */
#include "shapes.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS   7
#define ROWS    64
#define REPLAYS 41

/* The first GPU's memory. */
static void *on_device(size_t bytes)
{
	void *at;
	if (cudaSetDevice(0) != cudaSuccess || cudaMalloc(&at, bytes) != cudaSuccess)
		die("no device memory for %zu bytes", bytes);
	return at;
}

/* A request of device memory, reused by every measurement of a shape. */
struct workload {
	struct test_case c;
	char *base, *logits;
	const void *base_of[ROWS];
	void *logits_of[ROWS];
	uint64_t strides[ROWS];
	enum memory_kind memory[ROWS]; /* of either */
	uint32_t tokens[ROWS * STEPS];
	uint8_t flags[ROWS];
};

static void workload_new(struct workload *w, const struct checkpoint *checkpoint)
{
	const size_t step = (size_t)checkpoint->vocab * 2, bytes = ROWS * STEPS * step;
	w->c = (struct test_case){.name = "bench", .checkpoint = checkpoint};
	test_case_alloc(&w->c, ROWS, STEPS, false);
	fill_request(&w->c, false);
	w->base = on_device(bytes);
	w->logits = on_device(bytes);
	if (cudaMemcpy(w->base, w->c.base, bytes, cudaMemcpyHostToDevice) != cudaSuccess ||
		cudaStreamSynchronize(cudaStreamLegacy) != cudaSuccess)
		die("a copy failed");
	for (uint32_t r = 0; r < ROWS; r++) {
		w->base_of[r] = w->base + r * STEPS * step;
		w->logits_of[r] = w->logits + r * STEPS * step;
		w->strides[r] = step;
		w->memory[r] = MEMORY_DEVICE;
	}
}

static void workload_free(struct workload *w)
{
	cudaFree(w->base);
	cudaFree(w->logits);
	test_case_free(&w->c);
}

/* By the host's clock from before the launch to after the wait, or by events around graph replays.
 */
static float measure(struct cuda_head *head, struct workload *w, uint32_t rows, bool by_host)
{
	const struct markov_batch batch = {
		.rows = rows,
		.steps = STEPS,
		.anchors = w->c.anchors,
		.positions = w->c.positions,
		.seeds = w->c.seeds,
		.temperatures = w->c.temperatures,
		.slots = w->c.slots,
		.base = w->base_of,
		.base_strides = w->strides,
		.logits = w->logits_of,
		.logits_strides = w->strides,
		.base_memory = w->memory,
		.logits_memory = w->memory,
		.tokens = w->tokens,
		.flags = w->flags,
	};
	float us[REPLAYS];
	struct error_text error;
	if (cuda_head_launch(head, &batch, &error) || cuda_head_wait(head, &error) ||
		cuda_head_replay(head, 3, us, &error) ||
		cuda_head_replay(head, REPLAYS, us, &error))
		die("%s", error.text);
	for (int i = 0; by_host && i < REPLAYS; i++) {
		const double start = now_ms();
		if (cuda_head_launch(head, &batch, &error) || cuda_head_wait(head, &error))
			die("%s", error.text);
		us[i] = (float)((now_ms() - start) * 1e3);
	}
	return median(us, REPLAYS);
}

static const uint32_t batches[] = {1, 4, 8, 16, 32, 64};

static void line(const struct checkpoint *checkpoint, const struct cuda_options *options,
	struct workload *w, const char *shape, const char *label, bool by_host)
{
	struct cuda_head *head = open_head(checkpoint, options, ROWS, STEPS);
	printf("%-6s %-36s", shape, label);
	for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++)
		printf(" %7.1f", measure(head, w, batches[i], by_host));
	printf("\n");
	fflush(stdout);
	cuda_head_close(head);
}

/* Base and draft logits in pinned host memory: copied within the launch, so only the host's clock
 * sees them. */
static void host_line(const struct checkpoint *checkpoint, struct cuda_options options,
	struct workload *w, const char *shape)
{
	const struct workload device = *w;
	const size_t step = (size_t)checkpoint->vocab * 2, bytes = ROWS * STEPS * step;
	pin(w->c.base, bytes);
	pin(w->c.logits, bytes);
	for (uint32_t r = 0; r < ROWS; r++) {
		w->base_of[r] = (char *)w->c.base + r * STEPS * step;
		w->logits_of[r] = (char *)w->c.logits + r * STEPS * step;
		w->memory[r] = MEMORY_PINNED;
	}
	line(checkpoint, &options, w, shape, "  base and logits in host memory", true);
	for (uint32_t r = 0; r < ROWS; r++)
		w->logits_of[r] = NULL;
	line(checkpoint, &options, w, shape, "  base in host memory, no logits", true);
	unpin(w->c.base);
	unpin(w->c.logits);
	*w = device;
}

int bench(const char *only, bool sweep)
{
	if (device_count() > 1)
		printf("on %u GPUs; base and draft logits lie on the first\n", device_count());
	printf("us a block of %d steps, rows                     1       4       8      16      32 "
	       "     64\n",
		STEPS);
	for (int s = 0; s < SHAPES; s++) {
		struct checkpoint checkpoint;
		struct cuda_options options;
		struct workload w;
		char label[64];
		if (only && strcmp(only, shapes[s].name))
			continue;
		shape_open(&shapes[s], &checkpoint);
		workload_new(&w, &checkpoint);
		cuda_options_init(&options);
		line(&checkpoint, &options, &w, shapes[s].name, "one launch a block", false);
		line(&checkpoint, &options, &w, shapes[s].name, "  by the host's clock", true);
		options.keep_l2 = true;
		line(&checkpoint, &options, &w, shapes[s].name, "  part of w2 left in L2", false);
		options.keep_l2 = false;
		host_line(&checkpoint, options, &w, shapes[s].name);
		for (int resident = 0; sweep && resident <= 4; resident++) {
			for (int i = 0; i < 3; i++) {
				const double tile = 132.0 * 64 * shapes[s].rank * 2;
				options.resident_tiles = resident;
				options.pinned_tiles =
					(int)((double[]){0, 26e6, 34e6}[i] / tile + 0.5);
				snprintf(label, sizeof(label), "  %d resident, %d kept in L2",
					resident, options.pinned_tiles);
				line(&checkpoint, &options, &w, shapes[s].name, label, false);
			}
		}
		cuda_options_init(&options);
		options.form = MARKOV_CUDA_STEP;
		line(&checkpoint, &options, &w, shapes[s].name, "one launch a step", false);
		options.form = MARKOV_CUDA_PLAIN;
		line(&checkpoint, &options, &w, shapes[s].name, "one launch a step, plain", false);
		workload_free(&w);
		shape_close(&checkpoint);
	}
	return 0;
}
