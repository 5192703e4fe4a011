#include "region_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static int map(int fd, uint64_t bytes, uint8_t **ret_memory, struct message_fault *fault)
{
	void *memory;

	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"bytes is %" PRIu64 ", and that much can't be mapped: %s", bytes,
			strerror(errno));
	*ret_memory = memory;
	return 0;
}

int region_memory_create(
	uint64_t bytes, uint8_t **ret_memory, int *ret_fd, struct message_fault *fault)
{
	int fd, r;

	fd = memfd_create("draftd-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"no shared memory can be made: %s%s", strerror(errno),
			error_text_remedy(errno));
	if (ftruncate(fd, (off_t)bytes) < 0) {
		r = message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"bytes is %" PRIu64 ", and shared memory can't be that large: %s%s", bytes,
			strerror(errno), error_text_remedy(errno));
		goto fail;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		r = message_refuse(fault, ERROR_INTERNAL, "shared memory can't be sealed: %s",
			strerror(errno));
		goto fail;
	}
	r = map(fd, bytes, ret_memory, fault);
	if (r < 0)
		goto fail;
	*ret_fd = fd;
	return 0;
fail:
	close(fd);
	return r;
}

int region_memory_import(int fd, uint64_t bytes, uint8_t **ret_memory, struct message_fault *fault)
{
	struct statfs filesystem;
	struct stat file;
	int seals, flags;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 && (errno == EINVAL || errno == EBADF)) /* EBADF: O_PATH */
		return message_refuse(fault, ERROR_BAD_REQUEST, "the descriptor is no memfd");
	flags = fcntl(fd, F_GETFL);
	if (seals < 0 || flags < 0 || fstat(fd, &file) < 0 || fstatfs(fd, &filesystem) < 0)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"the descriptor can't be looked at: %s", strerror(errno));
	if (filesystem.f_type != TMPFS_MAGIC)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"the memfd has huge pages, which may be missing when they are touched; "
			"make it without MFD_HUGETLB");
	if (!(seals & F_SEAL_SHRINK))
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"the memfd can shrink; seal it with F_SEAL_SHRINK first");
	if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) || (flags & O_ACCMODE) != O_RDWR)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"the memfd is not writable; share it without F_SEAL_WRITE, open for both");
	if ((uint64_t)file.st_size < bytes)
		return message_refuse(fault, ERROR_OUT_OF_RANGE,
			"bytes is %" PRIu64 ", the memfd has %" PRIu64, bytes,
			(uint64_t)file.st_size);
	return map(fd, bytes, ret_memory, fault);
}

/* Pages are found before they are used, where their lack is an error: when a computation touches a
 * missing page, it is a signal. */
int region_memory_back(int fd, uint64_t offset, uint64_t bytes, struct message_fault *fault)
{
	int r;

	do
		r = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED,
			"memory is not free for bytes %" PRIu64 " to %" PRIu64
			" of the region: %s%s",
			offset, offset + bytes, strerror(errno), error_text_remedy(errno));
	return 0;
}

void region_memory_release(uint8_t *memory, uint64_t bytes, bool take_pages)
{
	if (take_pages)
		madvise(memory, bytes, MADV_REMOVE); /* can't fail on a shared, unlocked mapping */
	munmap(memory, bytes);
}

int region_memory_on_device(struct markov_memory *memory, const char *uuid, uint64_t bytes, int *fd,
	struct device_memory *ret, struct message_fault *fault, struct error_text *why)
{
	int r = *fd >= 0 ? markov_memory_import(memory, uuid, *fd, bytes, ret, why)
			 : markov_memory_create(memory, uuid, bytes, ret, fd, why);

	switch (r) {
	case 0:
		return 0;
	case -EIO:
		return message_refuse(fault, ERROR_DEVICE_LOST, "the device is lost");
	case -ENODEV:
		return message_refuse(fault, ERROR_NOT_FOUND, "%s", why->text);
	case -ERANGE:
		return message_refuse(
			fault, ERROR_OUT_OF_RANGE, "bytes is %" PRIu64 ": %s", bytes, why->text);
	case -ENOMEM:
		return message_refuse(fault, ERROR_RESOURCE_EXHAUSTED, "bytes is %" PRIu64 ": %s",
			bytes, why->text);
	default: /* no descriptor of such memory, or memory out of reach */
		return message_refuse(fault, ERROR_BAD_REQUEST, "%s", why->text);
	}
}
