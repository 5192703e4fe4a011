/* One GPU's part of a head: its ids' rows of w2, all of w1, and what its launches need. A head on
 * one GPU is one shard. Owned by the head; every function but cuda_shard_close() wants the shard's
 * GPU to be this thread's, and leaves it so. */
#ifndef KERNELS_CUDA_SHARD_H
#define KERNELS_CUDA_SHARD_H

#include "launcher.h"
#include "staging.h"

/* What a launch is given and what it leaves: one for each that may be under way. */
struct cuda_slot {
	struct draft_columns *columns; /* pinned */
	uint32_t *tokens;              /* pinned: [max_rows, max_steps] */
	uint8_t *flags;                /* pinned: [max_rows] */
	cudaEvent_t done;
};

struct cuda_shard {
	struct cuda_device device;
	cudaStream_t stream;
	cudaEvent_t begun;
	struct cuda_slot slots[MARKOV_BATCHES_MAX];
	struct cuda_tables tables;
	struct launcher launcher;
	struct staging staging;
};

/* Which part it is. */
struct cuda_part {
	uint32_t shard, shards;
	uint32_t first_id, vocab;
	unsigned ctas; /* of the block kernel, on every shard */
};

/* What ids the part `shard` of `shards` has: whole tiles, as many as the others or one more. */
void cuda_part_init(struct cuda_part *part, uint32_t shard, uint32_t shards, uint32_t vocab);

/* Makes this thread's GPU the shard's. */
int cuda_shard_enter(const struct cuda_shard *shard, struct error_text *error);

/* Loads the tables and prepares the launches; `shard->device` is set. `ret_why_not`: see
 * launcher_prepare(). When it fails, the shard is still to be closed. */
int cuda_shard_open(struct cuda_shard *shard, const struct cuda_part *part,
	const struct markov_options *options, const struct cuda_options *tuning,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	const char **ret_why_not, struct error_text *error);

/* Tells each of the shards where the others' exchanges are. False in `ret_reach`: they can't see
 * each other's memory, and only NCCL can connect them. */
int cuda_shards_connect(
	struct cuda_shard *shards, uint32_t count, bool *ret_reach, struct error_text *error);

/* The launches made from now on are those of a slot. */
void cuda_shard_take_slot(struct cuda_shard *shard, unsigned slot);

/* Nothing of it is under way. */
void cuda_shard_close(struct cuda_shard *shard);

#endif
