/* What is cut, and what stands behind counts. */
#include "proto/sentence.h"

#include "suites.h"

#include <string.h>

/* Each character begins at a byte that is listed: a cut ends there. */
START_TEST(cuts_between_characters)
{
	static const char text[] = "aç模🍣b"; /* of 1, 2, 3, 4 and 1 bytes */
	static const int cuts[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};

	for (size_t most = 0; most < sizeof(cuts) / sizeof(cuts[0]); most++)
		ck_assert_int_eq(sentence_cut(text, most), cuts[most]);
}
END_TEST

/* There is no border to be found: bytes are counted. */
static const struct {
	const char *text;
	size_t most;
	int bytes;
} others[] = {
	{"\xe4\xe4", 5, 2},
	{"\x80\x80\x80\x80\x80", 4, 4},
	{"a\x80\x80", 2, 2},
	{"ab\xc3", 9, 3},
};

START_TEST(other_bytes_are_counted)
{
	ck_assert_int_eq(sentence_cut(others[_i].text, others[_i].most), others[_i].bytes);
}
END_TEST

/* Nothing behind what is shown is looked at. */
START_TEST(needs_no_end)
{
	const char text[3] = {'a', 'b', 'c'};

	ck_assert_int_eq(sentence_cut(text, 3), 3);
}
END_TEST

static void print(char *to, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void print(char *to, size_t bytes, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	sentence_print(to, bytes, format, arguments);
	va_end(arguments);
}

START_TEST(prints_whole_characters)
{
	char text[8];

	print(text, sizeof(text), "%d %s", 12, "模模");
	ck_assert_str_eq(text, "12 模");
	print(text, sizeof(text), "%d %s", 1, "ab模");
	ck_assert_str_eq(text, "1 ab模");
	print(text, sizeof(text), "%.*s!", CUT(5, "模模"));
	ck_assert_str_eq(text, "模!");
}
END_TEST

START_TEST(one_has_no_s)
{
	ck_assert_str_eq(sentence_s(0), "s");
	ck_assert_str_eq(sentence_s(1), "");
	ck_assert_str_eq(sentence_s(2), "s");
	ck_assert_str_eq(sentence_s(UINT64_C(1) << 32 | 1), "s");
}
END_TEST

Suite *sentence_suite(void)
{
	Suite *suite = suite_create("sentence");
	TCase *tests = tcase_create("sentence");

	tcase_add_test(tests, cuts_between_characters);
	tcase_add_loop_test(
		tests, other_bytes_are_counted, 0, (int)(sizeof(others) / sizeof(others[0])));
	tcase_add_test(tests, needs_no_end);
	tcase_add_test(tests, prints_whole_characters);
	tcase_add_test(tests, one_has_no_s);
	suite_add_tcase(suite, tests);
	return suite;
}
