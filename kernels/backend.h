/* What a backend of markov.h is: a table of functions and a state. markov.c checks batches and
 * keeps the order of calls; a backend computes, on the thread that uses the head. What it does for
 * memory, any thread may call. */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H

#include "kernels/event.h"
#include "kernels/markov.h"
#include "kernels/memory.h"

/* What memory.h and event.h promise, of a backend on devices that have memory of their own. */
struct memory_backend {
	/* For the devices of a head with these facts. */
	int (*open)(const struct markov_facts *facts, void **ret_state, struct error_text *error);
	void (*close)(void *state);
	int (*pin)(void *state, void *address, size_t bytes, struct error_text *error);
	void (*unpin)(void *state, void *address);
	uint64_t (*granularity)(const void *state);
	int (*create)(void *state, const char *uuid, uint64_t bytes, struct device_memory *ret,
		int *ret_fd, struct error_text *error);
	int (*import)(void *state, const char *uuid, int fd, uint64_t bytes,
		struct device_memory *ret, struct error_text *error);
	void (*free)(void *state, struct device_memory *device);
	int (*event_open)(void *state, const char *uuid, const uint8_t *handle, void **ret_event,
		struct error_text *error);
	int (*event_query)(const void *event);
	void (*event_close)(void *event);
};

struct markov_memory {
	const struct memory_backend *backend; /* NULL: plain memory is as good as any */
	void *state;
};

struct backend {
	const struct memory_backend *memory; /* or NULL */
	/* Starts a checked batch, which stays valid until wait() returned for it. 0 or -errno. */
	int (*launch)(void *state, const struct markov_batch *batch, struct error_text *error);
	/* Waits for the oldest. 0, or -EIO when the device is lost. */
	int (*wait)(void *state, struct error_text *error);
	/* markov_is_over(); NULL where wait() computes. */
	bool (*is_over)(const void *state);
	/* Nothing is under way. */
	void (*close)(void *state);
};

/* Called for every backend: copies the tables, fills the facts that are its own (variant,
 * bias_order, batches_max if it is not 1, devices, tensor_parallel, table_bytes) and hands out its
 * state. 0 or -errno with a sentence. */
typedef int backend_open_fn(const struct markov_options *options,
	const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_facts *facts, void **ret_state, struct error_text *error);

extern const struct backend cpu_backend;
backend_open_fn cpu_open;

#endif
