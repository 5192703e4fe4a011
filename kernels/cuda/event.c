/* The happy path: open a handle of another process, ask whether it has fired, destroy it. What
 * fails: a handle that is none (one whose process is gone may still be taken); and a lost context,
 * which makes every call fail. */
#include "event.h"

#include "device.h"
#include "kernels/event.h"
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cuda_event {
	cudaEvent_t event;
	int ordinal; /* of its device, which each thread that asks works with */
};

_Static_assert(sizeof(cudaIpcEventHandle_t) == MARKOV_EVENT_HANDLE_BYTES,
	"PROTOCOL.md says how long a handle is");

int cuda_event_open(void *state, const char *uuid, const uint8_t *handle, void **ret_event,
	struct error_text *error)
{
	const int ordinal = cuda_memory_ordinal(state, uuid, error);
	if (ordinal < 0)
		return ordinal;
	if (CUDA_CALL(error, cudaSetDevice(ordinal)))
		return -EIO;
	struct cuda_event *event = malloc(sizeof(*event));
	if (!event)
		return error_text_set(error, ENOMEM, "out of memory for an event");
	event->ordinal = ordinal;
	cudaIpcEventHandle_t ipc;
	memcpy(&ipc, handle, sizeof(ipc));
	const cudaError_t result = cudaIpcOpenEventHandle(&event->event, ipc);
	if (result == cudaSuccess) {
		*ret_event = event;
		return 0;
	}
	free(event);
	cudaGetLastError();
	int code = EINVAL;
	if (cuda_memory_lost())
		code = EIO;
	else if (result == cudaErrorMemoryAllocation)
		code = ENOMEM;
	return error_text_set(error, code,
		"the handle is no interprocess event that a living process has on the device (%s)",
		cudaGetErrorName(result));
}

int cuda_event_query(const void *state)
{
	const struct cuda_event *event = state;
	cudaError_t result = cudaSetDevice(event->ordinal);
	if (result == cudaSuccess)
		result = cudaEventQuery(event->event);
	if (result == cudaSuccess)
		return 1;
	cudaGetLastError();
	if (result == cudaErrorNotReady)
		return 0;
	return cuda_memory_lost() ? -EIO : -EINVAL;
}

void cuda_event_close(void *state)
{
	struct cuda_event *event = state;
	cudaSetDevice(event->ordinal);
	cudaEventDestroy(event->event);
	cudaGetLastError(); /* of a lost context: it is reported where it is used */
	free(event);
}
