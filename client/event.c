/* Events of the caller's streams, known to draftd by their handles. Nothing of CUDA is called here.
 */
#include "client/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(DRAFT_EVENT_HANDLE_BYTES == EVENT_HANDLE_BYTES, "draft.h says how long a handle is");

int event_read_import(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	uint32_t id;

	(void)frame;
	if (event_reply_decode(message->params, &id, fault) < 0)
		return -EBADMSG;
	if (!call->waiter)
		return call_close_later(draft, event_close_encode, id);
	*(uint32_t *)call->waiter->into = id;
	return 0;
}

static int check_import(struct draft *draft, size_t bytes, const char *device)
{
	int r = handle_check(draft);

	if (r < 0)
		return r;
	if (bytes != EVENT_HANDLE_BYTES)
		return handle_fail(draft, -EINVAL,
			"the handle has %zu byte%s; a cudaIpcEventHandle_t has %d", bytes,
			sentence_s(bytes), EVENT_HANDLE_BYTES);
	if (device && (strlen(device) == 0 || strlen(device) >= MESSAGE_UUID_BYTES))
		return handle_fail(draft, -EINVAL, "device has %zu characters; a UUID has 1 to %d",
			strlen(device), MESSAGE_UUID_BYTES - 1);
	return 0;
}

int draft_event_import(struct draft *draft, const void *handle, size_t bytes, const char *device,
	struct draft_event **ret)
{
	struct event_request request = {.handle = handle};
	struct draft_event *event;
	struct waiter waiter = {0};
	struct call *call;
	int r;

	r = check_import(draft, bytes, device);
	if (r < 0)
		return r;
	event = calloc(1, sizeof(*event));
	if (!event)
		return handle_fail(draft, -ENOMEM, "no memory for an event");
	if (device) {
		request.has_device = true;
		request.device = (struct wire_text){device, (uint32_t)strlen(device)};
	}
	waiter.into = &event->id;
	r = call_begin(draft, event_read_import, &waiter, &call);
	if (r < 0)
		goto out;
	event_request_encode(&draft->head, (uint32_t)call->ticket, &request);
	r = call_run(draft, call, -1, deadline_after(draft->timeout_us));
	if (r < 0)
		goto out;
	event->draft = draft;
	event->epoch = draft->epoch;
	event->next = draft->events;
	draft->events = event;
	*ret = event;
	event = NULL;
out:
	free(event);
	return r;
}

int draft_event_close(struct draft_event *event)
{
	struct draft *draft;
	struct draft_event **at;
	int r = 0;

	if (!event)
		return 0;
	draft = event->draft;
	for (at = &draft->events; *at != event; at = &(*at)->next)
		;
	*at = event->next;
	/* With its connection draftd's side of it has gone already. */
	if (!draft->broken && event->epoch == draft->epoch)
		r = call_close(draft, event_close_encode, event->id);
	free(event);
	return r;
}

void event_free_all(struct draft *draft)
{
	struct draft_event *next;

	for (struct draft_event *event = draft->events; event; event = next) {
		next = event->next;
		free(event);
	}
	draft->events = NULL;
}
