/* Writing a text whole or not at all, for those who read it meanwhile. */
#ifndef DRAFTCTL_FILE_H
#define DRAFTCTL_FILE_H

#include "kernels/error_text.h"

#include <stddef.h>

/* Replaces `path` by a file of mode 0644 with these bytes, as kernels/replacement.h says; not
 * synced to the disk. Returns 0 or -errno. */
int file_replace(const char *path, const char *bytes, size_t byte_count, struct error_text *error);

/* Whether file_replace() could begin; `path` stays as it is. Returns 0 or -errno. */
int file_check(const char *path, struct error_text *error);

#endif
