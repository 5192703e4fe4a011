#include "event.h"

#include "region.h"
#include "user.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert(EVENT_HANDLE_BYTES == MARKOV_EVENT_HANDLE_BYTES, "the wire carries what is opened");

static struct event *event_of(uv_work_t *work)
{
	return LINK_OWNER(work, struct event, work);
}

/* ---- giving up ---- */

static void event_free(struct event *event)
{
	event->order.user->events--;
	user_drop(event->order.user);
	free(event);
}

static void close_work(uv_work_t *work)
{
	markov_event_close(event_of(work)->event);
}

static void close_done(uv_work_t *work, int status)
{
	struct event *event = event_of(work);

	(void)status; /* never cancelled */
	event->order.closed(event);
	event_free(event);
}

static void no_work(uv_work_t *work)
{
	(void)work;
}

/* Nothing is asked of a lost device any more: what it has goes with the process. */
static void close_if_unused(struct event *event)
{
	if (!event->open && !event->holds)
		uv_queue_work(event->pool->loop, &event->work,
			event->pool->lost ? no_work : close_work, close_done);
}

/* ---- opening ---- */

static void open_work(uv_work_t *work)
{
	struct event *event = event_of(work);
	const char *why = event->why.text;

	switch (markov_event_open(event->pool->memory, event->order.device, event->order.handle,
		&event->event, &event->why)) {
	case 0:
		break;
	case -EIO:
		message_refuse(&event->fault, ERROR_DEVICE_LOST, "the device is lost");
		break;
	case -ENODEV:
		message_refuse(&event->fault, ERROR_NOT_FOUND, "%s", why);
		break;
	case -ENOMEM:
		message_refuse(&event->fault, ERROR_RESOURCE_EXHAUSTED, "%s", why);
		break;
	default: /* no handle of an event, or of a device that does not count */
		message_refuse(&event->fault, ERROR_BAD_REQUEST, "%s", why);
	}
}

static void open_done(uv_work_t *work, int status)
{
	struct event *event = event_of(work);
	bool failed = event->fault.code != ERROR_NONE;

	(void)status; /* never cancelled */
	event->open = !failed;
	event->order.opened(event);
	if (failed)
		event_free(event);
}

int event_start(struct region_pool *pool, const struct event_order *order)
{
	struct event *event = calloc(1, sizeof(*event));

	if (!event)
		return -ENOMEM;
	link_init(&event->link);
	event->pool = pool;
	event->order = *order;
	order->user->events++;
	order->user->holds++;
	uv_queue_work(pool->loop, &event->work, open_work, open_done);
	return 0;
}

/* ---- use ---- */

void event_hold(struct event *event)
{
	event->holds++;
}

void event_drop(struct event *event)
{
	if (!event)
		return;
	event->holds--;
	close_if_unused(event);
}

void event_close(struct event *event, struct request *waiting)
{
	link_remove(&event->link);
	event->open = false;
	event->order.waiting = waiting;
	close_if_unused(event);
}
