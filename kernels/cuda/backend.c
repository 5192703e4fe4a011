/* Open, launch, wait, close. A launch fills the columns, starts the graph of its draft length and
 * bucket, and marks its end with an event; a wait looks for that event until a bound. Whatever goes
 * wrong on the device ends the head: the context may be lost, and a launch that hangs cannot be
 * called back. */
#include "cuda_backend.h"

#include "graphs.h"
#include "staging.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_BOUND_US   10000000u
#define GRAPH_BYTES_MAX (1ull << 30)
#define NAP_NS          20000 /* between looks of a wait that sleeps */

/* Passes after which the lower half of the exchange's numbers (DRAFT_STEPS_MAX a pass) wraps, and
 * where a head starts: close below, so that the wrap is nothing rare. A multiple of SEQUENCE_WRAP
 * is never used: a lower half of 0 is what a cleared exchange holds. */
#define SEQUENCE_WRAP  ((1ull << 32) / DRAFT_STEPS_MAX)
#define SEQUENCE_FIRST (SEQUENCE_WRAP - 256)

_Static_assert(DRAFT_FLAG_NAN == MARKOV_FLAG_NAN, "the kernels' flag is the seam's");
_Static_assert(DRAFT_STEPS_MAX == CUDA_STEPS_MAX, "the kernels' limit is the seam's");

struct cuda_head {
	struct markov_facts facts;
	struct cuda_options options;
	struct cuda_device device;
	enum markov_cuda_form form;
	cudaStream_t stream;
	cudaEvent_t begun, done;
	struct cuda_tables tables;
	struct launcher launcher;
	struct graph_table graphs;
	struct staging staging;
	uint64_t sequence;
	const struct markov_batch *batch; /* under way, or NULL */
	bool replayable;                  /* the columns are those of a launch through a graph */
	bool lost;
};

