#include "top_view.h"

#include "proto/sentence.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double number(json_t *document, const char *key)
{
	return json_number_value(json_object_get(document, key));
}

static uint64_t count_of(json_t *document, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(document, key));
}

/* NULL, which counts as nothing everywhere, if it is not of the same run. */
static json_t *same_run(json_t *before, json_t *now)
{
	return before != NULL && number(before, "uptime_us") < number(now, "uptime_us") ? before
											: NULL;
}

static double rise(json_t *before, json_t *now, const char *key)
{
	return number(now, key) - number(before, key);
}

static double error_count(json_t *document)
{
	double sum = 0;
	const char *name;
	json_t *value;

	json_object_foreach(json_object_get(document, "errors"), name, value)
	{
		sum += json_number_value(value);
	}
	return sum;
}

/* [[steps, bucket, count]]: how many, and of how many places. */
static void launches_of(json_t *document, double *ret_count, double *ret_places)
{
	json_t *launch;
	size_t i;

	*ret_count = *ret_places = 0;
	json_array_foreach(json_object_get(document, "launches"), i, launch)
	{
		double count = json_number_value(json_array_get(launch, 2));

		*ret_count += count;
		*ret_places += count * json_number_value(json_array_get(launch, 1));
	}
}

/* At least one, of which a draftd may say nothing. */
static double replica_count(json_t *document)
{
	size_t count = json_array_size(json_object_get(document, "replicas"));

	return count > 0 ? (double)count : 1;
}

struct top_rates top_rates(json_t *before, json_t *now)
{
	double count, places, count_before, places_before, filled, seconds;
	struct top_rates rates = {0};

	before = same_run(before, now);
	seconds = rise(before, now, "uptime_us") / 1e6;
	if (!(seconds > 0))
		seconds = 1e-6;
	launches_of(before, &count_before, &places_before);
	launches_of(now, &count, &places);
	filled = number(now, "occupancy") * places - number(before, "occupancy") * places_before;
	rates.seconds = seconds;
	rates.requests = rise(before, now, "drafts") / seconds;
	rates.rows = rise(before, now, "rows") / seconds;
	rates.tokens = rise(before, now, "tokens") / seconds;
	rates.launches = (count - count_before) / seconds;
	rates.errors = (error_count(now) - error_count(before)) / seconds;
	rates.occupancy = places > places_before ? filled / (places - places_before) : NAN;
	rates.busy = rise(before, now, "device_busy_us") / 1e6 / seconds / replica_count(now);
	return rates;
}

static json_t *buckets_of(json_t *document, const char *which)
{
	return json_object_get(
		json_object_get(json_object_get(document, "latency_us"), which), "buckets");
}

/* Values in the bucket that ends at `end`; only those that hold something are listed, in order. */
static double bucket_at(json_t *buckets, json_int_t end)
{
	json_t *bucket;
	size_t i;

	json_array_foreach(buckets, i, bucket)
	{
		if (json_integer_value(json_array_get(bucket, 0)) == end)
			return json_number_value(json_array_get(bucket, 1));
	}
	return 0;
}

double top_quantile_us(json_t *before, json_t *now, const char *which, double part)
{
	json_t *old = buckets_of(same_run(before, now), which);
	json_t *buckets = buckets_of(now, which);
	double all = 0, seen = 0, end_us = NAN;
	json_t *bucket;
	size_t i;

	json_array_foreach(buckets, i, bucket)
	{
		all += json_number_value(json_array_get(bucket, 1));
	}
	json_array_foreach(old, i, bucket)
	{
		all -= json_number_value(json_array_get(bucket, 1));
	}
	json_array_foreach(buckets, i, bucket)
	{
		json_int_t end = json_integer_value(json_array_get(bucket, 0));
		double more = json_number_value(json_array_get(bucket, 1)) - bucket_at(old, end);

		if (!(more > 0))
			continue;
		seen += more;
		end_us = (double)end;
		if (seen >= part * all)
			break;
	}
	return end_us;
}

/* ---- as text ---- */

static struct text duration(double us)
{
	struct text text = {"-"};

	return isnan(us) ? text : text_duration(us * 1e3);
}

static struct text percent(double part)
{
	struct text text = {"-"};

	if (!isnan(part))
		snprintf(text.at, sizeof(text.at), "%.1f %%", part * 100);
	return text;
}

static void print_plain(FILE *to, json_t *document, const char *key)
{
	const char *text = json_string_value(json_object_get(document, key));

	text_put_plain(to, text != NULL ? text : "");
}

static struct text uptime(double seconds)
{
	uint64_t minutes = (uint64_t)(seconds / 60);
	struct text text;

	if (minutes == 0)
		return text_duration(seconds * 1e9);
	if (minutes < 60 * 24)
		snprintf(text.at, sizeof(text.at), "%u h %02u min", (unsigned)(minutes / 60),
			(unsigned)(minutes % 60));
	else
		snprintf(text.at, sizeof(text.at), "%u day%s %02u h", (unsigned)(minutes / 1440),
			sentence_s(minutes / 1440), (unsigned)(minutes / 60 % 24));
	return text;
}

static void print_rate(FILE *to, const char *name, double rate, json_t *now, const char *total)
{
	fprintf(to, "%-10s %14s", name, text_rate(rate).at);
	if (total != NULL)
		fprintf(to, " %18s", text_count(count_of(now, total)).at);
	fputc('\n', to);
}

static void print_latency(FILE *to, json_t *before, json_t *now, const char *which)
{
	static const double parts[] = {0.5, 0.9, 0.99, 0.999, 1};

	fprintf(to, "%-10s", which);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		fprintf(to, " %10s", duration(top_quantile_us(before, now, which, parts[i])).at);
	fputc('\n', to);
}

