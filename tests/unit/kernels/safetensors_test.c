/* What a .safetensors file may hold, and every kind of defect with the sentence that names it. */
#include "kernels/safetensors.h"
#include "tests/unit/kernels/suites.h"
#include "tests/unit/kernels/temporary.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error_text error;

/* Writes a file of that header and so many bytes of data, and opens it. */
static int open_text(const char *header, size_t data_bytes, struct safetensors **ret)
{
	size_t header_bytes = strlen(header);
	unsigned char *bytes = calloc(1, 8 + header_bytes + data_bytes);
	int result;

	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)((uint64_t)header_bytes >> (8 * i));
	memcpy(bytes + 8, header, header_bytes);
	result = safetensors_open(
		temporary_file("file", bytes, 8 + header_bytes + data_bytes), ret, &error);
	free(bytes);
	return result;
}

START_TEST(tensors_are_found)
{
	struct safetensors *file;
	const struct tensor *tensor;

	ck_assert_int_eq(
		open_text("{\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
			  "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
			  "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,9],\"data_offsets\":[16,16]},"
			  "\"new\":{\"dtype\":\"Q9\",\"shape\":[5],\"data_offsets\":[16,19]},"
			  "\"half\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[19,21]},"
			  "\"__metadata__\":{\"k\":\"v\"}}   ",
			21, &file),
		0);
	ck_assert_uint_eq(safetensors_count(file), 5);
	ck_assert_str_eq(safetensors_at(file, 0)->name, "a");
	ck_assert_str_eq(safetensors_at(file, 1)->name, "b");
	ck_assert_ptr_null(safetensors_at(file, 5));
	tensor = safetensors_find(file, "a");
	ck_assert(tensor->dtype == DTYPE_BF16 && tensor->dimension_count == 2);
	ck_assert(tensor->shape[0] == 2 && tensor->shape[1] == 3 && tensor->byte_count == 12);
	ck_assert_ptr_eq(
		(const char *)safetensors_find(file, "b")->data, (const char *)tensor->data + 12);
	ck_assert_str_eq(safetensors_find(file, "new")->dtype_name, "Q9");
	ck_assert_ptr_null(safetensors_find(file, "c"));
	ck_assert_str_eq(safetensors_metadata(file, "k"), "v");
	ck_assert_ptr_null(safetensors_metadata(file, "l"));
	safetensors_close(file);
	safetensors_close(NULL);
	ck_assert_int_eq(open_text("{}", 0, &file), 0);
	ck_assert_ptr_null(safetensors_metadata(file, "k"));
	safetensors_close(file);
}
END_TEST

#define ONE(dtype, shape, offsets)                                                                 \
	"{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct {
	const char *header;
	size_t data_bytes;
	const char *says;
} defects[] = {
	{"", 0, "not valid JSON"},
	{"[]", 0, "JSON object"},
	{"{\"t\":", 0, "not valid JSON"},
	{"{} x", 0, "not valid JSON"},
	{"{\"t\":1}", 0, "tensor 't': must be an object"},
	{"{\"t\":{}}", 0, "tensor 't'"},
	{"{\"a\":{},\"a\":{}}", 0, "duplicate"},
	{ONE("5", "[1]", "[0,2]"), 2, "tensor 't'"},
	{ONE("\"BF16\"", "1", "[0,2]"), 2, "shape"},
	{ONE("\"BF16\"", "[-1]", "[0,2]"), 2, "dimension 0"},
	{ONE("\"BF16\"", "[1.0]", "[0,2]"), 2, "dimension 0"},
	{ONE("\"BF16\"", "[1,1,1,1,1,1,1,1,1]", "[0,2]"), 2, "at most 8"},
	{ONE("\"BF16\"", "[4294967296,4294967296]", "[0,2]"), 2, "64-bit"},
	{ONE("\"BF16\"", "[9223372036854775807]", "[0,2]"), 2, "64-bit"},
	{ONE("\"BF16\"", "[9223372036854775808]", "[0,2]"), 2, "not valid JSON"},
	{ONE("\"F4\"", "[3]", "[0,2]"), 2, "whole"},
	{ONE("\"BF16\"", "[2]", "[0,2]"), 2, "needs 4"},
	{ONE("\"BF16\"", "[1]", "[0,4]"), 4, "needs 2"},
	{ONE("\"BF16\"", "[1]", "[0,2]"), 1, "truncated"},
	{ONE("\"BF16\"", "[1]", "[0,9223372036854775807]"), 2, "truncated"},
	{ONE("\"BF16\"", "[1]", "[2,0]"), 2, "0 <= begin <= end"},
	{ONE("\"BF16\"", "[1]", "[-2,0]"), 2, "0 <= begin <= end"},
	{ONE("\"BF16\"", "[1]", "[0]"), 2, "data_offsets"},
	{ONE("\"BF16\"", "[1]", "[0,2,4]"), 2, "data_offsets"},
	{ONE("\"BF16\"", "[1]", "{}"), 2, "data_offsets"},
	{ONE("\"BF16\"", "[1]", "[2,4]"), 4, "tensor 't' begins 2 bytes behind"},
	{ONE("\"BF16\"", "[1]", "[0,2]"), 5, "3 bytes after"},
	{"{}", 1, "for 1 byte after"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
	 "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
		7, "tensor 'b' overlaps tensor 'a'"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
	 "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
		4, "overlaps"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
	 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
		3, "tensor 'b' begins 1 byte behind"},
	{"{\"__metadata__\":5}", 0, "__metadata__"},
	{"{\"__metadata__\":{\"k\":5}}", 0, "'k' must be a string"},
	{"{\"evil\\n<3>name\":1}", 0, "evil?<3>name"},
};
#define DEFECTS (sizeof(defects) / sizeof(defects[0]))

