/* For LD_PRELOAD: lets one call of a program under test fail, as if the system were short of
 * something. The file that FAULT_FILE names is the countdown, mapped; a test arms it before the
 * program starts, or while it runs: the call that takes `left` to 0 fails with its usual errno, and
 * those after it work again. Only calls made by the objects that FAULT_OF names are counted
 * ("draftd:libjansson"; a name begins so): libuv, for one, aborts where an allocation of its own
 * fails, by design.
 *
 * Calls that can't fail on Linux when used rightly (close, munmap, clocks, locks) are left alone.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <uv.h>

#define EXPORTED    __attribute__((visibility("default")))
#define OBJECTS_MAX 8

/* As tests/integration/fault.py reads it. */
struct fault {
	_Atomic int64_t left; /* calls until the one that fails; 0 or less: none does */
	uint64_t where;       /* that call's address within its object */
	int32_t error;        /* instead of the usual one, where that may be interrupted; or 0 */
	char call[28];
};

static struct fault nothing;
static struct fault *fault = &nothing;

static struct {
	uintptr_t base, begin, end;
} objects[OBJECTS_MAX];
static unsigned object_count;

static bool is_named(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	const char *of = getenv("FAULT_OF");

	while (of && *of) {
		size_t n = strcspn(of, ":");

		if (n && strncmp(name, of, n) == 0)
			return true;
		of += n + (of[n] == ':');
	}
	return false;
}

static int note_object(struct dl_phdr_info *info, size_t size, void *user)
{
	const char *path = *info->dlpi_name ? info->dlpi_name : program_invocation_name;

	(void)size;
	(void)user;
	if (!is_named(path))
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum && object_count < OBJECTS_MAX; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		objects[object_count].base = info->dlpi_addr;
		objects[object_count].begin = info->dlpi_addr + part->p_vaddr;
		objects[object_count].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
		object_count++;
	}
	return 0;
}

static void map_file(void)
{
	const char *path = getenv("FAULT_FILE");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *at;

	if (fd < 0)
		return;
	at = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return;
	dl_iterate_phdr(note_object, NULL);
	fault = at;
}

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **environment)
{
	map_file();
	return real_main(argc, argv, environment);
}

int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
	void (*)(void), void *);

/* What runs before main() is not the program's: the CUDA runtime, linked into draftd, registers its
 * kernels there, and does not bear to be refused memory. */
EXPORTED int __libc_start_main(int (*start)(int, char **, char **), int argc, char **argv,
	void (*init)(void), void (*fini)(void), void (*loader_fini)(void), void *stack)
{
	__typeof__(__libc_start_main) *next = NULL;
	void *found = dlsym(RTLD_NEXT, "__libc_start_main");

	memcpy(&next, &found, sizeof(next));
	real_main = start;
	return next(counted_main, argc, argv, init, fini, loader_fini, stack);
}

/* Whether this call fails; errno is set then. `interrupted`: whether a signal may end it. */
static bool fails(const char *call, uintptr_t from, int error, bool interrupted)
{
	uintptr_t base = 0;

	if (atomic_load_explicit(&fault->left, memory_order_relaxed) <= 0 ||
		(fault->error && !interrupted))
		return false;
	for (unsigned i = 0; i < object_count && !base; i++)
		if (from >= objects[i].begin && from < objects[i].end)
			base = objects[i].base;
	if (!base || atomic_fetch_sub(&fault->left, 1) != 1)
		return false;
	fault->where = from - base - 1;
	strncpy(fault->call, call, sizeof(fault->call) - 1);
	errno = fault->error ? fault->error : error;
	return true;
}

#define FROM (uintptr_t) __builtin_return_address(0)

