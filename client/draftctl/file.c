#include "file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_replace(const char *path, const char *bytes, size_t byte_count, struct error_text *error)
{
	char *temporary = NULL;
	int fd = -1, r;

	if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
		return error_text_set(error, ENOMEM, "out of memory");
	fd = mkstemp(temporary);
	if (fd < 0) {
		r = error_text_set(
			error, errno, "cannot make a file beside %s: %s", path, strerror(errno));
		goto out;
	}
	while (byte_count > 0) {
		ssize_t wrote = write(fd, bytes, byte_count);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			goto failed;
		bytes += wrote;
		byte_count -= (size_t)wrote;
	}
	/* mkstemp() made it for its owner alone; a reader such as node_exporter is another user. */
	if (fchmod(fd, 0644) < 0 || rename(temporary, path) < 0)
		goto failed;
	r = 0;
	goto out;
failed:
	r = error_text_set(error, errno, "cannot write %s: %s", path, strerror(errno));
	unlink(temporary);
out:
	if (fd >= 0)
		close(fd);
	free(temporary);
	return r;
}
