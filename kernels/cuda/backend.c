/* Launch and wait. On every shard, a launch fills the columns, starts the graph of its draft length
 * and bucket, and marks its end with an event; a wait looks for these events until a bound.
 * Whatever goes wrong on a device ends the head: the context may be lost, and a launch that hangs
 * cannot be called back. */
#include "head.h"

#include "capture.h"
#include "kernels/clock.h"

#include <errno.h>
#include <string.h>

_Static_assert(DRAFT_FLAG_NAN == MARKOV_FLAG_NAN, "the kernels' flag is the seam's");

/* Takes numbers for the passes of a launch of the block form. */
static int take_sequence(struct cuda_head *head, uint64_t *ret, struct error_text *error)
{
	const uint64_t passes = launcher_passes(head->shards->launcher.columns->rows);
	const uint64_t place = head->sequence % SEQUENCE_WRAP;
	if (!place || place + passes > SEQUENCE_WRAP) {
		for (uint32_t i = 0; i < head->shard_count; i++) {
			const struct cuda_shard *shard = &head->shards[i];
			int r = cuda_shard_enter(shard, error);
			if (!r)
				r = CUDA_CALL(
					error, cudaMemsetAsync(shard->launcher.head.exchange, 0,
						       block_kernel_hint_bytes(), shard->stream));
			if (r)
				return r;
		}
		head->sequence += (place ? SEQUENCE_WRAP - place : 0) + 1;
	}
	*ret = head->sequence;
	head->sequence += passes;
	return 0;
}

static int launch_graphs(struct cuda_head *head, struct error_text *error)
{
	uint64_t sequence;
	const int r = take_sequence(head, &sequence, error);
	return r ? r : graph_table_launch(&head->graphs, head->shards, sequence, error);
}

static int device_lost(struct cuda_head *head)
{
	head->lost = true;
	head->flight_count = 0;
	return -EIO;
}

/* Fills a shard's columns and sends what they point to. */
static int send(struct cuda_shard *shard, unsigned slot, const struct markov_batch *batch,
	struct error_text *error)
{
	/* Each thread has a GPU of its own, and the head may have been opened by another. */
	int r = cuda_shard_enter(shard, error);
	cuda_shard_take_slot(shard, slot);
	struct draft_columns *columns = shard->launcher.columns;
	if (!r)
		r = staging_send(&shard->staging, batch, columns, shard->stream, error);
	columns->rows = batch->rows;
	columns->steps = batch->steps;
	memset(shard->launcher.head.flags, 0, batch->rows);
	return r;
}

/* Behind the kernels. */
static int collect(struct cuda_shard *shard, unsigned slot, const struct markov_batch *batch,
	struct error_text *error)
{
	int r = cuda_shard_enter(shard, error);
	if (!r)
		r = staging_collect(
			&shard->staging, batch, shard->launcher.columns, shard->stream, error);
	return r ? r : CUDA_CALL(error, cudaEventRecord(shard->slots[slot].done, shard->stream));
}

static bool is_traced(const struct markov_batch *batch)
{
	return batch->trace_bias || batch->trace_values;
}

static int check_batch(
	const struct cuda_head *head, const struct markov_batch *batch, struct error_text *error)
{
	const struct launcher *launcher = &head->shards->launcher;
	if (!batch->rows || batch->rows > launcher->max_rows)
		return error_text_set(error, EINVAL, "rows: %u is not within 1 and %u", batch->rows,
			launcher->max_rows);
	if (!batch->steps || batch->steps > launcher->max_steps)
		return error_text_set(error, EINVAL, "steps: %u is not within 1 and %u",
			batch->steps, launcher->max_steps);
	if (is_traced(batch) && head->shard_count > 1)
		return error_text_set(error, EINVAL, "traces are those of a head on one GPU");
	return 0;
}

int cuda_head_launch(
	struct cuda_head *head, const struct markov_batch *batch, struct error_text *error)
{
	const bool traced = is_traced(batch);
	const bool alone = staging_copies(batch);
	const unsigned slot = head->slot;
	int r;

