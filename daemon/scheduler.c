#include "scheduler.h"

#include <errno.h>
#include <string.h>

static struct request *request_of(struct link *link)
{
	return LINK_OWNER(link, struct request, queue);
}

static struct scheduler_lane *lane_of(struct link *link)
{
	return LINK_OWNER(link, struct scheduler_lane, active);
}

static struct scheduler_lane *lane_for(const struct draft *draft)
{
	return &draft->flow->lanes[draft->priority][draft->steps];
}

static struct request *first_of(const struct scheduler_lane *lane)
{
	return request_of(lane->requests.next);
}

void scheduler_init(
	struct scheduler *scheduler, unsigned replica_count, uint32_t max_queue, uint32_t max_rows)
{
	*scheduler = (struct scheduler){
		.replica_count = replica_count, .max_queue = max_queue, .max_rows = max_rows};
	for (unsigned priority = 0; priority < SCHEDULER_PRIORITIES; priority++)
		for (unsigned steps = 0; steps <= LIMIT_STEPS_MAX; steps++)
			link_init(&scheduler->active[priority][steps]);
}

void scheduler_flow_init(struct scheduler_flow *flow)
{
	*flow = (struct scheduler_flow){0};
	for (unsigned priority = 0; priority < SCHEDULER_PRIORITIES; priority++) {
		for (unsigned steps = 0; steps <= LIMIT_STEPS_MAX; steps++) {
			link_init(&flow->lanes[priority][steps].active);
			link_init(&flow->lanes[priority][steps].requests);
		}
	}
}

static uint32_t queued(const struct scheduler *scheduler)
{
	return scheduler->depth[0] + scheduler->depth[1];
}

uint32_t scheduler_depth(const struct scheduler *scheduler)
{
	return queued(scheduler) + scheduler->held;
}

static bool goes_before(const struct scheduler_lane *a, const struct scheduler_lane *b)
{
	if (a->tag != b->tag)
		return a->tag < b->tag;
	return first_of(a)->draft.sequence < first_of(b)->draft.sequence;
}

/* Puts a lane that waits into its list. From the end: most tags are later than the others'. */
static void activate(
	struct scheduler *scheduler, struct scheduler_lane *lane, const struct draft *draft)
{
	struct link *head = &scheduler->active[draft->priority][draft->steps];
	struct link *next = head;

	while (next->prev != head && goes_before(lane, lane_of(next->prev)))
		next = next->prev;
	link_append(next, &lane->active); /* before it */
}

static bool hurries(const struct draft *draft)
{
	return draft->priority > 0 || draft->deadline_us != UINT64_MAX;
}

/* Whether a request that has just arrived follows on a launch of `a` rather than of `b`: on the
 * first that ended of those that still wait for somebody, else on the last. */
static bool is_followed_before(
	const struct scheduler_replica *a, const struct scheduler_replica *b, uint64_t now_us)
{
	bool a_waits = now_us <= a->gather_until_us, b_waits = now_us <= b->gather_until_us;

	if (a_waits != b_waits)
		return a_waits;
	return a_waits ? a->gather_until_us < b->gather_until_us
		       : a->gather_until_us > b->gather_until_us;
}

/* A request of the flow has arrived: whether one that rode in a replica's last launch is back with
 * it, and how soon. */
static void note_return(struct scheduler *scheduler, struct scheduler_flow *flow, uint64_t now_us)
{
	struct scheduler_replica *replica = NULL;
	struct scheduler_ride *ride = NULL;
	bool rides = false;

	for (unsigned i = 0; i < scheduler->replica_count; i++) {
		struct scheduler_replica *one = &scheduler->replicas[i];
		struct scheduler_ride *last = &flow->rides[i][one->ended & 1];

		rides |= flow->rides[i][(one->ended + 1) & 1].launch == one->ended + 1;
		if (last->launch == one->ended && last->requests > 0 &&
			(!replica || is_followed_before(one, replica, now_us))) {
			replica = one;
			ride = last;
		}
	}
	if (ride) {
		ride->requests--;
		flow->prompt = now_us <= replica->gather_until_us;
		if (ride->due > 0) {
			ride->due--;
			if (replica->taken == replica->ended && replica->due &&
				--replica->due == 0 && !replica->pause && replica->pauses)
				replica->pauses--; /* worth while this time */
		}
	} else if (!rides) {
		flow->prompt = false;
	}
}

int scheduler_admit(
	struct scheduler *scheduler, struct scheduler_flow *flow, struct request *request)
{
	if (scheduler_depth(scheduler) >= scheduler->max_queue && flow->waiting > 0)
		return -ENOBUFS;
	request->draft.state = REQUEST_HELD;
	request->draft.flow = flow;
	scheduler->held++;
	flow->waiting++;
	return 0;
}

