#include "held.h"

#include "event.h"
#include "scheduler.h"

#include <errno.h>

static struct request *request_of(struct link *link)
{
	return LINK_OWNER(link, struct request, queue);
}

void held_init(struct held *held)
{
	link_init(&held->drafts);
}

bool held_any(const struct held *held)
{
	return !link_alone(&held->drafts);
}

void held_add(struct held *held, struct request *request)
{
	link_append(&held->drafts, &request->queue);
}

void held_begin_look(struct held *held, struct held_look *look)
{
	struct link *link;

	look->count = 0;
	while (look->count < LIMIT_HELD_LOOKS && (link = link_pop(&held->drafts))) {
		struct request *request = request_of(link);

		request->draft.state = REQUEST_ASKED;
		look->requests[look->count++] = request;
	}
}

void held_ask(struct held_look *look)
{
	for (unsigned i = 0; i < look->count; i++)
		look->answers[i] = markov_event_query(look->requests[i]->draft.event->event);
}

/* Why the draft is over, if it is. */
static enum error_code judge(
	const struct draft *draft, int answer, uint64_t now_us, const char **ret_reason)
{
	*ret_reason = NULL;
	if (draft->state != REQUEST_ASKED)
		return ERROR_CANCELLED;
	if (answer == -EIO)
		return ERROR_DEVICE_LOST;
	if (answer < 0) {
		*ret_reason = "the event was given up by its process before the draft was "
			      "launched; nothing was computed";
		return ERROR_BAD_REQUEST;
	}
	if (answer > 0)
		return ERROR_NONE;
	if (draft->deadline_us <= now_us)
		return ERROR_DEADLINE_EXCEEDED;
	if (draft->event_until_us <= now_us) {
		*ret_reason = "the event did not fire within event_timeout of the draft's arrival; "
			      "nothing was computed";
		return ERROR_DEADLINE_EXCEEDED;
	}
	return ERROR_NONE;
}

int held_end_look(struct held *held, struct held_look *look, struct scheduler *scheduler,
	uint64_t now_us, struct link *over)
{
	int r = 0;

	for (unsigned i = 0; i < look->count; i++) {
		struct request *request = look->requests[i];
		struct draft *draft = &request->draft;
		enum error_code error = judge(draft, look->answers[i], now_us, &draft->reason);

		if (look->answers[i] == -EIO)
			r = -EIO;
		if (error != ERROR_NONE) {
			if (draft->state == REQUEST_ASKED)
				scheduler_remove(scheduler, request);
			draft->error = error;
			draft->state = REQUEST_DONE;
			link_append(over, &request->queue);
		} else if (look->answers[i] > 0) {
			scheduler_enter(scheduler, request, now_us);
		} else {
			draft->state = REQUEST_HELD;
			held_add(held, request);
		}
	}
	return r;
}

void held_take_all(struct held *held, struct scheduler *scheduler, struct link *to)
{
	while (held_any(held)) {
		struct request *request = request_of(held->drafts.next);

		scheduler_remove(scheduler, request);
		link_append(to, &request->queue);
	}
}
