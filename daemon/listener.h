/* The listening socket: inherited from systemd, or made at a path that is then this process's.
 *
 * Main before the loop, and the loop thread at the end. A path is held by a lock on PATH.lock from
 * listener_claim() to listener_close(), so that of two daemons one is refused, however they race; a
 * socket file without a lock holder that nobody answers on is a leftover and is replaced. */
#ifndef DAEMON_LISTENER_H
#define DAEMON_LISTENER_H

#include "kernels/error_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct listener {
	int fd;         /* listening, non-blocking; -1 */
	bool inherited; /* never unlinked */
	char *path;     /* NULL: no path is claimed */
	char *lock_path;
	int lock_fd;
	gid_t group; /* -1: as the file is made */
	bool bound;  /* `device` and `inode` are of our socket file */
	dev_t device;
	ino_t inode;
};

/* In all of these `setting` is what the reader knows the value by, as "--socket". */

/* The number of a group of this host, by name or number; -1 of NULL, which leaves a file's group as
 * it is. Blocks while names are looked up. Returns 0 or -errno with `error` in one sentence. */
int listener_find_group(
	const char *name, const char *setting, gid_t *ret, struct error_text *error);

/* What listener_claim() would say of `path` that can be seen without making anything. That somebody
 * listens there is no fault: a daemon that runs may be the one that is asked about. Returns 0 or
 * -errno with `error` in one sentence. */
int listener_check(const char *path, const char *setting, struct error_text *error);

/* Takes the inherited socket if there is one, else claims `path`, for members of `group` (-1: as
 * the file is made). Does not listen yet. Returns 0 or -errno with `error` in one sentence. */
int listener_claim(struct listener *listener, const char *path, const char *setting, gid_t group,
	struct error_text *error);

/* Starts to listen: makes the socket file with permission bits `mode`. An inherited one listens
 * already. */
int listener_open(struct listener *listener, uint32_t mode, struct error_text *error);

/* Stops listening, removes the socket file if it is still ours, gives the claim back. Fine
 * half-built and twice. */
void listener_close(struct listener *listener);

#endif
