/* Bytes as a .safetensors file: opened by name like any other, and where that works, every tensor
 * is read to its ends. */
#include "kernels/checkpoint.h"
#include "kernels/safetensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

static void read_ends(const struct safetensors *file)
{
	for (size_t i = 0; i < safetensors_count(file); i++) {
		const struct tensor *tensor = safetensors_at(file, i);
		const unsigned char *bytes = tensor->data;

		if (tensor->byte_count > 0)
			sink = bytes[0] ^ bytes[tensor->byte_count - 1];
		if (safetensors_find(file, tensor->name) != tensor)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	static char path[64];
	struct checkpoint checkpoint;
	struct safetensors *file;
	struct error_text error;

	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	if (safetensors_open(path, &file, &error) == 0) {
		read_ends(file);
		safetensors_close(file);
	}
	if (checkpoint_open(path, NULL, &checkpoint, &error) == 0) {
		sink = ((const unsigned char *)
				checkpoint.w2)[(size_t)checkpoint.vocab * checkpoint.rank * 2 - 1];
		sink = ((const unsigned char *)checkpoint
				.w1)[(size_t)checkpoint.target_vocab * checkpoint.rank * 2 - 1];
		checkpoint_close(&checkpoint);
	}
	return 0;
}
