/* Drafts that wait for an event of their client, outside the scheduler's queue but counted there
 * (scheduler_admit()): no launch ever waits for a client. A replica's thread asks their events
 * after each launch and while it has nothing to launch, one replica at a time; a draft whose event
 * has fired enters the queue as if it had arrived then. Others pass it.
 *
 * The engine's lock guards everything but held_ask(), which asks the driver without it. What is
 * being asked belongs to that thread for that moment, so that nobody frees the event. */
#ifndef DAEMON_HELD_H
#define DAEMON_HELD_H

#include "limits.h"
#include "list.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

struct scheduler;

struct held {
	struct link drafts; /* who was asked longest ago first */
};

/* Some of them, being asked. */
struct held_look {
	unsigned count;
	struct request *requests[LIMIT_HELD_LOOKS];
	int answers[LIMIT_HELD_LOOKS];
};

void held_init(struct held *held);
bool held_any(const struct held *held);

/* Of a draft that the scheduler has admitted. (scheduler_remove() takes it away again.) */
void held_add(struct held *held, struct request *request);

/* Takes the next ones off the list; asks their events; then gives those whose events have fired to
 * the scheduler, puts those that go on waiting back, and the others, DONE with an error, at the end
 * of `over`: their time has passed, they were removed meanwhile, their event has been given up, or
 * the device is lost, which is -EIO. */
void held_begin_look(struct held *held, struct held_look *look);
void held_ask(struct held_look *look);
int held_end_look(struct held *held, struct held_look *look, struct scheduler *scheduler,
	uint64_t now_us, struct link *over);

/* Takes everything out, in order, to `to`. */
void held_take_all(struct held *held, struct scheduler *scheduler, struct link *to);

#endif
