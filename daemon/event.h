/* CUDA events of clients, from the call that imports one to its last use.
 *
 * Loop thread, except that a replica's thread asks the event of a draft that it holds. Opening and
 * closing run in libuv's workers, because the driver may take its time. An event frees itself when
 * it is closed, no draft holds it, and a worker has let it go. */
#ifndef DAEMON_EVENT_H
#define DAEMON_EVENT_H

#include "kernels/event.h"
#include "list.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct event;
struct region_pool;
struct request;
struct user;

/* What a client asks for, and who is told. */
struct event_order {
	uint32_t id;
	uint8_t handle[EVENT_HANDLE_BYTES];
	char device[MESSAGE_UUID_BYTES]; /* a UUID; "": the first */
	struct user *user;               /* who is charged; held until the event is gone */
	struct request *waiting; /* the call that opens or closes it; its owner frees it in the
				    callback */
	void (*opened)(struct event *event);
	void (*closed)(struct event *event);
};

struct event {
	struct link link;         /* the connection's list, while open */
	struct region_pool *pool; /* for its loop, its backend, and whether the device is lost */
	struct event_order order;
	struct markov_event *event; /* NULL: it could not be opened */
	unsigned holds;             /* drafts that use it */
	bool open;
	struct message_fault fault; /* of opening; code ERROR_NONE: none */
	struct error_text why;      /* what the backend said then */
	uv_work_t work;
};

/* Starts to open an event. Calls `opened` later: either `fault.code` is set and the event is freed
 * after the call, or it is open. `closed` is called when a closed one is gone. Returns 0, or
 * -ENOMEM; then nothing is called. Only where markov_event_possible(). */
int event_start(struct region_pool *pool, const struct event_order *order);

void event_hold(struct event *event);
void event_drop(struct event *event); /* NULL is fine */

/* Closes an open event; it goes when no draft holds it. `waiting` (or NULL) is kept for `closed`.
 */
void event_close(struct event *event, struct request *waiting);

#endif
