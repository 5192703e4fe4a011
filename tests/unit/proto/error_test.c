#include "proto/error.h"
#include "suites.h"

/* The table of PROTOCOL.md, typed out again. */
static const struct {
	int code;
	const char *name;
	bool retryable, closes;
} rows[] = {
	{1, "BAD_FRAME", false, true},
	{2, "VERSION_MISMATCH", false, true},
	{3, "BAD_REQUEST", false, false},
	{4, "UNKNOWN_METHOD", false, false},
	{5, "NOT_FOUND", false, false},
	{6, "OUT_OF_RANGE", false, false},
	{7, "TOO_LARGE", false, false},
	{8, "RESOURCE_EXHAUSTED", true, false},
	{9, "DEADLINE_EXCEEDED", false, false},
	{10, "CANCELLED", false, false},
	{11, "DRAINING", true, false},
	{12, "PERMISSION_DENIED", false, false},
	{13, "DEVICE_LOST", true, true},
	{14, "INTERNAL", false, false},
};

START_TEST(table_is_the_pages)
{
	const struct error_info *info = error_lookup(rows[_i].code);

	ck_assert_ptr_nonnull(info);
	ck_assert_str_eq(info->name, rows[_i].name);
	ck_assert_int_eq(info->retryable, rows[_i].retryable);
	ck_assert_int_eq(info->closes_connection, rows[_i].closes);
	ck_assert_int_eq(error_by_name(rows[_i].name), rows[_i].code);
}
END_TEST

START_TEST(outside_the_table_is_nothing)
{
	ck_assert_ptr_null(error_lookup(-1));
	ck_assert_ptr_null(error_lookup(0));
	ck_assert_ptr_null(error_lookup(15));
	ck_assert_int_eq(ERROR_CODE_END, 15);
	ck_assert_int_eq(error_by_name("bad_frame"), ERROR_NONE);
	ck_assert_int_eq(error_by_name(""), ERROR_NONE);
}
END_TEST

Suite *error_suite(void)
{
	Suite *suite = suite_create("error");
	TCase *tcase = tcase_create("table");

	tcase_add_loop_test(tcase, table_is_the_pages, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_test(tcase, outside_the_table_is_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}
