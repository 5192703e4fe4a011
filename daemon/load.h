/* A load of a model, as the log and the service manager are told of it: what is being done, how
 * far it is, and what of the settings it made no use of. By the thread that loads: main at the
 * start, a worker for a reload. */
#ifndef DAEMON_LOAD_H
#define DAEMON_LOAD_H

#include "config.h"

#include <stdbool.h>
#include <stdint.h>

struct load {
	const char *doing; /* "starting" */
	bool aloud;        /* the log is told of each phase as it begins */
	uint64_t begun_us, said_us;
	char what[64];
	bool logged; /* `what` */
	int percent;
};

/* Begins now. GPUs take seconds, so that each phase has its line in the log; else those have one
 * that begin, or go on, after LIMIT_LOAD_QUIET_US. */
void load_begin(struct load *load, const char *doing, const struct config *config);

/* For model_load(): says how far the load `user` is, and asks the service manager for more time. */
void load_tell(void *user, const char *what, double done);

/* Warns of settings for GPUs that were given and are not used, where backend auto took the CPU. */
void load_warn_unused(const struct config *config, const struct markov_facts *facts);

#endif
