#include "client/draftctl/number.h"
#include "tests/unit/draftctl/suites.h"

#include <errno.h>

static void check_integer(const char *text, int64_t expected)
{
	int64_t value = 77;

	ck_assert_msg(number_parse_integer(text, &value) == 0, "\"%s\" is refused", text);
	ck_assert_int_eq(value, expected);
}

static void check_integer_refused(const char *text, int code)
{
	int64_t value = 77;

	ck_assert_msg(number_parse_integer(text, &value) == code, "\"%s\"", text);
	ck_assert_int_eq(value, 77);
}

START_TEST(integers)
{
	check_integer("0", 0);
	check_integer("-0", 0);
	check_integer("007", 7);
	check_integer("-12", -12);
	check_integer("9223372036854775807", INT64_MAX);
	check_integer("-9223372036854775808", INT64_MIN);
	check_integer_refused("9223372036854775808", -ERANGE);
	check_integer_refused("-9223372036854775809", -ERANGE);
	check_integer_refused("", -EINVAL);
	check_integer_refused("-", -EINVAL);
	check_integer_refused("--1", -EINVAL);
	check_integer_refused("+1", -EINVAL);
	check_integer_refused(" 1", -EINVAL);
	check_integer_refused("1 ", -EINVAL);
	check_integer_refused("0x10", -EINVAL);
	check_integer_refused("1.0", -EINVAL);
	check_integer_refused("1e3", -EINVAL);
	check_integer_refused("12k", -EINVAL);
}
END_TEST

static void check_real(const char *text, double expected)
{
	double value = 77;

	ck_assert_msg(number_parse_real(text, &value) == 0, "\"%s\" is refused", text);
	ck_assert_double_eq(value, expected);
}

static void check_real_refused(const char *text, int code)
{
	double value = 77;

	ck_assert_msg(number_parse_real(text, &value) == code, "\"%s\"", text);
	ck_assert_double_eq(value, 77);
}

START_TEST(reals)
{
	check_real("0", 0);
	check_real("0.5", 0.5);
	check_real(".25", 0.25);
	check_real("-1.5", -1.5);
	check_real("1e-3", 0.001);
	check_real("2E+2", 200);
	check_real_refused("", -EINVAL);
	check_real_refused(".", -EINVAL);
	check_real_refused("-", -EINVAL);
	check_real_refused("inf", -EINVAL);
	check_real_refused("nan", -EINVAL);
	check_real_refused("0x1p3", -EINVAL);
	check_real_refused("1.5s", -EINVAL);
	check_real_refused("1,5", -EINVAL);
	check_real_refused(" 1", -EINVAL);
	check_real_refused("+1", -EINVAL);
	check_real_refused("1e", -EINVAL);
	check_real_refused("1.2.3", -EINVAL);
	check_real_refused("1e999", -ERANGE);
	check_real_refused("1e-999", -ERANGE);
}
END_TEST

Suite *number_suite(void)
{
	Suite *suite = suite_create("number");
	TCase *tests = tcase_create("number");

	tcase_add_test(tests, integers);
	tcase_add_test(tests, reals);
	suite_add_tcase(suite, tests);
	return suite;
}
