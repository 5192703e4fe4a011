#include "tables.h"

#include "kernels.h"

#include <errno.h>
#include <string.h>

#define BOUNCE_BYTES ((size_t)16 << 20)

/* Two pinned buffers: one is filled while the other is copied. */
struct bounce {
	char *buffer[2];
	cudaEvent_t copied[2];
	cudaStream_t stream;
};

static void bounce_done(struct bounce *b)
{
	for (int i = 0; i < 2; i++) {
		if (b->copied[i])
			cudaEventDestroy(b->copied[i]);
		if (b->buffer[i])
			cudaFreeHost(b->buffer[i]);
	}
	if (b->stream)
		cudaStreamDestroy(b->stream);
}

static int bounce_init(struct bounce *b, struct error_text *error)
{
	int r = CUDA_CALL(error, cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
	for (int i = 0; !r && i < 2; i++) {
		r = CUDA_CALL(error, cudaMallocHost((void **)&b->buffer[i], BOUNCE_BYTES));
		if (!r)
			r = CUDA_CALL(error,
				cudaEventCreateWithFlags(&b->copied[i], cudaEventDisableTiming));
	}
	return r;
}

struct loading {
	void (*progress)(void *user, const char *what, double done);
	void *user;
	uint64_t done, total; /* rows of both tables */
};

static int load_table(struct bounce *b, const uint16_t *from, uint32_t rows, uint32_t rank,
	uint32_t padded, void *to, struct loading *loading, struct error_text *error)
{
	const size_t pitch = (size_t)padded * 2, width = (size_t)rank * 2;
	const uint32_t at_once = (uint32_t)(BOUNCE_BYTES / pitch);
	int r = 0;

	for (uint32_t row = 0, turn = 0; !r && row < rows; row += at_once, turn ^= 1) {
		const uint32_t count = rows - row < at_once ? rows - row : at_once;
		char *buffer = b->buffer[turn];
		r = CUDA_CALL(error, cudaEventSynchronize(b->copied[turn]));
		if (r)
			break;
		const char *source = (const char *)from + row * width;
		if (pitch == width) {
			memcpy(buffer, source, count * width);
		} else {
			for (uint32_t i = 0; i < count; i++) {
				memcpy(buffer + i * pitch, source + i * width, width);
				memset(buffer + i * pitch + width, 0, pitch - width);
			}
		}
		r = CUDA_CALL(error, cudaMemcpyAsync((char *)to + row * pitch, buffer,
					     count * pitch, cudaMemcpyHostToDevice, b->stream));
		if (!r)
			r = CUDA_CALL(error, cudaEventRecord(b->copied[turn], b->stream));
		loading->done += count;
		if (loading->progress)
			loading->progress(loading->user, "loading the tables",
				(double)loading->done / (double)loading->total);
	}
	return r;
}

int cuda_tables_load(const struct checkpoint *checkpoint, uint32_t first, uint32_t rows,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct cuda_tables *ret, struct error_text *error)
{
	struct cuda_tables tables = {0};
	struct bounce bounce = {0};
	struct loading loading = {progress, user, 0, (uint64_t)rows + checkpoint->target_vocab};
	int r;

	if (checkpoint->rank > BOUNCE_BYTES / 4)
		return error_text_set(error, EINVAL, "rank: %u is more than the cuda backend's %zu",
			checkpoint->rank, BOUNCE_BYTES / 4);
	tables.rank = (checkpoint->rank + TABLE_CHUNK - 1) / TABLE_CHUNK * TABLE_CHUNK;
	const size_t w1_bytes = (size_t)checkpoint->target_vocab * tables.rank * 2;
	const size_t w2_bytes = (size_t)(rows ? rows : 1) * tables.rank * 2; /* never no memory */
	tables.bytes = w1_bytes + w2_bytes;

	r = CUDA_CALL(error, cudaMalloc(&tables.w1, w1_bytes));
	if (!r)
		r = CUDA_CALL(error, cudaMalloc(&tables.w2, w2_bytes));
	if (r == -ENOMEM)
		error_text_set(error, ENOMEM,
			"the tables need %zu MiB of device memory and do not fit",
			(size_t)(tables.bytes >> 20));
	if (!r)
		r = bounce_init(&bounce, error);
	if (!r)
		r = load_table(&bounce, checkpoint->w2 + (size_t)first * checkpoint->rank, rows,
			checkpoint->rank, tables.rank, tables.w2, &loading, error);
	if (!r)
		r = load_table(&bounce, checkpoint->w1, checkpoint->target_vocab, checkpoint->rank,
			tables.rank, tables.w1, &loading, error);
	if (!r)
		r = CUDA_CALL(error, cudaStreamSynchronize(bounce.stream));
	bounce_done(&bounce);
	if (r)
		cuda_tables_free(&tables);
	else
		*ret = tables;
	return r;
}

void cuda_tables_free(struct cuda_tables *tables)
{
	cudaFree(tables->w1);
	cudaFree(tables->w2);
	*tables = (struct cuda_tables){0};
}

int cuda_tables_map(const struct cuda_tables *tables, uint32_t rows, uint32_t stage_chunks,
	CUtensorMap *ret, struct error_text *error)
{
	/* By name at run time, so that the program starts where there is no driver. */
	CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
		const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
		CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
		CUtensorMapFloatOOBfill) = NULL;
	enum cudaDriverEntryPointQueryResult found;
	int r = CUDA_CALL(error, cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled",
					 (void **)&encode, 12000, cudaEnableDefault, &found));
	if (r)
		return r;
	if (!encode)
		return error_text_set(error, ENODEV, "the driver is older than CUDA 12.0");
	const cuuint64_t sizes[3] = {TABLE_CHUNK, rows ? rows : 1, tables->rank / TABLE_CHUNK};
	const cuuint64_t strides[2] = {(cuuint64_t)tables->rank * 2, TABLE_CHUNK * 2};
	const cuuint32_t box[3] = {TABLE_CHUNK, TILE_ROWS, stage_chunks};
	const cuuint32_t every[3] = {1, 1, 1};
	const CUresult result = encode(ret, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, tables->w2, sizes,
		strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (result != CUDA_SUCCESS)
		return error_text_set(error, EIO,
			"cuTensorMapEncodeTiled: error %d for w2 [%u, %u]", (int)result, rows,
			tables->rank);
	return 0;
}
