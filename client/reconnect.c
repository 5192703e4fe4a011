/* Coming back to a draftd that restarts: tries with growing pauses. */
#include "client/private.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

#define PAUSE_FIRST_US 10000
#define PAUSE_MAX_US   1000000

/* Half of `pause_us`, and a random part of the other half. */
static int64_t shorten(int64_t pause_us)
{
	uint32_t random = 0;

	/* Without randomness at hand every pause is the shortest. */
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		random = 0;
	return pause_us / 2 + (int64_t)(random % (uint32_t)(pause_us / 2 + 1));
}

static void sleep_until(int64_t at_us)
{
	const struct timespec at = {
		.tv_sec = (time_t)(at_us / 1000000),
		.tv_nsec = (long)(at_us % 1000000) * 1000,
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

static int64_t earlier(int64_t one_us, int64_t other_us)
{
	return one_us < other_us ? one_us : other_us;
}

static int64_t later(int64_t one_us, int64_t other_us)
{
	return one_us > other_us ? one_us : other_us;
}

/* Of one try. Time for one that can tell what is wrong is there even when it is the last. */
static int64_t try_timeout(int64_t usual_us, int64_t end_us)
{
	int64_t left_us;

	if (end_us == DEADLINE_NEVER)
		return usual_us;
	left_us = later(end_us - deadline_after(0), PAUSE_FIRST_US);
	return usual_us < 0 ? left_us : earlier(usual_us, left_us);
}

int draft_reconnect_within(struct draft *draft, int64_t timeout_us)
{
	const int64_t end_us = deadline_after(timeout_us);
	const int64_t usual_us = draft->timeout_us;
	int64_t pause_us = PAUSE_FIRST_US, next_us;
	int r;

	for (;;) {
		draft->timeout_us = try_timeout(usual_us, end_us);
		r = handle_open(draft);
		draft->timeout_us = usual_us;
		if (r == 0 || (r != -ENOENT && !draft_error_retryable(r)))
			return r;
		next_us = deadline_after(shorten(pause_us));
		if (next_us >= end_us)
			return r;
		sleep_until(next_us);
		pause_us = earlier(2 * pause_us, PAUSE_MAX_US);
	}
}
