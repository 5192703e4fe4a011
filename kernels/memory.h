/* The memory that rows lie in, seen from a backend. Host memory can be pinned, so that a GPU copies
 * from and to it by itself; a GPU's own memory can be shared with other processes by a descriptor,
 * and is used in place.
 *
 * Not bound to a head's life: a reload closes heads, the memory that clients share stays. Made for
 * the first head, closed after the last use of what it pinned or mapped. Every function may be
 * called from any thread, by several at once, and may block for as long as the driver takes. */
#ifndef KERNELS_MEMORY_H
#define KERNELS_MEMORY_H

#include "error_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero is what any memory of the process is. */
enum memory_kind {
	MEMORY_PLAIN,  /* of this process: a GPU has it copied through pinned memory */
	MEMORY_PINNED, /* by markov_memory_pin(): a GPU copies from and to it by itself */
	MEMORY_DEVICE, /* of a GPU, at an address that the head's devices know: used in place */
};

/* An allocation on a device, mapped at one address for all devices of the head. */
struct device_memory {
	void *address;
	uint64_t bytes;
	char uuid[64]; /* of the device that it lies on */
};

struct markov_facts;
struct markov_memory;

/* For the devices of a head with these facts, and of every later head on the same ones. Returns 0,
 * or -errno with `error`. */
int markov_memory_open(
	const struct markov_facts *facts, struct markov_memory **ret, struct error_text *error);
void markov_memory_close(struct markov_memory *memory); /* NULL is fine */

/* Whether this backend wants host memory pinned; else plain memory is as good as any. */
bool markov_memory_pins(const struct markov_memory *memory);

/* Where it does: pins `bytes` at `address`, the start of a page. As one piece: the copy of a row
 * that lies in two is not defined. Returns 0; -EIO when the device is lost; or another -errno, and
 * the memory is as usable as it was. */
int markov_memory_pin(
	struct markov_memory *memory, void *address, size_t bytes, struct error_text *error);

/* Of what was pinned; nobody uses it, and it is still mapped. */
void markov_memory_unpin(struct markov_memory *memory, void *address);

/* Device memory comes in multiples of so many bytes. 0: this backend has none of its own, or can't
 * share it; then the functions below return -ENOTSUP. */
uint64_t markov_memory_granularity(const struct markov_memory *memory);

/* Allocates `bytes`, a multiple of the granularity, on the device `uuid` ("": the head's first) and
 * clears it. `*ret_fd` is the allocation, exported for another process: the caller's to close.
 * Whoever imports it keeps it allocated. Returns 0; -ENODEV: there is no such device; -EXDEV: the
 * head's devices can't reach its memory; -ENOMEM: it has not so much left; -ENOTSUP; -EIO: the
 * device is lost. `error` is fit for a client. */
int markov_memory_create(struct markov_memory *memory, const char *uuid, uint64_t bytes,
	struct device_memory *ret, int *ret_fd, struct error_text *error);

/* Maps an allocation of `bytes`, rounded up to the granularity, that another process exported as
 * `fd`, which stays the caller's. A `uuid` that is not "" must name its device. Returns
 * as markov_memory_create(), or -EINVAL: the descriptor is no such thing, or of another device;
 * -ERANGE: it has another size (a part of one can't be mapped). */
int markov_memory_import(struct markov_memory *memory, const char *uuid, int fd, uint64_t bytes,
	struct device_memory *ret, struct error_text *error);

/* Unmaps it; nobody uses it. */
void markov_memory_free(struct markov_memory *memory, struct device_memory *device);

#endif
