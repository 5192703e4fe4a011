/* Chooses a backend, then stands between its callers and it: every batch that a backend sees is
 * within the limits. */
#include "kernels/markov.h"

#include "kernels/backend.h"
#include "kernels/cuda/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX  4096u
#define STEPS_MAX 4096u

struct markov_head {
	const struct backend *backend;
	void *state;
	struct markov_facts facts;
	uint32_t under_way;
};

static int check_options(const struct markov_options *options, struct error_text *error)
{
	if (options->max_rows < 1 || options->max_rows > ROWS_MAX)
		return error_text_set(error, EINVAL, "max_rows is %u: it must be 1 to %u",
			options->max_rows, ROWS_MAX);
	if (options->max_steps < 1 || options->max_steps > STEPS_MAX)
		return error_text_set(error, EINVAL, "max_steps is %u: it must be 1 to %u",
			options->max_steps, STEPS_MAX);
	return 0;
}

/* Takes the CPU only when it was asked for, or when nothing was and there is no usable GPU: a GPU
 * that fails later is an error, not a reason to serve a hundred times slower. */
static bool choose_cuda(const struct markov_options *options, struct markov_facts *facts)
{
	struct error_text why;

	if (options->backend == MARKOV_CPU)
		strcpy(facts->choice, "backend cpu, as asked for");
	else if (options->backend == MARKOV_CUDA || !cuda_probe(options->devices, &why))
		return true;
	else
		snprintf(facts->choice, sizeof(facts->choice), "backend cpu, because %.*s",
			CUT(200, why.text));
	return false;
}

int markov_check_build(enum markov_backend backend, struct error_text *error)
{
	return backend == MARKOV_CUDA ? cuda_check_build(error) : 0;
}

int markov_open(const struct markov_options *options, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_head **ret, struct error_text *error)
{
	struct markov_head *head;
	int result = check_options(options, error);

	if (result < 0)
		return result;
	head = calloc(1, sizeof(*head));
	if (!head)
		return error_text_set(error, ENOMEM, "no memory for a head");
	head->facts = (struct markov_facts){
		.vocab = checkpoint->vocab,
		.rank = checkpoint->rank,
		.target_vocab = checkpoint->target_vocab,
		.multiplier = checkpoint->multiplier,
		.soft_cap = checkpoint->soft_cap,
		.max_rows = options->max_rows,
		.max_steps = options->max_steps,
		.batches_max = 1,
	};
	/* A driver may take its time to come up. */
	if (options->backend != MARKOV_CPU && progress)
		progress(user, "opening the GPUs", 0);
	const bool cuda = choose_cuda(options, &head->facts);

	head->facts.backend = cuda ? "cuda" : "cpu";
	head->backend = cuda ? &cuda_backend : &cpu_backend;
	result = (cuda ? cuda_open : cpu_open)(
		options, checkpoint, progress, user, &head->facts, &head->state, error);
	if (result < 0)
		free(head);
	else
		*ret = head;
	return result;
}

void markov_close(struct markov_head *head)
{
	struct error_text ignored;

	if (!head)
		return;
	while (head->under_way)
		markov_wait(head, &ignored);
	head->backend->close(head->state);
	free(head);
}

const struct markov_facts *markov_facts(const struct markov_head *head)
{
	return &head->facts;
}

static int check_batch(const struct markov_facts *facts, const struct markov_batch *batch,
	struct error_text *error)
{
	if (batch->rows < 1 || batch->rows > facts->max_rows)
		return error_text_set(error, EINVAL, "a batch of %u rows: 1 to %u were prepared",
			batch->rows, facts->max_rows);
	if (batch->steps < 1 || batch->steps > facts->max_steps)
		return error_text_set(error, EINVAL, "a batch of %u steps: 1 to %u were prepared",
			batch->steps, facts->max_steps);
	if (!batch->anchors || !batch->positions || !batch->seeds || !batch->temperatures ||
		!batch->slots || !batch->base || !batch->base_strides || !batch->logits ||
		!batch->logits_strides || !batch->tokens || !batch->flags)
		return error_text_set(error, EINVAL, "a batch without one of its columns");
	for (uint32_t r = 0; r < batch->rows; r++)
		if (!batch->base[r])
			return error_text_set(error, EINVAL, "row %u has no base logits", r);
	return 0;
}

int markov_launch(
	struct markov_head *head, const struct markov_batch *batch, struct error_text *error)
{
	int result;

	if (head->under_way == head->facts.batches_max)
		return error_text_set(error, EBUSY, "a batch is under way: wait for it first");
	result = check_batch(&head->facts, batch, error);
	if (result == 0)
		result = head->backend->launch(head->state, batch, error);
	head->under_way += result == 0;
	return result;
}

int markov_wait(struct markov_head *head, struct error_text *error)
{
	if (!head->under_way)
		return 0;
	head->under_way--;
	return head->backend->wait(head->state, error);
}

bool markov_is_over(const struct markov_head *head)
{
	return !head->under_way || !head->backend->is_over || head->backend->is_over(head->state);
}