void scheduler_enter(struct scheduler *scheduler, struct request *request, uint64_t now_us)
{
	struct draft *draft = &request->draft;
	struct scheduler_flow *flow = draft->flow;
	struct scheduler_lane *lane;
	bool waits;

	note_return(scheduler, flow, now_us);
	scheduler->held--;
	draft->sequence = scheduler->next_sequence++;
	draft->state = REQUEST_QUEUED;
	lane = lane_for(draft);
	waits = !link_alone(&lane->requests);
	link_append(&lane->requests, &request->queue);
	scheduler->depth[draft->priority]++;
	scheduler->rows += draft->rows;
	scheduler->of_length[draft->steps]++;
	scheduler->hurried += hurries(draft);
	if (!waits) {
		uint64_t now = scheduler->now[draft->priority];
		uint64_t paid = flow->paid[draft->priority];

		lane->tag = paid > now ? paid : now;
		activate(scheduler, lane, draft);
	}
}

int scheduler_add(struct scheduler *scheduler, struct scheduler_flow *flow, struct request *request)
{
	int r = scheduler_admit(scheduler, flow, request);

	if (r == 0)
		scheduler_enter(scheduler, request, request->draft.arrival_us);
	return r;
}

static void leave_queue(struct scheduler *scheduler, const struct draft *draft)
{
	struct scheduler_lane *lane = lane_for(draft);

	if (link_alone(&lane->requests))
		link_remove(&lane->active);
	scheduler->depth[draft->priority]--;
	scheduler->rows -= draft->rows;
	scheduler->of_length[draft->steps]--;
	scheduler->hurried -= hurries(draft);
}

void scheduler_remove(struct scheduler *scheduler, struct request *request)
{
	struct draft *draft = &request->draft;

	link_remove(&request->queue);
	if (draft->state == REQUEST_QUEUED)
		leave_queue(scheduler, draft);
	else
		scheduler->held--;
	draft->flow->waiting--;
	draft->state = REQUEST_IDLE;
	draft->flow = NULL;
}

/* The next lane of a list, with a first request that can run. Expired ones on the way are taken
 * out; a lane whose flow was served through another one meanwhile is put where it belongs. */
static struct scheduler_lane *first_ready(struct scheduler *scheduler, unsigned priority,
	unsigned steps, uint64_t now_us, struct link *expired)
{
	struct link *head = &scheduler->active[priority][steps];

	while (!link_alone(head)) {
		struct scheduler_lane *lane = lane_of(head->next);
		struct request *request = first_of(lane);
		uint64_t paid = request->draft.flow->paid[priority];

		if (request->draft.deadline_us <= now_us) {
			scheduler_remove(scheduler, request);
			request->draft.state = REQUEST_DONE;
			request->draft.error = ERROR_DEADLINE_EXCEEDED;
			link_append(expired, &request->queue);
		} else if (lane->tag < paid) {
			lane->tag = paid;
			link_remove(&lane->active);
			activate(scheduler, lane, &request->draft);
		} else {
			return lane;
		}
	}
	return NULL;
}

/* The next lane of a priority. */
static struct scheduler_lane *next_lane(
	struct scheduler *scheduler, unsigned priority, uint64_t now_us, struct link *expired)
{
	struct scheduler_lane *found = NULL;

	if (!scheduler->depth[priority])
		return NULL;
	for (unsigned steps = 0; steps <= LIMIT_STEPS_MAX; steps++) {
		struct scheduler_lane *lane =
			first_ready(scheduler, priority, steps, now_us, expired);

		if (lane && (!found || goes_before(lane, found)))
			found = lane;
	}
	return found;
}

static struct scheduler_lane *choose_leader(
	struct scheduler *scheduler, uint64_t now_us, struct link *expired)
{
	struct scheduler_lane *low = next_lane(scheduler, 0, now_us, expired);
	struct scheduler_lane *high = next_lane(scheduler, 1, now_us, expired);

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

/* Takes the first request of a lane into the launch; its flow pays. */
static void board(struct scheduler *scheduler, unsigned replica, struct scheduler_lane *lane,
	struct scheduler_batch *batch)
{
	struct scheduler_replica *taker = &scheduler->replicas[replica];
	struct request *request = first_of(lane);
	struct draft *draft = &request->draft;
	struct scheduler_flow *flow = draft->flow;
	struct scheduler_ride *ride = &flow->rides[replica][taker->taken & 1];
	uint64_t paid = lane->tag + (uint64_t)draft->rows * draft->steps;
	uint64_t most =
		scheduler->now[draft->priority] + (uint64_t)scheduler->max_rows * LIMIT_STEPS_MAX;

