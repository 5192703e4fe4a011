#include "launcher.h"

#include <errno.h>

/* Of the ring, which covers the latency of memory; what is over keeps tiles resident. With 64 rows
 * a tile takes so long that less will do. */
#define RING_BYTES_WANTED(rows) ((rows) < 64 ? 128 << 10 : 96 << 10)
#define RESIDENT_WANTED         2
#define STAGES_MIN              2
/* Of L2, for tiles that are asked to stay: measured, 34 MB of an H200's 60; from 38 MB on the gain
 * collapses. */
#define L2_SHARE 0.567

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

/* False when not even the shortest ring fits. Nothing stays in shared memory from launch to launch,
 * so the step form has no resident tiles. */
static bool plan_block(struct block_launch *launch, const struct cuda_device *device, uint32_t rank,
	bool by_step, const struct cuda_options *options)
{
	const struct block_kernel *kernel = &launch->kernel;
	const int stage = (int)kernel->stage_bytes;
	const int tile =
		(int)((rank / TABLE_CHUNK + kernel->stage_chunks - 1) / kernel->stage_chunks) *
		stage;
	const size_t fixed = block_kernel_shared_bytes(kernel, rank, 0, 0);
	if (fixed + (size_t)(STAGES_MIN * stage) > (size_t)device->shared_bytes)
		return false;
	const int room = device->shared_bytes - (int)fixed;
	int resident =
		min_int((room - (int)RING_BYTES_WANTED(kernel->rows)) / tile, RESIDENT_WANTED);
	if (options->resident_tiles >= 0)
		resident = min_int(min_int(options->resident_tiles, BLOCK_RESIDENT_MAX),
			(room - STAGES_MIN * stage) / tile);
	if (resident < 0 || by_step)
		resident = 0;
	const int stages = min_int((room - resident * tile) / stage, BLOCK_STAGES_MAX);
	const double pinned =
		L2_SHARE * device->l2_bytes / ((double)launch->grid * TILE_ROWS * rank * 2);
	launch->plan = (struct block_plan){
		.stages = stages,
		.resident = resident,
		.pinned = options->pinned_tiles >= 0 ? options->pinned_tiles : (int)(pinned + 0.5),
		.keep = options->keep_l2,
		.by_step = by_step,
	};
	launch->shared_bytes = block_kernel_shared_bytes(kernel, rank, stages, resident);
	return true;
}

static int prepare_block(struct launcher *launcher, const struct cuda_device *device,
	const struct cuda_tables *tables, const struct cuda_options *options,
	const char **ret_why_not, struct error_text *error)
{
	if (device->major != 9) {
		*ret_why_not = "the block kernel is made of instructions of compute capability 9.0";
		return 0;
	}
	if (!device->cooperative) {
		*ret_why_not = "this GPU has no cooperative launches";
		return 0;
	}
	for (int i = 0; i < 2 * BLOCK_SHAPES; i++) {
		const bool by_step = i >= BLOCK_SHAPES;
		struct block_launch *launch =
			by_step ? &launcher->step[i - BLOCK_SHAPES] : &launcher->block[i];
		block_kernel_for(8u << i % BLOCK_SHAPES, &launch->kernel);
		launch->grid = launcher->ctas;
		if (!plan_block(launch, device, tables->rank, by_step, options)) {
			*ret_why_not = "the rank leaves no shared memory for its ring";
			return 0;
		}
		/* All that there is: the two forms differ in what they take. */
		int r = CUDA_CALL(error,
			cudaFuncSetAttribute(launch->kernel.function,
				cudaFuncAttributeMaxDynamicSharedMemorySize, device->shared_bytes));
		if (!r)
			r = cuda_tables_map(tables, launcher->head.vocab,
				launch->kernel.stage_chunks, &launch->w2, error);
		if (r)
			return r;
	}
	launcher->has_block = true;
	return 0;
}

static int prepare_plain(
	struct launcher *launcher, const struct cuda_device *device, struct error_text *error)
{
	for (int i = 0; i < 2; i++) {
		struct plain_launch *launch = &launcher->plain[i];
		plain_kernel_for(i ? 64 : 8, &launch->kernel);
		launch->shared_bytes =
			plain_kernel_shared_bytes(&launch->kernel, launcher->head.rank);
		if (launch->shared_bytes > (size_t)device->shared_bytes) {
			if (!i)
				return error_text_set(error, ENOTSUP,
					"rank: the embeddings of 8 rows of %u columns do not fit "
					"into %d bytes of "
					"shared memory",
					launcher->head.rank, device->shared_bytes);
			*launch = launcher->plain[0]; /* passes of 8 rows for all */
			continue;
		}
		int blocks = 0;
		int r = CUDA_CALL(error, cudaFuncSetAttribute(launch->kernel.function,
						 cudaFuncAttributeMaxDynamicSharedMemorySize,
						 (int)launch->shared_bytes));
		if (!r)
			r = CUDA_CALL(
				error, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks,
					       launch->kernel.function, (int)launch->kernel.threads,
					       launch->shared_bytes));
		if (r)
			return r;
		const unsigned most = (unsigned)(blocks * device->multiprocessors);
		const unsigned tiles = (launcher->head.vocab + TILE_ROWS - 1) / TILE_ROWS;
		launch->grid = tiles < most ? tiles : most;
		if (!launch->grid)
			launch->grid = 1;
	}
	return 0;
}

