/* Both shows of the same counters: read back by the wire's own reader, and held against the text
 * format's rules. */
#include "daemon/stats.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

Suite *stats_suite(void);

static struct stats stats;
static struct markov_facts facts;
static struct gauges gauges;
static struct wire_buffer buffer;

static unsigned replica; /* that launches what is counted */

static void count(
	uint32_t rows, uint32_t steps, uint32_t launch_rows, uint64_t device_us, uint64_t total_us)
{
	const struct draft draft = {.rows = rows,
		.steps = steps,
		.replica = replica,
		.launch_rows = launch_rows,
		.device_us = device_us,
		.queue_us = 3};

	stats_count_launch(&stats, &draft, 48);
	stats_count_draft(&stats, &draft, total_us);
}

static void setup(void)
{
	memset(&stats, 0, sizeof(stats));
	facts = (struct markov_facts){.backend = "cpu",
		.variant = "avx2",
		.vocab = 10,
		.rank = 16,
		.target_vocab = 11,
		.max_rows = 48,
		.tensor_parallel = 1,
		.device_count = 1};
	strcpy(facts.devices[0].uuid, "CPU");
	strcpy(facts.devices[0].name, "a \"fast\\slow\"\nprocessor");
	gauges = (struct gauges){.now_us = 5000000,
		.generation = 3,
		.model = "m",
		.replicas = 1,
		.facts = &facts,
		.connections = 2,
		.region_bytes = 11,
		.device_region_bytes = 13};
	replica = 0;
	stats.started_us = 1000000;
	stats.errors[ERROR_TOO_LARGE] = 4;
	stats.requests[METHOD_PING] = 6;
	wire_buffer_init(&buffer);
}

static void teardown(void)
{
	wire_buffer_done(&buffer);
}

/* Finds `key` in the map that comes next and leaves the cursor at its value. */
static void enter(struct wire_cursor *cursor, const char *key)
{
	struct wire_value value;

	ck_assert(wire_next(cursor, &value));
	ck_assert_int_eq(value.type, WIRE_MAP);
	for (uint32_t i = value.count; i > 0; i--) {
		ck_assert(wire_next(cursor, &value));
		if (value.data.bytes == strlen(key) && memcmp(value.data.at, key, strlen(key)) == 0)
			return;
		ck_assert(wire_skip(cursor));
	}
	ck_abort_msg("there is no %s", key);
}

static uint64_t number(const char *key, const char *inner)
{
	struct wire_cursor cursor;
	struct wire_value value;

	wire_cursor_init(&cursor, buffer.bytes, buffer.count);
	enter(&cursor, key);
	if (inner)
		enter(&cursor, inner);
	ck_assert(wire_next(&cursor, &value));
	ck_assert_int_eq(value.type, WIRE_UINT);
	return value.uint;
}

START_TEST(buckets_are_powers_of_two_up_to_the_most_rows)
{
	ck_assert_uint_eq(stats_bucket_rows(1, 64), 1);
	ck_assert_uint_eq(stats_bucket_rows(2, 64), 2);
	ck_assert_uint_eq(stats_bucket_rows(3, 64), 4);
	ck_assert_uint_eq(stats_bucket_rows(33, 64), 64);
	ck_assert_uint_eq(stats_bucket_rows(64, 64), 64);
	ck_assert_uint_eq(stats_bucket_rows(33, 48), 48);
	ck_assert_uint_eq(stats_bucket_rows(1024, 1024), 1024);
}
END_TEST

