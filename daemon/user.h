/* What each user of the host has of the daemon at the moment, so that one can't take all of it: its
 * connections, its requests in flight, the bytes of its regions, its events, what is held of its
 * frames and replies.
 *
 * Loop thread. A user is there while a connection, a region or an event of its is, and frees itself
 * with the last one. Root and the daemon's own user, who may stop the daemon, are counted and not
 * limited.
 */
#ifndef DAEMON_USER_H
#define DAEMON_USER_H

#include "list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct user {
	struct link link;
	uid_t uid;
	bool limited;
	unsigned holds;       /* connections, regions and events */
	uint32_t connections; /* open */
	uint32_t inflight;    /* requests of all its connections */
	uint64_t bytes;       /* of its regions of host memory, until their pages are gone */
	uint64_t device_bytes;
	uint32_t events;     /* until the driver has let them go */
	uint64_t held_bytes; /* of all its connections, as the server counts them */
};

/* May drain and reload, and is not limited. */
bool user_is_operator(uid_t uid);

/* The user `uid` among `users`, new if it is not there, held once more. NULL without memory. */
struct user *user_hold(struct link *users, uid_t uid);
void user_drop(struct user *user); /* NULL is fine */

/* Whether a limited user that has `used` may have `more` of at most `most`. */
bool user_may(const struct user *user, uint64_t used, uint64_t more, uint64_t most);

#endif
