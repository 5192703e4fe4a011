/* What the CUDA backend does for memory (kernels/memory.h). */
#ifndef KERNELS_CUDA_MEMORY_H
#define KERNELS_CUDA_MEMORY_H

#include "kernels/backend.h"

extern const struct memory_backend cuda_memory_backend;

#endif
