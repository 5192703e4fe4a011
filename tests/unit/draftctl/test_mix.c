/* Mixes as written, what is wrong with others, and how often each kind is drawn. */
#include "client/draftctl/mix.h"
#include "tests/unit/draftctl/scratch.h"
#include "tests/unit/draftctl/suites.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define DRAWS 100000

static const struct mix_kind defaults = {.share = 1, .rows = 2, .steps = 4, .temperature = 0.5};

static int read_text(const char *text, struct mix *mix, struct error_text *error)
{
	return mix_read(scratch_write("mix", text, strlen(text)), &defaults, mix, error);
}

START_TEST(reads_kinds)
{
	struct error_text error;
	struct mix mix;

	ck_assert_int_eq(read_text("# kinds\nshare=3\n\n  share=0.5 rows=8\tsteps=7 temperature=0 "
				   "priority=1 deadline_us=5000 # all of it\n",
				 &mix, &error),
		0);
	ck_assert_uint_eq(mix.count, 2);
	ck_assert_double_eq(mix.kinds[0].share, 3);
	ck_assert_uint_eq(mix.kinds[0].rows, 2);
	ck_assert_uint_eq(mix.kinds[0].steps, 4);
	ck_assert_double_eq(mix.kinds[0].temperature, 0.5);
	ck_assert_uint_eq(mix.kinds[0].priority, 0);
	ck_assert_int_eq(mix.kinds[0].deadline_us, 0);
	ck_assert_uint_eq(mix.kinds[0].line, 2);
	ck_assert_double_eq(mix.kinds[1].share, 0.5);
	ck_assert_uint_eq(mix.kinds[1].rows, 8);
	ck_assert_uint_eq(mix.kinds[1].steps, 7);
	ck_assert_double_eq(mix.kinds[1].temperature, 0);
	ck_assert_uint_eq(mix.kinds[1].priority, 1);
	ck_assert_int_eq(mix.kinds[1].deadline_us, 5000);
	ck_assert_uint_eq(mix.kinds[1].line, 4);
	ck_assert_uint_eq(mix_rows_max(&mix), 8);
	ck_assert_uint_eq(mix_steps_max(&mix), 7);
	ck_assert_uint_eq(mix_cells_max(&mix), 56);
}
END_TEST

START_TEST(refuses_with_file_and_line)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"", "has no kinds"},
		{"# share=1\n", "has no kinds"},
		{"share=1\nrows=2\n", ":2: share is missing"},
		{"share=1 rows=0\n", ":1: rows is \"0\"; it must be a whole number from 1 to 4096"},
		{"share=1 rows=1.5\n", ":1: rows is \"1.5\""},
		{"share=1 steps=1025\n", "from 1 to 1024"},
		{"share=0\n", ":1: share is \"0\""},
		{"share=-1\n", ":1: share is \"-1\""},
		{"share=1 temperature=hot\n", ":1: temperature is \"hot\"; it must be a number"},
		{"share=1 temperature=nan\n", "temperature is \"nan\""},
		{"share=1 priority=2\n", "from 0 to 1"},
		{"share=1 deadline_us=3600000001\n", "from 0 to 3600000000"},
		{"share=1\n\nshare=1 share=2\n", ":3: share stands twice"},
		{"share=1 colour=2\n", ":1: \"colour\" must be share="},
		{"share\n", ":1: \"share\" must be share="},
		{"share=\n", ":1: share is \"\""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mix mix = {.count = 77};
		struct error_text error = {""};

		ck_assert_int_eq(read_text(cases[i].text, &mix, &error), -EINVAL);
		ck_assert_msg(strstr(error.text, cases[i].part) != NULL, "\"%s\"", error.text);
		ck_assert_ptr_nonnull(strstr(error.text, "/mix"));
		ck_assert_uint_eq(mix.count, 77);
	}
}
END_TEST

START_TEST(at_most_so_many_kinds)
{
	char text[(MIX_KINDS_MAX + 1) * 8 + 1] = "";
	struct error_text error;
	struct mix mix;

	for (int i = 0; i < MIX_KINDS_MAX; i++)
		strcat(text, "share=1\n");
	ck_assert_int_eq(read_text(text, &mix, &error), 0);
	ck_assert_uint_eq(mix.count, MIX_KINDS_MAX);
	strcat(text, "share=1\n");
	ck_assert_int_eq(read_text(text, &mix, &error), -E2BIG);
	ck_assert_ptr_nonnull(strstr(error.text, ":17: more than 16 kinds"));
}
END_TEST

START_TEST(draws_by_share)
{
	struct mix mix = {
		.kinds = {{.share = 6}, {.share = 1}, {.share = 3}},
		.count = 3,
	};
	struct random random = random_start(5, 5);
	unsigned counts[3] = {0};

	for (int i = 0; i < DRAWS; i++)
		counts[mix_draw(&mix, &random)]++;
	for (int k = 0; k < 3; k++) { /* within five deviations */
		double share = mix.kinds[k].share / 10;

		ck_assert_double_eq_tol(
			counts[k], DRAWS * share, 5 * sqrt(DRAWS * share * (1 - share)));
	}
	mix.count = 1;
	ck_assert_uint_eq(mix_draw(&mix, &random), 0);
}
END_TEST

Suite *mix_suite(void)
{
	Suite *suite = suite_create("mix");
	TCase *tests = tcase_create("mix");

	tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
	tcase_add_test(tests, reads_kinds);
	tcase_add_test(tests, refuses_with_file_and_line);
	tcase_add_test(tests, at_most_so_many_kinds);
	tcase_add_test(tests, draws_by_share);
	suite_add_tcase(suite, tests);
	return suite;
}
