/* One atomic word by which one thread tells another that there is something to look at, so that
 * telling costs a system call only when the other one sleeps.
 *
 * The hearer marks the bell as slept upon before it sleeps, and looks for what it is told of after
 * every ring; the ringer rings after it has put it there, without any lock. Between the exchange of
 * the ringer and the exchange or comparison of the hearer nothing is lost: a ring that comes first
 * is found, one that comes later finds the sleeper. */
#ifndef DAEMON_BELL_H
#define DAEMON_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum bell_state {
	BELL_QUIET, /* the hearer works, or looks at the bell now and then */
	BELL_RUNG,
	BELL_SLEEPS, /* the hearer sleeps: whoever rings must wake it */
};

struct bell {
	atomic_uint state; /* enum bell_state */
};

/* Rings. True: the hearer slept, and the caller wakes it. */
static inline bool bell_ring(struct bell *bell)
{
	return atomic_exchange(&bell->state, BELL_RUNG) == BELL_SLEEPS;
}

static inline bool bell_has_rung(struct bell *bell)
{
	return atomic_load_explicit(&bell->state, memory_order_acquire) == BELL_RUNG;
}

/* The hearer is about to look: from now on a ring is a new one. */
static inline void bell_silence(struct bell *bell, enum bell_state state)
{
	atomic_exchange(&bell->state, state);
}

/* Between BELL_QUIET and BELL_SLEEPS. False: it has rung, and the hearer must look first. */
static inline bool bell_change(struct bell *bell, enum bell_state from, enum bell_state to)
{
	unsigned expected = from;

	return atomic_compare_exchange_strong(&bell->state, &expected, to);
}

/* For a bell whose hearer sleeps in bell_wait(). */
void bell_ring_and_wake(struct bell *bell);

/* Waits until it rings or the clock shows `until_us` (UINT64_MAX: for ever): first looking at the
 * word for at most `spin_us`, then asleep. May return early. The bell is quiet afterwards. */
void bell_wait(struct bell *bell, uint64_t spin_us, uint64_t until_us);

#endif
