/* The lines of a file that a person wrote: numbered, without comments ('#' to the end), blanks
 * around them, and without those that are empty then. Owned by its reader, one thread. */
#ifndef DRAFTCTL_LINES_H
#define DRAFTCTL_LINES_H

#include "kernels/error_text.h"

#include <stdio.h>

#define LINE_BYTES_MAX 1024

struct lines {
	FILE *file;
	const char *path;
	unsigned number; /* of the last line given, from 1 */
	char text[LINE_BYTES_MAX];
};

/* `path` must live as long. Returns 0, or -errno with `error`. */
int lines_open(const char *path, struct lines *ret, struct error_text *error);
void lines_close(struct lines *lines);

/* 1 and the next line, which may be written to and holds until the next call; 0 at the end; -errno
 * with `error`. */
int lines_next(struct lines *lines, char **ret, struct error_text *error);

#endif