void cuda_options_init(struct cuda_options *options)
{
	*options = (struct cuda_options){
		.wait_bound_us = WAIT_BOUND_US,
		.graph_bytes_max = GRAPH_BYTES_MAX,
		.resident_tiles = -1,
		.pinned_tiles = -1,
	};
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

static int allocate(struct cuda_head *head, struct error_text *error)
{
	struct launcher *launcher = &head->launcher;
	struct draft_head *d = &launcher->head;
	const size_t rows = launcher->max_rows, steps = launcher->max_steps;
	const size_t columns = sizeof(struct draft_columns) + rows * sizeof(struct draft_row);

	int r = cuda_zeroed((void **)&d->columns, columns, error);
	if (!r)
		r = cuda_zeroed(&d->exchange, block_kernel_exchange_bytes(), error);
	if (!r)
		r = cuda_zeroed(
			(void **)&d->step_keys, steps * rows * sizeof(*d->step_keys), error);
	if (!r)
		r = pinned((void **)&launcher->columns, columns, error);
	if (!r)
		r = pinned((void **)&d->tokens, rows * steps * sizeof(*d->tokens), error);
	if (!r)
		r = pinned((void **)&d->flags, rows, error);
	if (!r)
		r = pinned((void **)&d->status, sizeof(*d->status), error);
	d->step_keys_pitch = launcher->max_rows;
	return r;
}

static const char *const form_names[] = {"auto", "block", "step", "plain"};

static void describe(
	struct cuda_head *head, const struct checkpoint *checkpoint, const char *why_not)
{
	struct markov_facts *f = &head->facts;
	f->backend = "cuda";
	f->variant = head->device.variant;
	f->bias_order = "mma16";
	f->vocab = checkpoint->vocab;
	f->rank = checkpoint->rank;
	f->target_vocab = checkpoint->target_vocab;
	f->multiplier = checkpoint->multiplier;
	f->soft_cap = checkpoint->soft_cap;
	f->max_rows = head->launcher.max_rows;
	f->max_steps = head->launcher.max_steps;
	f->tensor_parallel = 1;
	f->device_count = 1;
	f->devices[0] = head->device.facts;
	f->table_bytes = head->tables.bytes;
	snprintf(f->choice, sizeof(f->choice), "backend cuda on %s, %s form, %llu KiB of graphs",
		head->device.facts.name, form_names[head->form],
		(unsigned long long)head->graphs.bytes >> 10);
	if (why_not) {
		const size_t used = strlen(f->choice);
		snprintf(f->choice + used, sizeof(f->choice) - used, ", because %s", why_not);
	}
}

static int open_head(struct cuda_head *head, const struct markov_options *options,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error)
{
	struct launcher *launcher = &head->launcher;
	const char *why_not = NULL;
	int r;

	if (!options->max_rows || options->max_rows > CUDA_ROWS_MAX)
		return error_text_set(error, EINVAL, "max_rows: %u is not within 1 and %u",
			options->max_rows, CUDA_ROWS_MAX);
	if (!options->max_steps || options->max_steps > CUDA_STEPS_MAX)
		return error_text_set(error, EINVAL, "max_steps: %u is not within 1 and %u",
			options->max_steps, CUDA_STEPS_MAX);
	r = cuda_device_choose(options->devices, &head->device, error);
	if (!r)
		r = CUDA_CALL(
			error, cudaStreamCreateWithFlags(&head->stream, cudaStreamNonBlocking));
	if (!r)
		r = CUDA_CALL(error, cudaEventCreate(&head->begun));
	if (!r)
		r = CUDA_CALL(error, cudaEventCreate(&head->done));
	if (!r)
		r = cuda_tables_load(checkpoint, progress, user, &head->tables, error);
	if (r)
		return r;

	launcher->max_rows = options->max_rows;
	launcher->max_steps = options->max_steps;
	launcher->head = (struct draft_head){
		.vocab = checkpoint->vocab,
		.target_vocab = checkpoint->target_vocab,
		.rank = head->tables.rank,
		.multiplier = checkpoint->multiplier,
		.soft_cap = checkpoint->soft_cap,
		.inverse_soft_cap =
			checkpoint->soft_cap != 0.0f ? 1.0f / checkpoint->soft_cap : 0.0f,
		.w1 = head->tables.w1,
		.w2 = head->tables.w2,
		.spin_bound_ns = head->options.wait_bound_us *
				 500, /* half of ours, so that it is told first */
	};
	r = allocate(head, error);
	if (!r)
		r = launcher_prepare(
			launcher, &head->device, &head->tables, &head->options, &why_not, error);
	if (r)
		return r;
	head->form = head->options.form;
	if (head->form == MARKOV_CUDA_AUTO)
		head->form = launcher->has_block ? MARKOV_CUDA_BLOCK : MARKOV_CUDA_PLAIN;
	if (head->form != MARKOV_CUDA_PLAIN && !launcher->has_block)
		return error_text_set(error, ENOTSUP,
			"the %s form can't run here: %s; form = plain can", form_names[head->form],
			why_not);
	staging_init(&head->staging);
	head->sequence = SEQUENCE_FIRST;
	r = graph_table_build(&head->graphs, launcher, head->form, head->stream,
		head->options.graph_bytes_max, progress, user, error);
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
	if (!head)
		return;
	struct draft_head *d = &head->launcher.head;
	cudaSetDevice(head->device.ordinal);
	if (head->batch && !head->lost)
		cuda_head_wait(head, NULL);
	graph_table_done(&head->graphs);
	staging_done(&head->staging);
	cuda_tables_free(&head->tables);
	cudaFree((void *)d->columns);
	cudaFree(d->exchange);
	cudaFree(d->step_keys);
	cudaFreeHost(head->launcher.columns);
	cudaFreeHost(d->tokens);
	cudaFreeHost(d->flags);
	cudaFreeHost(d->status);
	if (head->begun)
		cudaEventDestroy(head->begun);
	if (head->done)
		cudaEventDestroy(head->done);
	if (head->stream)
		cudaStreamDestroy(head->stream);
	cudaGetLastError(); /* of a lost context, say: it was reported when it was lost */
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

/* Takes numbers for the passes of a launch of the block form. */
static int take_sequence(struct cuda_head *head, uint64_t *ret, struct error_text *error)
{
	const uint64_t passes = launcher_passes(head->launcher.columns->rows);
	const uint64_t place = head->sequence % SEQUENCE_WRAP;
	if (!place || place + passes > SEQUENCE_WRAP) {
		const int r =
			CUDA_CALL(error, cudaMemsetAsync(head->launcher.head.exchange, 0,
						 block_kernel_exchange_bytes(), head->stream));
		if (r)
			return r;
		head->sequence += (place ? SEQUENCE_WRAP - place : 0) + 1;
	}
	*ret = head->sequence;
	head->sequence += passes;
	return 0;
}

static int launch_graph(struct cuda_head *head, struct error_text *error)
{
	uint64_t sequence;
	const int r = take_sequence(head, &sequence, error);
	return r ? r
		 : graph_table_launch(
			   &head->graphs, &head->launcher, sequence, head->stream, error);
}

static int device_lost(struct cuda_head *head)
{
	head->lost = true;
	head->batch = NULL;
	return -EIO;
}

int cuda_head_launch(
	struct cuda_head *head, const struct markov_batch *batch, struct error_text *error)
{
	const struct launcher *launcher = &head->launcher;
	struct draft_columns *columns = launcher->columns;

	if (head->lost)
		return error_text_set(error, EIO, "the device is lost");
	if (head->batch)
		return error_text_set(error, EBUSY, "a batch is under way");
	if (!batch->rows || batch->rows > launcher->max_rows)
		return error_text_set(error, EINVAL, "rows: %u is not within 1 and %u", batch->rows,
			launcher->max_rows);
	if (!batch->steps || batch->steps > launcher->max_steps)
		return error_text_set(error, EINVAL, "steps: %u is not within 1 and %u",
			batch->steps, launcher->max_steps);
	/* Each thread has a GPU of its own, and the head may have been opened by another. */
	int r = CUDA_CALL(error, cudaSetDevice(head->device.ordinal));
	if (!r)
		r = staging_send(
			&head->staging, batch, launcher->head.vocab, columns, head->stream, error);
	if (r)
		return r == -EIO ? device_lost(head) : r;
	columns->rows = batch->rows;
	columns->steps = batch->steps;
	memset(launcher->head.flags, 0, batch->rows);
	head->replayable = !batch->trace_bias && !batch->trace_values;
	if (head->replayable)
		r = launch_graph(head, error);
	else
		r = launcher_enqueue_plain(
			launcher, batch->rows, batch->steps, head->stream, error);
	if (!r)
		r = staging_collect(
			&head->staging, batch, launcher->head.vocab, columns, head->stream, error);
	if (!r)
		r = CUDA_CALL(error, cudaEventRecord(head->done, head->stream));
	if (r)
		return device_lost(head);
	head->batch = batch;
	return 0;
}

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Until the event is there, or the bound is over. */
static int await_event(struct cuda_head *head, struct error_text *error)
{
	const uint64_t until = now_us() + head->options.wait_bound_us;
	for (;;) {
		const cudaError_t state = cudaEventQuery(head->done);
		if (state != cudaErrorNotReady)
			return cuda_result(state, "the launch", error);
		if (now_us() > until)
			return error_text_set(error, EIO, "a launch did not end within %llu us",
				(unsigned long long)head->options.wait_bound_us);
		if (head->options.sleep)
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	}
}

int cuda_head_wait(struct cuda_head *head, struct error_text *error)
{
	const struct markov_batch *batch = head->batch;
	if (head->lost)
		return error_text_set(error, EIO, "the device is lost");
	if (!batch)
		return 0;
	if (await_event(head, error))
		return device_lost(head);
	if (*(volatile uint32_t *)head->launcher.head.status != DRAFT_STATUS_FINE) {
		error_text_set(error, EIO,
			"the multiprocessors waited for each other for more than %llu us",
			(unsigned long long)head->options.wait_bound_us / 2);
		return device_lost(head);
	}
	memcpy(batch->tokens, head->launcher.head.tokens,
		(size_t)batch->rows * batch->steps * sizeof(*batch->tokens));
	memcpy(batch->flags, head->launcher.head.flags, batch->rows);
	staging_receive(&head->staging, batch, head->launcher.head.vocab);
	head->batch = NULL;
	return 0;
}

int cuda_head_replay(
	struct cuda_head *head, unsigned count, float *ret_us, struct error_text *error)
{
	if (head->lost || head->batch || !head->replayable)
		return error_text_set(error, EINVAL, "there is no finished launch to replay");
	for (unsigned i = 0; i < count; i++) {
		float ms = 0;
		int r = CUDA_CALL(error, cudaEventRecord(head->begun, head->stream));
		if (!r)
			r = launch_graph(head, error);
		if (!r)
			r = CUDA_CALL(error, cudaEventRecord(head->done, head->stream));
		if (!r)
			r = await_event(head, error);
		if (!r)
			r = CUDA_CALL(error, cudaEventElapsedTime(&ms, head->begun, head->done));
		if (r)
			return device_lost(head);
		ret_us[i] = ms * 1000;
	}
	return 0;
}
