/* A load on draftd, of random data over so many connections. Closed: so many requests are in
 * flight, and the next is sent when one is answered. Open: requests are planned for times that do
 * not depend on the answers, and latency counts from the planned time.
 *
 * Connections are spread over threads with a poll loop each; the caller's is one of them. The load
 * owns connections, regions and buffers, from load_open() to load_close(); its result is plain
 * numbers, merged from those of the threads. */
#ifndef DRAFTCTL_LOAD_H
#define DRAFTCTL_LOAD_H

#include "arrival.h"
#include "client/draft.h"
#include "command.h"
#include "histogram.h"
#include "kernels/error_text.h"
#include "mix.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOAD_ERROR_KINDS     24
#define LOAD_CONNECTIONS_MAX 4096
#define LOAD_INFLIGHT_MAX    65536
#define LOAD_THREADS_MAX     256
#define LOAD_LATE_NS         1000000 /* a request sent so long after its planned time was late */

enum load_base {
	LOAD_BASE_INLINE,
	LOAD_BASE_HOST,
	LOAD_BASE_DEVICE,
};

struct load_options {
	uint32_t concurrency; /* requests in flight at most, over all connections; 0: a default */
	uint32_t connections; /* at most as many as requests in flight */
	uint32_t threads;     /* at most as many as connections */
	double rate;          /* requests planned a second; 0: a closed load, or a schedule */
	unsigned arrival;     /* enum arrival_kind */
	struct schedule schedule; /* its reader's; no times: none */
	struct mix mix;
	unsigned base;     /* enum load_base */
	bool logits;       /* ask for draft logits too */
	int64_t requests;  /* measured ones to send; 0: no limit */
	double duration_s; /* to send for; 0: no limit */
	double warmup_s;   /* before, not measured */
	int64_t spin_us;   /* to look for replies before sleeping */
	int64_t seed;
};

/* One request as it was sent and came back: what an observer may look at. */
struct load_exchange {
	uint32_t rows, steps;
	const uint32_t *anchors;   /* [rows] */
	const int64_t *positions;  /* [rows] */
	const int64_t *seeds;      /* [rows] */
	const float *temperatures; /* [rows] */
	const uint16_t *base;      /* [rows,K,V], lives as long as the load */
	const uint16_t *logits;    /* [rows,K,V], or NULL */
	const uint32_t *tokens;    /* [rows*K] */
	const uint8_t *flags;      /* [rows] */
};

struct load_error {
	int code; /* as libdraft returns it */
	uint64_t count;
	char text[160]; /* of the first one */
};

struct load_result {
	uint64_t requests, rows, tokens; /* that were answered with tokens */
	uint64_t nan_rows;
	double seconds;          /* from the begin of measuring to the last reply */
	struct histogram total;  /* from the planned time to the reply in hand */
	struct histogram waited; /* of it, until it was sent: nothing in a closed load */
	struct histogram served; /* draftd's own total */
	struct histogram queue;  /* of it, waiting */
	struct histogram device; /* of it, computing */
	struct histogram
		wire; /* sent to reply, less draftd's: sockets, and both sides' waking up */
	struct histogram around; /* sent to reply, less device: all that is not computing */
	struct histogram kinds[MIX_KINDS_MAX]; /* `total`, of each kind */
	uint64_t late;                         /* sent LATE_NS or more after the planned time */
	uint64_t unsent;                       /* planned, but not sent when the time was over */
	struct load_error errors[LOAD_ERROR_KINDS];
	unsigned error_kinds;
	uint64_t missed; /* of the errors: deadlines of kinds that have one, as asked for */
	double user_s, system_s, wall_s; /* processor time of this process, warm-up included */
	bool interrupted;
};

struct load;

/* Connects, opens regions and draws the data. Sets options->concurrency where it is 0, to no more
 * than draftd takes. Returns 0, or -errno with `error`. */
int load_open(struct load_options *options, const struct common *common, struct load **ret,
	struct error_text *error);
void load_close(struct load *load); /* NULL is fine */

/* The first of its connections. */
const struct draft *load_draft(const struct load *load);

/* Another rate for the next run. */
void load_set_rate(struct load *load, double rate);

/* Is told every successful exchange, by any thread, while its buffers hold. */
typedef void load_observer(void *user, const struct load_exchange *exchange);

/* Runs until the requests are answered, the time is over, or `*stop` is set (by a signal handler);
 * then waits for what is in flight. Draws a progress line on stderr if that is a terminal. Errors
 * are counted in `ret`; a connection that breaks is not opened again, and the load ends when none
 * is left. Returns 0, or -errno with `error` when threads could not be started. */
int load_run(struct load *load, const atomic_bool *stop, load_observer *observe, void *user,
	struct load_result *ret, struct error_text *error);

/* Whether requests are planned, and not sent when others are answered. */
bool load_is_open(const struct load_options *options);

/* How many error replies and requests without a reply there were that nobody asked for; a
 * connection that ended and owed none counts as one, too. */
uint64_t load_error_count(const struct load_result *result);

/* How many requests an open load planned. */
uint64_t load_planned_count(const struct load_result *result);

/* Whether all but a hundredth of what an open load planned was sent. (A few of the last are unsent
 * where the end of the time met all lanes in use.) */
bool load_kept_its_plan(const struct load_result *result);

#endif
