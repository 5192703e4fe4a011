#include "shard.h"

#include <string.h>

_Static_assert(SHARDS_MAX == MARKOV_DEVICES_MAX, "a shard for every device that can be named");

void cuda_part_init(struct cuda_part *part, uint32_t shard, uint32_t shards, uint32_t vocab)
{
	const uint64_t tiles = (vocab + TILE_ROWS - 1) / TILE_ROWS;
	const uint32_t first = (uint32_t)(tiles * shard / shards * TILE_ROWS);
	const uint32_t end = (uint32_t)(tiles * (shard + 1) / shards * TILE_ROWS);
	*part = (struct cuda_part){
		.shard = shard,
		.shards = shards,
		.first_id = first,
		.vocab = (end < vocab ? end : vocab) - first,
	};
}

int cuda_shard_enter(const struct cuda_shard *shard, struct error_text *error)
{
	return CUDA_CALL(error, cudaSetDevice(shard->device.ordinal));
}

/* Pinned memory that the kernels write into: the device sees it at the same address. */
static int pinned(void **ret, size_t bytes, struct error_text *error)
{
	void *memory = NULL;
	const int r = CUDA_CALL(
		error, cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
	if (r)
		return r;
	memset(memory, 0, bytes);
	*ret = memory;
	return 0;
}

static int allocate_slot(struct cuda_slot *slot, size_t columns_bytes, size_t rows, size_t steps,
	struct error_text *error)
{
	int r = pinned((void **)&slot->columns, columns_bytes, error);
	if (!r)
		r = pinned((void **)&slot->tokens, rows * steps * sizeof(*slot->tokens), error);
	if (!r)
		r = pinned((void **)&slot->flags, rows, error);
	return r ? r : CUDA_CALL(error, cudaEventCreate(&slot->done));
}

static int allocate(struct cuda_shard *shard, struct error_text *error)
{
	struct launcher *launcher = &shard->launcher;
	struct draft_head *d = &launcher->head;
	const size_t rows = launcher->max_rows, steps = launcher->max_steps;
	const size_t columns = sizeof(struct draft_columns) + rows * sizeof(struct draft_row);

	int r = cuda_zeroed((void **)&d->columns, columns, error);
	if (!r)
		r = cuda_zeroed(&d->exchange, block_kernel_exchange_bytes(d->shards), error);
	if (!r)
		r = cuda_zeroed((void **)&d->step_keys,
			steps * d->shards * rows * sizeof(*d->step_keys), error);
	for (unsigned i = 0; !r && i < MARKOV_BATCHES_MAX; i++)
		r = allocate_slot(&shard->slots[i], columns, rows, steps, error);
	if (!r)
		r = pinned((void **)&d->status, sizeof(*d->status), error);
	d->step_keys_pitch = launcher->max_rows;
	cuda_shard_take_slot(shard, 0);
	return r;
}

void cuda_shard_take_slot(struct cuda_shard *shard, unsigned slot)
{
	const struct cuda_slot *s = &shard->slots[slot];

	shard->launcher.columns = s->columns;
	shard->launcher.head.tokens = s->tokens;
	shard->launcher.head.flags = s->flags;
}

int cuda_shard_open(struct cuda_shard *shard, const struct cuda_part *part,
	const struct markov_options *options, const struct cuda_options *tuning,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	const char **ret_why_not, struct error_text *error)
{
	struct launcher *launcher = &shard->launcher;

	staging_init(&shard->staging, part->first_id, part->vocab);
	int r = CUDA_CALL(error, cudaStreamCreateWithFlags(&shard->stream, cudaStreamNonBlocking));
	if (!r)
		r = CUDA_CALL(error, cudaEventCreate(&shard->begun));
	if (!r)
		r = cuda_tables_load(checkpoint, part->first_id, part->vocab, progress, user,
			&shard->tables, error);
	if (r)
		return r;
	launcher->max_rows = options->max_rows;
	launcher->max_steps = options->max_steps;
	launcher->ctas = part->ctas;
	launcher->head = (struct draft_head){
		.vocab = part->vocab,
		.first_id = part->first_id,
		.shards = part->shards,
		.shard = part->shard,
		.target_vocab = checkpoint->target_vocab,
		.rank = shard->tables.rank,
		.multiplier = checkpoint->multiplier,
		.soft_cap = checkpoint->soft_cap,
		.inverse_soft_cap =
			checkpoint->soft_cap != 0.0f ? 1.0f / checkpoint->soft_cap : 0.0f,
		.w1 = shard->tables.w1,
		.w2 = shard->tables.w2,
		/* half of the host's bound, so that it is told first */
		.spin_bound_ns = tuning->wait_bound_us * 500,
	};
	r = allocate(shard, error);
	return r ? r
		 : launcher_prepare(
			   launcher, &shard->device, &shard->tables, tuning, ret_why_not, error);
}

/* Lets this thread's GPU use the memory of `other`. */
static int enable_peer(
	const struct cuda_shard *self, const struct cuda_shard *other, struct error_text *error)
{
	if (self->device.ordinal == other->device.ordinal)
		return 0;
	const cudaError_t result = cudaDeviceEnablePeerAccess(other->device.ordinal, 0);
	if (result == cudaErrorPeerAccessAlreadyEnabled) {
		cudaGetLastError();
		return 0;
	}
	return cuda_result(result, "cudaDeviceEnablePeerAccess", error);
}

static int can_reach(const struct cuda_shard *self, const struct cuda_shard *other, bool *ret,
	struct error_text *error)
{
	int can = 1;
	int r = 0;
	if (self->device.ordinal != other->device.ordinal)
		r = CUDA_CALL(error,
			cudaDeviceCanAccessPeer(&can, self->device.ordinal, other->device.ordinal));
	*ret = can != 0;
	return r;
}

int cuda_shards_connect(
	struct cuda_shard *shards, uint32_t count, bool *ret_reach, struct error_text *error)
{
	void *peers[SHARDS_MAX] = {0};
	int r = 0;

	for (uint32_t i = 0; i < count; i++) {
		peers[i] = shards[i].launcher.head.exchange;
		for (uint32_t j = 0; j < count; j++) {
			bool can;
			r = can_reach(&shards[i], &shards[j], &can, error);
			if (r || !can) {
				*ret_reach = false;
				return r;
			}
		}
	}
	for (uint32_t i = 0; !r && i < count; i++) {
		r = cuda_shard_enter(&shards[i], error);
		for (uint32_t j = 0; !r && j < count; j++)
			r = enable_peer(&shards[i], &shards[j], error);
		if (!r)
			r = CUDA_CALL(error,
				cudaMemcpyAsync((char *)peers[i] + block_kernel_peers_offset(),
					peers, count * sizeof(*peers), cudaMemcpyHostToDevice,
					shards[i].stream));
		if (!r)
			r = CUDA_CALL(error, cudaStreamSynchronize(shards[i].stream));
	}
	*ret_reach = true;
	return r;
}

void cuda_shard_close(struct cuda_shard *shard)
{
	struct draft_head *d = &shard->launcher.head;

	cudaSetDevice(shard->device.ordinal);
	staging_done(&shard->staging);
	cuda_tables_free(&shard->tables);
	cudaFree((void *)d->columns);
	cudaFree(d->exchange);
	cudaFree(d->step_keys);
	cudaFreeHost(d->status);
	for (unsigned i = 0; i < MARKOV_BATCHES_MAX; i++) {
		const struct cuda_slot *slot = &shard->slots[i];
		cudaFreeHost(slot->columns);
		cudaFreeHost(slot->tokens);
		cudaFreeHost(slot->flags);
		if (slot->done)
			cudaEventDestroy(slot->done);
	}
	if (shard->begun)
		cudaEventDestroy(shard->begun);
	if (shard->stream)
		cudaStreamDestroy(shard->stream);
	cudaGetLastError(); /* of a lost context, say: it was reported when it was lost */
}
