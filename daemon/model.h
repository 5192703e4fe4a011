/* From a configuration to a head that is known to compute what it should. Blocks for as long as the
 * tables take; any thread, one at a time (main at the start, a worker for a reload). */
#ifndef DAEMON_MODEL_H
#define DAEMON_MODEL_H

#include "config.h"
#include "kernels/error_text.h"
#include "kernels/markov.h"

#define MODEL_NAME_BYTES 128

struct model {
	char name[MODEL_NAME_BYTES];
	struct markov_head *head;
};

/* Only looks whether the checkpoint that the configuration names has a head: quick, whatever its
 * size. Returns 0, or -errno with `error` in one sentence. */
int model_check(const struct config *config, struct error_text *error);

/* Opens the checkpoint and the head and drafts one block with it, which must equal the scalar
 * reference to the bit: tokens, and logits that are stored. `progress` (or NULL) is told what is
 * being done. Returns 0; the caller owns `ret->head`. Or -errno with `error` in one sentence. */
int model_load(const struct config *config,
	void (*progress)(void *user, const char *what, double done), void *user, struct model *ret,
	struct error_text *error);

#endif
