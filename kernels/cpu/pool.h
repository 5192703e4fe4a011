/* Threads that help the thread that owns a head. A job is one function that takes pieces of work
 * until none is left; the caller runs it too. Between jobs the threads sleep and use no processor
 * time. One thread at a time may call. */
#ifndef KERNELS_CPU_POOL_H
#define KERNELS_CPU_POOL_H

#include "kernels/error_text.h"

struct pool;

/* Processors that this process may run on, at most MARKOV_THREADS_MAX. */
unsigned pool_usable_threads(void);

/* `threads` counts the caller: 1 starts none. Blocks signals in the new threads. 0 or -errno. */
int pool_start(unsigned threads, struct pool **ret, struct error_text *error);
void pool_stop(struct pool *pool); /* NULL is fine */

unsigned pool_threads(const struct pool *pool);

/* Runs `work(user, lane)` on the caller (lane 0) and on every thread that wakes before the caller
 * is done (lanes 1 and up); returns when all of them have returned. A late thread is not waited
 * for: it finds the job over. */
void pool_run(struct pool *pool, void (*work)(void *user, unsigned lane), void *user);

#endif
