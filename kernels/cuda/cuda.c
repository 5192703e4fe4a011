/* The CUDA backend in the shape that markov.c dispatches to. */
#include "cuda.h"

#include "cuda_backend.h"

static int launch(void *state, const struct markov_batch *batch, struct error_text *error)
{
	return cuda_head_launch(state, batch, error);
}

static int wait(void *state, struct error_text *error)
{
	return cuda_head_wait(state, error);
}

static void close_head(void *state)
{
	cuda_head_close(state);
}

const struct backend cuda_backend = {.launch = launch, .wait = wait, .close = close_head};

int cuda_open(const struct markov_options *options, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_facts *facts, void **ret_state, struct error_text *error)
{
	struct cuda_head *head;
	const int r = cuda_head_open(options, NULL, checkpoint, progress, user, &head, error);
	if (r)
		return r;
	const struct markov_facts *own = cuda_head_facts(head);
	facts->variant = own->variant;
	facts->bias_order = own->bias_order;
	facts->tensor_parallel = own->tensor_parallel;
	facts->device_count = own->device_count;
	facts->devices[0] = own->devices[0];
	facts->table_bytes = own->table_bytes;
	*ret_state = head;
	return 0;
}