/* All since the start, and what is new. */
static void print_errors(FILE *to, json_t *before, json_t *now)
{
	json_t *old = json_object_get(same_run(before, now), "errors");
	bool any = false;
	const char *name;
	json_t *value;

	fprintf(to, "errors     ");
	json_object_foreach(json_object_get(now, "errors"), name, value)
	{
		json_int_t count = json_integer_value(value);
		json_int_t fresh = count - json_integer_value(json_object_get(old, name));

		if (count == 0)
			continue;
		fprintf(to, "%s%s %s", any ? ", " : "", text_plain(name).at,
			text_count((uint64_t)count).at);
		if (before != NULL && fresh > 0)
			fprintf(to, " (+%s)", text_count((uint64_t)fresh).at);
		any = true;
	}
	fprintf(to, "%s\n", any ? "" : "none");
}

/* How many are told apart: none, where there is only one. */
static size_t replicas_shown(json_t *document)
{
	size_t count = json_array_size(json_object_get(document, "replicas"));

	return count < 2 ? 0 : count;
}

/* How busy a replica was. */
static struct text replica_busy(json_t *before, json_t *now, size_t replica, double seconds)
{
	json_t *old = json_object_get(same_run(before, now), "replicas");
	json_t *replicas = json_object_get(now, "replicas");

	return percent(
		rise(json_array_get(old, replica), json_array_get(replicas, replica), "busy_us") /
		1e6 / seconds);
}

static void print_replicas(FILE *to, json_t *before, json_t *now, double seconds)
{
	if (replicas_shown(now) == 0)
		return;
	fprintf(to, "replicas  ");
	for (size_t i = 0; i < replicas_shown(now); i++)
		fprintf(to, " %zu: %s", i, replica_busy(before, now, i, seconds).at);
	fputc('\n', to);
}

static void print_screen(FILE *to, json_t *before, json_t *now, const char *devices)
{
	const struct top_rates rates = top_rates(before, now);

	print_plain(to, now, "server");
	fputs(": ", to);
	print_plain(to, now, "model");
	fputs(" on ", to);
	print_plain(to, now, "backend");
	fputs(" (", to);
	print_plain(to, now, "variant");
	fprintf(to, "), generation %s", text_count(count_of(now, "generation")).at);
	fprintf(to, ", up %s%s\n\n", uptime(number(now, "uptime_us") / 1e6).at,
		json_is_true(json_object_get(now, "draining")) ? ", DRAINING" : "");

	fprintf(to, "%-10s %14s %18s\n", "", "a second", "since the start");
	print_rate(to, "requests", rates.requests, now, "drafts");
	print_rate(to, "rows", rates.rows, now, "rows");
	print_rate(to, "tokens", rates.tokens, now, "tokens");
	print_rate(to, "launches", rates.launches, now, NULL);
	print_rate(to, "errors", rates.errors, now, NULL);

	fprintf(to, "\noccupancy  %-12s busy  %-12s reloads  %s\n", percent(rates.occupancy).at,
		percent(rates.busy).at, text_count(count_of(now, "reloads")).at);
	print_replicas(to, before, now, rates.seconds);
	fprintf(to, "queue      %s of %s", text_count(count_of(now, "queue_depth")).at,
		text_count(count_of(now, "queue_max")).at);
	fprintf(to, ", in flight %s, connections %s\n", text_count(count_of(now, "inflight")).at,
		text_count(count_of(now, "connections")).at);
	fprintf(to, "regions    %s, host %s", text_count(count_of(now, "regions")).at,
		text_bytes(count_of(now, "region_bytes")).at);
	fprintf(to, ", device %s, held %s\n\n", text_bytes(count_of(now, "device_region_bytes")).at,
		text_bytes(count_of(now, "held_bytes")).at);

	fprintf(to, "%-10s %10s %10s %10s %10s %10s\n", "latency", "p50", "p90", "p99", "p99.9",
		"max");
	print_latency(to, before, now, "queue");
	print_latency(to, before, now, "device");
	print_latency(to, before, now, "total");
	fputc('\n', to);
	print_errors(to, before, now);
	fputs(devices, to);
}

char *top_screen(json_t *before, json_t *now, const char *devices)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (to == NULL)
		return NULL;
	print_screen(to, before, now, devices);
	return text_close(to, &text);
}

char *top_line_head(json_t *now)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (to == NULL)
		return NULL;
	fprintf(to, "%10s %10s %10s %9s %8s %6s %8s %10s %10s %10s", "requests/s", "rows/s",
		"tokens/s", "occupancy", "busy", "queue", "inflight", "p50", "p99", "errors/s");
	for (size_t i = 0; i < replicas_shown(now); i++)
		fprintf(to, " %6s %zu", "busy", i);
	fputc('\n', to);
	return text_close(to, &text);
}

char *top_line(json_t *before, json_t *now)
{
	const struct top_rates rates = top_rates(before, now);
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (to == NULL)
		return NULL;
	fprintf(to, "%10s %10s %10s %9s %8s %6s %8s %10s %10s %10s", text_rate(rates.requests).at,
		text_rate(rates.rows).at, text_rate(rates.tokens).at, percent(rates.occupancy).at,
		percent(rates.busy).at, text_count(count_of(now, "queue_depth")).at,
		text_count(count_of(now, "inflight")).at,
		duration(top_quantile_us(before, now, "total", 0.5)).at,
		duration(top_quantile_us(before, now, "total", 0.99)).at,
		text_rate(rates.errors).at);
	for (size_t i = 0; i < replicas_shown(now); i++)
		fprintf(to, " %8s", replica_busy(before, now, i, rates.seconds).at);
	fputc('\n', to);
	return text_close(to, &text);
}
