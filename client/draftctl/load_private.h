/* What the two halves of a load share: load.c opens and closes it, load_run.c runs it. */
#ifndef DRAFTCTL_LOAD_PRIVATE_H
#define DRAFTCTL_LOAD_PRIVATE_H

#include "load.h"
#include "random.h"
#include "shared.h"

#include <poll.h>

/* A place for one request in flight. */
struct lane {
	bool busy, measured;
	uint64_t ticket;
	int64_t sent_ns;
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
};

struct load {
	struct load_options options;
	struct random random;
	uint64_t block_bytes; /* rows*K*V*2 */
	unsigned block_count;
	uint16_t *blocks;    /* [block_count][rows,K,V] */
	float *temperatures; /* [rows], the same for every request */
	struct line *lines;
	struct pollfd *polls;
	int64_t timeout_ns;

	/* of the run under way */
	struct load_result *result;
	const volatile sig_atomic_t *stop;
	load_observer *observe;
	void *user;
	int64_t start_ns;
	int64_t measure_ns;    /* when measuring began; 0 during warm-up */
	int64_t last_reply_ns; /* to a measured request */
	int64_t sent;          /* measured ones */
	bool sending;
};

#endif
