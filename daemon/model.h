/* From a configuration to heads, one a replica, that are known to compute what they should. Blocks
 * for as long as the tables take; any thread, one at a time (main at the start, a worker for a
 * reload). */
#ifndef DAEMON_MODEL_H
#define DAEMON_MODEL_H

#include "config.h"
#include "kernels/markov.h"
#include "limits.h"

#define MODEL_NAME_BYTES 128

struct model {
	char name[MODEL_NAME_BYTES];
	uint32_t replicas;
	struct markov_head *heads[LIMIT_REPLICAS_MAX];
	struct markov_facts facts; /* of all together: every device once, in the order of the list;
				      tensor_parallel is a replica's */
};

/* Only looks whether the checkpoint that the configuration names has a head, and this build the
 * backend: quick, whatever the checkpoint's size. Returns 0, or -errno with `refusal`, to be
 * placed. */
int model_check(const struct config *config, struct refusal *refusal);

/* Opens the checkpoint and the heads and drafts one block with each, which must equal the scalar
 * reference to the bit: tokens, and logits that are stored. `progress` (or NULL) is told what is
 * being done, for which replica. Returns 0; the caller owns the heads. Or -errno with `refusal`,
 * to be placed. */
int model_load(const struct config *config,
	void (*progress)(void *user, const char *what, double done), void *user, struct model *ret,
	struct refusal *refusal);

/* Closes the heads that are the caller's: those that are not NULL. Of a zeroed one: nothing. */
void model_close(struct model *model);

/* The device `index`, below tensor_parallel, of a replica, in the facts of all. */
const struct markov_device *model_device(
	const struct markov_facts *facts, uint32_t replica, uint32_t index);

#endif
