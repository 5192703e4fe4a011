#include "client/draftctl/options.h"
#include "tests/unit/draftctl/suites.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct values {
	bool flag;
	const char *text;
	uint32_t count;
	int64_t seed;
	double share;
	unsigned where;
};

static const char *const choices[] = {"inline", "host", NULL};

static const struct option_spec specs[] = {
	{.name = "flag",
		.letter = 'f',
		.kind = OPTION_FLAG,
		.help = "a flag",
		.offset = offsetof(struct values, flag)},
	{.name = "text",
		.kind = OPTION_TEXT,
		.value = "FILE",
		.help = "a text",
		.offset = offsetof(struct values, text)},
	{.name = "count",
		.letter = 'n',
		.kind = OPTION_U32,
		.value = "N",
		.help = "a count",
		.offset = offsetof(struct values, count),
		.min = 1,
		.max = UINT32_MAX},
	{.name = "seed",
		.kind = OPTION_I64,
		.value = "S",
		.help = "a seed",
		.offset = offsetof(struct values, seed),
		.min = INT64_MIN,
		.max = INT64_MAX,
		.absent = "random"},
	{.name = "share",
		.kind = OPTION_REAL,
		.value = "X",
		.help = "a share",
		.offset = offsetof(struct values, share),
		.real_min = 0,
		.real_max = 1},
	{.name = "where",
		.kind = OPTION_CHOICE,
		.value = "WHERE",
		.help = "a place",
		.offset = offsetof(struct values, where),
		.choices = choices},
	{0},
};

static struct error_text error;

/* Parses up to seven words behind the program's name. */
static int parse(struct values *values, enum options_order order, const char *words[8])
{
	struct option_set set = {specs, values};
	const char *argv[10] = {"test"};
	int argc = 1;

	while (words[argc - 1] != NULL) {
		argv[argc] = words[argc - 1];
		argc++;
	}
	error.text[0] = '\0';
	/* getopt permutes the array and leaves the words alone. */
	return options_parse(&set, 1, order, argc, (char **)(uintptr_t)argv, &error);
}

#define WORDS(...) ((const char *[8]){__VA_ARGS__})

START_TEST(takes_every_kind)
{
	struct values v = {.count = 5};

	ck_assert_int_eq(parse(&v, OPTIONS_ANYWHERE,
				 WORDS("--flag", "--text", "a b", "-n4294967295", "--seed=-9",
					 "--where=host")),
		7);
	ck_assert(v.flag);
	ck_assert_str_eq(v.text, "a b");
	ck_assert_uint_eq(v.count, 4294967295u);
	ck_assert_int_eq(v.seed, -9);
	ck_assert_uint_eq(v.where, 1);
	ck_assert_int_eq(parse(&v, OPTIONS_ANYWHERE, WORDS("--share", "0.25")), 3);
	ck_assert_double_eq(v.share, 0.25);
}
END_TEST

START_TEST(keeps_defaults)
{
	struct values v = {.count = 5, .text = "x"};

	ck_assert_int_eq(parse(&v, OPTIONS_ANYWHERE, WORDS(NULL)), 1);
	ck_assert_uint_eq(v.count, 5);
	ck_assert_str_eq(v.text, "x");
}
END_TEST

START_TEST(finds_operands)
{
	struct values v = {0};

	ck_assert_int_eq(parse(&v, OPTIONS_BEFORE_OPERANDS, WORDS("-f", "ping", "--nonsense")), 2);
	ck_assert(v.flag);
	ck_assert_int_eq(parse(&v, OPTIONS_ANYWHERE, WORDS("one", "-n", "3", "two")), 3);
	ck_assert_uint_eq(v.count, 3);
	ck_assert_int_eq(parse(&v, OPTIONS_ANYWHERE, WORDS("--", "-n", "3")), 2);
}
END_TEST

static void check_refused(const char *words[8], const char *sentence)
{
	struct values v = {.count = 5, .share = 0.5, .where = 1};

	ck_assert_int_eq(parse(&v, OPTIONS_ANYWHERE, words), -EINVAL);
	ck_assert_str_eq(error.text, sentence);
	ck_assert_uint_eq(v.count, 5);
	ck_assert_double_eq(v.share, 0.5);
	ck_assert_uint_eq(v.where, 1);
}

