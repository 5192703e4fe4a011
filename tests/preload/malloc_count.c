/* For LD_PRELOAD: counts the allocations of a process, in the file that MALLOC_COUNT_FILE names: a
 * 64-bit number that a test reads while the process runs. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* glibc's own names for its allocator. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static _Atomic uint64_t before_the_file;
static _Atomic uint64_t *count = &before_the_file;

static void __attribute__((constructor)) map_file(void)
{
	const char *path = getenv("MALLOC_COUNT_FILE");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	void *at;

	if (fd < 0)
		return;
	if (ftruncate(fd, sizeof(*count)) == 0) {
		at = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (at != MAP_FAILED)
			count = at;
	}
	close(fd);
}

EXPORTED void *malloc(size_t bytes)
{
	(*count)++;
	return __libc_malloc(bytes);
}

EXPORTED void *calloc(size_t number, size_t bytes)
{
	(*count)++;
	return __libc_calloc(number, bytes);
}

EXPORTED void *realloc(void *old, size_t bytes)
{
	(*count)++;
	return __libc_realloc(old, bytes);
}
