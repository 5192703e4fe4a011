/* The CUDA backend for markov.c's table. A build without it links kernels/no_cuda.c instead. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"

/* 0 when this build has the backend, else -ENODEV and what to do. */
int cuda_check_build(struct error_text *error);

/* 0 when a GPU that runs this backend is there, else -ENODEV and why not. Starts the driver. */
int cuda_probe(const char *devices, struct error_text *error);

extern const struct backend cuda_backend;
/* Also says in facts->choice which GPU and form it took. */
backend_open_fn cuda_open;

#endif
