/* A closed load on draftd: so many requests in flight, over so many connections, of random data.
 *
 * One thread, one poll loop. The load owns its connections, regions and buffers, from load_open()
 * to load_close(); its result is plain numbers, which another load's could be merged into. */
#ifndef DRAFTCTL_LOAD_H
#define DRAFTCTL_LOAD_H

#include "client/draft.h"
#include "command.h"
#include "histogram.h"
#include "kernels/error_text.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define LOAD_ERROR_KINDS     24
#define LOAD_CONNECTIONS_MAX 4096
#define LOAD_INFLIGHT_MAX    65536

enum load_base {
	LOAD_BASE_INLINE,
	LOAD_BASE_HOST,
	LOAD_BASE_DEVICE,
};

struct load_options {
	uint32_t concurrency; /* requests in flight, over all connections */
	uint32_t connections; /* at most as many as requests in flight */
	uint32_t rows, steps;
	double temperature;
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
	double seconds;          /* from the first measured request to the last reply */
	struct histogram total;  /* from before the submit to the reply in hand */
	struct histogram served; /* draftd's own total */
	struct histogram queue;  /* of it, waiting */
	struct histogram device; /* of it, computing */
	struct histogram wire;   /* total less draftd's: sockets, and both sides' waking up */
	struct histogram around; /* total less device: all that is not computing */
	struct load_error errors[LOAD_ERROR_KINDS];
	unsigned error_kinds;
	bool interrupted;
};

struct load;

/* Connects, opens regions and draws the data. Returns 0, or -errno with `error`. */
int load_open(const struct load_options *options, const struct common *common, struct load **ret,
	struct error_text *error);
void load_close(struct load *load); /* NULL is fine */

const struct draft_model *load_model(const struct load *load);

/* Is told every successful exchange, while its buffers hold. */
typedef void load_observer(void *user, const struct load_exchange *exchange);

/* Runs until the requests are answered, the time is over, or `*stop` is set (by a signal handler);
 * then waits for what is in flight. Draws a progress line on stderr if that is a terminal. Errors
 * are counted in `ret`; a connection that breaks is not opened again, and the load ends when none
 * is left. */
void load_run(struct load *load, const volatile sig_atomic_t *stop, load_observer *observe,
	void *user, struct load_result *ret);

/* How many error replies and failures of connections there were. */
uint64_t load_error_count(const struct load_result *result);

#endif
