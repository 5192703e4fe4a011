/* A draftd of this build or archive, started by a test and ended by it. One thread. */
#ifndef TESTS_GPU_SERVICE_H
#define TESTS_GPU_SERVICE_H

#include "client/draft.h"

#include <sys/types.h>

struct service {
	pid_t pid;
	char socket[64];
	int notices; /* what it tells the service manager */
};

/* Runs `programs`/draftd on the CUDA backend with that model and device memory for regions, and
 * waits until it is ready. Ends the tests if it does not start. */
void service_start(
	struct service *s, const char *programs, const char *model, const char *device_memory);

/* SIGTERM. Counts a test: it ends well. */
void service_stop(struct service *s);

/* A connection, or the end of the tests. */
struct draft *service_connect(const struct service *s);

/* A number of its statistics. */
unsigned long long service_count(struct draft *draft, const char *key);

/* Runs a program to its end with these arguments, without its output; its exit status. */
int run_program(const char *const arguments[]);

#endif
