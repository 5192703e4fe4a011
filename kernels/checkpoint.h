/* Finding a Markov head in a checkpoint: a .safetensors file, or a folder with config.json and a
 * model.safetensors or a sharded index. Opening only looks: the tables stay in the files' mapping.
 * A backend copies what it needs when it opens a head, so nothing is held afterwards. */
#ifndef KERNELS_CHECKPOINT_H
#define KERNELS_CHECKPOINT_H

#include "error_text.h"

#include <stdbool.h>
#include <stdint.h>

struct checkpoint_options {
	bool has_multiplier; /* overrides what the checkpoint says */
	float multiplier;
	bool has_soft_cap; /* overrides; 0 turns the cap off */
	float soft_cap;
};

struct checkpoint {
	char name[128]; /* of the model: the folder's or file's base name without its ending */
	uint32_t vocab; /* V >= 1, rows of w2 */
	uint32_t rank;  /* R >= 1, columns of both */
	uint32_t target_vocab; /* V_target >= 1, rows of w1 */
	const uint16_t *
		w1; /* [V_target, R] BF16 bits, row-major; may be unaligned to more than one byte */
	const uint16_t *w2; /* [V, R] BF16 bits */
	float multiplier;   /* 1 unless the checkpoint or the options say otherwise; finite */
	float soft_cap;     /* > 0, or 0: none */
	void *files;        /* owned: what is mapped, and copies of the tables */
};

/* Opens and checks. Returns 0; -EDOM: a number of `options` is refused; or another -errno. `error`
 * names the tensor, key or option and what was expected. */
int checkpoint_open(const char *path, const struct checkpoint_options *options,
	struct checkpoint *ret, struct error_text *error);

/* Copies the tables into memory of the checkpoint's own, where w1 and w2 then point: a file that is
 * truncated from now on harms nobody, and one that was is -EIO. A look at the tables without this
 * can be SIGBUS. Blocks while it reads; `progress` (or NULL) is told "reading the model" and the
 * part, 0 to 1, that is done. Returns 0 or -errno. */
int checkpoint_load(struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error);

void checkpoint_close(struct checkpoint *checkpoint); /* of a zeroed one: nothing */

#endif
