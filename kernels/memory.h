/* The memory that rows lie in, seen from a backend. Host memory can be pinned, so that a GPU copies
 * from and to it by itself.
 *
 * Not bound to a head's life: a reload closes heads, the memory that clients share stays. Made for
 * the first head, closed after the last use of what it pinned. Every function may be called from
 * any thread, by several at once, and may block for as long as the driver takes. */
#ifndef KERNELS_MEMORY_H
#define KERNELS_MEMORY_H

#include "error_text.h"

#include <stddef.h>

/* Zero is what any memory of the process is. */
enum memory_kind {
	MEMORY_PLAIN,  /* of this process: a GPU has it copied through pinned memory */
	MEMORY_PINNED, /* by markov_memory_pin(): a GPU copies from and to it by itself */
	MEMORY_DEVICE, /* of a GPU, at an address that the head's devices know: used in place */
};

struct markov_facts;
struct markov_memory;

/* For the devices of a head with these facts, and of every later head on the same ones. Returns 0,
 * or -errno with `error`. */
int markov_memory_open(
	const struct markov_facts *facts, struct markov_memory **ret, struct error_text *error);
void markov_memory_close(struct markov_memory *memory); /* NULL is fine */

/* Pins `bytes` at `address`, the start of a page, if that helps the backend: `*ret_kind` says what
 * the memory is now. As one piece: the copy of a row that lies in two is not defined. Returns 0;
 * -EIO when the device is lost; or another -errno, and the memory is as usable as it was. */
int markov_memory_pin(struct markov_memory *memory, void *address, size_t bytes,
	enum memory_kind *ret_kind, struct error_text *error);

/* Of memory of the kind that markov_memory_pin() said; nobody uses it, and it is still mapped. */
void markov_memory_unpin(struct markov_memory *memory, void *address, enum memory_kind kind);

#endif
