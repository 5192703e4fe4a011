#include "stats.h"

#include "model.h"

#include <string.h>

/* Smallest n with 2^n >= rows. */
static unsigned bucket_index(uint32_t rows)
{
	return rows <= 1 ? 0 : 32u - (unsigned)__builtin_clz(rows - 1);
}

uint32_t stats_bucket_rows(uint32_t rows, uint32_t max_rows)
{
	uint32_t power = 1u << bucket_index(rows);

	return power < max_rows ? power : max_rows;
}

void stats_count_launch(struct stats *stats, const struct draft *draft, uint32_t max_rows)
{
	struct replica_stats *replica = &stats->replicas[draft->replica];

	if (!draft->launch_rows)
		return;
	replica->launches++;
	replica->rows += draft->launch_rows;
	replica->busy_us += draft->device_us;
	stats->launches[draft->steps][bucket_index(draft->launch_rows)]++;
	stats->launched_rows += draft->launch_rows;
	stats->launched_places += stats_bucket_rows(draft->launch_rows, max_rows);
	stats->device_busy_us += draft->device_us;
}

void stats_count_draft(struct stats *stats, const struct draft *draft, uint64_t total_us)
{
	stats->drafts++;
	stats->rows += draft->rows;
	stats->tokens += (uint64_t)draft->rows * draft->steps;
	histogram_add(&stats->queue, draft->queue_us);
	histogram_add(&stats->device, draft->device_us);
	histogram_add(&stats->total, total_us);
}

/* ---- the stats map ---- */

static void pack_text(msgpack_packer *pk, const char *text)
{
	size_t bytes = strlen(text);

	msgpack_pack_str(pk, bytes);
	msgpack_pack_str_body(pk, text, bytes);
}

static void pack_count(msgpack_packer *pk, const char *key, uint64_t value)
{
	pack_text(pk, key);
	msgpack_pack_uint64(pk, value);
}

static void pack_histogram(msgpack_packer *pk, const char *key, const struct histogram *histogram)
{
	uint32_t used = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		used += histogram->buckets[i] != 0;
	pack_text(pk, key);
	msgpack_pack_map(pk, 8);
	pack_count(pk, "count", histogram->count);
	pack_count(pk, "sum", histogram->sum_us);
	pack_count(pk, "max", histogram->max_us);
	pack_count(pk, "p50", histogram_quantile_us(histogram, 500));
	pack_count(pk, "p90", histogram_quantile_us(histogram, 900));
	pack_count(pk, "p99", histogram_quantile_us(histogram, 990));
	pack_count(pk, "p999", histogram_quantile_us(histogram, 999));
	pack_text(pk, "buckets"); /* [[upper end, count]], only those that hold something */
	msgpack_pack_array(pk, used);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		if (!histogram->buckets[i])
			continue;
		msgpack_pack_array(pk, 2);
		msgpack_pack_uint64(pk, histogram_upper_us(i));
		msgpack_pack_uint64(pk, histogram->buckets[i]);
	}
}

static void pack_launches(msgpack_packer *pk, const struct stats *stats, uint32_t max_rows)
{
	uint32_t used = 0;

	for (unsigned steps = 1; steps <= LIMIT_STEPS_MAX; steps++)
		for (unsigned bucket = 0; bucket < STATS_BUCKETS; bucket++)
			used += stats->launches[steps][bucket] != 0;
	pack_text(pk, "launches"); /* [[steps, bucket, count]] */
	msgpack_pack_array(pk, used);
	for (unsigned steps = 1; steps <= LIMIT_STEPS_MAX; steps++) {
		for (unsigned bucket = 0; bucket < STATS_BUCKETS; bucket++) {
			if (!stats->launches[steps][bucket])
				continue;
			msgpack_pack_array(pk, 3);
			msgpack_pack_uint32(pk, steps);
			msgpack_pack_uint32(pk, stats_bucket_rows(1u << bucket, max_rows));
			msgpack_pack_uint64(pk, stats->launches[steps][bucket]);
		}
	}
}

