/* Which requests run next. Pure: no thread, no clock, no device; the engine
 * guards it with its lock. It lists requests and never frees them.
 *
 * The rules. A launch has one draft length: the leader's. The leader is the next request of
 * priority 1, or without one the next of priority 0; but when LIMIT_PRIORITY_LAUNCHES launches in a
 * row were led by priority 1 while priority 0 waited, priority 0 leads. The leader is joined by
 * requests of its length while they fit, priority 1 first, each priority in its order; the first
 * that does not fit ends its priority. Requests are never split.
 *
 * The order within a priority is fair between flows (connections), by start-time fair queueing: a
 * flow pays rows * steps of virtual time for what is launched, and the request of the flow that has
 * paid least is next, the oldest among equals. A flow that was away begins at the present, the
 * place of the last leader, so that it has saved nothing up; one that rode in free places owes one
 * full launch at most. So whoever floods delays a newcomer by the launch under way (and one that
 * was taken ahead) and no more, a flow alone is served first come, first served, and within a flow
 * no request is overtaken by a younger one of its priority and length. Nothing is paid for what is
 * cancelled or expires.
 *
 * A launch begins as soon as the device is free and something waits, with one exception. Clients
 * that send their next request at the answer to the last fall into turns: those of one launch come
 * back just after the next has begun, and a device to which a few rows cost as much as many does
 * its work twice. So a flow whose requests have come back promptly is due back after a launch that
 * it rode in, and the next launch waits for all that are due, until the last one is there or the
 * bucket is full. It pays while that takes less than what a launch costs however few rows it has,
 * which is found from the last launch and the shortest one so far of its length; that (and
 * LIMIT_GATHER_US) is the most that is waited, and who came back within it was prompt. When
 * somebody was waited for in vain, the next launches do not wait: one of them at first, twice as
 * many each time, LIMIT_GATHER_PAUSE at most, and one less after each time that it was not in vain.
 * A lone request has nobody to wait for, and nothing waits in whose queue there is a priority 1, a
 * deadline, or a draft length that can't share a launch with those that are due.
 *
 * Replicas (devices, or groups of them, that launch by themselves) take from one queue: whichever
 * is free takes the next launch, so that a request goes to the least busy one and nobody's turn
 * depends on who serves it. Each waits for those that are due after its own last launch, so that
 * clients that fall into turns have one replica a turn.
 *
 * When a full launch waits while the one under way is about to end, its replica may take it ahead,
 * so that the device goes from one to the next.
 *
 * A request that must not be launched yet, whatever for, is admitted first and enters later: until
 * then it takes a place in the queue and nothing else, as if it had not arrived. */
#ifndef DAEMON_SCHEDULER_H
#define DAEMON_SCHEDULER_H

#include "limits.h"
#include "list.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULER_PRIORITIES 2

/* What waits of one flow, one priority and one draft length. */
struct scheduler_lane {
	struct link active;   /* the scheduler's list of lanes, while `requests` is not empty */
	struct link requests; /* oldest first */
	uint64_t tag;         /* virtual time at which the first may start, or earlier */
};

/* What a flow has in a launch. */
struct scheduler_ride {
	uint64_t launch;   /* its number */
	uint32_t requests; /* that no other has followed yet */
	uint32_t due;      /* of these: expected to be followed promptly */
};

/* A connection, as the scheduler sees it. It lies in the connection, is touched by the scheduler
 * only, and may go when nothing of it waits; what runs does not need it any more. */
struct scheduler_flow {
	struct scheduler_lane lanes[SCHEDULER_PRIORITIES][LIMIT_STEPS_MAX + 1];
	uint64_t paid[SCHEDULER_PRIORITIES]; /* virtual time up to which it has been served */
	uint32_t waiting;                    /* its requests, held or in the queue */
	bool prompt;                         /* came back soon after its last answer */
	/* by replica: in its launch that ended last and in the one under way, by the last bit of
	   its number */
	struct scheduler_ride rides[LIMIT_REPLICAS_MAX][2];
};

/* How long launches of a length take. */
struct scheduler_pace {
	uint64_t shortest_us; /* the shortest so far; 0: there was none */
	uint32_t rows;        /* of that one */
	uint64_t fixed_us;    /* what one costs however few its rows are, as far as is known */
};

/* The launches of one replica. */
struct scheduler_replica {
	uint64_t taken, ended;    /* launches; equal: none is under way */
	uint32_t due;             /* back after the launch taken last */
	uint64_t gather_until_us; /* who comes back until then is prompt */
	uint32_t last_steps;      /* of the launch taken last */
	uint32_t pause;           /* launches that still do not wait */
	uint32_t pauses; /* how many did after the last failure, less the successes since */
};