/* A call that fails by returning `failure`, with errno. */
#define CALL(result, name, parameters, arguments, failure, error, interrupted)                     \
	EXPORTED result name parameters                                                            \
	{                                                                                          \
		static result(*_Atomic real) parameters;                                           \
		if (fails(#name, FROM, error, interrupted))                                        \
			return failure;                                                            \
		if (!real)                                                                         \
			real = dlsym(RTLD_NEXT, #name);                                            \
		return real arguments;                                                             \
	}

/* ---- memory ---- */

CALL(void *, malloc, (size_t bytes), (bytes), NULL, ENOMEM, false)
CALL(void *, calloc, (size_t n, size_t bytes), (n, bytes), NULL, ENOMEM, false)
CALL(void *, realloc, (void *old, size_t bytes), (old, bytes), NULL, ENOMEM, false)
CALL(void *, aligned_alloc, (size_t to, size_t bytes), (to, bytes), NULL, ENOMEM, false)
CALL(char *, strdup, (const char *text), (text), NULL, ENOMEM, false)
CALL(char *, strndup, (const char *text, size_t most), (text, most), NULL, ENOMEM, false)
CALL(char *, realpath, (const char *path, char *to), (path, to), NULL, ENOMEM, false)
CALL(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE, false)
CALL(FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL, ENOMEM, false)
CALL(FILE *, open_memstream, (char **to, size_t *bytes), (to, bytes), NULL, ENOMEM, false)

static int print(uintptr_t from, char **ret, const char *format, va_list arguments)
{
	return fails("asprintf", from, ENOMEM, false) ? -1 : vasprintf(ret, format, arguments);
}

/* Both of the names that the compiler knows. */
EXPORTED int asprintf(char **ret, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = print(FROM, ret, format, arguments);
	va_end(arguments);
	return n;
}

int __asprintf_chk(char **ret, int flag, const char *format, ...);
EXPORTED int __asprintf_chk(char **ret, int flag, const char *format, ...)
{
	va_list arguments;
	int n;

	(void)flag;
	va_start(arguments, format);
	n = print(FROM, ret, format, arguments);
	va_end(arguments);
	return n;
}

/* ---- mappings ---- */

CALL(void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset),
	(at, bytes, access, flags, fd, offset), MAP_FAILED, ENOMEM, false)
CALL(int, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice), -1, ENOMEM, false)
CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE, false)
CALL(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), -1, ENOSPC,
	true)
CALL(int, ftruncate, (int fd, off_t bytes), (fd, bytes), -1, ENOSPC, false)

/* ---- sockets ---- */

CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, EMFILE, false)
CALL(int, bind, (int fd, const struct sockaddr *to, socklen_t bytes), (fd, to, bytes), -1, ENOSPC,
	false)
CALL(int, listen, (int fd, int backlog), (fd, backlog), -1, ENOBUFS, false)
CALL(int, connect, (int fd, const struct sockaddr *to, socklen_t bytes), (fd, to, bytes), -1,
	ECONNREFUSED, true)
CALL(int, accept4, (int fd, struct sockaddr *from, socklen_t *bytes, int flags),
	(fd, from, bytes, flags), -1, EMFILE, true)
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), -1,
	ENOBUFS, true)
CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags), -1,
	ENOMEM, true)
CALL(ssize_t, send, (int fd, const void *at, size_t bytes, int flags), (fd, at, bytes, flags), -1,
	ENOBUFS, true)
CALL(ssize_t, sendto,
	(int fd, const void *at, size_t bytes, int flags, const struct sockaddr *to, socklen_t n),
	(fd, at, bytes, flags, to, n), -1, ENOBUFS, true)
CALL(ssize_t, recv, (int fd, void *at, size_t bytes, int flags), (fd, at, bytes, flags), -1, ENOMEM,
	true)
CALL(int, getsockopt, (int fd, int level, int option, void *value, socklen_t *bytes),
	(fd, level, option, value, bytes), -1, ENOBUFS, false)
CALL(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t bytes),
	(fd, level, option, value, bytes), -1, ENOBUFS, false)
