#include "kernels/replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_BYTES_MAX ((size_t)1 << 30) /* of one write(2) */

static void release(struct replacement *replacement)
{
	if (replacement->fd >= 0)
		close(replacement->fd);
	free(replacement->path);
	free(replacement->temporary);
	*replacement = (struct replacement){.fd = -1};
}

/* The path that a rename has to name so that a link stays a link. */
static int resolve(const char *path, char **ret, struct error_text *error)
{
	const size_t bytes = strlen(path);
	struct stat status;
	char *resolved;

	if (stat(path, &status) == 0) {
		if (S_ISDIR(status.st_mode))
			return error_text_set(
				error, EISDIR, "%.*s is a folder: name a file", CUT(200, path));
		if (!S_ISREG(status.st_mode))
			return error_text_set(error, EEXIST,
				"%.*s is no regular file, and only those are replaced: name "
				"another",
				CUT(200, path));
		resolved = realpath(path, NULL);
	} else if (errno == ENOENT) {
		if (bytes == 0 || path[bytes - 1] == '/')
			return error_text_set(error, ENOENT,
				"\"%.*s\" can't be a file's name: name a file", CUT(200, path));
		if (lstat(path, &status) == 0)
			return error_text_set(error, ENOENT,
				"%.*s is a link to nothing: remove it or name another file",
				CUT(200, path));
		resolved = strdup(path);
	} else {
		resolved = NULL;
	}
	if (!resolved)
		return error_text_set(error, errno, "%.*s: can't be written: %s%s", CUT(200, path),
			strerror(errno), error_text_remedy(errno));
	*ret = resolved;
	return 0;
}

int replacement_check(const char *path, struct error_text *error)
{
	char *resolved;
	int r = resolve(path, &resolved, error);

	if (r == 0)
		free(resolved);
	return r;
}

int replacement_begin(const char *path, struct replacement *ret, struct error_text *error)
{
	struct replacement replacement = {.fd = -1};
	int r = resolve(path, &replacement.path, error);

	if (r < 0)
		return r;
	if (asprintf(&replacement.temporary, "%s.XXXXXX", replacement.path) < 0) {
		replacement.temporary = NULL;
		r = error_text_set(error, ENOMEM, "no memory for a file name");
		goto fail;
	}
	replacement.fd = mkostemp(replacement.temporary, O_CLOEXEC);
	if (replacement.fd < 0) {
		r = error_text_set(error, errno, "%.*s: no file can be made beside it: %s%s",
			CUT(200, path), strerror(errno), error_text_remedy(errno));
		goto fail;
	}
	/* mkostemp() made it for its owner alone; who reads models and metrics is another user. */
	if (fchmod(replacement.fd, 0644) < 0) {
		r = error_text_set(error, errno, "%.*s: can't be written: %s", CUT(200, path),
			strerror(errno));
		unlink(replacement.temporary);
		goto fail;
	}
	*ret = replacement;
	return 0;
fail:
	release(&replacement);
	return r;
}

int replacement_write(struct replacement *replacement, const void *data, size_t byte_count)
{
	const char *position = data;

	while (byte_count > 0) {
		ssize_t written = write(replacement->fd, position,
			byte_count < WRITE_BYTES_MAX ? byte_count : WRITE_BYTES_MAX);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -errno;
		position += written;
		byte_count -= (size_t)written;
	}
	return 0;
}

/* A rename is on the disk only when its folder is. */
static int sync_folder(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder =
		slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int r = 0;

	if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
		r = -errno;
	if (fd >= 0)
		close(fd);
	free(folder);
	return r;
}

int replacement_end(
	struct replacement *replacement, int result, bool durable, struct error_text *error)
{
	if (result == 0 && durable && fsync(replacement->fd) < 0)
		result = -errno;
	if (close(replacement->fd) < 0 && result == 0)
		result = -errno;
	replacement->fd = -1;
	if (result == 0 && rename(replacement->temporary, replacement->path) < 0)
		result = -errno;
	if (result < 0)
		unlink(replacement->temporary);
	else if (durable)
		result = sync_folder(replacement->path);
	if (result < 0)
		error_text_set(error, -result, "%.*s: can't be written: %s%s",
			CUT(200, replacement->path), strerror(-result), error_text_remedy(result));
	release(replacement);
	return result;
}