START_TEST(defects_are_refused_by_name)
{
	struct safetensors *file = NULL;

	ck_assert_int_lt(open_text(defects[_i].header, defects[_i].data_bytes, &file), 0);
	ck_assert_msg(strstr(error.text, defects[_i].says) != NULL, "\"%s\" does not say \"%s\"",
		error.text, defects[_i].says);
	ck_assert_ptr_nonnull(strstr(error.text, temporary_folder));
	ck_assert_ptr_null(strchr(error.text, '\n'));
	ck_assert_ptr_null(file);
}
END_TEST

static int open_length(uint64_t header_bytes, size_t file_bytes)
{
	unsigned char *bytes = calloc(1, file_bytes + 8);
	struct safetensors *file;
	int result;

	memset(bytes, ' ', file_bytes);
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(header_bytes >> (8 * i));
	memcpy(bytes + 8, "{}", file_bytes >= 10 ? 2 : 0);
	result = safetensors_open(temporary_file("length", bytes, file_bytes), &file, &error);
	free(bytes);
	if (result == 0)
		safetensors_close(file);
	return result;
}

START_TEST(header_lengths)
{
	ck_assert_int_eq(open_length(2, 10), 0);
	ck_assert_int_eq(open_length(3, 10), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "truncated"));
	ck_assert_int_eq(open_length(UINT64_C(1) << 63, 10), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "limit of 104857600"));
	ck_assert_int_eq(open_length(UINT64_MAX, 10), -EINVAL);
	ck_assert_int_eq(open_length(0, 8), -EINVAL);
	ck_assert_int_eq(open_length(0, 7), -EINVAL);
	ck_assert_int_eq(open_length(0, 0), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "holds 0 bytes"));
	/* the cap itself, and one more */
	ck_assert_int_eq(
		open_length(SAFETENSORS_HEADER_BYTES_MAX, 8 + (size_t)SAFETENSORS_HEADER_BYTES_MAX),
		0);
	ck_assert_int_eq(open_length(SAFETENSORS_HEADER_BYTES_MAX + 1,
				 9 + (size_t)SAFETENSORS_HEADER_BYTES_MAX),
		-EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "over the limit"));
}
END_TEST

START_TEST(long_names_are_cut_in_sentences_only)
{
	size_t name_bytes = 100000;
	char *header = malloc(name_bytes + 200);
	struct safetensors *file;

	strcpy(header, "{\"");
	memset(header + 2, 'n', name_bytes);
	strcpy(header + 2 + name_bytes,
		"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}");
	ck_assert_int_eq(open_text(header, 2, &file), 0);
	ck_assert_uint_eq(strlen(safetensors_at(file, 0)->name), name_bytes);
	safetensors_close(file);
	ck_assert_int_eq(open_text(header, 1, &file), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "truncated"));
	free(header);
}
END_TEST

START_TEST(nesting_does_not_overflow_the_stack)
{
	size_t levels = 1000000;
	char *header = malloc(levels + 1);
	struct safetensors *file;

	memset(header, '[', levels);
	header[levels] = '\0';
	ck_assert_int_eq(open_text(header, 0, &file), -EINVAL);
	free(header);
}
END_TEST

