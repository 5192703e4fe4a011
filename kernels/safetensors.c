/* Happy path: open, map, read the header's length, parse its JSON, turn every entry into a tensor,
 * sort by offset, check that the tensors fill the data exactly. Every failure is a sentence and
 * leaves nothing mapped. */
#include "kernels/safetensors.h"

#include "kernels/dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_PIECE_BYTES (16ull << 20) /* after which a reader is told */
#define LENGTH_BYTES     8
#define READ_BYTES_MAX   (1u << 30) /* of one pread(2) */
#define METADATA_KEY     "__metadata__"

struct safetensors {
	int fd;
	void *mapping;
	size_t mapping_bytes;
	json_t *header; /* owns every name and dtype name */
	struct tensor *tensors;
	size_t tensor_count;
};

static int read_shape(
	const char *name, const json_t *shape, struct tensor *tensor, struct error_text *error)
{
	size_t count = json_array_size(shape);

	if (!json_is_array(shape) || count > SAFETENSORS_DIMENSIONS_MAX)
		return error_text_set(error, EINVAL,
			"tensor '%.*s': shape must be an array of at most %d dimensions",
			CUT(100, name), SAFETENSORS_DIMENSIONS_MAX);
	for (size_t i = 0; i < count; i++) {
		const json_t *dimension = json_array_get(shape, i);

		if (!json_is_integer(dimension) || json_integer_value(dimension) < 0)
			return error_text_set(error, EINVAL,
				"tensor '%.*s': dimension %zu of the shape must be an integer of "
				"0 to 2^63-1",
				CUT(100, name), i);
		tensor->shape[i] = (uint64_t)json_integer_value(dimension);
	}
	tensor->dimension_count = (unsigned)count;
	return 0;
}

static int read_offsets(const char *name, const json_t *offsets, uint64_t data_bytes,
	uint64_t *ret_begin, uint64_t *ret_end, struct error_text *error)
{
	const json_t *begin = json_array_get(offsets, 0);
	const json_t *end = json_array_get(offsets, 1);

	if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
		json_integer_value(begin) < 0 ||
		json_integer_value(end) < json_integer_value(begin))
		return error_text_set(error, EINVAL,
			"tensor '%.*s': data_offsets must be two integers, 0 <= begin <= end",
			CUT(100, name));
	if ((uint64_t)json_integer_value(end) > data_bytes)
		return error_text_set(error, EINVAL,
			"tensor '%.*s': data_offsets end at byte %lld but the file holds %llu "
			"bytes of data: "
			"it is truncated or damaged, fetch it again",
			CUT(100, name), (long long)json_integer_value(end),
			(unsigned long long)data_bytes);
	*ret_begin = (uint64_t)json_integer_value(begin);
	*ret_end = (uint64_t)json_integer_value(end);
	return 0;
}

static int read_tensor(const char *name, const json_t *entry, const unsigned char *data,
	uint64_t data_bytes, struct tensor *ret, struct error_text *error)
{
	struct tensor tensor = {.name = name};
	const char *dtype_name = json_string_value(json_object_get(entry, "dtype"));
	uint64_t begin = 0, end = 0, needed;
	unsigned bits;
	int result;

	if (!dtype_name)
		return error_text_set(error, EINVAL,
			"tensor '%.*s': must be an object with the strings and arrays dtype, "
			"shape, data_offsets",
			CUT(100, name));
	tensor.dtype_name = dtype_name;
	bits = dtype_bits(dtype_name, &tensor.dtype);
	result = read_shape(name, json_object_get(entry, "shape"), &tensor, error);
	if (result < 0)
		return result;
	result = read_offsets(
		name, json_object_get(entry, "data_offsets"), data_bytes, &begin, &end, error);
	if (result < 0)
		return result;
	if (bits != 0) {
		if (!dtype_shape_bytes(tensor.shape, tensor.dimension_count, bits, &needed))
			return error_text_set(error, EINVAL,
				"tensor '%.*s': the shape's size in bytes is no whole 64-bit "
				"number",
				CUT(100, name));
		if (needed != end - begin)
			return error_text_set(error, EINVAL,
				"tensor '%.*s': data_offsets span %llu byte%s but its shape as "
				"%.*s needs %llu",
				CUT(100, name), (unsigned long long)(end - begin),
				sentence_s(end - begin), CUT(20, dtype_name),
				(unsigned long long)needed);
	}
	tensor.data = data + begin;
	tensor.byte_count = end - begin;
	*ret = tensor;
	return 0;
}

