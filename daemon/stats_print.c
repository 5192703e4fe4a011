/* The Prometheus text exposition format, version 0.0.4. Names: one prefix, base units (seconds,
 * bytes), `_total` on counters, `_info` on constant gauges that carry facts in their labels. */
#include "stats.h"

#include "model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 256

__attribute__((format(printf, 2, 3))) static void print(
	struct wire_buffer *text, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (length > 0)
		wire_buffer_write(text, line,
			(size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1);
}

static void head(struct wire_buffer *text, const char *name, const char *type, const char *help)
{
	print(text, "# HELP draftd_%s %s\n# TYPE draftd_%s %s\n", name, help, name, type);
}

static void counter(struct wire_buffer *text, const char *name, const char *help, uint64_t value)
{
	head(text, name, "counter", help);
	print(text, "draftd_%s %" PRIu64 "\n", name, value);
}

static void gauge(struct wire_buffer *text, const char *name, const char *help, double value)
{
	head(text, name, "gauge", help);
	print(text, "draftd_%s %.15g\n", name, value);
}

/* name="value", with what the format says must be escaped. */
static void label(struct wire_buffer *text, const char *name, const char *value)
{
	print(text, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			print(text, "\\%c", *value);
		else if (*value == '\n')
			print(text, "\\n");
		else
			wire_buffer_write(text, value, 1);
	}
	print(text, "\"");
}

/* A value counts in the bucket of every `le` that it does not exceed. Values are whole
 * microseconds, so 2^n - 1 of them is an exact bound: from 15 us to 67 s. */
static void histogram(struct wire_buffer *text, const char *name, const char *help,
	const struct histogram *values)
{
	head(text, name, "histogram", help);
	for (unsigned power = 4; power <= 26; power++)
		print(text, "draftd_%s_bucket{le=\"%.6f\"} %" PRIu64 "\n", name,
			(double)((UINT64_C(1) << power) - 1) * 1e-6,
			histogram_below_power(values, power));
	print(text, "draftd_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, values->count);
	print(text, "draftd_%s_sum %.6f\n", name, (double)values->sum_us * 1e-6);
	print(text, "draftd_%s_count %" PRIu64 "\n", name, values->count);
}

static void print_info(const struct gauges *gauges, struct wire_buffer *text)
{
	const struct markov_facts *facts = gauges->facts;

	head(text, "build_info", "gauge", "What runs.");
	print(text, "draftd_build_info{");
	label(text, "version", DRAFTD_VERSION);
	print(text, ",");
	label(text, "backend", facts->backend);
	print(text, ",");
	label(text, "variant", facts->variant);
	print(text, "} 1\n");

	head(text, "model_info", "gauge", "What is served.");
	print(text, "draftd_model_info{");
	label(text, "name", gauges->model);
	print(text, ",vocab=\"%" PRIu32 "\",rank=\"%" PRIu32 "\",target_vocab=\"%" PRIu32 "\"} 1\n",
		facts->vocab, facts->rank, facts->target_vocab);

	head(text, "device_info", "gauge", "Devices that compute, with their memory in bytes.");
	for (uint32_t i = 0; i < facts->device_count; i++) {
		print(text, "draftd_device_info{");
		label(text, "uuid", facts->devices[i].uuid);
		print(text, ",");
		label(text, "name", facts->devices[i].name);
		print(text, "} %" PRIu64 "\n", facts->devices[i].memory_bytes);
	}
}

/* One sample a replica; which devices it has, draftd_replica_info says. */
static void print_replicas(
	const struct stats *stats, const struct gauges *gauges, struct wire_buffer *text)
{
	const uint32_t ranks = gauges->facts->tensor_parallel;

	head(text, "replica_info", "gauge", "Devices of a replica, by their place in it.");
	for (uint32_t i = 0; i < gauges->replicas; i++)
		for (uint32_t n = 0; n < ranks; n++) {
			print(text,
				"draftd_replica_info{replica=\"%" PRIu32 "\",rank=\"%" PRIu32 "\",",
				i, n);
			label(text, "uuid", model_device(gauges->facts, i, n)->uuid);
			print(text, "} 1\n");
		}
	head(text, "replica_launches_total", "counter", "Launches, by replica.");
	for (uint32_t i = 0; i < gauges->replicas; i++)
		print(text, "draftd_replica_launches_total{replica=\"%" PRIu32 "\"} %" PRIu64 "\n",
			i, stats->replicas[i].launches);
	head(text, "replica_launched_rows_total", "counter", "Rows launched, by replica.");
	for (uint32_t i = 0; i < gauges->replicas; i++)
		print(text,
			"draftd_replica_launched_rows_total{replica=\"%" PRIu32 "\"} %" PRIu64 "\n",
			i, stats->replicas[i].rows);
	head(text, "replica_busy_seconds_total", "counter",
		"Time in launches, by replica; its rate is the replica's utilization.");
	for (uint32_t i = 0; i < gauges->replicas; i++)
		print(text, "draftd_replica_busy_seconds_total{replica=\"%" PRIu32 "\"} %.6f\n", i,
			(double)stats->replicas[i].busy_us * 1e-6);
}

static void print_by_name(
	const struct stats *stats, const struct gauges *gauges, struct wire_buffer *text)
{
	head(text, "requests_total", "counter",
		"Requests and notifications that arrived, by method.");
	for (enum method method = METHOD_HELLO; method < METHOD_END; method++)
		if (method != METHOD_GOAWAY)
			print(text, "draftd_requests_total{method=\"%s\"} %" PRIu64 "\n",
				method_name(method), stats->requests[method]);
	head(text, "errors_total", "counter", "Error replies, by name.");
	for (int code = 1; code < ERROR_CODE_END; code++)
		print(text, "draftd_errors_total{name=\"%s\"} %" PRIu64 "\n",
			error_lookup(code)->name, stats->errors[code]);
	head(text, "launches_total", "counter", "Launches, by draft length and row bucket.");
	for (unsigned steps = 1; steps <= LIMIT_STEPS_MAX; steps++)
		for (unsigned bucket = 0; bucket < STATS_BUCKETS; bucket++)
			if (stats->launches[steps][bucket])
				print(text,
					"draftd_launches_total{steps=\"%u\",bucket=\"%u\"} %" PRIu64
					"\n",
					steps,
					stats_bucket_rows(1u << bucket, gauges->facts->max_rows),
					stats->launches[steps][bucket]);
}

void stats_print(const struct stats *stats, const struct gauges *gauges, struct wire_buffer *text)
{
	print_info(gauges, text);
	gauge(text, "uptime_seconds", "Since the start.",
		(double)(gauges->now_us - stats->started_us) * 1e-6);
	gauge(text, "generation", "Of the model: rises with every reload.",
		(double)gauges->generation);
	gauge(text, "draining", "1 while the daemon finishes its work and stops.",
		gauges->draining);
	gauge(text, "table_bytes", "Memory of the model's tables.",
		(double)gauges->facts->table_bytes);

	gauge(text, "connections", "Open connections.", gauges->connections);
	counter(text, "connections_total", "Connections accepted.", stats->connections);
	counter(text, "connections_refused_total", "Connections refused at the limit.",
		stats->connections_refused);
	gauge(text, "inflight_requests", "Requests whose reply is not written.", gauges->inflight);
	gauge(text, "queue_depth", "Drafts that wait for a launch.", gauges->queue_depth);
	gauge(text, "queue_max", "Drafts that may wait.", gauges->queue_max);
	gauge(text, "regions", "Shared-memory regions.", gauges->regions);
	gauge(text, "region_bytes", "Bytes of all regions of host memory.",
		(double)gauges->region_bytes);
	gauge(text, "device_region_bytes", "Bytes of all regions of device memory.",
		(double)gauges->device_region_bytes);
	gauge(text, "held_bytes", "Bytes of inline data, unread replies and unfinished frames.",
		(double)gauges->held_bytes);

	print_by_name(stats, gauges, text);
	counter(text, "drafts_total", "Drafts that succeeded.", stats->drafts);
	counter(text, "rows_total", "Rows of drafts that succeeded.", stats->rows);
	counter(text, "tokens_total", "Tokens of drafts that succeeded.", stats->tokens);
	counter(text, "launched_rows_total", "Rows launched.", stats->launched_rows);
	counter(text, "launched_places_total",
		"Places of the buckets of all launches; rows over places is the occupancy.",
		stats->launched_places);
	head(text, "device_busy_seconds_total", "counter",
		"Time in launches of all replicas; its rate over their number is the utilization.");
	print(text, "draftd_device_busy_seconds_total %.6f\n",
		(double)stats->device_busy_us * 1e-6);
	print_replicas(stats, gauges, text);
	counter(text, "reloads_total", "Reloads that succeeded.", stats->reloads);
	counter(text, "reloads_failed_total", "Reloads that were refused.", stats->reloads_failed);

	histogram(text, "queue_seconds", "Drafts: from arrival to launch.", &stats->queue);
	histogram(text, "device_seconds", "Drafts: their launch.", &stats->device);
	histogram(text, "total_seconds", "Drafts: from arrival to the reply being ready.",
		&stats->total);
}
