#include "scheduler.h"

#include <errno.h>

static struct request *request_of(struct link *link)
{
	return LINK_OWNER(link, struct request, queue);
}

static struct request *first_of(struct link *head)
{
	return link_alone(head) ? NULL : request_of(head->next);
}

void scheduler_init(struct scheduler *scheduler, uint32_t max_queue, uint32_t max_rows)
{
	*scheduler = (struct scheduler){.max_queue = max_queue, .max_rows = max_rows};
	for (unsigned priority = 0; priority < SCHEDULER_PRIORITIES; priority++)
		for (unsigned steps = 0; steps <= LIMIT_STEPS_MAX; steps++)
			link_init(&scheduler->waiting[priority][steps]);
}

uint32_t scheduler_depth(const struct scheduler *scheduler)
{
	return scheduler->depth[0] + scheduler->depth[1];
}

int scheduler_add(struct scheduler *scheduler, struct request *request)
{
	struct draft *draft = &request->draft;

	if (scheduler_depth(scheduler) >= scheduler->max_queue)
		return -ENOBUFS;
	draft->sequence = scheduler->next_sequence++;
	draft->state = REQUEST_QUEUED;
	link_append(&scheduler->waiting[draft->priority][draft->steps], &request->queue);
	scheduler->depth[draft->priority]++;
	return 0;
}

void scheduler_remove(struct scheduler *scheduler, struct request *request)
{
	link_remove(&request->queue);
	scheduler->depth[request->draft.priority]--;
	request->draft.state = REQUEST_IDLE;
}

/* The first of a list that can still run. */
static struct request *first_alive(
	struct scheduler *scheduler, struct link *head, uint64_t now_us, struct link *expired)
{
	struct request *request;

	while ((request = first_of(head)) && request->draft.deadline_us <= now_us) {
		scheduler_remove(scheduler, request);
		request->draft.state = REQUEST_DONE;
		request->draft.error = ERROR_DEADLINE_EXCEEDED;
		link_append(expired, &request->queue);
	}
	return request;
}

/* The oldest request of a priority that can still run; expired ones on the way are taken out. */
static struct request *oldest(
	struct scheduler *scheduler, unsigned priority, uint64_t now_us, struct link *expired)
{
	struct request *found = NULL;

	if (!scheduler->depth[priority])
		return NULL;
	for (unsigned steps = 0; steps <= LIMIT_STEPS_MAX; steps++) {
		struct request *request = first_alive(
			scheduler, &scheduler->waiting[priority][steps], now_us, expired);

		if (request && (!found || request->draft.sequence < found->draft.sequence))
			found = request;
	}
	return found;
}

static struct request *choose_leader(
	struct scheduler *scheduler, uint64_t now_us, struct link *expired)
{
	struct request *low = oldest(scheduler, 0, now_us, expired);
	struct request *high = oldest(scheduler, 1, now_us, expired);

	if (!low || !high) {
		scheduler->led_by_priority = 0;
		return high ? high : low;
	}
	if (scheduler->led_by_priority >= LIMIT_PRIORITY_LAUNCHES) {
		scheduler->led_by_priority = 0;
		return low;
	}
	scheduler->led_by_priority++;
	return high;
}

static void board(
	struct scheduler *scheduler, struct request *request, struct scheduler_batch *batch)
{
	scheduler_remove(scheduler, request);
	request->draft.state = REQUEST_RUNNING;
	batch->rows += request->draft.rows;
	link_append(&batch->requests, &request->queue);
}

void scheduler_take(struct scheduler *scheduler, uint64_t now_us, struct scheduler_batch *ret)
{
	struct request *request;

	link_init(&ret->requests);
	link_init(&ret->expired);
	ret->rows = ret->steps = 0;

	request = choose_leader(scheduler, now_us, &ret->expired);
	if (!request)
		return;
	ret->steps = request->draft.steps;
	board(scheduler, request, ret);
	for (unsigned priority = SCHEDULER_PRIORITIES; priority-- > 0;) {
		struct link *head = &scheduler->waiting[priority][ret->steps];

		while ((request = first_alive(scheduler, head, now_us, &ret->expired)) &&
			request->draft.rows <= scheduler->max_rows - ret->rows)
			board(scheduler, request, ret);
	}
}

void scheduler_take_all(struct scheduler *scheduler, struct link *to)
{
	for (unsigned priority = 0; priority < SCHEDULER_PRIORITIES; priority++) {
		for (unsigned steps = 0; steps <= LIMIT_STEPS_MAX; steps++)
			link_splice(to, &scheduler->waiting[priority][steps]);
		scheduler->depth[priority] = 0;
	}
}
