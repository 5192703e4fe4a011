#include "client/draftctl/file.h"
#include "tests/unit/draftctl/scratch.h"
#include "tests/unit/draftctl/suites.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_content(const char *path, const char *expected)
{
	char text[64] = "";
	FILE *file = fopen(path, "rb");
	size_t count;

	ck_assert_ptr_nonnull(file);
	count = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	ck_assert_uint_eq(count, strlen(expected));
	ck_assert_str_eq(text, expected);
}

START_TEST(writes_and_replaces)
{
	const char *path = scratch_path("metrics.prom");
	struct error_text error;
	struct stat before, after;

	ck_assert_int_eq(file_replace(path, "one\n", 4, &error), 0);
	check_content(path, "one\n");
	ck_assert_int_eq(stat(path, &before), 0);
	ck_assert_int_eq(before.st_mode & 0777, 0644);
	ck_assert_int_eq(file_replace(path, "second\n", 7, &error), 0);
	check_content(path, "second\n");
	ck_assert_int_eq(stat(path, &after), 0);
	/* Another file took its place, which is what a reader at work relies on. */
	ck_assert(before.st_ino != after.st_ino);
	ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

START_TEST(leaves_nothing_after_a_failure)
{
	struct error_text error = {""};

	ck_assert_int_lt(file_check(scratch_path("absent/metrics.prom"), &error), 0);
	ck_assert_int_eq(file_check(scratch_path("metrics.prom"), &error), 0);
	ck_assert_uint_eq(scratch_count(), 0);
	ck_assert_int_lt(file_replace(scratch_path("absent/metrics.prom"), "x", 1, &error), 0);
	ck_assert_ptr_nonnull(strstr(error.text, "absent/metrics.prom"));
	/* A folder cannot be replaced by a file. */
	ck_assert_int_eq(mkdir(scratch_path("folder"), 0755), 0);
	ck_assert_int_lt(file_replace(scratch_path("folder"), "x", 1, &error), 0);
	ck_assert_uint_eq(scratch_count(), 1);
	ck_assert_int_eq(remove(scratch_path("folder")), 0);
}
END_TEST

START_TEST(replaces_regular_files_only)
{
	char target[256];
	struct error_text error = {""};
	struct stat status;

	snprintf(target, sizeof(target), "%s", scratch_path("target"));
	ck_assert_int_eq(file_replace(target, "old", 3, &error), 0);
	ck_assert_int_eq(symlink(target, scratch_path("link")), 0);
	ck_assert_int_eq(file_replace(scratch_path("link"), "new", 3, &error), 0);
	ck_assert_int_eq(lstat(scratch_path("link"), &status), 0);
	ck_assert(S_ISLNK(status.st_mode));
	check_content(target, "new");

	ck_assert_int_eq(remove(target), 0);
	ck_assert_int_lt(file_replace(scratch_path("link"), "x", 1, &error), 0);
	ck_assert_ptr_nonnull(strstr(error.text, "link to nothing"));
	ck_assert_int_eq(remove(scratch_path("link")), 0);

	ck_assert_int_eq(mkfifo(scratch_path("pipe"), 0600), 0);
	ck_assert_int_lt(file_replace(scratch_path("pipe"), "x", 1, &error), 0);
	ck_assert_ptr_nonnull(strstr(error.text, "no regular file"));
	ck_assert_int_eq(stat(scratch_path("pipe"), &status), 0);
	ck_assert(S_ISFIFO(status.st_mode));
	ck_assert_uint_eq(scratch_count(), 1);
	ck_assert_int_eq(remove(scratch_path("pipe")), 0);
}
END_TEST

Suite *file_suite(void)
{
	Suite *suite = suite_create("file");
	TCase *tests = tcase_create("file");

	tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
	tcase_add_test(tests, writes_and_replaces);
	tcase_add_test(tests, leaves_nothing_after_a_failure);
	tcase_add_test(tests, replaces_regular_files_only);
	suite_add_tcase(suite, tests);
	return suite;
}