int launcher_prepare(struct launcher *launcher, const struct cuda_device *device,
	const struct cuda_tables *tables, const struct cuda_options *options,
	const char **ret_why_not, struct error_text *error)
{
	*ret_why_not = NULL;
	const int r = prepare_plain(launcher, device, error);
	return r ? r : prepare_block(launcher, device, tables, options, ret_why_not, error);
}

uint32_t launcher_passes(uint32_t rows)
{
	return (rows + BLOCK_ROWS_MAX - 1) / BLOCK_ROWS_MAX;
}

void launcher_block_node(const struct launcher *launcher, bool by_step, uint32_t bucket,
	uint32_t pass, struct block_pass *rows, struct block_node *ret)
{
	const struct block_launch *launch = by_step ? launcher->step : launcher->block;
	for (int i = 1; i < BLOCK_SHAPES && launch->kernel.rows < bucket; i++)
		launch++;
	ret->plan = launch->plan;
	ret->plan.first_row = pass * BLOCK_ROWS_MAX;
	ret->parameters[0] = (void *)&launch->w2;
	ret->parameters[1] = (void *)&launcher->head;
	ret->parameters[2] = &ret->plan;
	ret->parameters[3] = rows;
	ret->node = (struct cudaKernelNodeParams){
		.func = (void *)launch->kernel.function,
		.gridDim = {by_step && rows->begin == rows->end ? 1 : launch->grid, 1, 1},
		.blockDim = {launch->kernel.threads, 1, 1},
		.sharedMemBytes = (unsigned)launch->shared_bytes,
		.kernelParams = ret->parameters,
	};
}

/* Launches of one shard may overlap; between those of several, keys travel. */
static int enqueue(const void *function, unsigned grid, unsigned threads, size_t shared_bytes,
	void **parameters, bool overlaps, cudaStream_t stream, struct error_text *error)
{
	cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
	attribute.val.programmaticStreamSerializationAllowed = 1;
	const cudaLaunchConfig_t config = {
		.gridDim = {grid, 1, 1},
		.blockDim = {threads, 1, 1},
		.dynamicSmemBytes = shared_bytes,
		.stream = stream,
		.attrs = &attribute,
		.numAttrs = overlaps,
	};
	return CUDA_CALL(error, cudaLaunchKernelExC(&config, function, parameters));
}

int launcher_enqueue_columns(const struct launcher *launcher, uint32_t bucket, cudaStream_t stream,
	struct error_text *error)
{
	const size_t bytes = sizeof(struct draft_columns) + bucket * sizeof(struct draft_row);
	return CUDA_CALL(error, cudaMemcpyAsync((void *)launcher->head.columns, launcher->columns,
					bytes, cudaMemcpyHostToDevice, stream));
}

int launcher_enqueue_plain_step(const struct launcher *launcher, uint32_t bucket, uint32_t step,
	cudaStream_t stream, struct error_text *error)
{
	const struct plain_launch *launch = &launcher->plain[bucket > 8];
	int r = 0;
	for (uint32_t first = 0; !r && first < bucket; first += launch->kernel.rows) {
		void *parameters[] = {(void *)&launcher->head, &first, &step};
		r = enqueue(launch->kernel.function, launch->grid, launch->kernel.threads,
			launch->shared_bytes, parameters, launcher->head.shards == 1, stream,
			error);
	}
	return r;
}

int launcher_enqueue_plain_end(
	const struct launcher *launcher, cudaStream_t stream, struct error_text *error)
{
	void *parameters[] = {(void *)&launcher->head};
	return enqueue(plain_finish_kernel(), 1, PLAIN_FINISH_THREADS, 0, parameters,
		launcher->head.shards == 1, stream, error);
}

int launcher_enqueue_node(
	const struct block_node *node, cudaStream_t stream, struct error_text *error)
{
	const struct cudaKernelNodeParams *n = &node->node;
	return enqueue(n->func, n->gridDim.x, n->blockDim.x, n->sharedMemBytes, n->kernelParams,
		false, stream, error);
}
