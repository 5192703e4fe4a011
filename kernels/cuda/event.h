/* What the CUDA backend does for events (kernels/event.h): rows of cuda_memory_backend. */
#ifndef KERNELS_CUDA_EVENT_H
#define KERNELS_CUDA_EVENT_H

#include "kernels/error_text.h"

#include <stdint.h>

int cuda_event_open(void *state, const char *uuid, const uint8_t *handle, void **ret_event,
	struct error_text *error);
int cuda_event_query(const void *event);
void cuda_event_close(void *event);

#endif
