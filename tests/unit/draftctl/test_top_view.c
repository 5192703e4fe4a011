#include "client/draftctl/top_view.h"
#include "tests/unit/draftctl/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *first, *second;

/* Two looks, 2 s apart: 10 launches of 8 places, 60 rows in them; then 4 more of 16, 48 rows. */
static void setup(void)
{
	first = json_loads(
		"{\"server\": \"draftd/1\", \"model\": \"a\\u001bb\", \"backend\": \"cpu\","
		" \"variant\": \"v\", \"uptime_us\": 5000000, \"drafts\": 100,"
		" \"rows\": 60, \"tokens\": 120, \"device_busy_us\": 1000000,"
		" \"launches\": [[2, 8, 10]], \"occupancy\": 0.75,"
		" \"errors\": {\"TOO_LARGE\": 3, \"INTERNAL\": 0}, \"latency_us\":"
		" {\"total\": {\"buckets\": [[10, 90], [20, 10]]}}}",
		0, NULL);
	second = json_loads(
		"{\"server\": \"draftd/1\", \"model\": \"a\\u001bb\", \"backend\": \"cpu\","
		" \"variant\": \"v\", \"uptime_us\": 7000000, \"drafts\": 300, \"rows\": 108,"
		" \"tokens\": 220, \"device_busy_us\": 1500000,"
		" \"launches\": [[2, 8, 10], [2, 16, 4]], \"occupancy\": 0.75,"
		" \"errors\": {\"TOO_LARGE\": 3, \"INTERNAL\": 4}, \"latency_us\":"
		" {\"total\": {\"buckets\": [[10, 90], [20, 110], [40, 99], [80, 1]]}}}",
		0, NULL);
	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_nonnull(second);
}

static void teardown(void)
{
	json_decref(first);
	json_decref(second);
}

START_TEST(rates_are_over_the_time_between_two_looks)
{
	struct top_rates rates = top_rates(first, second);

	ck_assert_double_eq(rates.seconds, 2);
	ck_assert_double_eq(rates.requests, 100);
	ck_assert_double_eq(rates.rows, 24);
	ck_assert_double_eq(rates.tokens, 50);
	ck_assert_double_eq(rates.launches, 2);
	ck_assert_double_eq(rates.errors, 2);
	ck_assert_double_eq(rates.occupancy, 0.75);
	ck_assert_double_eq(rates.busy, 0.25);
}
END_TEST

/* The first look, and one after a restart: what was before is of another run. */
START_TEST(without_a_look_before_it_is_all_since_the_start)
{
	struct top_rates rates = top_rates(NULL, first);

	ck_assert_double_eq(rates.seconds, 5);
	ck_assert_double_eq(rates.requests, 20);
	ck_assert_double_eq(rates.occupancy, 0.75);
	rates = top_rates(second, first);
	ck_assert_double_eq(rates.seconds, 5);
	ck_assert_double_eq(rates.requests, 20);
	ck_assert_double_eq(top_quantile_us(second, first, "total", 0.5), 10);
}
END_TEST

/* 100 values up to 20, 99 up to 40 and one up to 80 came between the looks. */
START_TEST(quantiles_are_of_what_came_between)
{
	ck_assert_double_eq(top_quantile_us(first, second, "total", 0.5), 20);
	ck_assert_double_eq(top_quantile_us(first, second, "total", 0.501), 40);
	ck_assert_double_eq(top_quantile_us(first, second, "total", 0.995), 40);
	ck_assert_double_eq(top_quantile_us(first, second, "total", 0.996), 80);
	ck_assert_double_eq(top_quantile_us(first, second, "total", 1), 80);
	ck_assert_double_eq(top_quantile_us(NULL, first, "total", 0.9), 10);
	ck_assert(isnan(top_quantile_us(first, second, "queue", 0.5)));
}
END_TEST

/* Nothing happened, and a draftd that tells less than it should: dashes and zeros. */
START_TEST(nothing_is_shown_as_such)
{
	json_t *empty = json_object();
	struct top_rates rates = top_rates(first, empty);
	char *line = top_line(first, empty);

	ck_assert(isnan(rates.occupancy));
	ck_assert_double_eq(rates.requests, 0);
	ck_assert_ptr_nonnull(strstr(line, " - "));
	ck_assert_ptr_null(strstr(line, "nan"));
	free(line);
	json_decref(empty);
}
END_TEST

START_TEST(the_screen_has_it_all_and_nothing_foreign)
{
	char *screen = top_screen(first, second, "device 0   x\n");

	ck_assert_ptr_nonnull(strstr(screen, "draftd/1: a?b on cpu (v)"));
	ck_assert_ptr_nonnull(strstr(screen, "errors     TOO_LARGE 3, INTERNAL 4 (+4)\n"));
	ck_assert_ptr_nonnull(strstr(screen, "\ndevice 0   x\n"));
	ck_assert_ptr_nonnull(strstr(screen, "occupancy  75.0 %"));
	ck_assert_ptr_null(strchr(screen, '\x1b'));
	free(screen);
}
END_TEST

/* 0.5 s of launches in 2 s, by two. */
START_TEST(replicas_are_shown_apart_and_together)
{
	char *screen, *line, *head;

	json_object_set_new(first, "replicas",
		json_loads("[{\"busy_us\": 600000}, {\"busy_us\": 400000}]", 0, NULL));
	json_object_set_new(second, "replicas",
		json_loads("[{\"busy_us\": 1000000}, {\"busy_us\": 500000}]", 0, NULL));
	ck_assert_double_eq(top_rates(first, second).busy, 0.125);
	screen = top_screen(first, second, "");
	ck_assert_ptr_nonnull(strstr(screen, "\nreplicas   0: 20.0 % 1: 5.0 %\n"));
	free(screen);
	line = top_line(first, second);
	head = top_line_head(second);
	ck_assert_ptr_nonnull(strstr(head, "  errors/s   busy 0   busy 1\n"));
	ck_assert_ptr_nonnull(strstr(line, "   20.0 %    5.0 %\n"));
	ck_assert_uint_eq(strlen(head), strlen(line));
	free(head);
	free(line);
	screen = top_screen(NULL, second, ""); /* since the start, 7 s ago */
	ck_assert_ptr_nonnull(strstr(screen, "\nreplicas   0: 14.3 % 1: 7.1 %\n"));
	free(screen);
	json_array_remove(json_object_get(second, "replicas"), 1);
	screen = top_screen(first, second, "");
	ck_assert_ptr_null(strstr(screen, "replicas"));
	head = top_line_head(second);
	ck_assert_ptr_nonnull(strstr(head, "  errors/s\n"));
	free(head);
	free(screen);
}
END_TEST

Suite *top_view_suite(void)
{
	Suite *suite = suite_create("top_view");
	TCase *tcase = tcase_create("top_view");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, rates_are_over_the_time_between_two_looks);
	tcase_add_test(tcase, without_a_look_before_it_is_all_since_the_start);
	tcase_add_test(tcase, quantiles_are_of_what_came_between);
	tcase_add_test(tcase, nothing_is_shown_as_such);
	tcase_add_test(tcase, replicas_are_shown_apart_and_together);
	tcase_add_test(tcase, the_screen_has_it_all_and_nothing_foreign);
	suite_add_tcase(suite, tcase);
	return suite;
}
