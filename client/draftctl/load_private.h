/* What the parts of a load share: load.c opens and closes it, load_worker.c is a thread of it,
 * load_line.c sends and receives on a connection, load_run.c runs the threads. */
#ifndef DRAFTCTL_LOAD_PRIVATE_H
#define DRAFTCTL_LOAD_PRIVATE_H

#include "load.h"
#include "random.h"
#include "shared.h"

#include <poll.h>
#include <pthread.h>

/* A place for one request in flight. */
struct lane {
	bool busy, measured;
	unsigned kind;
	uint64_t ticket;
	int64_t planned_ns, sent_ns;
	unsigned block;     /* of the base logits sent */
	uint32_t *anchors;  /* [rows] */
	int64_t *positions; /* [rows] */
	int64_t *seeds;     /* [rows] */
	uint16_t *logits;   /* [rows,K,V] in the host region or malloc'd; NULL if not asked for */
	uint64_t logits_offset; /* in the region */
};

struct line { /* a connection and its share of the lanes */
	struct draft *draft;
	bool broken;
	struct shared shared; /* the blocks, then the lanes' logits; none for inline base */
	bool owns_logits;     /* the lanes' */
	struct lane *lanes;
	uint32_t lane_count;
	uint32_t busy_count;
	uint32_t kept; /* of them not yet sent, at most: the next ones go with them */
	bool keeps;    /* in the worker's list */
	struct line *next_keeping;
};

struct worker { /* a thread, and its share of the lines */
	const struct load *load;
	pthread_t thread;
	uint32_t index;
	struct line *lines;
	uint32_t line_count;
	struct pollfd *polls; /* [line_count] */
	struct random random;

	/* of the run under way */
	struct load_result *result;
	struct arrival arrival;
	int64_t planned_ns;    /* of the next request of an open load; INT64_MAX: there is none */
	int64_t horizon_ns;    /* where the plan ends, if it does */
	uint32_t turn;         /* the line that is asked first */
	struct line *keeping;  /* lines with something that was kept */
	int64_t quota, sent;   /* measured ones */
	int64_t last_reply_ns; /* to a measured request */
	bool sending;
	_Atomic uint64_t answered, failed; /* as the progress line shows them */
};

/* Constant while the workers run. */
struct load {
	struct load_options options;
	uint64_t block_bytes; /* of the largest kind's logits, rows*K*V*2 */
	unsigned block_count;
	uint16_t *blocks;    /* [block_count][block_bytes] */
	float *temperatures; /* [kinds][rows_max], the same for every request of a kind */
	uint32_t rows_max;
	struct line *lines; /* [connections] */
	struct pollfd *polls;
	struct worker *workers;      /* [threads] */
	struct load_result *results; /* [threads] */
	int64_t timeout_ns;

	/* of the run under way */
	const atomic_bool *stop;
	atomic_bool abandoned; /* a thread could not be started */
	load_observer *observe;
	void *user;
	bool progress;
	int64_t start_ns, measure_ns; /* when measuring begins */
	int64_t end_ns;               /* of sending; INT64_MAX: when all is sent */
};

/* Sends one request in a free lane of the line, which must have one; it may stay here until
 * lines_flush(), or until line_receive() finds nothing. On failure the line is broken. */
void line_send(struct worker *worker, struct line *line, int64_t planned_ns);

/* Sends what was kept here. */
void lines_flush(struct worker *worker);

/* Whether another request can go out now. */
bool line_has_room(const struct line *line);

/* Takes one reply, waiting up to `wait_us` for it; false if none came. */
bool line_receive(struct worker *worker, struct line *line, int64_t wait_us);

/* A request that is never answered must not hold the load for ever. */
void line_check_silence(struct worker *worker, struct line *line, int64_t now_ns);

/* Breaks a line whose draftd stops and which waits for nothing. */
void line_check_goaway(struct worker *worker, struct line *line);

/* A pthread's main function; `argument` is the worker. Returns NULL. */
void *worker_run(void *argument);

/* Adds a thread's figures. Only plain counts and times: not the processor time. */
void load_result_merge(struct load_result *into, const struct load_result *from);

/* Counts an error; of no kind that `result` knows yet, `text` is kept. */
void load_result_count(struct load_result *result, int code, uint64_t count, const char *text);

#endif
