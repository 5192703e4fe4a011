/* The CUDA backend for markov.c's table. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"

extern const struct backend cuda_backend;
backend_open_fn cuda_open;

#endif
