/* A head is opened: its GPUs chosen, the vocabulary cut, tables loaded, shards connected by stores
 * or by NCCL, a form chosen, graphs built. And closed, in the order in which one part may still use
 * another. */
#include "head.h"

#include "capture.h"
#include "kernels/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_BOUND_US   10000000u
#define GRAPH_BYTES_MAX (1ull << 30)
#define NAP_NS          20000 /* between looks of a wait that sleeps */

_Static_assert(MARKOV_DEVICES_MAX <= 64, "a bit a shard");
_Static_assert(DRAFT_STEPS_MAX == CUDA_STEPS_MAX, "the kernels' limit is the seam's");

uint64_t cuda_head_bound(const struct cuda_head *head)
{
	return clock_us() + head->options.wait_bound_us;
}

/* Looks at all shards in turn, since one that fails may keep the others waiting. */
int cuda_head_await(
	struct cuda_head *head, unsigned slot, uint64_t until_us, struct error_text *error)
{
	const uint64_t all = ~0ull >> (64 - head->shard_count);
	uint64_t over = 0;
	for (;;) {
		const struct cuda_shard *late = NULL;
		for (uint32_t i = 0; i < head->shard_count; i++) {
			const struct cuda_shard *shard = &head->shards[i];
			if (over >> i & 1)
				continue;
			const cudaError_t state = cudaEventQuery(shard->slots[slot].done);
			if (state == cudaErrorNotReady)
				late = shard;
			else if (state != cudaSuccess)
				return cuda_result(state, "the launch", error);
			else
				over |= 1ull << i;
		}
		if (over == all)
			return 0;
		if (clock_us() > until_us)
			return error_text_set(error, EIO,
				"a launch on %s did not end within %llu us",
				late->device.facts.uuid,
				(unsigned long long)head->options.wait_bound_us);
		if (head->collective) {
			const int r = collective_check(head->collective, error);
			if (r)
				return r;
		}
		if (head->options.sleep)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
}

void cuda_options_init(struct cuda_options *options)
{
	*options = (struct cuda_options){
		.wait_bound_us = WAIT_BOUND_US,
		.graph_bytes_max = GRAPH_BYTES_MAX,
		.resident_tiles = -1,
		.pinned_tiles = -1,
	};
}

static const char *const form_names[] = {"auto", "block", "step", "plain"};

static void describe(
	struct cuda_head *head, const struct checkpoint *checkpoint, const char *why_not)
{
	struct markov_facts *f = &head->facts;
	f->backend = "cuda";
	f->variant = head->shards->device.variant;
	f->bias_order = "mma16";
	f->vocab = checkpoint->vocab;
	f->rank = checkpoint->rank;
	f->target_vocab = checkpoint->target_vocab;
	f->multiplier = checkpoint->multiplier;
	f->soft_cap = checkpoint->soft_cap;
	f->max_rows = head->shards->launcher.max_rows;
	f->max_steps = head->shards->launcher.max_steps;
	/* Who naps between looks at a GPU is not there when the next could begin; the plain form's
	 * columns, and the packets of several GPUs, are those of one launch at a time. */
	f->batches_max =
		head->shard_count > 1 || head->form == MARKOV_CUDA_PLAIN || head->options.sleep
			? 1
			: MARKOV_BATCHES_MAX;
	f->tensor_parallel = head->shard_count;
	f->device_count = head->shard_count;
	for (uint32_t i = 0; i < head->shard_count; i++) {
		f->devices[i] = head->shards[i].device.facts;
		f->table_bytes += head->shards[i].tables.bytes;
	}
	snprintf(f->choice, sizeof(f->choice),
		"backend cuda on %u x %s, %s form%s, %llu KiB of graphs", head->shard_count,
		head->shards->device.facts.name, form_names[head->form],
		head->collective        ? " through NCCL"
		: head->shard_count > 1 ? " by peer stores"
					: "",
		(unsigned long long)head->graphs.bytes >> 10);
	if (why_not) {
		const size_t used = strlen(f->choice);
		snprintf(f->choice + used, sizeof(f->choice) - used, ", because %s", why_not);
	}
}

/* Multiprocessors that every shard has for the block kernel. */
static int count_ctas(const struct cuda_head *head, const struct cuda_device *devices,
	uint32_t vocab, unsigned *ret, struct error_text *error)
{
	struct cuda_part part;
	unsigned ctas = BLOCK_CTAS_MAX, tiles = 1;
	for (uint32_t i = 0; i < head->shard_count; i++) {
		unsigned own = (unsigned)devices[i].multiprocessors, sharers = 0;
		for (uint32_t j = 0; j < head->shard_count; j++)
			sharers += devices[j].ordinal == devices[i].ordinal;
		own /= sharers; /* they wait for each other, so all must run at once */
		if (own < 1)
			return error_text_set(error, EINVAL,
				"devices: %u shards are too many for the %d multiprocessors of %s",
				sharers, devices[i].multiprocessors, devices[i].facts.name);
		ctas = own < ctas ? own : ctas;
		cuda_part_init(&part, i, head->shard_count, vocab);
		const unsigned its = (part.vocab + TILE_ROWS - 1) / TILE_ROWS;
		tiles = its > tiles ? its : tiles;
	}
	if (head->options.multiprocessors && head->options.multiprocessors < ctas)
		ctas = head->options.multiprocessors;
	*ret = ctas < tiles ? ctas : tiles;
	return 0;
}

/* The progress of one shard as part of all. */
struct shard_progress {
	void (*progress)(void *user, const char *what, double done);
	void *user;
	uint32_t shard, shards;
};

static void tell_progress(void *user, const char *what, double done)
{
	const struct shard_progress *p = user;
	if (p->progress)
		p->progress(p->user, what, (p->shard + done) / p->shards);
}

static int open_shards(struct cuda_head *head, const struct markov_options *options,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	const char **ret_why_not, struct error_text *error)
{
	struct cuda_device devices[MARKOV_DEVICES_MAX];
	unsigned ctas = 0;
	int r = cuda_devices_choose(options->devices, head->options.repeated_devices, devices,
		&head->shard_count, error);
	if (!r)
		r = count_ctas(head, devices, checkpoint->vocab, &ctas, error);
	if (r)
		return r;
	head->shards = calloc(head->shard_count, sizeof(*head->shards));
	if (!head->shards)
		return error_text_set(error, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < head->shard_count; i++)
		head->shards[i].device = devices[i];
	for (uint32_t i = 0; !r && i < head->shard_count; i++) {
		struct shard_progress part_of_it = {progress, user, i, head->shard_count};
		struct cuda_part part;
		const char *why_not = NULL;
		cuda_part_init(&part, i, head->shard_count, checkpoint->vocab);
		part.ctas = ctas;
		r = cuda_shard_enter(&head->shards[i], error);
		if (!r)
			r = cuda_shard_open(&head->shards[i], &part, options, &head->options,
				checkpoint, tell_progress, &part_of_it, &why_not, error);
		if (why_not)
			*ret_why_not = why_not;
	}
	return r;
}

/* Several GPUs in a form by step: NCCL, which is run once before anything is captured, so that
 * nothing is loaded or allocated meanwhile. */
static int open_collective(struct cuda_head *head, struct error_text *error)
{
	int ordinals[MARKOV_DEVICES_MAX];
	for (uint32_t i = 0; i < head->shard_count; i++) {
		ordinals[i] = head->shards[i].device.ordinal;
		for (uint32_t j = 0; j < i; j++)
			if (ordinals[i] == ordinals[j])
				return error_text_set(error, ENOTSUP,
					"devices: several shards on one GPU need the block form");
	}
	int r = collective_open(
		ordinals, head->shard_count, head->options.wait_bound_us, &head->collective, error);
	if (!r)
		r = capture_gather(head->shards, head->shard_count, head->collective, 0, error);
	for (uint32_t i = 0; !r && i < head->shard_count; i++) {
		r = cuda_shard_enter(&head->shards[i], error);
		if (!r)
			r = CUDA_CALL(error, cudaEventRecord(head->shards[i].slots[0].done,
						     head->shards[i].stream));
	}
	return r;
}

static int open_head(struct cuda_head *head, const struct markov_options *options,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error)
{
	const char *why_not = NULL;
	bool reach;

	if (!options->max_rows || options->max_rows > CUDA_ROWS_MAX)
		return error_text_set(error, EINVAL, "max_rows: %u is not within 1 and %u",
			options->max_rows, CUDA_ROWS_MAX);
	if (!options->max_steps || options->max_steps > CUDA_STEPS_MAX)
		return error_text_set(error, EINVAL, "max_steps: %u is not within 1 and %u",
			options->max_steps, CUDA_STEPS_MAX);
	int r = open_shards(head, options, checkpoint, progress, user, &why_not, error);
	if (!r && head->shard_count > 1 && progress)
		progress(user, "connecting the GPUs", 0);
	if (!r)
		r = cuda_shards_connect(head->shards, head->shard_count, &reach, error);
	if (r)
		return r;
	const bool has_block = !why_not;
	if (has_block && !reach)
		why_not = "the GPUs can't reach each other's memory";
	head->form = head->options.form;
	if (head->form == MARKOV_CUDA_AUTO)
		head->form = !why_not    ? MARKOV_CUDA_BLOCK
			     : has_block ? MARKOV_CUDA_STEP
					 : MARKOV_CUDA_PLAIN;
	if ((head->form == MARKOV_CUDA_BLOCK && why_not) ||
		(head->form == MARKOV_CUDA_STEP && !has_block))
		return error_text_set(error, ENOTSUP,
			"the %s form can't run here: %s; form = %s can", form_names[head->form],
			why_not, has_block ? "step" : "plain");
	if (head->shard_count > 1 && head->form != MARKOV_CUDA_BLOCK) {
		r = open_collective(head, error);
		if (!r)
			r = cuda_head_await(head, 0, cuda_head_bound(head), error);
	}
	head->sequence = SEQUENCE_FIRST;
	if (!r)
		r = graph_table_build(&head->graphs, head->shards, head->shard_count,
			head->collective, head->form, head->options.graph_bytes_max, progress, user,
			error);
	if (!r)
		describe(head, checkpoint, why_not);
	return r;
}

int cuda_head_open(const struct markov_options *options, const struct cuda_options *tuning,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct cuda_head **ret, struct error_text *error)
{
	struct cuda_head *head = calloc(1, sizeof(*head));
	if (!head)
		return error_text_set(error, ENOMEM, "out of memory");
	if (tuning)
		head->options = *tuning;
	else
		cuda_options_init(&head->options);
	if (!head->options.wait_bound_us)
		head->options.wait_bound_us = WAIT_BOUND_US;
	if (!head->options.graph_bytes_max)
		head->options.graph_bytes_max = GRAPH_BYTES_MAX;
	const int r = open_head(head, options, checkpoint, progress, user, error);
	if (r)
		cuda_head_close(head);
	else
		*ret = head;
	return r;
}

void cuda_head_close(struct cuda_head *head)
{
	struct error_text ignored;

	if (!head)
		return;
	while (head->flight_count && !head->lost)
		cuda_head_wait(head, &ignored);
	/* Graphs before the communicators that they hold. When the head is lost, a launch may still
	 * wait for its peers: an abort ends that, and the other forms have a bound. */
	graph_table_done(&head->graphs);
	collective_close(head->collective, head->lost);
	/* What one shard runs may still store into the memory of another. */
	for (uint32_t i = 0; head->shards && i < head->shard_count; i++)
		if (head->shards[i].stream)
			cudaStreamSynchronize(head->shards[i].stream);
	for (uint32_t i = 0; head->shards && i < head->shard_count; i++)
		cuda_shard_close(&head->shards[i]);
	free(head->shards);
	free(head);
}

const struct markov_facts *cuda_head_facts(const struct cuda_head *head)
{
	return &head->facts;
}

uint64_t cuda_head_graph_bytes(const struct cuda_head *head)
{
	return head->graphs.bytes;
}
