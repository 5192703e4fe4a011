/* Where a refusal says that the setting it is about comes from. */
#include "daemon/config.h"
#include "daemon/options.h"
#include "daemon/refusal.h"

#include <check.h>
#include <errno.h>
#include <string.h>

Suite *refusal_suite(void);

static struct config config;
static struct refusal refusal;

/* max_rows is from line 3 of "some.conf", max_queue from line 7, max_inflight from the command
 * line. */
static void setup(void)
{
	static char path[] = "some.conf";

	config = (struct config){.config_path = path};
	config.origins[options_at(SETTING(max_rows)) - options] = 3;
	config.origins[options_at(SETTING(max_queue)) - options] = 7;
	config.origins[options_at(SETTING(max_inflight)) - options] = ORIGIN_COMMAND_LINE;
	refusal = (struct refusal){0};
}

static void refuse(size_t first, size_t second)
{
	ck_assert_int_eq(error_text_set(refusal_about(&refusal, first, second), EDOM, "no"), -EDOM);
	refusal_place(&refusal, &config);
}

static const struct {
	size_t first, second;
	const char *text;
} places[] = {
	{SETTING(max_rows), 0, "some.conf:3: no"},
	{SETTING(max_queue), SETTING(max_rows), "some.conf:7: no"},
	{SETTING(max_steps), SETTING(max_rows), "some.conf:3: no"},
	{SETTING(max_steps), SETTING(devices), "no"},
	{SETTING(max_steps), 0, "no"},
	{SETTING(max_rows), SETTING(max_inflight), "some.conf:3 and --max-inflight: no"},
	{SETTING(max_inflight), SETTING(max_queue), "some.conf:7 and --max-inflight: no"},
	{SETTING(max_inflight), SETTING(max_steps), "no"},
	{SETTING(max_inflight), 0, "no"},
	{0, 0, "no"},
};

START_TEST(the_first_setting_of_the_file_is_named)
{
	refuse(places[_i].first, places[_i].second);
	ck_assert_str_eq(refusal.sentence.text, places[_i].text);
	ck_assert_uint_eq(
		refusal.file_bytes, strcmp(places[_i].text, "no") == 0 ? 0 : strlen("some.conf"));
}
END_TEST

START_TEST(one_place_is_enough)
{
	refuse(SETTING(max_rows), 0);
	refusal_place(&refusal, &config);
	ck_assert_str_eq(refusal.sentence.text, "some.conf:3: no");
}
END_TEST

/* A name that is too long for the sentence is cut, and told from the rest all the same. */
START_TEST(long_names)
{
	char path[301];

	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	config.config_path = path;
	refuse(SETTING(max_rows), 0);
	ck_assert_str_eq(refusal.sentence.text + refusal.file_bytes, ":3: no");

	refusal = (struct refusal){0};
	error_text_set(&refusal.sentence, EINVAL, "no");
	refusal_place_at(&refusal, path, 0);
	ck_assert_str_eq(refusal.sentence.text + refusal.file_bytes, ": no");
}
END_TEST

Suite *refusal_suite(void)
{
	Suite *suite = suite_create("refusal");
	TCase *tests = tcase_create("places");

	tcase_add_checked_fixture(tests, setup, NULL);
	tcase_add_loop_test(tests, the_first_setting_of_the_file_is_named, 0,
		(int)(sizeof(places) / sizeof(places[0])));
	tcase_add_test(tests, one_place_is_enough);
	tcase_add_test(tests, long_names);
	suite_add_tcase(suite, tests);
	return suite;
}