CALL(int, shutdown, (int fd, int how), (fd, how), -1, ENOTCONN, false)
CALL(int, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout), -1, ENOMEM, true)
CALL(int, ppoll,
	(struct pollfd * fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask),
	(fds, n, timeout, mask), -1, ENOMEM, true)

/* ---- files: who handles signals has what they interrupt restarted ---- */

/* The third argument is read whether or not there is one, which only costs a register. */
#define CALL_OF_THREE(name, kind, first, value, error, interrupted)                                \
	EXPORTED int name(kind first, int value, ...)                                              \
	{                                                                                          \
		static int (*_Atomic real)(kind, int, ...);                                        \
		va_list arguments;                                                                 \
		long third;                                                                        \
		if (fails(#name, FROM, error, interrupted))                                        \
			return -1;                                                                 \
		if (!real)                                                                         \
			real = dlsym(RTLD_NEXT, #name);                                            \
		va_start(arguments, value);                                                        \
		third = va_arg(arguments, long);                                                   \
		va_end(arguments);                                                                 \
		return real(first, value, third);                                                  \
	}

CALL_OF_THREE(open, const char *, path, flags, EMFILE, false)
CALL_OF_THREE(fcntl, int, fd, command, ENOMEM, false)
CALL(ssize_t, read, (int fd, void *at, size_t bytes), (fd, at, bytes), -1, EIO, false)
CALL(ssize_t, pread, (int fd, void *at, size_t bytes, off_t from), (fd, at, bytes, from), -1, EIO,
	false)
CALL(ssize_t, write, (int fd, const void *at, size_t bytes), (fd, at, bytes), -1, ENOSPC, true)
CALL(int, fstat, (int fd, struct stat *ret), (fd, ret), -1, ENOMEM, false)
CALL(int, stat, (const char *path, struct stat *ret), (path, ret), -1, ENOMEM, false)
CALL(int, lstat, (const char *path, struct stat *ret), (path, ret), -1, ENOMEM, false)
CALL(int, fstatfs, (int fd, struct statfs *ret), (fd, ret), -1, ENOMEM, false)
CALL(int, flock, (int fd, int operation), (fd, operation), -1, ENOLCK, false)
CALL(int, chmod, (const char *path, mode_t mode), (path, mode), -1, EIO, false)
CALL(int, lchown, (const char *path, uid_t user, gid_t group), (path, user, group), -1, EIO, false)
CALL(int, access, (const char *path, int mode), (path, mode), -1, ENOMEM, false)
CALL(int, rename, (const char *from, const char *to), (from, to), -1, EIO, false)
CALL(int, mkostemp, (char *path, int flags), (path, flags), -1, EMFILE, false)
CALL(int, fsync, (int fd), (fd), -1, EIO, false)

/* ---- threads, processes, libuv ---- */

/* Those that return what others put into errno. */
CALL(int, pthread_create,
	(pthread_t * ret, const pthread_attr_t *how, void *(*run)(void *), void *user),
	(ret, how, run, user), EAGAIN, EAGAIN, false)
CALL(int, posix_spawnp,
	(pid_t * ret, const char *file, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *how, char *const *argv, char *const *environment),
	(ret, file, actions, how, argv, environment), EAGAIN, EAGAIN, false)
CALL(int, uv_loop_init, (uv_loop_t * loop), (loop), UV_EMFILE, EMFILE, false)
CALL(int, uv_async_init, (uv_loop_t * loop, uv_async_t *handle, uv_async_cb run),
	(loop, handle, run), UV_EMFILE, EMFILE, false)
CALL(int, uv_signal_init, (uv_loop_t * loop, uv_signal_t *handle), (loop, handle), UV_EMFILE,
	EMFILE, false)
CALL(int, uv_signal_start, (uv_signal_t * handle, uv_signal_cb run, int number),
	(handle, run, number), UV_EINVAL, EINVAL, false)
CALL(int, uv_poll_init, (uv_loop_t * loop, uv_poll_t *handle, int fd), (loop, handle, fd),
	UV_ENOMEM, ENOMEM, false)
