#include "watchdog.h"

uint64_t watchdog_stuck_us(struct watchdog *watchdog, const struct watchdog_view *view)
{
	const bool moved = view->finished != watchdog->finished;
	uint64_t idle_us;

	watchdog->finished = view->finished;
	if (view->busy || !view->queue_depth || moved) {
		watchdog->idle_since_us = 0;
		return view->overdue_us;
	}
	if (!watchdog->idle_since_us)
		watchdog->idle_since_us = view->now_us;
	idle_us = view->now_us - watchdog->idle_since_us;
	return idle_us > view->idle_max_us ? idle_us : 0;
}