START_TEST(the_map_is_one_value_with_the_counts)
{
	struct wire_cursor cursor;
	struct wire_value value;

	count(3, 7, 5, 100, 200); /* leads a launch of 5 rows */
	count(2, 7, 0, 100, 300); /* rides along */
	stats_pack(&stats, &gauges, &buffer);
	ck_assert_int_eq(wire_scan(buffer.bytes, buffer.count), WIRE_OK);
	ck_assert_uint_eq(number("drafts", NULL), 2);
	ck_assert_uint_eq(number("rows", NULL), 5);
	ck_assert_uint_eq(number("tokens", NULL), 35);
	ck_assert_uint_eq(number("device_busy_us", NULL), 100); /* once a launch */
	ck_assert_uint_eq(number("uptime_us", NULL), 4000000);
	ck_assert_uint_eq(number("generation", NULL), 3);
	ck_assert_uint_eq(number("connections", NULL), 2);
	ck_assert_uint_eq(number("region_bytes", NULL), 11);
	ck_assert_uint_eq(number("device_region_bytes", NULL), 13);
	ck_assert_uint_eq(number("errors", "TOO_LARGE"), 4);
	ck_assert_uint_eq(number("errors", "BAD_FRAME"), 0);
	ck_assert_uint_eq(number("errors", "INTERNAL"), 0);
	ck_assert_uint_eq(number("requests", "ping"), 6);
	ck_assert_uint_eq(number("requests", "cancel"), 0);

	wire_cursor_init(&cursor, buffer.bytes, buffer.count);
	enter(&cursor, "latency_us");
	enter(&cursor, "total");
	enter(&cursor, "max");
	ck_assert(wire_next(&cursor, &value));
	ck_assert_uint_eq(value.uint, 300);

	wire_cursor_init(&cursor, buffer.bytes, buffer.count);
	enter(&cursor, "occupancy"); /* 5 of 8 places */
	ck_assert(wire_next(&cursor, &value));
	ck_assert_int_eq(value.type, WIRE_FLOAT);
	ck_assert_double_eq(value.real, 0.625);

	wire_cursor_init(&cursor, buffer.bytes, buffer.count);
	enter(&cursor, "launches");
	ck_assert(wire_next(&cursor, &value));
	ck_assert_uint_eq(value.count, 1);
	ck_assert(wire_next(&cursor, &value));
	ck_assert_uint_eq(value.count, 3);
	for (unsigned i = 0; i < 3; i++) {
		static const uint64_t expected[] = {7, 8, 1};

		ck_assert(wire_next(&cursor, &value));
		ck_assert_uint_eq(value.uint, expected[i]);
	}
}
END_TEST

/* Two replicas of two GPUs each, in the order of the list. */
static void two_groups(void)
{
	static const char *const uuids[] = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"};

	gauges.replicas = 2;
	facts.tensor_parallel = 2;
	facts.device_count = 4;
	for (unsigned i = 0; i < 4; i++) {
		strcpy(facts.devices[i].uuid, uuids[i]);
		strcpy(facts.devices[i].name, "x");
	}
	count(3, 7, 5, 100, 200);
	count(2, 7, 0, 100, 200);
	replica = 1;
	count(1, 7, 1, 60, 70);
	count(1, 7, 1, 50, 70);
}

START_TEST(the_map_has_the_replicas)
{
	static const struct {
		const char *devices[2];
		uint64_t launches, rows, busy_us;
	} expected[] = {{{"GPU-a", "GPU-b"}, 1, 5, 100}, {{"GPU-c", "GPU-d"}, 2, 2, 110}};
	struct wire_cursor cursor;
	struct wire_value value;

	two_groups();
	stats_pack(&stats, &gauges, &buffer);
	ck_assert_int_eq(wire_scan(buffer.bytes, buffer.count), WIRE_OK);
	wire_cursor_init(&cursor, buffer.bytes, buffer.count);
	enter(&cursor, "replicas");
	ck_assert(wire_next(&cursor, &value));
	ck_assert_uint_eq(value.count, 2);
	for (unsigned i = 0; i < 2; i++) {
		const uint64_t counts[] = {
			expected[i].launches, expected[i].rows, expected[i].busy_us};

		enter(&cursor, "devices");
		ck_assert(wire_next(&cursor, &value));
		ck_assert_uint_eq(value.count, 2);
		for (unsigned n = 0; n < 2; n++) {
			ck_assert(wire_next(&cursor, &value));
			ck_assert_uint_eq(value.data.bytes, 5);
			ck_assert_mem_eq(value.data.at, expected[i].devices[n], 5);
		}
		for (unsigned n = 0; n < 3; n++) {
			ck_assert(wire_skip(&cursor)); /* launches, rows, busy_us */
			ck_assert(wire_next(&cursor, &value));
			ck_assert_uint_eq(value.uint, counts[n]);
		}
	}
	ck_assert_uint_eq(number("device_busy_us", NULL), 210);
}
END_TEST

static const char *text(void)
{
	static char copy[1 << 16];

	stats_print(&stats, &gauges, &buffer);
	ck_assert_uint_lt(buffer.count, sizeof(copy));
	memcpy(copy, buffer.bytes, buffer.count);
	copy[buffer.count] = '\0';
	return copy;
}

#define HAS(line) ck_assert_msg(strstr(shown, "\n" line "\n"), "no line %s", line)