START_TEST(things_that_are_no_files)
{
	struct safetensors *file;
	const char *path = temporary_path("fifo");

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_lt(
		safetensors_open(path, &file, &error), 0); /* and does not wait for a writer */
	ck_assert_ptr_nonnull(strstr(error.text, "regular file"));
	ck_assert_int_lt(safetensors_open(temporary_folder, &file, &error), 0);
	ck_assert_ptr_nonnull(strstr(error.text, "regular file"));
	ck_assert_int_lt(safetensors_open("/dev/null", &file, &error), 0);
	ck_assert_int_eq(safetensors_open(temporary_path("absent"), &file, &error), -ENOENT);
	ck_assert_ptr_nonnull(strstr(error.text, "No such file"));
	path = temporary_file("secret", "12345678{}", 10);
	chmod(path, 0);
	if (geteuid() != 0)
		ck_assert_int_eq(safetensors_open(path, &file, &error), -EACCES);
}
END_TEST

START_TEST(written_files_come_back)
{
	static const float ones[2] = {1, 1};
	static const uint16_t halves[3] = {1, 2, 3};
	struct tensor_source tensors[] = {
		{"x \"quoted\"", "BF16", 1, {3}, halves, 6}, {"y", "F32", 2, {1, 2}, ones, 8}};
	struct metadata_pair metadata[] = {{"who", "me"}};
	const char *path = temporary_path("written");
	struct safetensors *file;
	struct stat status;

	ck_assert_int_eq(safetensors_write(path, tensors, 2, metadata, 1, &error), 0);
	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	ck_assert_int_eq(memcmp(safetensors_find(file, "x \"quoted\"")->data, halves, 6), 0);
	ck_assert_int_eq(memcmp(safetensors_find(file, "y")->data, ones, 8), 0);
	ck_assert_str_eq(safetensors_at(file, 0)->name, "x \"quoted\"");
	ck_assert_str_eq(safetensors_metadata(file, "who"), "me");
	ck_assert_uint_eq((uintptr_t)safetensors_at(file, 0)->data % 8, 0);
	safetensors_close(file);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_uint_eq(status.st_mode & 0777, 0644);
	ck_assert_int_eq(safetensors_write(path, tensors, 0, NULL, 0, &error), 0);
	ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
	ck_assert_uint_eq(safetensors_count(file), 0);
	safetensors_close(file);
}
END_TEST

/* A write that fails leaves the old file as it was, and nothing beside it. */
START_TEST(failed_writes_leave_nothing)
{
	struct tensor_source wrong = {"t", "BF16", 1, {3}, "", 5};
	struct tensor_source twice[] = {{"t", "U8", 1, {1}, "a", 1}, {"t", "U8", 1, {1}, "b", 1}};
	const char *path = temporary_file("kept", "old", 3);
	struct stat status;

	ck_assert_int_eq(safetensors_write(path, &wrong, 1, NULL, 0, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error.text, "tensor 't'"));
	ck_assert_int_eq(safetensors_write(path, twice, 2, NULL, 0, &error), -EINVAL);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_size, 3);
	ck_assert_int_eq(
		safetensors_write(temporary_path("no/such/folder"), NULL, 0, NULL, 0, &error),
		-ENOENT);
	ck_assert_int_lt(safetensors_write(temporary_folder, NULL, 0, NULL, 0, &error), 0);
	unlink(path);
	ck_assert_int_eq(rmdir(temporary_folder), 0); /* empty: no temporary file was left */
	ck_assert_int_eq(mkdir(temporary_folder, 0700), 0);
}
END_TEST

Suite *safetensors_suite(void)
{
	Suite *suite = suite_create("safetensors");
	TCase *tests = tcase_create("safetensors");

	tcase_add_checked_fixture(tests, temporary_make, temporary_remove);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, tensors_are_found);
	tcase_add_loop_test(tests, defects_are_refused_by_name, 0, (int)DEFECTS);
	tcase_add_test(tests, header_lengths);
	tcase_add_test(tests, long_names_are_cut_in_sentences_only);
	tcase_add_test(tests, nesting_does_not_overflow_the_stack);
	tcase_add_test(tests, things_that_are_no_files);
	tcase_add_test(tests, written_files_come_back);
	tcase_add_test(tests, failed_writes_leave_nothing);
	suite_add_tcase(suite, tests);
	return suite;
}