struct scheduler {
	struct link active[SCHEDULER_PRIORITIES]
			  [LIMIT_STEPS_MAX + 1]; /* lanes by draft length, in order of tags */
	uint64_t now[SCHEDULER_PRIORITIES];      /* virtual time: the last leader's tag */
	uint32_t depth[SCHEDULER_PRIORITIES];
	uint32_t held; /* admitted, not entered */
	uint32_t max_queue, max_rows;
	uint32_t
		led_by_priority; /* launches in a row that priority 1 led while priority 0 waited */
	uint64_t next_sequence;

	uint32_t rows;                           /* of all that wait */
	uint32_t of_length[LIMIT_STEPS_MAX + 1]; /* requests that wait */
	uint32_t hurried;                        /* that wait and have a deadline or priority 1 */
	struct scheduler_pace paces[LIMIT_STEPS_MAX + 1]; /* by length */
	unsigned replica_count;
	struct scheduler_replica replicas[LIMIT_REPLICAS_MAX];
};

/* A launch to be: requests of one draft length, RUNNING, at most max_rows rows. */
struct scheduler_batch {
	struct link requests;
	uint32_t rows, steps;
	uint64_t launch;     /* its number: of the replica's, from 1 */
	bool ahead;          /* taken while another was under way */
	struct link expired; /* requests whose deadline passed while they waited, DONE with
				DEADLINE_EXCEEDED */
};

void scheduler_init(
	struct scheduler *scheduler, unsigned replica_count, uint32_t max_queue, uint32_t max_rows);

void scheduler_flow_init(struct scheduler_flow *flow);

/* A draft of that priority and length is about to be queued: asks for what of the flow another
 * thread, which has launched the last one, has in its cache. */
static inline void scheduler_flow_prefetch(
	struct scheduler_flow *flow, uint32_t priority, uint32_t steps)
{
	__builtin_prefetch(&flow->lanes[priority][steps], 1);
	__builtin_prefetch(&flow->paid, 1);
	__builtin_prefetch(&flow->rides, 1);
}

/* Queues a draft of at most max_rows rows and LIMIT_STEPS_MAX steps, which has just arrived. `flow`
 * must live until the draft has been taken. Returns 0, or -ENOBUFS when the queue is full; but a
 * flow of which nothing waits may always add one, so that nobody is kept out by a queue that others
 * have filled. */
int scheduler_add(
	struct scheduler *scheduler, struct scheduler_flow *flow, struct request *request);

/* The two halves of scheduler_add(): counts a draft as one of the queue, with the same bounds, and
 * leaves its list to the caller; then queues it, as one that has arrived now. */
int scheduler_admit(
	struct scheduler *scheduler, struct scheduler_flow *flow, struct request *request);
void scheduler_enter(struct scheduler *scheduler, struct request *request, uint64_t now_us);

/* Takes a queued or held request out, and off its list. */
void scheduler_remove(struct scheduler *scheduler, struct request *request);

/* When the next launch of a replica (0 and up) may begin: now or earlier if it may now; UINT64_MAX
 * when nothing waits and nobody is due. Until the time that it says, only scheduler_add() and
 * scheduler_enter() can bring the beginning forward. Not while a launch of it is under way. */
uint64_t scheduler_begin_us(const struct scheduler *scheduler, unsigned replica, uint64_t now_us);

/* As much waits as a launch can take: nothing is gained by waiting for more. */
bool scheduler_is_full(const struct scheduler *scheduler);

/* How long a launch will take, by the line through those before it; 0: nothing is known. */
uint64_t scheduler_expect_us(const struct scheduler *scheduler, uint32_t rows, uint32_t steps);

/* The oldest launch of a replica that is under way has ended. It took `took_us`; 0: it failed,
 * which says nothing about how long launches take. Nor does one that was taken ahead: if the end of
 * the one before was seen late, it seems to have taken no time. */
void scheduler_ended(struct scheduler *scheduler, unsigned replica,
	const struct scheduler_batch *batch, uint64_t took_us, uint64_t now_us);

/* Other devices or another model serve from now on: launches may take another time. */
void scheduler_forget_times(struct scheduler *scheduler);

/* Takes the next launch, for a replica, and what has expired before it. Either list of `ret` may
 * come back empty. With one under way it is taken ahead: that one is over as far as the rules above
 * go, but nobody is waited for who rides in it. */
void scheduler_take(struct scheduler *scheduler, unsigned replica, uint64_t now_us,
	struct scheduler_batch *ret);

/* Takes everything that is queued, in any order, to `to`. */
void scheduler_take_all(struct scheduler *scheduler, struct link *to);

/* Held ones too. */
uint32_t scheduler_depth(const struct scheduler *scheduler);

#endif
