/* What a load's requests are: kinds of them, each with its share.
 *
 * A plain value, constant while a load runs. */
#ifndef DRAFTCTL_MIX_H
#define DRAFTCTL_MIX_H

#include "kernels/error_text.h"
#include "random.h"

#include <stdint.h>

#define MIX_KINDS_MAX 16

struct mix_kind {
	double share; /* any unit: of the sum of all */
	uint32_t rows, steps;
	double temperature;
	uint32_t priority;
	int64_t deadline_us; /* 0: none */
	unsigned line;       /* of the file; 0: of no file */
};

struct mix {
	struct mix_kind kinds[MIX_KINDS_MAX];
	unsigned count;
};

/* Reads a kind a line, "share=3 rows=8 temperature=0.7"; what a line does not say is as in
 * `defaults`. Returns 0, or -errno with `error` naming file and line. */
int mix_read(const char *path, const struct mix_kind *defaults, struct mix *ret,
	struct error_text *error);

/* A kind, each as likely as its share says. */
unsigned mix_draw(const struct mix *mix, struct random *random);

/* The most of any kind. */
uint32_t mix_rows_max(const struct mix *mix);
uint32_t mix_steps_max(const struct mix *mix);
uint64_t mix_cells_max(const struct mix *mix); /* rows*K */

#endif
