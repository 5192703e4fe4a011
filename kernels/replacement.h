/* Writing a file whole or not at all: a temporary file beside it, then rename. Until
 * replacement_end() whoever reads the path sees the old file, and whatever fails leaves it as it
 * was.
 *
 * Only a regular file is replaced, or a name that is free: a device, a pipe, a folder or a link to
 * nothing is refused, and of a link the target is replaced. One thread; the caller ends what it
 * began with replacement_end(). */
#ifndef KERNELS_REPLACEMENT_H
#define KERNELS_REPLACEMENT_H

#include "kernels/error_text.h"

#include <stdbool.h>
#include <stddef.h>

struct replacement {
	char *path;      /* links resolved; owned */
	char *temporary; /* owned */
	int fd;          /* open for writing; owned */
};

/* Whether `path` is one that can be replaced, as far as that can be seen beforehand. Returns 0, or
 * -errno with `error` naming `path`. */
int replacement_check(const char *path, struct error_text *error);

/* Makes the temporary file, of mode 0644. Returns 0, or -errno with `error` naming `path`; then
 * nothing is left. */
int replacement_begin(const char *path, struct replacement *ret, struct error_text *error);

/* Appends. 0 or -errno. */
int replacement_write(struct replacement *replacement, const void *data, size_t byte_count);

/* Puts the new file in the old one's place; `durable` also waits until both are on the disk.
 * `result` is what came of the writing: if it is negative, the old file stays. Frees everything.
 * Returns 0, or -errno with `error`. */
int replacement_end(
	struct replacement *replacement, int result, bool durable, struct error_text *error);

#endif
