/* What the CUDA backend does for memory (kernels/memory.h) and events (kernels/event.h). */
#ifndef KERNELS_CUDA_MEMORY_H
#define KERNELS_CUDA_MEMORY_H

#include "kernels/backend.h"

extern const struct memory_backend cuda_memory_backend;

/* ---- between memory.c and event.c ---- */

/* The ordinal of the head's device `uuid` ("": its first). -ENODEV: the host has no such device;
 * -EXDEV: it is none of the head's. */
int cuda_memory_ordinal(const void *state, const char *uuid, struct error_text *error);

/* Whether nothing works any longer. What a failed call was, its result doesn't tell; what is lost
 * fails every call. */
bool cuda_memory_lost(void);

#endif
