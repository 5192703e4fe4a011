/* What a descriptor would do at this moment, without waiting. Any thread. */
#ifndef DAEMON_POLL_NOW_H
#define DAEMON_POLL_NOW_H

#include <errno.h>
#include <poll.h>

/* Which of `events`, and of POLLHUP, POLLERR and POLLNVAL, hold for `fd`; 0 if none. A signal that
 * is about to be handled makes poll(2) say nothing at all, so it is asked again. */
static inline short poll_now(int fd, short events)
{
	struct pollfd at = {.fd = fd, .events = events};
	int r;

	do
		r = poll(&at, 1, 0);
	while (r < 0 && errno == EINTR);
	return r > 0 ? at.revents : 0;
}

#endif
