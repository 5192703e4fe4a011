/* Which requests run next (DESIGN: "Scheduling"). Pure: no thread, no clock, no device; the engine
 * guards it with its lock. It lists requests and never frees them.
 *
 * The rules. A launch has one draft length: the leader's. The leader is the oldest request of
 * priority 1, or without one the oldest of all; but when LIMIT_PRIORITY_LAUNCHES launches in a row
 * were led by priority 1 while priority 0 waited, the oldest of priority 0 leads. So a request of
 * priority 0 that has n older ones of its kind before it waits for at most (n + 1) *
 * (LIMIT_PRIORITY_LAUNCHES + 1) launches, whatever else arrives. The leader is joined by requests
 * of its length while they fit, priority 1 first, each priority oldest first; the first that does
 * not fit ends its priority, so that no request is overtaken by a younger one of its own kind.
 * Requests are never split. */
#ifndef DAEMON_SCHEDULER_H
#define DAEMON_SCHEDULER_H

#include "limits.h"
#include "list.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULER_PRIORITIES 2

struct scheduler {
	struct link waiting[SCHEDULER_PRIORITIES]
			   [LIMIT_STEPS_MAX + 1]; /* by draft length, oldest first */
	uint32_t depth[SCHEDULER_PRIORITIES];
	uint32_t max_queue, max_rows;
	uint32_t
		led_by_priority; /* launches in a row that priority 1 led while priority 0 waited */
	uint64_t next_sequence;
};

/* A launch to be: requests of one draft length, RUNNING, at most max_rows rows. */
struct scheduler_batch {
	struct link requests;
	uint32_t rows, steps;
	struct link expired; /* requests whose deadline passed while they waited, DONE with
				DEADLINE_EXCEEDED */
};

void scheduler_init(struct scheduler *scheduler, uint32_t max_queue, uint32_t max_rows);

/* Queues a draft of at most max_rows rows and LIMIT_STEPS_MAX steps. Returns 0, or -ENOBUFS when
 * the queue is full. */
int scheduler_add(struct scheduler *scheduler, struct request *request);

/* Takes a queued request out. */
void scheduler_remove(struct scheduler *scheduler, struct request *request);

/* Takes the next launch and what has expired before it. Either list of `ret` may come back empty.
 */
void scheduler_take(struct scheduler *scheduler, uint64_t now_us, struct scheduler_batch *ret);

/* Takes everything, in any order, to `to`. The states stay. */
void scheduler_take_all(struct scheduler *scheduler, struct link *to);

uint32_t scheduler_depth(const struct scheduler *scheduler);

#endif
