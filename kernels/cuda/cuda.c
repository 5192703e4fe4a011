/* The CUDA backend in the shape that markov.c dispatches to. */
#include "cuda.h"

#include "cuda_backend.h"
#include "device.h"
#include "memory.h"

#include <errno.h>
#include <string.h>

static int launch(void *state, const struct markov_batch *batch, struct error_text *error)
{
	return cuda_head_launch(state, batch, error);
}

static int wait(void *state, struct error_text *error)
{
	return cuda_head_wait(state, error);
}

static bool is_over(const void *state)
{
	return cuda_head_is_over(state);
}

static void close_head(void *state)
{
	cuda_head_close(state);
}

const struct backend cuda_backend = {
	.memory = &cuda_memory_backend,
	.launch = launch,
	.wait = wait,
	.is_over = is_over,
	.close = close_head,
};

int cuda_check_build(struct error_text *error)
{
	(void)error;
	return 0;
}

int cuda_probe(const char *devices, struct error_text *error)
{
	struct cuda_device chosen[MARKOV_DEVICES_MAX];
	uint32_t count;
	return cuda_devices_choose(devices, false, chosen, &count, error) ? -ENODEV : 0;
}

int cuda_open(const struct markov_options *options, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_facts *facts, void **ret_state, struct error_text *error)
{
	const struct markov_cuda_options *asked = &options->cuda;
	struct cuda_options tuning;
	struct cuda_head *head;
	cuda_options_init(&tuning);
	tuning.form = asked->form;
	tuning.sleep = asked->wait == MARKOV_CUDA_SLEEP;
	tuning.keep_l2 = asked->l2 == MARKOV_CUDA_KEEP;
	tuning.wait_bound_us = asked->timeout_us;
	tuning.graph_bytes_max = asked->graph_bytes;
	const int r = cuda_head_open(options, &tuning, checkpoint, progress, user, &head, error);
	if (r == -ENODEV || r == -ENXIO) {
		const struct error_text why = *error;
		error_text_set(error, -r,
			"the backend 'cuda' can't run here: %.*s; 'auto' would take the CPU",
			CUT(300, why.text));
	}
	if (r)
		return r;
	const struct markov_facts *own = cuda_head_facts(head);
	facts->variant = own->variant;
	facts->bias_order = own->bias_order;
	facts->batches_max = own->batches_max;
	facts->tensor_parallel = own->tensor_parallel;
	facts->device_count = own->device_count;
	memcpy(facts->devices, own->devices, sizeof(facts->devices));
	facts->table_bytes = own->table_bytes;
	memcpy(facts->choice, own->choice, sizeof(facts->choice));
	*ret_state = head;
	return 0;
}