START_TEST(refuses_in_words)
{
	check_refused(WORDS("--count", "0"),
		"--count is \"0\"; it must be a whole number from 1 to 4294967295");
	check_refused(WORDS("-n", "4294967296"),
		"--count is \"4294967296\"; it must be a whole number from 1 to 4294967295");
	check_refused(WORDS("-n", "x"),
		"--count is \"x\"; it must be a whole number from 1 to 4294967295");
	check_refused(
		WORDS("--share", "1.01"), "--share is \"1.01\"; it must be a number from 0 to 1");
	check_refused(
		WORDS("--share", "nan"), "--share is \"nan\"; it must be a number from 0 to 1");
	check_refused(WORDS("--where", "hos"), "--where is \"hos\"; it must be inline or host");
	check_refused(WORDS("--text", ""), "--text is empty; it must be a FILE");
	check_refused(WORDS("--count"), "--count needs a value");
	check_refused(WORDS("-n"), "-n needs a value");
	check_refused(WORDS("--flag=yes"), "--flag takes no value");
	check_refused(WORDS("--nonsense", "1"), "unknown option --nonsense");
	check_refused(WORDS("-x"), "unknown option -x");
}
END_TEST

START_TEST(help_has_every_row)
{
	struct values v = {.count = 5, .share = 0.5, .where = 1};
	size_t bytes = 0;
	char *text = NULL;
	FILE *to = open_memstream(&text, &bytes);

	options_help(to, specs, &v, NULL);
	fclose(to);
	ck_assert_str_eq(text,
		"  -f, --flag              a flag\n"
		"  --text FILE             a text\n"
		"  -n, --count N           a count (1 to 4294967295, default 5)\n"
		"  --seed S                a seed (default random)\n"
		"  --share X               a share (0 to 1, default 0.5)\n"
		"  --where WHERE           a place (inline or host, default host)\n");
	free(text);
}
END_TEST

/* A letter is shown where it means the option, and not where it means that of another table. */
START_TEST(help_leaves_out_letters_that_are_taken)
{
	static const struct option_spec before[] = {{.name = "number", .letter = 'n'}, {0}};
	struct values v = {.count = 5};
	size_t bytes = 0;
	char *text = NULL;
	FILE *to = open_memstream(&text, &bytes);

	options_help(to, specs, &v, before);
	fclose(to);
	ck_assert_ptr_nonnull(strstr(text, "  -f, --flag              a flag\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n  --count N               a count (1 to"));
	free(text);
}
END_TEST

START_TEST(wraps_at_column_80)
{
	size_t bytes = 0;
	char *text = NULL;
	FILE *to = open_memstream(&text, &bytes);

	/* 76 columns, then a word of 4 that would end at 81, and one of 3 that ends at 80. */
	options_wrap(to,
		"1234567890123456789012345678901234567890123456789012345678901234567890123456 abcd",
		0, 2);
	options_wrap(to,
		"1234567890123456789012345678901234567890123456789012345678901234567890123456 abc",
		0, 2);
	fclose(to);
	ck_assert_str_eq(text, "1234567890123456789012345678901234567890123456789012345678901234567"
			       "890123456\n  abcd\n"
			       "1234567890123456789012345678901234567890123456789012345678901234567"
			       "890123456 abc\n");
	free(text);
}
END_TEST

Suite *options_suite(void)
{
	Suite *suite = suite_create("options");
	TCase *tests = tcase_create("options");

	tcase_add_test(tests, takes_every_kind);
	tcase_add_test(tests, keeps_defaults);
	tcase_add_test(tests, finds_operands);
	tcase_add_test(tests, refuses_in_words);
	tcase_add_test(tests, help_has_every_row);
	tcase_add_test(tests, help_leaves_out_letters_that_are_taken);
	tcase_add_test(tests, wraps_at_column_80);
	suite_add_tcase(suite, tests);
	return suite;
}
