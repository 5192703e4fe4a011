/* A region of either kind of memory, filled and read from this side: host memory where it is
 * mapped, device memory by copies. Owned by whoever opened it, closed before its connection. */
#ifndef DRAFTCTL_SHARED_H
#define DRAFTCTL_SHARED_H

#include "client/draft.h"
#include "client/driver.h"
#include "kernels/error_text.h"

struct shared {
	struct draft_region *region; /* NULL: none */
	struct driver *driver;       /* of device memory */
	struct driver_mapping mapping;
};

/* Returns 0, or -errno with `error`. */
int shared_open(struct draft *draft, uint64_t bytes, enum draft_memory memory, struct shared *ret,
	struct error_text *error);
void shared_close(struct shared *shared); /* none is fine */
/* The same without a word to draftd: the region goes with its connection, which is closed next. */
void shared_done(struct shared *shared);

/* Copies; complete when they return. 0, or -errno with `error`. */
int shared_write(struct shared *shared, uint64_t offset, const void *from, uint64_t bytes,
	struct error_text *error);
int shared_read(
	struct shared *shared, uint64_t offset, void *to, uint64_t bytes, struct error_text *error);

#endif
