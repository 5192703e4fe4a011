/* A recorded case: a request and what must come back, in a .safetensors file (NUMERICS.md, "How
 * equality is tested"). The file stays mapped, unaligned columns are copied; case_file_close()
 * frees both. One thread. */
#ifndef DRAFTCTL_CASE_FILE_H
#define DRAFTCTL_CASE_FILE_H

#include "kernels/error_text.h"
#include "kernels/safetensors.h"

#include <stdint.h>

#define CASE_SLOT_MAX (1 << 20)

struct case_file {
	struct safetensors *file;
	uint32_t rows, steps, vocab;
	const void *base;         /* [rows,K,V] BF16, any alignment */
	const void *draft_logits; /* [rows,K,V] BF16, by row; meaningless where slot < 0 */
	uint32_t *anchors;        /* [rows] */
	int64_t *positions, *seeds;
	float *temperatures;
	int64_t *slots;    /* [rows], at most CASE_SLOT_MAX, none twice */
	int64_t *tokens;   /* [rows,K] */
	uint32_t slot_end; /* one past the largest slot */
};

/* Opens and checks. Returns 0, or -errno with `error` naming the file, the tensor and what was
 * expected. */
int case_file_open(const char *path, struct case_file *ret, struct error_text *error);
void case_file_close(struct case_file *file); /* of a zeroed one: nothing */

/* The tensor of a name, which must have this type and number of dimensions, none of them 0. NULL
 * with `error` set. */
const struct tensor *case_file_tensor(const struct safetensors *file, const char *path,
	const char *name, enum tensor_dtype dtype, unsigned dimension_count,
	struct error_text *error);

#endif