	flow->paid[draft->priority] = paid < most ? paid : most;
	if (ride->launch != taker->taken)
		*ride = (struct scheduler_ride){.launch = taker->taken};
	ride->requests++;
	ride->due += flow->prompt;
	taker->due += flow->prompt;
	scheduler_remove(scheduler, request);
	draft->state = REQUEST_RUNNING;
	batch->rows += draft->rows;
	link_append(&batch->requests, &request->queue);
}

bool scheduler_is_full(const struct scheduler *scheduler)
{
	return scheduler->rows >= scheduler->max_rows;
}

uint64_t scheduler_begin_us(const struct scheduler *scheduler, unsigned replica, uint64_t now_us)
{
	const struct scheduler_replica *taker = &scheduler->replicas[replica];
	uint32_t depth = queued(scheduler);
	bool waits = depth > 0;

	if (waits && (scheduler->hurried || scheduler_is_full(scheduler) ||
			     scheduler->of_length[taker->last_steps] < depth))
		return now_us;
	if (taker->due && !taker->pause && now_us < taker->gather_until_us)
		return taker->gather_until_us;
	return waits ? now_us : UINT64_MAX;
}

/* The line through the shortest launch and one of more rows gives what none would cost. */
static void learn_pace(struct scheduler_pace *pace, uint64_t took_us, uint32_t rows)
{
	uint64_t a = pace->shortest_us * rows, b = took_us * pace->rows;

	if (!pace->shortest_us || took_us < pace->shortest_us) {
		if (!pace->shortest_us || took_us < pace->fixed_us)
			pace->fixed_us = took_us;
		pace->shortest_us = took_us;
		pace->rows = rows;
	} else if (rows > pace->rows) {
		pace->fixed_us = a > b ? (a - b) / (rows - pace->rows) : 0;
	}
}

uint64_t scheduler_expect_us(const struct scheduler *scheduler, uint32_t rows, uint32_t steps)
{
	const struct scheduler_pace *pace = &scheduler->paces[steps];

	if (!pace->shortest_us)
		return 0;
	return pace->fixed_us + (pace->shortest_us - pace->fixed_us) * rows / pace->rows;
}

void scheduler_ended(struct scheduler *scheduler, unsigned replica,
	const struct scheduler_batch *batch, uint64_t took_us, uint64_t now_us)
{
	struct scheduler_replica *taker = &scheduler->replicas[replica];
	struct scheduler_pace *pace = &scheduler->paces[batch->steps];
	uint64_t patience_us = 0;

	if (took_us) {
		if (!batch->ahead)
			learn_pace(pace, took_us, batch->rows);
		patience_us = pace->fixed_us < LIMIT_GATHER_US ? pace->fixed_us : LIMIT_GATHER_US;
	}
	if (batch->launch == taker->taken) { /* no other was taken ahead */
		taker->ended = taker->taken;
		if (!patience_us)
			taker->due = 0;
	}
	taker->gather_until_us = now_us + patience_us;
}

void scheduler_forget_times(struct scheduler *scheduler)
{
	memset(scheduler->paces, 0, sizeof(scheduler->paces));
	for (unsigned i = 0; i < scheduler->replica_count; i++)
		scheduler->replicas[i].pauses = scheduler->replicas[i].pause = 0;
}

/* A launch is about to begin. Learns whether its wait was in vain. */
static void end_gathering(struct scheduler_replica *taker, uint64_t now_us)
{
	if (taker->pause) {
		taker->pause--;
	} else if (taker->due && now_us >= taker->gather_until_us) {
		taker->pauses = taker->pauses ? 2 * taker->pauses : 1;
		if (taker->pauses > LIMIT_GATHER_PAUSE)
			taker->pauses = LIMIT_GATHER_PAUSE;
		taker->pause = taker->pauses;
	}
	taker->due = 0;
}

void scheduler_take(
	struct scheduler *scheduler, unsigned replica, uint64_t now_us, struct scheduler_batch *ret)
{
	struct scheduler_replica *taker = &scheduler->replicas[replica];
	struct scheduler_lane *lane;
	const struct draft *leader;

	link_init(&ret->requests);
	link_init(&ret->expired);
	ret->rows = ret->steps = 0;
	ret->launch = 0;
	ret->ahead = taker->ended < taker->taken;

	lane = choose_leader(scheduler, now_us, &ret->expired);
	if (!lane)
		return;
	leader = &first_of(lane)->draft;
	ret->steps = leader->steps;
	if (ret->ahead) {
		taker->ended = taker->taken;
		taker->due = 0;
	}
	end_gathering(taker, now_us);
	ret->launch = ++taker->taken;
	scheduler->now[leader->priority] = lane->tag;
	board(scheduler, replica, lane, ret);
	for (unsigned priority = SCHEDULER_PRIORITIES; priority-- > 0;)
		while ((lane = first_ready(
				scheduler, priority, ret->steps, now_us, &ret->expired)) &&
			first_of(lane)->draft.rows <= scheduler->max_rows - ret->rows)
			board(scheduler, replica, lane, ret);
	taker->last_steps = ret->steps;
}

void scheduler_take_all(struct scheduler *scheduler, struct link *to)
{
	for (unsigned priority = 0; priority < SCHEDULER_PRIORITIES; priority++)
		for (unsigned steps = 0; steps <= LIMIT_STEPS_MAX; steps++)
			while (!link_alone(&scheduler->active[priority][steps])) {
				struct link *first = scheduler->active[priority][steps].next;
				struct request *request = first_of(lane_of(first));

				scheduler_remove(scheduler, request);
				link_append(to, &request->queue);
			}
}