static int check_metadata(const json_t *metadata, struct error_text *error)
{
	const char *key;
	json_t *value;

	if (!json_is_object(metadata))
		return error_text_set(error, EINVAL, METADATA_KEY " must be an object of strings");
	json_object_foreach((json_t *)metadata, key,
		value) if (!json_is_string(value)) return error_text_set(error, EINVAL,
		METADATA_KEY " key '%.*s' must be a string", CUT(100, key));
	return 0;
}

static int compare_offsets(const void *left, const void *right)
{
	const struct tensor *a = left, *b = right;

	if (a->data != b->data)
		return (const char *)a->data < (const char *)b->data ? -1 : 1;
	if (a->byte_count != b->byte_count)
		return a->byte_count < b->byte_count ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* The format allows neither overlaps nor holes, so what follows each tensor is the next one or the
 * end of the file. */
static int check_coverage(const struct safetensors *file, const unsigned char *data,
	uint64_t data_bytes, struct error_text *error)
{
	const unsigned char *position = data;
	const char *previous = NULL;

	for (size_t i = 0; i < file->tensor_count; i++) {
		const struct tensor *tensor = &file->tensors[i];
		const unsigned char *begin = tensor->data;

		if (begin < position)
			return error_text_set(error, EINVAL,
				"tensor '%.*s' overlaps tensor '%.*s': each must have bytes of "
				"its own",
				CUT(100, tensor->name), CUT(100, previous));
		if (begin > position)
			return error_text_set(error, EINVAL,
				"tensor '%.*s' begins %llu byte%s behind the end of what is before "
				"it: the format allows no gaps",
				CUT(100, tensor->name), (unsigned long long)(begin - position),
				sentence_s((uint64_t)(begin - position)));
		position = begin + tensor->byte_count;
		previous = tensor->name;
	}
	if (position != data + data_bytes)
		return error_text_set(error, EINVAL,
			"the file goes on for %llu byte%s after the last tensor: the format "
			"allows no trailing data",
			(unsigned long long)((uint64_t)(data + data_bytes - position)),
			sentence_s((uint64_t)(data + data_bytes - position)));
	return 0;
}

/* Whoever truncates a file takes its pages out of every mapping, and a look at them is then SIGBUS;
 * pread(2) only comes back short. */
static int read_at(int fd, uint64_t offset, void *to, uint64_t byte_count, struct error_text *error)
{
	unsigned char *position = to;

	while (byte_count > 0) {
		ssize_t got = pread(fd, position,
			byte_count < READ_BYTES_MAX ? byte_count : READ_BYTES_MAX, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_text_set(error, errno, "can't be read: %s", strerror(errno));
		if (got == 0)
			return error_text_set(error, EIO,
				"was truncated while it was read: write models beside and rename "
				"them into place");
		position += got;
		offset += (uint64_t)got;
		byte_count -= (uint64_t)got;
	}
	return 0;
}

/* The JSON between the length and the data. */
static int parse_header(struct safetensors *file, uint64_t header_bytes, struct error_text *error)
{
	char *text = malloc(header_bytes + 1);
	json_error_t parse_error;
	int result;

	if (!text)
		return error_text_set(error, ENOMEM, "no memory for the header");
	result = read_at(file->fd, LENGTH_BYTES, text, header_bytes, error);
	if (result == 0) {
		file->header = json_loadb(text, header_bytes, JSON_REJECT_DUPLICATES, &parse_error);
		if (!file->header)
			result = error_text_set(error, EINVAL,
				"the header is not valid JSON (byte %d): %.*s",
				parse_error.position, CUT(120, parse_error.text));
	}
	free(text);
	return result;
}

static int read_header(struct safetensors *file, struct error_text *error)
{
	unsigned char length[LENGTH_BYTES];
	uint64_t header_bytes = 0, data_bytes;
	const unsigned char *data;
	const char *name;
	json_t *entry;
	int result = read_at(file->fd, 0, length, sizeof(length), error);

	if (result < 0)
		return result;
	for (int i = LENGTH_BYTES - 1; i >= 0; i--)
		header_bytes = header_bytes << 8 | length[i];
	if (header_bytes > SAFETENSORS_HEADER_BYTES_MAX)
		return error_text_set(error, EINVAL,
			"header length %llu is over the limit of %u bytes: not a safetensors file",
			(unsigned long long)header_bytes, SAFETENSORS_HEADER_BYTES_MAX);
	if (header_bytes > file->mapping_bytes - LENGTH_BYTES)
		return error_text_set(error, EINVAL,
			"header length %llu is more than the file holds (%zu bytes): truncated, "
			"fetch it again",
			(unsigned long long)header_bytes, file->mapping_bytes);
	data = (const unsigned char *)file->mapping + LENGTH_BYTES + header_bytes;
	data_bytes = file->mapping_bytes - LENGTH_BYTES - header_bytes;

	result = parse_header(file, header_bytes, error);
	if (result < 0)
		return result;
	if (!json_is_object(file->header))
		return error_text_set(
			error, EINVAL, "the header must be a JSON object of tensors by name");
	file->tensors = calloc(json_object_size(file->header) + 1, sizeof(file->tensors[0]));
	if (!file->tensors)
		return error_text_set(error, ENOMEM, "no memory for the list of tensors");

	json_object_foreach(file->header, name, entry)
	{
		if (strcmp(name, METADATA_KEY) == 0)
			result = check_metadata(entry, error);
		else
			result = read_tensor(name, entry, data, data_bytes,
				&file->tensors[file->tensor_count++], error);
		if (result < 0)
			return result;
	}
	qsort(file->tensors, file->tensor_count, sizeof(file->tensors[0]), compare_offsets);
	return check_coverage(file, data, data_bytes, error);
}

/* O_NONBLOCK: the path may be a FIFO without a writer, which must be refused, not waited for. */
static int map_file(struct safetensors *file, const char *path, struct error_text *error)
{
	struct stat status;
	void *mapping;
	int result = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	file->fd = fd;
	if (fd < 0)
		return error_text_set(error, errno, "can't be opened: %s%s", strerror(errno),
			error_text_remedy(errno));
	if (fstat(fd, &status) < 0) {
		result = error_text_set(error, errno, "can't be examined: %s", strerror(errno));
	} else if (!S_ISREG(status.st_mode)) {
		result = error_text_set(
			error, EINVAL, "is no regular file; a .safetensors file is needed");
	} else if (status.st_size < LENGTH_BYTES) {
		result = error_text_set(error, EINVAL,
			"holds %lld bytes, fewer than the 8 of a header length: not a safetensors "
			"file",
			(long long)status.st_size);
	} else {
		mapping = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (mapping == MAP_FAILED) {
			result = error_text_set(
				error, errno, "can't be mapped: %s", strerror(errno));
		} else {
			file->mapping = mapping;
			file->mapping_bytes = (size_t)status.st_size;
		}
	}
	return result;
}

int safetensors_open(const char *path, struct safetensors **ret, struct error_text *error)
{
	struct safetensors *file = calloc(1, sizeof(*file));
	struct error_text reason;
	int result;

	if (!file)
		return error_text_set(error, ENOMEM, "%.*s: no memory", CUT(200, path));
	file->fd = -1;
	result = map_file(file, path, &reason);
	if (result == 0)
		result = read_header(file, &reason);
	if (result < 0) {
		safetensors_close(file);
		return error_text_set(error, -result, "%.*s: %s", CUT(200, path), reason.text);
	}
	*ret = file;
	return 0;
}

void safetensors_close(struct safetensors *file)
{
	if (!file)
		return;
	free(file->tensors);
	json_decref(file->header);
	if (file->mapping)
		munmap(file->mapping, file->mapping_bytes);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

int safetensors_read(const struct safetensors *file, const struct tensor *tensor, void *to,
	void (*progress)(void *user, uint64_t bytes), void *user, struct error_text *error)
{
	const uint64_t offset =
		(uint64_t)((const char *)tensor->data - (const char *)file->mapping);
	struct error_text reason;
	uint64_t piece;

	for (uint64_t done = 0; done < tensor->byte_count; done += piece) {
		int r;

		piece = tensor->byte_count - done;
		if (piece > READ_PIECE_BYTES)
			piece = READ_PIECE_BYTES;
		r = read_at(file->fd, offset + done, (char *)to + done, piece, &reason);
		if (r < 0)
			return error_text_set(
				error, -r, "tensor '%.*s' %s", CUT(100, tensor->name), reason.text);
		if (progress)
			progress(user, piece);
	}
	return 0;
}

size_t safetensors_count(const struct safetensors *file)
{
	return file->tensor_count;
}

const struct tensor *safetensors_at(const struct safetensors *file, size_t index)
{
	return index < file->tensor_count ? &file->tensors[index] : NULL;
}

const struct tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	for (size_t i = 0; i < file->tensor_count; i++)
		if (strcmp(file->tensors[i].name, name) == 0)
			return &file->tensors[i];
	return NULL;
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
	return json_string_value(json_object_get(json_object_get(file->header, METADATA_KEY), key));
}