static void pack_replicas(
	msgpack_packer *pk, const struct stats *stats, const struct gauges *gauges)
{
	const uint32_t ranks = gauges->facts->tensor_parallel;

	pack_text(pk, "replicas"); /* in the order of the list of devices */
	msgpack_pack_array(pk, gauges->replicas);
	for (uint32_t i = 0; i < gauges->replicas; i++) {
		msgpack_pack_map(pk, 4);
		pack_text(pk, "devices");
		msgpack_pack_array(pk, ranks);
		for (uint32_t n = 0; n < ranks; n++)
			pack_text(pk, model_device(gauges->facts, i, n)->uuid);
		pack_count(pk, "launches", stats->replicas[i].launches);
		pack_count(pk, "rows", stats->replicas[i].rows);
		pack_count(pk, "busy_us", stats->replicas[i].busy_us);
	}
}

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0.0;
}

void stats_pack(const struct stats *stats, const struct gauges *gauges, struct wire_buffer *buffer)
{
	uint64_t uptime_us = gauges->now_us - stats->started_us;
	msgpack_packer pk;

	msgpack_packer_init(&pk, buffer, wire_buffer_write);
	msgpack_pack_map(&pk, 30);
	pack_text(&pk, "server");
	pack_text(&pk, "draftd/" DRAFTD_VERSION);
	pack_text(&pk, "model");
	pack_text(&pk, gauges->model);
	pack_text(&pk, "backend");
	pack_text(&pk, gauges->facts->backend);
	pack_text(&pk, "variant");
	pack_text(&pk, gauges->facts->variant);
	pack_count(&pk, "table_bytes", gauges->facts->table_bytes);
	pack_count(&pk, "generation", gauges->generation);
	pack_count(&pk, "uptime_us", uptime_us);
	pack_text(&pk, "draining");
	if (gauges->draining)
		msgpack_pack_true(&pk);
	else
		msgpack_pack_false(&pk);

	pack_count(&pk, "connections", gauges->connections);
	pack_count(&pk, "connections_total", stats->connections);
	pack_count(&pk, "connections_refused", stats->connections_refused);
	pack_count(&pk, "inflight", gauges->inflight);
	pack_count(&pk, "queue_depth", gauges->queue_depth);
	pack_count(&pk, "queue_max", gauges->queue_max);
	pack_count(&pk, "regions", gauges->regions);
	pack_count(&pk, "region_bytes", gauges->region_bytes);
	pack_count(&pk, "device_region_bytes", gauges->device_region_bytes);
	pack_count(&pk, "held_bytes", gauges->held_bytes);

	pack_text(&pk, "requests"); /* by method; 0 included: a reader needs no list of its own */
	msgpack_pack_map(&pk, METHOD_END - 2);
	for (enum method method = METHOD_HELLO; method < METHOD_END; method++)
		if (method != METHOD_GOAWAY)
			pack_count(&pk, method_name(method), stats->requests[method]);
	pack_text(&pk, "errors"); /* by name */
	msgpack_pack_map(&pk, ERROR_CODE_END - 1);
	for (int code = 1; code < ERROR_CODE_END; code++)
		pack_count(&pk, error_lookup(code)->name, stats->errors[code]);

	pack_count(&pk, "drafts", stats->drafts);
	pack_count(&pk, "rows", stats->rows);
	pack_count(&pk, "tokens", stats->tokens);
	pack_launches(&pk, stats, gauges->facts->max_rows);
	pack_text(&pk, "occupancy");
	msgpack_pack_double(&pk, ratio(stats->launched_rows, stats->launched_places));
	pack_count(&pk, "device_busy_us", stats->device_busy_us);
	pack_replicas(&pk, stats, gauges);
	pack_count(&pk, "reloads", stats->reloads);
	pack_count(&pk, "reloads_failed", stats->reloads_failed);
	pack_text(&pk, "latency_us");
	msgpack_pack_map(&pk, 3);
	pack_histogram(&pk, "queue", &stats->queue);
	pack_histogram(&pk, "device", &stats->device);
	pack_histogram(&pk, "total", &stats->total);
}
