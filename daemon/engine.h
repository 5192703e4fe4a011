/* The threads that own the Markov heads, one thread and head a replica: each takes launches from
 * the one scheduler when it is free, runs them, hands the requests back.
 *
 * All functions are the loop thread's. Two locks inside, one of the scheduler and one of what is to
 * be collected, are all that the threads share, but for words (bell.h) that say that there is
 * something to look at: to a replica, that work has come; to the loop, that something has finished.
 * By these a thread that looks for news itself, instead of sleeping, is told without a system call.
 * The engine never frees requests. */
#ifndef DAEMON_ENGINE_H
#define DAEMON_ENGINE_H

#include "kernels/markov.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

struct scheduler_flow;
struct engine; /* opaque: its locks and threads are nobody else's */

struct engine_options {
	unsigned replicas;  /* 1 to LIMIT_REPLICAS_MAX */
	uint32_t max_queue; /* requests waiting */
	uint32_t max_rows;
	uint32_t max_steps;
	uint64_t spin_us;         /* a replica looks for work for so long before it sleeps */
	void (*wake)(void *user); /* a replica's thread: there is something to collect; once until
				     collected, and not while the loop thread watches */
	void *user;
};

/* Starts a thread on each of `heads`, one a replica, which it owns from now on (also when this
 * fails); all are of the same model and limits. Returns 0 or -errno. */
int engine_start(const struct engine_options *options, struct markov_head *const *heads,
	uint64_t generation, struct engine **ret, struct error_text *error);

/* Finishes the launches under way, ends the threads, closes the heads. What was queued or is
 * finished is moved to `left`. Waits at most LIMIT_STOP_TIMEOUT_US for all together: -ETIMEDOUT
 * means that a launch does not end; then the engine can't be freed. */
int engine_stop(struct engine *engine, struct link *left);

/* Queues a draft of `flow`, which must live until the draft is back, cancelled or launched. One
 * that has an event is held until it has fired. 0; -ENOBUFS: the queue is full; -EIO: a device
 * is lost. */
int engine_submit(struct engine *engine, struct scheduler_flow *flow, struct request *request);

/* Takes a draft back if it has not been launched: true, it is the caller's again. False: it comes
 * back as finished; if only its event was being asked at that moment, with CANCELLED. */
bool engine_cancel(struct engine *engine, struct request *request);

/* Serves from `heads`, one a replica (of the same vocabulary and limits), as `generation`, from the
 * next launches on, the first of which begins when the last one on an old head has ended; closes
 * the old heads. One swap at a time; engine_collect() tells when all replicas have done it. */
void engine_swap(struct engine *engine, struct markov_head *const *heads, uint64_t generation);

struct engine_report {
	struct link finished; /* requests, DONE: with tokens or with `error` */
	bool swapped;         /* the swap is done */
	bool lost; /* a device is lost: every request that waits comes back with DEVICE_LOST */
	struct error_text reason; /* of a launch that failed; "" if none did */
};

/* What has happened since the last call. Never blocks for longer than two lists take to be joined.
 */
void engine_collect(struct engine *engine, struct engine_report *ret);

/* While it is on, the loop thread asks engine_has_news() again and again, and is not woken. Turned
 * off, it must ask once more. */
void engine_watch(struct engine *engine, bool on);

/* There is something to collect. One atomic load. */
bool engine_has_news(struct engine *engine);

/* Held drafts too. */
uint32_t engine_queue_depth(struct engine *engine);

/* A launch is under way, on any replica. */
bool engine_busy(struct engine *engine);

/* How long a launch under way has been running if that is longer than one of its size may take
 * (limits.h), or a question for an event if that is longer than any launch may; the longest, else
 * 0. */
uint64_t engine_overdue_us(struct engine *engine, uint64_t now_us);

#endif
