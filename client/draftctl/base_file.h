/* Base logits that a person gives: a .safetensors file with `base_logits` [rows,K,V], or raw BF16.
 */
#ifndef DRAFTCTL_BASE_FILE_H
#define DRAFTCTL_BASE_FILE_H

#include "kernels/error_text.h"

#include <stdint.h>

struct base_file {
	uint32_t rows, steps;
	void *logits; /* [rows,K,V] BF16, little-endian; malloc'd, the caller's to free() */
};

/* Reads `path` for a model of `vocab` tokens. `rows` and `steps` are what was asked for, or 0: then
 * a .safetensors file says; raw bytes then hold one row, or one block of as many steps as fit.
 * Returns 0, or -errno with `error` saying what does not fit. */
int base_file_read(const char *path, uint32_t vocab, uint32_t rows, uint32_t steps,
	struct base_file *ret, struct error_text *error);

#endif
