/* Events of other processes' streams: a client records one behind the work that writes its base
 * logits, and a launch that reads them begins when it has fired. Nobody waits for one here: it is
 * asked.
 *
 * Of the backend of a struct markov_memory, which outlives its events. Opening and closing: any
 * thread, and may block for as long as the driver takes. Asking: one thread at a time for each
 * event, and takes about a microsecond. */
#ifndef KERNELS_EVENT_H
#define KERNELS_EVENT_H

#include "memory.h"

#define MARKOV_EVENT_HANDLE_BYTES 64 /* a cudaIpcEventHandle_t */

struct markov_event;

/* Whether this backend has events; else markov_event_open() returns -ENOTSUP. */
bool markov_event_possible(const struct markov_memory *memory);

/* Opens an event that another process made for that (cudaEventInterprocess) on the device `uuid`
 * ("": the head's first) and exported as `handle`. Returns 0; -EINVAL: the handle is none of a
 * living process; -ENODEV: there is no such device; -EXDEV: it is none of the head's; -ENOMEM;
 * -ENOTSUP; -EIO: the device is lost. `error` is fit for a client. */
int markov_event_open(struct markov_memory *memory, const char *uuid,
	const uint8_t handle[MARKOV_EVENT_HANDLE_BYTES], struct markov_event **ret,
	struct error_text *error);

/* Whether all that was before its last record is done: 1, or 0: not yet. One that was never
 * recorded has fired. -EINVAL: it can't be asked any more, because its process has given it up;
 * -EIO: the device is lost. Never blocks. */
int markov_event_query(const struct markov_event *event);

/* Nobody asks it any more. NULL is fine. */
void markov_event_close(struct markov_event *event);

#endif
