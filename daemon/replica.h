/* A replica: a head on its device, or its group of devices, and the thread that launches on it. The
 * replicas of an engine take from one queue; what they share lies here, too.
 *
 * For engine.c and replica.c alone. A replica's thread owns its head and its columns from the start
 * to the end; what the engine's lock guards is said at the fields. Each replica's bell is its own,
 * so that one is called and the others sleep, or spin, on. */
#ifndef DAEMON_REPLICA_H
#define DAEMON_REPLICA_H

#include "bell.h"
#include "columns.h"
#include "engine.h"
#include "held.h"
#include "scheduler.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A launch between the scheduler and the head. */
struct flight {
	struct scheduler_batch batch;
	struct columns columns;
	struct markov_batch rows; /* of the columns */
	bool handed_over;         /* the head has it, or refused it for good */
	int result;
	struct error_text error;
	uint64_t begun_us; /* when it was handed over, or the one before it ended */
};

struct replica {
	struct engine *engine;
	unsigned index; /* in the engine and for the scheduler */
	pthread_t thread;
	bool started;                              /* loop thread only */
	struct flight flights[MARKOV_BATCHES_MAX]; /* its thread only */
	unsigned oldest, flight_count;             /* of these, its thread only */
	struct markov_head *head;                  /* its thread only */
	uint64_t generation;                       /* its thread only */

	_Alignas(64) struct bell work; /* heard by its thread: on a cache line of its own */

	/* under the engine's lock */
	_Alignas(64) bool idle; /* waits for work, and nobody has called it since */
	bool follows;           /* the same, while a launch of it is about to end */
	uint64_t free_us;       /* when its last launch ended */
	struct markov_head *next_head;
	uint64_t launched_us;     /* 0: no launch under way */
	uint64_t launch_limit_us; /* of the launch under way: what it may take */
	uint64_t asked_us;        /* 0: it asks no events */
	bool ended;               /* its thread leaves, and waits for nothing any more */
};

struct engine {
	struct engine_options options;
	bool watched; /* loop thread only */

	_Alignas(64) struct bell news; /* heard by the loop thread: on a cache line of its own */
	struct bell end;               /* the same, at the end: a replica has ended */

	_Alignas(64)
		pthread_mutex_t lock; /* guards what follows, and the state of queued requests */
	struct scheduler scheduler;
	struct held held;
	struct replica *looker; /* whose turn it is to ask the events of held drafts; NULL: of
				   whoever comes first */
	uint64_t next_generation;
	unsigned to_swap;       /* replicas that have still to */
	uint64_t look_until_us; /* with something held: looks again and again; then it naps */
	bool lost, stop;

	/* guards what follows; also taken under the other one. Apart from it, since the loop thread
	 * collects just when a replica takes its next launch from the scheduler. */
	_Alignas(64) pthread_mutex_t report_lock;
	struct engine_report report; /* since it was collected last */

	unsigned replica_count;
	struct replica replicas[];
};

/* Its thread; `user` is the replica. */
void *replica_main(void *user);

/* Under the lock: the idle replica that was free last, as that one may still be awake; of those
 * that may begin a launch now, or, with `any`, of all. Without one, a replica that may take a
 * launch ahead. NULL: there is none. It counts as idle no more, and the caller rings its bell,
 * after the lock. */
struct replica *replica_call(struct engine *engine, bool any);

#endif
