/* Planned send times from a file: a line each, seconds from the start, none before the one above;
 * blank lines and what follows a '#' do not count.
 *
 * Constant once read, so that threads may share it; freed by whoever read it. */
#ifndef DRAFTCTL_SCHEDULE_H
#define DRAFTCTL_SCHEDULE_H

#include "kernels/error_text.h"

#include <stddef.h>
#include <stdint.h>

#define SCHEDULE_TIMES_MAX   10000000
#define SCHEDULE_SECONDS_MAX 604800

struct schedule {
	size_t count;
	int64_t *at_ns;
};

/* Returns 0, or -errno with `error` naming file and line. */
int schedule_read(const char *path, struct schedule *ret, struct error_text *error);
void schedule_done(struct schedule *schedule); /* of a zeroed one: nothing */

#endif
