#include "listener.h"

#include "limits.h"
#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LOCK_SUFFIX ".lock"

static int fail_errno(struct error_text *error, const char *what, const char *path)
{
	int code = errno;

	return error_text_set(
		error, code, "%s %s: %s%s", what, path, strerror(code), error_text_remedy(code));
}

/* True when `fd` is the file that now has this name: the holder of a lock removes the file at its
 * end, and then a lock on the old file means nothing. */
static bool is_file_at(int fd, const char *path)
{
	struct stat opened, named;

	return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 &&
	       opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/* A lock file that draftd made is an empty one; another file that has the name stays untouched. */
static int check_lock_file(
	const struct stat *file, const char *path, const char *setting, struct error_text *error)
{
	if (!S_ISREG(file->st_mode) || file->st_size)
		return error_text_set(error, EEXIST,
			"%s, where the socket's lock would be, is another program's file; move "
			"it, or choose another %s",
			path, setting);
	return 0;
}

struct folder {
	char at[LIMIT_SOCKET_PATH_BYTES + 1];
};

static struct folder folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct folder folder = {"."};

	if (slash)
		snprintf(folder.at, sizeof(folder.at), "%.*s",
			slash == path ? 1 : (int)(slash - path), path);
	return folder;
}

/* What can be said of a path before anything is made there. */
static int check_place(const char *path, const char *setting, struct error_text *error)
{
	struct folder folder;
	struct stat file;
	int code;

	if (strlen(path) > LIMIT_SOCKET_PATH_BYTES)
		return error_text_set(error, ENAMETOOLONG,
			"the socket's path has %zu bytes, the most is %d; choose a shorter %s",
			strlen(path), LIMIT_SOCKET_PATH_BYTES, setting);
	folder = folder_of(path);
	code = stat(folder.at, &file) < 0 ? errno : S_ISDIR(file.st_mode) ? 0 : ENOTDIR;
	if (code == ENOENT)
		return error_text_set(error, ENOENT,
			"the socket's folder does not exist: %s; make it, or choose another %s",
			folder.at, setting);
	if (code == ENOTDIR)
		return error_text_set(error, ENOTDIR,
			"%s, where the socket would be, is no folder; choose another %s", folder.at,
			setting);
	errno = code;
	return code ? fail_errno(error, "the socket's folder can't be looked at:", folder.at) : 0;
}

static int lock_path(struct listener *listener, const char *setting, struct error_text *error)
{
	struct stat file;
	int fd, r;

	for (;;) {
		fd = open(listener->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno == ENOENT) /* of a folder that is there, as in /proc */
			return error_text_set(error, ENOENT,
				"no file can be made in %s, the socket's folder; choose another %s",
				folder_of(listener->path).at, setting);
		if (fd < 0)
			return fail_errno(error,
				"the socket's lock file can't be made:", listener->lock_path);
		r = fstat(fd, &file) < 0
			    ? fail_errno(error, "the socket's lock file can't be looked at:",
				      listener->lock_path)
			    : check_lock_file(&file, listener->lock_path, setting, error);
		if (r < 0) {
			close(fd);
			return r;
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			int code = errno;

			close(fd);
			if (code != EWOULDBLOCK) {
				errno = code;
				return fail_errno(error, "the socket's lock file can't be locked:",
					listener->lock_path);
			}
			return error_text_set(error, EADDRINUSE,
				"another draftd serves %s; stop it, or choose another %s",
				listener->path, setting);
		}
		if (is_file_at(fd, listener->lock_path))
			break;
		close(fd);
	}
	listener->lock_fd = fd;
	return 0;
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, path, strlen(path)); /* its length was checked */
	return address;
}

/* Whether somebody listens at the path, who then does not use our lock. */
static int probe(const char *path, bool *ret_live)
{
	struct sockaddr_un address = address_of(path);
	int fd, r;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	r = connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
	close(fd);
	*ret_live = r != ECONNREFUSED && r != ENOENT;
	return 0;
}

/* What has the socket's name must be a socket, or nothing: then `*ret_any` is false. */
static int check_file(
	const char *path, const char *setting, bool *ret_any, struct error_text *error)
{
	struct stat file;

	if (lstat(path, &file) < 0) {
		if (errno != ENOENT)
			return fail_errno(error, "the socket's path can't be looked at:", path);
		*ret_any = false;
		return 0;
	}
	if (S_ISDIR(file.st_mode))
		return error_text_set(error, EISDIR, "%s is a folder; name a socket in it with %s",
			path, setting);
	if (!S_ISSOCK(file.st_mode))
		return error_text_set(error, EEXIST,
			"%s exists and is no socket; remove it, or choose another %s", path,
			setting);
	*ret_any = true;
	return 0;
}

static int remove_leftover(struct listener *listener, const char *setting, struct error_text *error)
{
	bool any = false, live = false;
	int r;

	r = check_file(listener->path, setting, &any, error);
	if (r < 0 || !any)
		return r;
	r = probe(listener->path, &live);
	if (r < 0)
		return error_text_set(error, -r, "no socket can be made: %s%s", strerror(-r),
			error_text_remedy(r));
	if (live)
		return error_text_set(error, EADDRINUSE,
			"another program listens on %s; stop it, or choose another %s",
			listener->path, setting);
	if (unlink(listener->path) < 0 && errno != ENOENT)
		return fail_errno(error, "a leftover socket can't be removed:", listener->path);
	return 0;
}

