/* Writing a file whole or not at all, for those who read it meanwhile. */
#ifndef DRAFTCTL_FILE_H
#define DRAFTCTL_FILE_H

#include "kernels/error_text.h"

#include <stddef.h>

/* Replaces `path` by a file of mode 0644 with these bytes: a temporary file beside it, then rename.
 * Not synced to the disk. Returns 0 or -errno. */
int file_replace(const char *path, const char *bytes, size_t byte_count, struct error_text *error);

#endif
