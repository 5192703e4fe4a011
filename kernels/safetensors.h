/* A .safetensors file, mapped and checked: the header is capped, every tensor lies inside the file,
 * fills exactly its range, and overlaps no other. Read-only; any thread may read an open file. The
 * file owns all that it hands out. */
#ifndef KERNELS_SAFETENSORS_H
#define KERNELS_SAFETENSORS_H

#include "error_text.h"

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_HEADER_BYTES_MAX (100u << 20)
#define SAFETENSORS_DIMENSIONS_MAX   8

enum tensor_dtype { /* those that draftd reads; others are listed by name and can't be used */
	DTYPE_OTHER,
	DTYPE_BF16,
	DTYPE_F32,
	DTYPE_I32,
	DTYPE_I64,
};

struct tensor {
	const char *name;
	const char *dtype_name; /* as in the header: "BF16" */
	enum tensor_dtype dtype;
	unsigned dimension_count;
	uint64_t shape[SAFETENSORS_DIMENSIONS_MAX];
	const void *data; /* in the mapping; no alignment is promised */
	uint64_t byte_count;
};

struct safetensors; /* an open file */

/* Maps and checks `path`. A look at `data` of a tensor is SIGBUS if the file shrinks while it is
 * open; safetensors_read() is not. Returns 0 or -errno with `error` naming the file, the tensor and
 * what was expected. */
int safetensors_open(const char *path, struct safetensors **ret, struct error_text *error);
void safetensors_close(struct safetensors *file); /* NULL is fine */

size_t safetensors_count(const struct safetensors *file);
const struct tensor *safetensors_at(const struct safetensors *file, size_t index); /* by offset */
const struct tensor *safetensors_find(
	const struct safetensors *file, const char *name); /* or NULL */

/* Copies the data of a tensor of this file to `to`, which has room for its byte_count. Unlike a
 * look into the mapping, this survives that somebody truncates the file meanwhile: -EIO. `progress`
 * (or NULL) is told now and then that so many bytes more have come. */
int safetensors_read(const struct safetensors *file, const struct tensor *tensor, void *to,
	void (*progress)(void *user, uint64_t bytes), void *user, struct error_text *error);

/* A string of `__metadata__`, or NULL. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);

/* What safetensors_write() writes: tensors in this order, data copied from memory. */
struct tensor_source {
	const char *name;
	const char *dtype_name;
	unsigned dimension_count;
	uint64_t shape[SAFETENSORS_DIMENSIONS_MAX];
	const void *data;
	uint64_t byte_count;
};

struct metadata_pair {
	const char *key;
	const char *value;
};

/* Writes `path` whole or not at all (a temporary file beside it, fsync, rename). Returns 0 or
 * -errno. */
int safetensors_write(const char *path, const struct tensor_source *tensors, size_t tensor_count,
	const struct metadata_pair *metadata, size_t metadata_count, struct error_text *error);

#endif
