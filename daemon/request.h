/* A request that is answered later: a draft on its way through queue and device, or a call that
 * waits for something (a region to be made or given up, a reload).
 *
 * Made and freed by the loop thread. A draft belongs to the engine from engine_submit() until it
 * comes back through engine_collect() or engine_cancel(); meanwhile the loop thread touches only
 * `connection`, `id`, `method` and the link of the connection's table. A draft owns its columns,
 * its frame and its reply's logits, and holds its regions and its event, until its reply is
 * queued. */
#ifndef DAEMON_REQUEST_H
#define DAEMON_REQUEST_H

#include "list.h"
#include "placement.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>

struct connection;
struct event;
struct region;
struct scheduler_flow;

enum request_state {   /* changes under the engine's lock only */
	REQUEST_IDLE,  /* not with the engine */
	REQUEST_HELD,  /* until its event has fired */
	REQUEST_ASKED, /* held, and its event is being asked: nobody but its replica's thread
			  touches it */
	REQUEST_QUEUED,
	REQUEST_RUNNING,
	REQUEST_DONE,
};

struct draft {
	uint32_t rows, steps;
	uint32_t priority; /* 0 or 1 */
	uint64_t arrival_us;
	uint64_t deadline_us;        /* on the daemon's clock; UINT64_MAX: none */
	uint64_t event_until_us;     /* then its event must have fired */
	uint64_t sequence;           /* of arrival in the queue; the scheduler's */
	struct scheduler_flow *flow; /* while it is held or queued; the scheduler's */
	enum request_state state;

	/* columns of `rows`, in the request's own allocation */
	uint32_t *anchors;
	int64_t *positions, *seeds, *slots;
	float *temperatures;
	struct placement base, logits; /* logits.at NULL: none wanted */
	bool logits_by_slot; /* a row's logits lie at its slot (region), else at its row (reply) */

	/* what they lie in; each may be NULL */
	struct region *base_region, *logits_region;
	struct event *event; /* that must have fired before the launch */
	uint8_t *frame; /* malloc'd: the buffer of a frame whose inline base is used in place */
	uint8_t *reply_logits; /* malloc'd */
	uint32_t reply_logits_bytes;

	/* the outcome, written by the engine */
	enum error_code error;
	const char *reason; /* of the error, a constant; NULL: what the error says by itself */
	uint32_t *tokens;   /* [rows*steps] */
	uint8_t *flags;     /* [rows] */
	uint64_t generation;
	uint64_t queue_us, device_us;
	unsigned replica;     /* that launched it */
	uint32_t launch_rows; /* of the first request of a launch: rows of all its requests; else 0
			       */
};

#define REQUEST_COLUMNS_BYTES 64 /* of most drafts: behind the request */

struct request {
	struct link queue; /* the scheduler's, a batch's, or the list of what is held or finished */
	struct request *next_same_hash; /* the connection's table */
	struct connection *connection;  /* loop thread only; NULL once the client is gone */
	uint32_t id;
	enum method method;
	size_t bytes;        /* of a draft: its own allocation */
	uint64_t held_bytes; /* charged to the connection and the server */
	struct draft draft;  /* METHOD_DRAFT only */
};

/* A call other than a draft. NULL without memory. */
struct request *request_new(uint32_t id, enum method method);

/* Memory of drafts that are over, for the next ones: clients send what they sent before. Of the
 * loop thread. */
struct request_pool {
	struct link spare; /* at most LIMIT_SPARE_PIECES, of LIMIT_SPARE_BYTES */
	unsigned count;
};

void request_pool_init(struct request_pool *pool);
void request_pool_done(struct request_pool *pool);

/* A draft with room for its columns, and for `copy_bytes` of base logits behind them, at
 * `*ret_copy` (even). The columns of `wire` are read out; rows are known to be within the limits.
 * Everything else is zero. NULL without memory. */
struct request *request_new_draft(struct request_pool *pool, uint32_t id,
	const struct draft_call *wire, uint32_t copy_bytes, uint8_t **ret_copy);

/* Asks for a draft that another thread has just written the outcome into. */
static inline void request_prefetch(const struct request *request)
{
	const char *at = (const char *)request;

	for (size_t i = 0; i < sizeof(*request) + REQUEST_COLUMNS_BYTES; i += 64)
		__builtin_prefetch(at + i);
}

/* Frees the request with its buffers; its regions and event must be dropped. NULL is fine. */
void request_free(struct request *request);

/* The same, but the memory of a draft may go into the pool. */
void request_recycle(struct request_pool *pool, struct request *request);

/* Where row `row` has its step-0 logits: to be read; to be written, or NULL. */
const void *request_base_at(const struct draft *draft, uint32_t row);
void *request_logits_at(const struct draft *draft, uint32_t row);

#endif
