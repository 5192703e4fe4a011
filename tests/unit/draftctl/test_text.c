#include "client/draftctl/text.h"
#include "tests/unit/draftctl/suites.h"

#include <stdlib.h>
#include <string.h>

START_TEST(durations)
{
	ck_assert_str_eq(text_duration(0).at, "0 ns");
	ck_assert_str_eq(text_duration(870).at, "870 ns");
	ck_assert_str_eq(text_duration(999.4).at, "999 ns");
	ck_assert_str_eq(text_duration(999.6).at, "1.00 us");
	ck_assert_str_eq(text_duration(9994).at, "9.99 us");
	ck_assert_str_eq(text_duration(9996).at, "10.0 us");
	ck_assert_str_eq(text_duration(123456).at, "123 us");
	ck_assert_str_eq(text_duration(999600).at, "1.00 ms");
	ck_assert_str_eq(text_duration(1240e6).at, "1.24 s");
	ck_assert_str_eq(text_duration(86400e9).at, "86400 s");
}
END_TEST

START_TEST(foreign_text_is_harmless)
{
	ck_assert_str_eq(text_plain("RESOURCE_EXHAUSTED").at, "RESOURCE_EXHAUSTED");
	ck_assert_str_eq(text_plain("\x1b[31mred\x7f\xc2\x9b").at, "?[31mred???");
	ck_assert_str_eq(text_plain("façade 模🍣").at, "façade 模🍣");
	/* Latin-1; cut short; an overlong '/'; a surrogate. */
	ck_assert_str_eq(text_plain("fa\347ade").at, "fa?ade");
	ck_assert_str_eq(text_plain("\xe6\xa8").at, "??");
	ck_assert_str_eq(text_plain("\xc0\xaf\xed\xa0\x80").at, "?????");
}
END_TEST

/* A key of 255 bytes is the protocol's longest. */
START_TEST(names_are_whole)
{
	char name[300];

	for (size_t i = 0; i < sizeof(name); i += 3)
		memcpy(name + i, "模", 3);
	name[255] = '\0';
	ck_assert_str_eq(text_plain(name).at, name);
	name[255] = 'x';
	name[256] = '\0';
	ck_assert_uint_eq(strlen(text_plain(name).at), 255);
	/* A character that does not fit whole is left out. */
	memmove(name + 1, name, 255);
	name[0] = 'x';
	ck_assert_uint_eq(strlen(text_plain(name).at), 253);
}
END_TEST

/* Longer than the pieces that it is made in, with a character across each border. */
START_TEST(foreign_text_of_any_length_is_harmless)
{
	char foreign[4002], *written = NULL;
	size_t length;
	FILE *to = open_memstream(&written, &length);

	for (size_t i = 0; i < 4000; i += 4)
		memcpy(foreign + i, "🍣", 4);
	strcpy(foreign + 4000, "\t");
	text_put_plain(to, foreign);
	ck_assert_ptr_nonnull(text_close(to, &written));
	foreign[4000] = '?';
	ck_assert_str_eq(written, foreign);
	free(written);
}
END_TEST

START_TEST(counts)
{
	ck_assert_str_eq(text_count(0).at, "0");
	ck_assert_str_eq(text_count(999).at, "999");
	ck_assert_str_eq(text_count(1000).at, "1,000");
	ck_assert_str_eq(text_count(1234567).at, "1,234,567");
	ck_assert_str_eq(text_count(UINT64_MAX).at, "18,446,744,073,709,551,615");
	ck_assert_str_eq(text_rate(3.214).at, "3.21");
	ck_assert_str_eq(text_rate(27.649).at, "27.6");
	ck_assert_str_eq(text_rate(99.96).at, "100");
	ck_assert_str_eq(text_rate(12345.6).at, "12,346");
}
END_TEST

START_TEST(bytes)
{
	ck_assert_str_eq(text_bytes(1).at, "1 byte");
	ck_assert_str_eq(text_bytes(0).at, "0 bytes");
	ck_assert_str_eq(text_bytes(1023).at, "1023 bytes");
	ck_assert_str_eq(text_bytes(1024).at, "1.00 KiB");
	ck_assert_str_eq(text_bytes(64u << 20).at, "64.0 MiB");
	ck_assert_str_eq(text_bytes((1u << 20) - 1).at, "1.00 MiB");
	ck_assert_str_eq(text_bytes(UINT64_MAX).at, "16.0 EiB");
}
END_TEST

Suite *text_suite(void)
{
	Suite *suite = suite_create("text");
	TCase *tests = tcase_create("text");

	tcase_add_test(tests, durations);
	tcase_add_test(tests, foreign_text_is_harmless);
	tcase_add_test(tests, names_are_whole);
	tcase_add_test(tests, foreign_text_of_any_length_is_harmless);
	tcase_add_test(tests, counts);
	tcase_add_test(tests, bytes);
	suite_add_tcase(suite, tests);
	return suite;
}