int listener_check(const char *path, const char *setting, struct error_text *error)
{
	char lock[LIMIT_SOCKET_PATH_BYTES + sizeof(LOCK_SUFFIX)];
	struct stat file;
	bool any;
	int r;

	r = check_place(path, setting, error);
	if (r < 0)
		return r;
	snprintf(lock, sizeof(lock), "%s" LOCK_SUFFIX, path);
	if (lstat(lock, &file) == 0)
		r = check_lock_file(&file, lock, setting, error);
	return r < 0 ? r : check_file(path, setting, &any, error);
}

int listener_claim(struct listener *listener, const char *path, const char *setting, gid_t group,
	struct error_text *error)
{
	int r;

	*listener = (struct listener){.fd = -1, .lock_fd = -1, .group = group};
	r = notify_inherited_socket(&listener->fd, error);
	if (r < 0)
		return r;
	if (listener->fd >= 0) {
		listener->inherited = true;
		if (fcntl(listener->fd, F_SETFL, O_NONBLOCK) < 0 ||
			fcntl(listener->fd, F_SETFD, FD_CLOEXEC) < 0)
			return error_text_set(error, errno,
				"the inherited socket can't be set up: %s", strerror(errno));
		return 0;
	}
	listener->path = strdup(path);
	if (!listener->path || asprintf(&listener->lock_path, "%s" LOCK_SUFFIX, path) < 0) {
		listener->lock_path = NULL;
		return error_text_set(error, ENOMEM, "out of memory");
	}
	r = check_place(path, setting, error);
	if (r == 0)
		r = lock_path(listener, setting, error);
	if (r == 0)
		r = remove_leftover(listener, setting, error);
	return r;
}

int listener_find_group(const char *name, const char *setting, gid_t *ret, struct error_text *error)
{
	const struct group *group;
	unsigned long number;
	char *rest;

	if (!name) {
		*ret = (gid_t)-1;
		return 0;
	}
	errno = 0;
	group = getgrnam(name);
	if (group) {
		*ret = group->gr_gid;
		return 0;
	}
	if (errno && errno != ENOENT && errno != ESRCH)
		return error_text_set(error, errno, "%s is %.*s, which can't be looked up: %s",
			setting, CUT(64, name), strerror(errno));
	errno = 0;
	number = strtoul(name, &rest, 10);
	if (*name < '0' || *name > '9' || *rest || errno || number >= (gid_t)-1)
		return error_text_set(error, ENOENT,
			"%s is %.*s; there is no such group here: take one of "
			"`getent group`, or make it with groupadd",
			setting, CUT(64, name));
	*ret = (gid_t)number;
	return 0;
}

/* At first for the owner alone, so that at no time the file is for the group that it is made with.
 */
static int give_to_group(const struct listener *listener, uint32_t mode, struct error_text *error)
{
	if (lchown(listener->path, (uid_t)-1, listener->group) < 0)
		return error_text_set(error, errno,
			"the socket can't be given to group %lu: %s; run draftd as a member of it, "
			"or name no group",
			(unsigned long)listener->group, strerror(errno));
	if (chmod(listener->path, (mode_t)mode) < 0)
		return fail_errno(error, "the mode can't be set of", listener->path);
	return 0;
}

int listener_open(struct listener *listener, uint32_t mode, struct error_text *error)
{
	const bool for_group = listener->group != (gid_t)-1;
	struct sockaddr_un address;
	struct stat file;
	mode_t old_mask;
	int r;

	if (listener->inherited)
		return 0;
	address = address_of(listener->path);
	listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return error_text_set(error, errno, "no socket can be made: %s%s", strerror(errno),
			error_text_remedy(errno));
	/* The mask, not chmod: there is no moment at which the file is more open than it should be.
	 */
	old_mask = umask((mode_t)(for_group ? 0777 : ~mode & 0777));
	r = bind(listener->fd, (const struct sockaddr *)&address, sizeof(address));
	umask(old_mask);
	if (r < 0)
		return fail_errno(error, "the socket can't be bound to", listener->path);
	if (lstat(listener->path, &file) < 0) {
		r = fail_errno(error, "the socket can't be looked at:", listener->path);
		unlink(listener->path);
		return r;
	}
	listener->device = file.st_dev;
	listener->inode = file.st_ino;
	listener->bound = true;
	r = for_group ? give_to_group(listener, mode, error) : 0;
	if (r < 0)
		return r;
	if (listen(listener->fd, LIMIT_BACKLOG) < 0)
		return fail_errno(error, "can't listen on", listener->path);
	return 0;
}

void listener_close(struct listener *listener)
{
	struct stat file;

	if (listener->bound && lstat(listener->path, &file) == 0 &&
		file.st_dev == listener->device && file.st_ino == listener->inode)
		unlink(listener->path);
	listener->bound = false;
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
	if (listener->lock_fd >= 0) {
		unlink(listener->lock_path);
		close(listener->lock_fd);
	}
	listener->lock_fd = -1;
	free(listener->lock_path);
	listener->lock_path = NULL;
	free(listener->path);
	listener->path = NULL;
}
