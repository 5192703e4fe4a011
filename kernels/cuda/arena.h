/* Room for copies: memory of one kind, handed out from its start, and taken back all at once. Owned
 * by the head's staging; one thread at a time. */
#ifndef KERNELS_CUDA_ARENA_H
#define KERNELS_CUDA_ARENA_H

#include "kernels/error_text.h"
#include "kernels/memory.h"

struct arena {
	enum memory_kind kind; /* pinned or device */
	char *memory;
	size_t size, used;
};

/* Makes room for `size` bytes and takes everything back. What was there is gone. */
int arena_reset(struct arena *arena, size_t size, struct error_text *error);
/* `bytes` more, aligned to 256. The caller has made room. */
void *arena_take(struct arena *arena, size_t bytes);
void arena_done(struct arena *arena);
/* What arena_take() uses up of the room. */
size_t arena_rounded(size_t bytes);

#endif