	if (head->lost)
		return error_text_set(error, EIO, "the device is lost");
	r = check_batch(head, batch, error);
	if (r)
		return r;
	if (head->flight_count == head->facts.batches_max ||
		(head->flight_count && (alone || head->alone)))
		return error_text_set(error, EBUSY, "a batch is under way");
	for (uint32_t i = 0; !r && i < head->shard_count; i++)
		r = send(&head->shards[i], slot, batch, error);
	if (r)
		return r == -EIO ? device_lost(head) : r;
	head->replayable = !traced;
	r = traced ? capture_plain(head->shards, 1, NULL, batch->rows, batch->steps, error)
		   : launch_graphs(head, error);
	for (uint32_t i = 0; !r && i < head->shard_count; i++)
		r = collect(&head->shards[i], slot, batch, error);
	if (r)
		return device_lost(head);
	head->alone = alone;
	if (!head->flight_count)
		head->until_us = cuda_head_bound(head);
	head->flights[head->flight_count++] = (struct cuda_flight){.batch = batch, .slot = slot};
	head->slot = (slot + 1) % head->facts.batches_max;
	return 0;
}

/* What a shard says of a launch that is over. */
static int check_shard(const struct cuda_head *head, const struct cuda_shard *shard,
	const struct cuda_flight *flight, struct error_text *error)
{
	const struct markov_batch *batch = flight->batch;
	const size_t bytes = (size_t)batch->rows * batch->steps * sizeof(*batch->tokens);
	if (*(volatile uint32_t *)shard->launcher.head.status != DRAFT_STATUS_FINE)
		return error_text_set(error, EIO,
			"the multiprocessors waited for each other for more than %llu us",
			(unsigned long long)head->options.wait_bound_us / 2);
	if (memcmp(shard->slots[flight->slot].tokens, head->shards->slots[flight->slot].tokens,
		    bytes) != 0)
		return error_text_set(error, EIO, "%s and %s came to different tokens",
			head->shards->device.facts.uuid, shard->device.facts.uuid);
	return 0;
}

int cuda_head_wait(struct cuda_head *head, struct error_text *error)
{
	const struct cuda_flight flight = head->flights[0];
	const struct markov_batch *batch = flight.batch;
	if (head->lost)
		return error_text_set(error, EIO, "the device is lost");
	if (!head->flight_count)
		return 0;
	int r = cuda_head_await(head, flight.slot, head->until_us, error);
	for (uint32_t i = 0; !r && i < head->shard_count; i++)
		r = check_shard(head, &head->shards[i], &flight, error);
	if (r)
		return device_lost(head);
	/* All shards know the winners. */
	const struct cuda_slot *slot = &head->shards->slots[flight.slot];
	memcpy(batch->tokens, slot->tokens,
		(size_t)batch->rows * batch->steps * sizeof(*batch->tokens));
	memcpy(batch->flags, slot->flags, batch->rows);
	if (head->alone)
		for (uint32_t i = 0; i < head->shard_count; i++)
			staging_receive(&head->shards[i].staging, batch);
	head->flights[0] = head->flights[1];
	head->flight_count--;
	head->until_us = cuda_head_bound(head); /* of the next, which has begun */
	return 0;
}

bool cuda_head_is_over(const struct cuda_head *head)
{
	const unsigned slot = head->flights[0].slot;
	for (uint32_t i = 0; head->flight_count && i < head->shard_count; i++)
		if (cudaEventQuery(head->shards[i].slots[slot].done) == cudaErrorNotReady)
			return clock_us() > head->until_us;
	return true;
}

static int record(struct cuda_head *head, bool end, struct error_text *error)
{
	int r = 0;
	for (uint32_t i = 0; !r && i < head->shard_count; i++) {
		const struct cuda_shard *shard = &head->shards[i];
		r = cuda_shard_enter(shard, error);
		if (!r)
			r = CUDA_CALL(
				error, cudaEventRecord(end ? shard->slots[0].done : shard->begun,
					       shard->stream));
	}
	return r;
}

int cuda_head_replay(
	struct cuda_head *head, unsigned count, float *ret_us, struct error_text *error)
{
	if (head->lost || head->flight_count || !head->replayable)
		return error_text_set(error, EINVAL, "there is no finished launch to replay");
	for (unsigned i = 0; i < count; i++) {
		int r = record(head, false, error);
		if (!r)
			r = launch_graphs(head, error);
		if (!r)
			r = record(head, true, error);
		if (!r)
			r = cuda_head_await(head, 0, cuda_head_bound(head), error);
		ret_us[i] = 0;
		for (uint32_t s = 0; !r && s < head->shard_count; s++) {
			float ms = 0;
			r = CUDA_CALL(error, cudaEventElapsedTime(&ms, head->shards[s].begun,
						     head->shards[s].slots[0].done));
			if (ms * 1000 > ret_us[i])
				ret_us[i] = ms * 1000;
		}
		if (r)
			return device_lost(head);
	}
	return 0;
}
