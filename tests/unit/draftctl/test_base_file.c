#include "client/draftctl/base_file.h"
#include "kernels/safetensors.h"
#include "tests/unit/draftctl/scratch.h"
#include "tests/unit/draftctl/suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint16_t logits[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static void check_read(const char *path, uint32_t vocab, uint32_t rows, uint32_t steps,
	uint32_t expected_rows, uint32_t expected_steps)
{
	struct error_text error = {""};
	struct base_file base = {0};

	ck_assert_msg(
		base_file_read(path, vocab, rows, steps, &base, &error) == 0, "%s", error.text);
	ck_assert_uint_eq(base.rows, expected_rows);
	ck_assert_uint_eq(base.steps, expected_steps);
	ck_assert_mem_eq(base.logits, logits, sizeof(logits));
	free(base.logits);
}

static void check_refused(const char *path, uint32_t vocab, uint32_t rows, uint32_t steps,
	const char *part_of_sentence)
{
	struct error_text error = {""};
	struct base_file base = {0};

	ck_assert_int_lt(base_file_read(path, vocab, rows, steps, &base, &error), 0);
	ck_assert_msg(strstr(error.text, part_of_sentence) != NULL, "\"%s\"", error.text);
	ck_assert_ptr_null(base.logits);
}

START_TEST(raw)
{
	const char *path = scratch_write("logits.bin", logits, sizeof(logits));

	check_read(path, 3, 0, 0, 1, 4);
	check_read(path, 3, 2, 0, 2, 2);
	check_read(path, 3, 0, 4, 1, 4);
	check_read(path, 3, 4, 1, 4, 1);
	check_refused(path, 3, 3, 0, "24 bytes");
	check_refused(path, 3, 0, 3, "24 bytes");
	check_refused(path, 5, 0, 0, "24 bytes");
	check_refused(path, 100, 0, 0, "rows * steps * 200");
	check_refused(path, UINT32_MAX, UINT32_MAX, UINT32_MAX, "24 bytes");
	check_refused(scratch_path("absent.bin"), 3, 0, 0, "absent.bin");
	check_refused("/tmp", 3, 0, 0, "/tmp");
	check_refused(scratch_write("empty.bin", "", 0), 3, 0, 0, "0 bytes");
}
END_TEST

START_TEST(safetensors)
{
	struct tensor_source tensor = {"base_logits", "BF16", 3, {2, 2, 3}, logits, sizeof(logits)};
	const char *path = scratch_path("logits.safetensors");
	struct error_text error;

	ck_assert_int_eq(safetensors_write(path, &tensor, 1, NULL, 0, &error), 0);
	check_read(path, 3, 0, 0, 2, 2);
	check_read(path, 3, 2, 2, 2, 2);
	check_refused(path, 4, 0, 0, "is [2, 2, 3]; it must be [rows, K, 4]");
	check_refused(path, 3, 1, 0, "it must be [1, K, 3]");
	check_refused(path, 3, 0, 1, "it must be [rows, 1, 3]");
	tensor.name = "logits";
	ck_assert_int_eq(safetensors_write(path, &tensor, 1, NULL, 0, &error), 0);
	check_refused(path, 3, 0, 0, "no tensor \"base_logits\"");
}
END_TEST

Suite *base_file_suite(void)
{
	Suite *suite = suite_create("base_file");
	TCase *tests = tcase_create("base_file");

	tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
	tcase_add_test(tests, raw);
	tcase_add_test(tests, safetensors);
	suite_add_tcase(suite, tests);
	return suite;
}
