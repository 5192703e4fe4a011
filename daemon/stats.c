#include "stats.h"

#include "model.h"
#include "proto/pack.h"

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

static void pack_histogram(
	struct wire_buffer *buffer, const char *key, const struct histogram *histogram)
{
	uint32_t used = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		used += histogram->buckets[i] != 0;
	pack_str(buffer, key);
	wire_pack_map(buffer, 8);
	pack_key_uint(buffer, "count", histogram->count);
	pack_key_uint(buffer, "sum", histogram->sum_us);
	pack_key_uint(buffer, "max", histogram->max_us);
	pack_key_uint(buffer, "p50", histogram_quantile_us(histogram, 500));
	pack_key_uint(buffer, "p90", histogram_quantile_us(histogram, 900));
	pack_key_uint(buffer, "p99", histogram_quantile_us(histogram, 990));
	pack_key_uint(buffer, "p999", histogram_quantile_us(histogram, 999));
	pack_str(buffer, "buckets"); /* [[upper end, count]], only those that hold something */
	wire_pack_array(buffer, used);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		if (!histogram->buckets[i])
			continue;
		wire_pack_array(buffer, 2);
		wire_pack_uint64(buffer, histogram_upper_us(i));
		wire_pack_uint64(buffer, histogram->buckets[i]);
	}
}

static void pack_launches(struct wire_buffer *buffer, const struct stats *stats, uint32_t max_rows)
{
	uint32_t used = 0;

	for (unsigned steps = 1; steps <= LIMIT_STEPS_MAX; steps++)
		for (unsigned bucket = 0; bucket < STATS_BUCKETS; bucket++)
			used += stats->launches[steps][bucket] != 0;
	pack_str(buffer, "launches"); /* [[steps, bucket, count]] */
	wire_pack_array(buffer, used);
	for (unsigned steps = 1; steps <= LIMIT_STEPS_MAX; steps++) {
		for (unsigned bucket = 0; bucket < STATS_BUCKETS; bucket++) {
			if (!stats->launches[steps][bucket])
				continue;
			wire_pack_array(buffer, 3);
			wire_pack_uint32(buffer, steps);
			wire_pack_uint32(buffer, stats_bucket_rows(1u << bucket, max_rows));
			wire_pack_uint64(buffer, stats->launches[steps][bucket]);
		}
	}
}

static void pack_replicas(
	struct wire_buffer *buffer, const struct stats *stats, const struct gauges *gauges)
{
	const uint32_t ranks = gauges->facts->tensor_parallel;

	pack_str(buffer, "replicas"); /* in the order of the list of devices */
	wire_pack_array(buffer, gauges->replicas);
	for (uint32_t i = 0; i < gauges->replicas; i++) {
		wire_pack_map(buffer, 4);
		pack_str(buffer, "devices");
		wire_pack_array(buffer, ranks);
		for (uint32_t n = 0; n < ranks; n++)
			pack_str(buffer, model_device(gauges->facts, i, n)->uuid);
		pack_key_uint(buffer, "launches", stats->replicas[i].launches);
		pack_key_uint(buffer, "rows", stats->replicas[i].rows);
		pack_key_uint(buffer, "busy_us", stats->replicas[i].busy_us);
	}
}

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0.0;
}

void stats_pack(const struct stats *stats, const struct gauges *gauges, struct wire_buffer *buffer)
{
	uint64_t uptime_us = gauges->now_us - stats->started_us;

	wire_pack_map(buffer, 30);
	pack_str(buffer, "server");
	pack_str(buffer, "draftd/" DRAFTD_VERSION);
	pack_str(buffer, "model");
	pack_str(buffer, gauges->model);
	pack_str(buffer, "backend");
	pack_str(buffer, gauges->facts->backend);
	pack_str(buffer, "variant");
	pack_str(buffer, gauges->facts->variant);
	pack_key_uint(buffer, "table_bytes", gauges->facts->table_bytes);
	pack_key_uint(buffer, "generation", gauges->generation);
	pack_key_uint(buffer, "uptime_us", uptime_us);
	pack_str(buffer, "draining");
	if (gauges->draining)
		wire_pack_true(buffer);
	else
		wire_pack_false(buffer);

	pack_key_uint(buffer, "connections", gauges->connections);
	pack_key_uint(buffer, "connections_total", stats->connections);
	pack_key_uint(buffer, "connections_refused", stats->connections_refused);
	pack_key_uint(buffer, "inflight", gauges->inflight);
	pack_key_uint(buffer, "queue_depth", gauges->queue_depth);
	pack_key_uint(buffer, "queue_max", gauges->queue_max);
	pack_key_uint(buffer, "regions", gauges->regions);
	pack_key_uint(buffer, "region_bytes", gauges->region_bytes);
	pack_key_uint(buffer, "device_region_bytes", gauges->device_region_bytes);
	pack_key_uint(buffer, "held_bytes", gauges->held_bytes);

	pack_str(buffer, "requests"); /* by method; 0 included: a reader needs no list of its own */
	wire_pack_map(buffer, METHOD_END - 2);
	for (enum method method = METHOD_HELLO; method < METHOD_END; method++)
		if (method != METHOD_GOAWAY)
			pack_key_uint(buffer, method_name(method), stats->requests[method]);
	pack_str(buffer, "errors"); /* by name */
	wire_pack_map(buffer, ERROR_CODE_END - 1);
	for (int code = 1; code < ERROR_CODE_END; code++)
		pack_key_uint(buffer, error_lookup(code)->name, stats->errors[code]);

	pack_key_uint(buffer, "drafts", stats->drafts);
	pack_key_uint(buffer, "rows", stats->rows);
	pack_key_uint(buffer, "tokens", stats->tokens);
	pack_launches(buffer, stats, gauges->facts->max_rows);
	pack_str(buffer, "occupancy");
	wire_pack_double(buffer, ratio(stats->launched_rows, stats->launched_places));
	pack_key_uint(buffer, "device_busy_us", stats->device_busy_us);
	pack_replicas(buffer, stats, gauges);
	pack_key_uint(buffer, "reloads", stats->reloads);
	pack_key_uint(buffer, "reloads_failed", stats->reloads_failed);
	pack_str(buffer, "latency_us");
	wire_pack_map(buffer, 3);
	pack_histogram(buffer, "queue", &stats->queue);
	pack_histogram(buffer, "device", &stats->device);
	pack_histogram(buffer, "total", &stats->total);
}