START_TEST(the_text_has_the_counts)
{
	const char *shown;

	count(3, 7, 5, 100, 200);
	count(40, 7, 40, 100, 3000);
	shown = text();
	HAS("draftd_drafts_total 2");
	HAS("draftd_tokens_total 301");
	HAS("draftd_errors_total{name=\"TOO_LARGE\"} 4");
	HAS("draftd_requests_total{method=\"ping\"} 6");
	HAS("draftd_launches_total{steps=\"7\",bucket=\"8\"} 1");
	HAS("draftd_launches_total{steps=\"7\",bucket=\"48\"} 1");
	HAS("draftd_launched_places_total 56");
	HAS("draftd_device_busy_seconds_total 0.000200");
	HAS("draftd_uptime_seconds 4");
	HAS("draftd_total_seconds_bucket{le=\"0.000127\"} 0");
	HAS("draftd_total_seconds_bucket{le=\"0.000255\"} 1");
	HAS("draftd_total_seconds_bucket{le=\"0.004095\"} 2");
	HAS("draftd_total_seconds_bucket{le=\"+Inf\"} 2");
	HAS("draftd_total_seconds_sum 0.003200");
	HAS("draftd_total_seconds_count 2");
	HAS("draftd_device_info{uuid=\"CPU\",name=\"a \\\"fast\\\\slow\\\"\\nprocessor\"} 0");
}
END_TEST

START_TEST(the_text_has_the_replicas)
{
	const char *shown;

	two_groups();
	shown = text();
	HAS("draftd_replica_info{replica=\"0\",rank=\"1\",uuid=\"GPU-b\"} 1");
	HAS("draftd_replica_info{replica=\"1\",rank=\"0\",uuid=\"GPU-c\"} 1");
	HAS("draftd_replica_launches_total{replica=\"0\"} 1");
	HAS("draftd_replica_launches_total{replica=\"1\"} 2");
	HAS("draftd_replica_launched_rows_total{replica=\"0\"} 5");
	HAS("draftd_replica_busy_seconds_total{replica=\"1\"} 0.000110");
	HAS("draftd_device_busy_seconds_total 0.000210");
}
END_TEST

/* Every sample stands in the block of its # HELP and # TYPE; every name has one block; counters end
 * in _total; buckets rise. */
START_TEST(the_text_keeps_the_format)
{
	char *line, *rest, *shown = strdup(text());
	char name[128] = "", type[32] = "", seen[4096] = "";
	uint64_t before = 0;

	ck_assert_int_eq(shown[strlen(shown) - 1], '\n');
	for (line = strtok_r(shown, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char sample[128], key[160];
		size_t prefix;

		if (strncmp(line, "# HELP ", 7) == 0) {
			ck_assert_int_eq(sscanf(line, "# HELP %127s", name), 1);
			snprintf(key, sizeof(key), " %s ", name);
			ck_assert_msg(!strstr(seen, key), "%s has two blocks", name);
			strcat(seen, key);
			before = 0;
			continue;
		}
		if (strncmp(line, "# TYPE ", 7) == 0) {
			ck_assert_int_eq(sscanf(line, "# TYPE %127s %31s", sample, type), 2);
			ck_assert_str_eq(sample, name);
			if (strcmp(type, "counter") == 0)
				ck_assert_str_eq(name + strlen(name) - 6, "_total");
			continue;
		}
		prefix = strcspn(line, "{ ");
		memcpy(sample, line, prefix);
		sample[prefix] = '\0';
		ck_assert_int_eq(strncmp(sample, name, strlen(name)), 0);
		if (strcmp(type, "histogram") != 0)
			ck_assert_str_eq(sample, name);
		if (strstr(line, "_bucket{")) {
			uint64_t now = strtoull(strrchr(line, ' ') + 1, NULL, 10);

			ck_assert_uint_ge(now, before);
			before = now;
		}
	}
	free(shown);
}
END_TEST

Suite *stats_suite(void)
{
	Suite *suite = suite_create("stats");
	TCase *tcase = tcase_create("stats");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, buckets_are_powers_of_two_up_to_the_most_rows);
	tcase_add_test(tcase, the_map_is_one_value_with_the_counts);
	tcase_add_test(tcase, the_text_has_the_counts);
	tcase_add_test(tcase, the_map_has_the_replicas);
	tcase_add_test(tcase, the_text_has_the_replicas);
	tcase_add_test(tcase, the_text_keeps_the_format);
	suite_add_tcase(suite, tcase);
	return suite;
}
