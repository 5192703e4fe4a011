/* Stands in for kernels/cuda/ where that is not linked: in builds without CUDA, and in programs
 * that only ever compute on the CPU. */
#include "kernels/cuda/cuda.h"

#include <errno.h>

/* Never called: no head was opened. */
const struct backend cuda_backend = {0};

int cuda_check_build(struct error_text *error)
{
	return error_text_set(error, ENODEV,
		"this build has no CUDA backend: use the backend 'cpu' or 'auto', or a build with "
		"CUDA");
}

int cuda_probe(const char *devices, struct error_text *error)
{
	(void)devices;
	return error_text_set(error, ENODEV, "this build has no CUDA backend");
}

int cuda_open(const struct markov_options *options, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_facts *facts, void **ret_state, struct error_text *error)
{
	(void)options, (void)checkpoint, (void)progress, (void)user, (void)facts, (void)ret_state;
	return cuda_check_build(error);
}
