#include "event.h"

#include "backend.h"

#include <errno.h>
#include <stdlib.h>

struct markov_event {
	const struct memory_backend *backend;
	void *event; /* the backend's */
};

bool markov_event_possible(const struct markov_memory *memory)
{
	return memory->backend != NULL;
}

int markov_event_open(struct markov_memory *memory, const char *uuid,
	const uint8_t handle[MARKOV_EVENT_HANDLE_BYTES], struct markov_event **ret,
	struct error_text *error)
{
	struct markov_event *event;
	int r;

	if (!memory->backend)
		return error_text_set(error, ENOTSUP, "there is no device that events could be of");
	event = malloc(sizeof(*event));
	if (!event)
		return error_text_set(error, ENOMEM, "out of memory for an event");
	event->backend = memory->backend;
	r = event->backend->event_open(memory->state, uuid, handle, &event->event, error);
	if (r < 0)
		free(event);
	else
		*ret = event;
	return r;
}

int markov_event_query(const struct markov_event *event)
{
	return event->backend->event_query(event->event);
}

void markov_event_close(struct markov_event *event)
{
	if (!event)
		return;
	event->backend->event_close(event->event);
	free(event);
}
