/* Whether the engine makes progress: what the service manager's watchdog is fed by, beside the loop
 * that asks. Decides on what it is shown and knows no clock; one thread. */
#ifndef DAEMON_WATCHDOG_H
#define DAEMON_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct watchdog { /* zeroed to begin with */
	uint64_t finished;
	uint64_t idle_since_us; /* drafts wait, nothing runs and nothing came back since; 0: not so
				 */
};

struct watchdog_view {
	uint64_t now_us;
	uint64_t overdue_us;  /* engine_overdue_us() */
	bool busy;            /* a launch is under way */
	uint32_t queue_depth; /* drafts that wait for one, or for their event */
	uint64_t idle_max_us; /* for how long they may, with nothing launched meanwhile */
	uint64_t finished;    /* drafts that have come back, all time */
};

/* 0: all is well. Else the engine is stuck, in a launch that takes longer than it may, or because
 * it has not launched what waits for longer than it may: for how long. */
uint64_t watchdog_stuck_us(struct watchdog *watchdog, const struct watchdog_view *view);

#endif
