/* What the daemon has done: counters and histograms, written by the loop thread alone (the engine's
 * figures come with the requests that it hands back), and the two ways to show them: the `stats`
 * map and Prometheus text. */
#ifndef DAEMON_STATS_H
#define DAEMON_STATS_H

#include "histogram.h"
#include "kernels/markov.h"
#include "limits.h"
#include "proto/message.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

#define STATS_BUCKETS 11 /* launches of 1, 2, 4, … 1024 rows */
_Static_assert(LIMIT_ROWS_MAX == 1 << (STATS_BUCKETS - 1), "a bucket for every size of launch");

struct replica_stats {
	uint64_t launches, rows; /* rows launched */
	uint64_t busy_us;
};

struct stats {
	uint64_t started_us;
	uint64_t connections; /* accepted, all time */
	uint64_t connections_refused;
	uint64_t requests[METHOD_END];   /* arrived, by method */
	uint64_t errors[ERROR_CODE_END]; /* error replies, by code */
	uint64_t drafts, rows,
		tokens; /* of drafts that succeeded; tokens of padding rows count, too */
	uint64_t launches[LIMIT_STEPS_MAX + 1][STATS_BUCKETS];
	uint64_t launched_rows,
		launched_places; /* occupancy: rows over the places of their buckets */
	uint64_t device_busy_us; /* of all replicas */
	struct replica_stats replicas[LIMIT_REPLICAS_MAX];
	uint64_t reloads, reloads_failed;
	struct histogram queue, device, total; /* us a draft that succeeded; device: its launch */
};

/* What is now, gathered by the server when somebody asks. */
struct gauges {
	uint64_t now_us;
	uint64_t generation;
	bool draining;
	const char *model;
	uint32_t replicas;
	const struct markov_facts *facts;
	uint32_t connections, inflight;
	uint32_t queue_depth, queue_max;
	uint32_t regions;
	uint64_t region_bytes, device_region_bytes, held_bytes;
};

/* Counts a launch (once, by its first request) and the outcome of a draft that came back from the
 * engine. */
void stats_count_launch(struct stats *stats, const struct draft *draft, uint32_t max_rows);
void stats_count_draft(struct stats *stats, const struct draft *draft, uint64_t total_us);

/* Packs the `stats` map (PROTOCOL.md, "stats") into a reply that message_begin_reply() began. */
void stats_pack(const struct stats *stats, const struct gauges *gauges, struct wire_buffer *buffer);

/* Appends the Prometheus text exposition to `text`. */
void stats_print(const struct stats *stats, const struct gauges *gauges, struct wire_buffer *text);

/* The bucket of a launch: the smallest power of two that holds `rows`, but at most `max_rows`. */
uint32_t stats_bucket_rows(uint32_t rows, uint32_t max_rows);

#endif
