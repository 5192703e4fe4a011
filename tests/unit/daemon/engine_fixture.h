/* An engine on a backend that the test holds in its hands: each replica's launch ends when the test
 * says so, with what the test says, and a client's event has fired when the test says so.
 *
 * (engine_fixture.c stands in for kernels/markov.c in this program; the real one runs in the
 * integration tests.) One engine at a time, between engine_set_up() and engine_tear_down(). */
#ifndef TESTS_ENGINE_FIXTURE_H
#define TESTS_ENGINE_FIXTURE_H

#include "daemon/engine.h"
#include "daemon/event.h"
#include "daemon/limits.h"
#include "daemon/scheduler.h"

#include <semaphore.h>
#include <stdatomic.h>

#define MAX_ROWS     4
#define MAX_QUEUE    6
#define STEPS        2
#define SPIN_US      200
#define MAX_REPLICAS 4

struct markov_head {
	unsigned replica;
	int generation;
	bool closed;
	/* where two may be under way */
	const struct markov_batch *batches[MARKOV_BATCHES_MAX];
	unsigned under_way;
	bool over; /* the oldest is */
};

/* Where a replica's launches stop. */
struct gate {
	sem_t launched, may_end; /* a launch has begun; it may end */
	int result;              /* of the next launch, or of the end of one where two may be */
	int refuses;             /* instead of a launch behind another: -errno */
	bool holds;              /* a launch behind another, until it may begin */
	sem_t may_begin;
	/* of the last launch */
	int generation;
	uint32_t rows, steps;
	enum memory_kind base[MAX_ROWS], logits[MAX_ROWS];
};

extern struct gate gates[MAX_REPLICAS];
extern struct markov_head *heads[MAX_REPLICAS], *next_heads[MAX_REPLICAS]; /* generations 1, 2 */

extern uint32_t batches_max; /* of all heads; 1: a launch ends before markov_launch() returns */
extern int open_result, build_result; /* of markov_open(), which fails; of markov_check_build() */

extern struct engine *engine;
extern struct scheduler_flow flow, other;
extern sem_t woken; /* the loop thread was */
extern struct link got;

void engine_set_up(unsigned replicas, uint64_t spin_us);
void engine_tear_down(void);

/* Rows with anchors id*10, id*10 + 1, … */
struct request *make(uint32_t id, uint32_t rows, uint32_t steps);
struct request *submit(uint32_t id, uint32_t rows, uint32_t steps); /* of `flow` */
void let_end(unsigned replica);
void free_all(struct link *list);

/* Collects to `got` until `count` requests have come back in this call. */
struct engine_report collect(unsigned count);

/* The request has come back with the tokens of its own rows. */
void check_tokens(const struct request *request);

/* ---- events ---- */

struct answer {
	atomic_int now; /* what markov_event_query() returns */
	atomic_uint asked;
	atomic_bool gated; /* a question says so at `asking` and waits at `may_answer` */
};

#define ANSWERS (LIMIT_HELD_LOOKS + 6)

extern sem_t asking, may_answer;
extern struct answer answers[ANSWERS];
extern struct event events[ANSWERS];
extern struct scheduler_flow flows[ANSWERS];

void events_set_up(void);
void events_tear_down(void);

struct request *make_held(uint32_t id, unsigned event);
struct request *submit_held(uint32_t id, unsigned event); /* of the event's own flow */

/* Until the engine has begun to ask once more than now: what was submitted before has been seen. */
void wait_for_look(unsigned event);
void fire(unsigned event);

#endif
