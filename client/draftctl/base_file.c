#include "base_file.h"

#include "case_file.h"
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_tensor(const char *path, uint32_t vocab, uint32_t rows, uint32_t steps,
	struct base_file *ret, struct error_text *error)
{
	struct safetensors *file = NULL;
	const struct tensor *tensor;
	int r;

	r = safetensors_open(path, &file, error);
	if (r < 0)
		return r;
	r = -EINVAL;
	tensor = case_file_tensor(file, path, "base_logits", DTYPE_BF16, 3, error);
	if (tensor == NULL)
		goto out;
	if (tensor->shape[2] != vocab || (rows != 0 && tensor->shape[0] != rows) ||
		(steps != 0 && tensor->shape[1] != steps) || tensor->shape[0] > REQUEST_ROWS_MAX ||
		tensor->shape[1] > REQUEST_STEPS_MAX) {
		char wanted_rows[16] = "rows", wanted_steps[16] = "K";

		if (rows != 0)
			snprintf(wanted_rows, sizeof(wanted_rows), "%u", rows);
		if (steps != 0)
			snprintf(wanted_steps, sizeof(wanted_steps), "%u", steps);
		error_text_set(error, EINVAL,
			"%s: \"base_logits\" is [%" PRIu64 ", %" PRIu64 ", %" PRIu64
			"]; it must be [%s, %s, %u]",
			path, tensor->shape[0], tensor->shape[1], tensor->shape[2], wanted_rows,
			wanted_steps, vocab);
		goto out;
	}
	ret->logits = malloc(tensor->byte_count);
	if (ret->logits == NULL) {
		r = error_text_set(error, ENOMEM, "out of memory");
		goto out;
	}
	memcpy(ret->logits, tensor->data, tensor->byte_count);
	ret->rows = (uint32_t)tensor->shape[0];
	ret->steps = (uint32_t)tensor->shape[1];
	r = 0;
out:
	safetensors_close(file);
	return r;
}

static int read_whole(int fd, char *to, size_t bytes)
{
	while (bytes > 0) {
		ssize_t got = read(fd, to, bytes);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EIO;
		to += got;
		bytes -= (size_t)got;
	}
	return 0;
}

static int read_raw(const char *path, uint32_t vocab, uint32_t rows, uint32_t steps,
	struct base_file *ret, struct error_text *error)
{
	uint64_t block = (uint64_t)vocab * 2;
	struct stat stat;
	void *logits = NULL;
	int fd = -1, r;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &stat) < 0) {
		r = error_text_set(
			error, errno, "%s: %s%s", path, strerror(errno), error_text_remedy(errno));
		goto out;
	}
	if (!S_ISREG(stat.st_mode)) {
		r = error_text_set(error, EINVAL, "%s is no regular file", path);
		goto out;
	}
	if (rows == 0)
		rows = 1;
	if (steps == 0 && (uint64_t)stat.st_size / block / rows <= REQUEST_STEPS_MAX)
		steps = (uint32_t)((uint64_t)stat.st_size / block / rows);
	if (steps == 0 || (uint64_t)stat.st_size != block * rows * steps) {
		r = error_text_set(error, EINVAL,
			"%s has %" PRId64
			" byte%s; raw BF16 logits of %u row%s need rows * steps * %" PRIu64,
			path, (int64_t)stat.st_size, sentence_s((uint64_t)stat.st_size), rows,
			sentence_s(rows), block);
		goto out;
	}
	logits = malloc((size_t)stat.st_size);
	if (logits == NULL) {
		r = error_text_set(error, ENOMEM, "out of memory");
		goto out;
	}
	r = read_whole(fd, logits, (size_t)stat.st_size);
	if (r < 0) {
		error_text_set(error, -r, "%s: %s", path, strerror(-r));
		goto out;
	}
	*ret = (struct base_file){.rows = rows, .steps = steps, .logits = logits};
	logits = NULL;
out:
	free(logits);
	if (fd >= 0)
		close(fd);
	return r;
}

int base_file_read(const char *path, uint32_t vocab, uint32_t rows, uint32_t steps,
	struct base_file *ret, struct error_text *error)
{
	static const char ending[] = ".safetensors";
	size_t length = strlen(path);

	if (length >= sizeof(ending) - 1 &&
		strcmp(path + length - (sizeof(ending) - 1), ending) == 0)
		return read_tensor(path, vocab, rows, steps, ret, error);
	return read_raw(path, vocab, rows, steps, ret, error);
}
