/* Files and folders that hold a head, and those that don't, with the sentence that says why. */
#include "kernels/checkpoint.h"
#include "kernels/safetensors.h"
#include "tests/unit/kernels/suites.h"
#include "tests/unit/kernels/temporary.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct error_text error;
static const uint16_t values[4096];

#define W1 "markov_head.markov_w1.weight"
#define W2 "markov_head.markov_w2.weight"

struct table {
	const char *name, *dtype;
	unsigned dimensions;
	uint64_t rows, rank;
};

static void write_tables(const char *name, const struct table *tables, size_t count,
	const struct metadata_pair *metadata, size_t metadata_count)
{
	struct tensor_source sources[4];

	for (size_t i = 0; i < count; i++) {
		uint64_t size = strcmp(tables[i].dtype, "BF16") == 0 ? 2 : 4;

		sources[i] = (struct tensor_source){tables[i].name, tables[i].dtype,
			tables[i].dimensions, {tables[i].rows, tables[i].rank, 1}, values,
			tables[i].rows * (tables[i].dimensions > 1 ? tables[i].rank : 1) * size};
	}
	ck_assert_msg(safetensors_write(temporary_path(name), sources, count, metadata,
			      metadata_count, &error) == 0,
		"%s", error.text);
}

static const struct table good[] = {{W1, "BF16", 2, 7, 4}, {W2, "BF16", 2, 5, 4}};

static void put(const char *name, const char *text)
{
	temporary_file(name, text, strlen(text));
}

static void expect_refusal(const char *path, int code, const char *says)
{
	struct checkpoint checkpoint = {0};

	ck_assert_int_eq(checkpoint_open(path, NULL, &checkpoint, &error), code);
	ck_assert_msg(
		strstr(error.text, says) != NULL, "\"%s\" does not say \"%s\"", error.text, says);
	ck_assert_ptr_null(checkpoint.files);
}

START_TEST(a_lone_file)
{
	struct metadata_pair metadata[] = {
		{"output_multiplier", "0.196116"}, {"final_logit_softcapping", "30.0"}};
	struct checkpoint checkpoint;
	struct checkpoint_options options = {true, 2.5f, true, 0.0f};

	write_tables("tiny-1.5.safetensors", good, 2, metadata, 2);
	ck_assert_int_eq(
		checkpoint_open(temporary_path("tiny-1.5.safetensors"), NULL, &checkpoint, &error),
		0);
	ck_assert_str_eq(checkpoint.name, "tiny-1.5");
	ck_assert(checkpoint.vocab == 5 && checkpoint.rank == 4 && checkpoint.target_vocab == 7);
	ck_assert(checkpoint.multiplier == 0.196116f && checkpoint.soft_cap == 30.0f);
	ck_assert_ptr_eq((const char *)checkpoint.w1 + 7 * 4 * 2,
		(const char *)checkpoint.w2); /* in file order */
	checkpoint_close(&checkpoint);
	ck_assert_ptr_null(checkpoint.files);
	checkpoint_close(&checkpoint);
	ck_assert_int_eq(checkpoint_open(temporary_path("tiny-1.5.safetensors"), &options,
				 &checkpoint, &error),
		0);
	ck_assert(checkpoint.multiplier == 2.5f && checkpoint.soft_cap == 0.0f);
	checkpoint_close(&checkpoint);
	write_tables("plain.safetensors", good, 2, NULL, 0);
	ck_assert_int_eq(
		checkpoint_open(temporary_path("plain.safetensors"), NULL, &checkpoint, &error), 0);
	ck_assert(checkpoint.multiplier == 1.0f && checkpoint.soft_cap == 0.0f);
	checkpoint_close(&checkpoint);
}
END_TEST

START_TEST(any_prefix)
{
	const struct table tables[] = {{"mtp.2." W2, "BF16", 2, 5, 4},
		{"mtp.2." W1, "BF16", 2, 7, 4}, {"other", "F32", 2, 3, 3},
		{"x" W1, "F32", 1, 3, 0}};
	struct checkpoint checkpoint;

	write_tables("p", tables, 4, NULL, 0);
	ck_assert_msg(checkpoint_open(temporary_path("p"), NULL, &checkpoint, &error) == 0, "%s",
		error.text);
	ck_assert(checkpoint.vocab == 5 && checkpoint.target_vocab == 7);
	checkpoint_close(&checkpoint);
}
END_TEST

static const struct {
	struct table tables[3];
	size_t count;
	int code;
	const char *says;
} bad_tables[] = {
	{{{W1, "BF16", 2, 7, 4}}, 1, -ENOENT, "'" W2 "'"},
	{{{W2, "BF16", 2, 7, 4}}, 1, -ENOENT, "'" W1 "'"},
	{{{"x" W1, "BF16", 2, 7, 4}, {W2, "BF16", 2, 5, 4}}, 2, -ENOENT, "'" W1 "'"},
	{{{W1, "F32", 2, 7, 4}, {W2, "BF16", 2, 5, 4}}, 2, -EINVAL, W1 "' is F32: BF16"},
	{{{W1, "BF16", 2, 7, 4}, {W2, "F32", 2, 5, 4}}, 2, -EINVAL, W2 "' is F32: BF16"},
	{{{W1, "BF16", 1, 7, 0}, {W2, "BF16", 2, 5, 4}}, 2, -EINVAL, "1 dimension:"},
	{{{W1, "BF16", 2, 7, 4}, {W2, "BF16", 3, 5, 4}}, 2, -EINVAL, "3 dimensions"},
	{{{W1, "BF16", 2, 7, 4}, {W2, "BF16", 2, 5, 3}}, 2, -EINVAL, "rank 4 but"},
	{{{W1, "BF16", 2, 0, 4}, {W2, "BF16", 2, 5, 4}}, 2, -EINVAL, "0 rows"},
	{{{W1, "BF16", 2, 7, 4}, {W2, "BF16", 2, 0, 4}}, 2, -EINVAL, "0 rows"},
	{{{W1, "BF16", 2, 7, 0}, {W2, "BF16", 2, 5, 0}}, 2, -EINVAL, "rank 0"},
	{{{W1, "BF16", 2, 7, 4}, {W2, "BF16", 2, 5, 4}, {"b." W1, "BF16", 2, 7, 4}}, 3, -EINVAL,
		"several heads"},
	{{{W1, "BF16", 2, 7, 4}, {"b." W2, "BF16", 2, 5, 4}}, 2, -EINVAL, "different heads"},
};
#define BAD_TABLES (sizeof(bad_tables) / sizeof(bad_tables[0]))

START_TEST(wrong_tables_are_refused_by_name)
{
	write_tables("bad", bad_tables[_i].tables, bad_tables[_i].count, NULL, 0);
	expect_refusal(temporary_path("bad"), bad_tables[_i].code, bad_tables[_i].says);
}
END_TEST

/* A rank at its limit, and one over. Tables without data would do, but they must have rows. */
START_TEST(rank_limit)
{
	static uint16_t wide[2 * 65537];
	struct checkpoint checkpoint;

	for (uint64_t rank = 65536; rank <= 65537; rank++) {
		struct tensor_source sources[] = {{W1, "BF16", 2, {1, rank}, wide, rank * 2},
			{W2, "BF16", 2, {2, rank}, wide, rank * 4}};

		ck_assert_int_eq(
			safetensors_write(temporary_path("wide"), sources, 2, NULL, 0, &error), 0);
		if (rank == 65536) {
			ck_assert_int_eq(
				checkpoint_open(temporary_path("wide"), NULL, &checkpoint, &error),
				0);
			checkpoint_close(&checkpoint);
		} else {
			expect_refusal(temporary_path("wide"), -EINVAL, "1 to 65536");
		}
	}
}
END_TEST

static const struct {
	const char *key, *value, *says; /* NULL: fine */
} numbers[] = {
	{"output_multiplier", "-2", NULL},
	{"output_multiplier", "0", NULL},
	{"output_multiplier", "", "must be a number"},
	{"output_multiplier", "1.0x", "'1.0x'"},
	{"output_multiplier", "nan", "finite"},
	{"output_multiplier", "inf", "finite"},
	{"output_multiplier", "1e39", "finite"},
	{"final_logit_softcapping", "0", NULL},
	{"final_logit_softcapping", "-1", "at least"},
	{"final_logit_softcapping", "1e-45", "at least"},
	{"final_logit_softcapping", "-inf", "finite"},
	{"final_logit_softcapping", "ten", "'ten'"},
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

START_TEST(metadata_numbers)
{
	struct metadata_pair metadata[] = {{numbers[_i].key, numbers[_i].value}};
	struct checkpoint checkpoint;

	write_tables("m", good, 2, metadata, 1);
	if (numbers[_i].says) {
		expect_refusal(temporary_path("m"), -EINVAL, numbers[_i].says);
		ck_assert_ptr_nonnull(strstr(error.text, numbers[_i].key));
	} else {
		ck_assert_int_eq(
			checkpoint_open(temporary_path("m"), NULL, &checkpoint, &error), 0);
		checkpoint_close(&checkpoint);
	}
}
END_TEST

START_TEST(options_are_checked)
{
	struct checkpoint_options nan = {true, NAN, false, 0}, negative = {false, 0, true, -1};
	struct checkpoint checkpoint;

	write_tables("m", good, 2, NULL, 0);
	ck_assert_int_eq(checkpoint_open(temporary_path("m"), &nan, &checkpoint, &error), -EDOM);
	ck_assert_ptr_nonnull(strstr(error.text, "multiplier option"));
	ck_assert_int_eq(
		checkpoint_open(temporary_path("m"), &negative, &checkpoint, &error), -EDOM);
	ck_assert_ptr_nonnull(strstr(error.text, "soft cap option"));
}
END_TEST

struct told {
	unsigned times;
	double done;
};

static void note_progress(void *user, const char *what, double done)
{
	struct told *told = user;

	ck_assert_str_eq(what, "reading the model");
	ck_assert_double_gt(done, told->done);
	told->done = done;
	told->times++;
}

/* w1 has a quarter of the bytes. */
START_TEST(reading_tells_how_far_it_is)
{
	static uint16_t table[4 * 65536];
	struct tensor_source sources[] = {
		{W1, "BF16", 2, {1024, 64}, table, sizeof(table) / 4},
		{W2, "BF16", 2, {3072, 64}, table, sizeof(table) / 4 * 3},
	};
	struct checkpoint checkpoint;
	struct told told = {0};

	ck_assert_int_eq(safetensors_write(temporary_path("m"), sources, 2, NULL, 0, &error), 0);
	ck_assert_int_eq(checkpoint_open(temporary_path("m"), NULL, &checkpoint, &error), 0);
	ck_assert_int_eq(checkpoint_load(&checkpoint, note_progress, &told, &error), 0);
	ck_assert_uint_eq(told.times, 2);
	ck_assert_double_eq(told.done, 1);
	checkpoint_close(&checkpoint);
}
END_TEST

/* Pages of a mapping past the new end would be SIGBUS. */
START_TEST(truncation_is_an_error)
{
	static uint16_t table[2][65536];
	struct tensor_source sources[] = {
		{W1, "BF16", 2, {1024, 64}, table[0], sizeof(table[0])},
		{W2, "BF16", 2, {1024, 64}, table[1], sizeof(table[1])},
	};
	struct checkpoint checkpoint;

	table[0][65535] = table[1][65535] = 0x3f80;
	ck_assert_int_eq(safetensors_write(temporary_path("m"), sources, 2, NULL, 0, &error), 0);
	ck_assert_int_eq(checkpoint_open(temporary_path("m"), NULL, &checkpoint, &error), 0);
	ck_assert_int_eq(checkpoint_load(&checkpoint, NULL, NULL, &error), 0);
	ck_assert_int_eq(truncate(temporary_path("m"), 4096), 0);
	ck_assert_uint_eq(checkpoint.w1[65535], 0x3f80);
	ck_assert_uint_eq(checkpoint.w2[65535], 0x3f80);
	checkpoint_close(&checkpoint);

	ck_assert_int_eq(safetensors_write(temporary_path("m"), sources, 2, NULL, 0, &error), 0);
	ck_assert_int_eq(checkpoint_open(temporary_path("m"), NULL, &checkpoint, &error), 0);
	ck_assert_int_eq(truncate(temporary_path("m"), 4096), 0);
	ck_assert_int_eq(checkpoint_load(&checkpoint, NULL, NULL, &error), -EIO);
	ck_assert_ptr_nonnull(strstr(error.text, W1));
	ck_assert_ptr_nonnull(strstr(error.text, "truncated"));
	checkpoint_close(&checkpoint);
}
END_TEST

/* ---- folders ---- */

static const struct {
	const char *config;
	float multiplier, soft_cap;
	const char *says; /* NULL: fine */
} configs[] = {
	{"{}", 3.0f, 9.0f, NULL}, /* the metadata's */
	{"{\"output_multiplier\":0.5}", 0.5f, 9.0f, NULL},
	{"{\"output_multiplier\":2,\"final_logit_softcapping\":null}", 2.0f, 9.0f, NULL},
	{"{\"final_logit_softcapping\":0}", 3.0f, 0.0f, NULL},
	{"{\"text_config\":{\"output_multiplier\":4,\"final_logit_softcapping\":30.0}}", 4.0f,
		30.0f, NULL},
	{"{\"output_multiplier\":5,\"text_config\":{\"output_multiplier\":4}}", 5.0f, 9.0f, NULL},
	{"{\"text_config\":7}", 3.0f, 9.0f, NULL},
	{"{\"output_multiplier\":\"1\"}", 0, 0, "output_multiplier must be a number"},
	{"{\"output_multiplier\":1e39}", 0, 0, "finite"},
	{"{\"output_multiplier\":1e999}", 0, 0, "not valid JSON"},
	{"{\"final_logit_softcapping\":-3}", 0, 0, "final_logit_softcapping"},
	{"{\"a\":1,\"a\":2}", 0, 0, "duplicate"},
	{"[]", 0, 0, "object"},
	{"", 0, 0, "not valid JSON"},
};
#define CONFIGS (sizeof(configs) / sizeof(configs[0]))

START_TEST(folders_with_a_config)
{
	struct metadata_pair metadata[] = {
		{"output_multiplier", "3"}, {"final_logit_softcapping", "9"}};
	struct checkpoint checkpoint;

	ck_assert_int_eq(mkdir(temporary_path("Net-0.6B"), 0700), 0);
	write_tables("Net-0.6B/model.safetensors", good, 2, metadata, 2);
	put("Net-0.6B/config.json", configs[_i].config);
	if (configs[_i].says) {
		expect_refusal(temporary_path("Net-0.6B"), -EINVAL, configs[_i].says);
		ck_assert_ptr_nonnull(strstr(error.text, "config.json"));
		return;
	}
	ck_assert_msg(checkpoint_open(temporary_path("Net-0.6B//"), NULL, &checkpoint, &error) == 0,
		"%s", error.text);
	ck_assert_str_eq(checkpoint.name, "Net-0.6B");
	ck_assert(checkpoint.multiplier == configs[_i].multiplier);
	ck_assert(checkpoint.soft_cap == configs[_i].soft_cap);
	checkpoint_close(&checkpoint);
}
END_TEST

static const struct {
	const char *index;
	int code;
	const char *says; /* NULL: fine */
} indexes[] = {
	{"{\"weight_map\":{\"" W1 "\":\"a.safetensors\",\"" W2 "\":\"b.safetensors\",\"x\":\"c\"}}",
		0, NULL},
	{"{\"weight_map\":{\"m." W1 "\":\"ab.safetensors\",\"m." W2 "\":\"ab.safetensors\"}}", 0,
		NULL},
	{"{\"weight_map\":{\"" W1 "\":\"a.safetensors\"}}", -ENOENT, W2},
	{"{\"weight_map\":{}}", -ENOENT, W1},
	{"{\"weight_map\":[]}", -EINVAL, "weight_map"},
	{"{}", -EINVAL, "weight_map"},
	{"{\"weight_map\":{\"" W1 "\":\"../a.safetensors\",\"" W2 "\":\"b.safetensors\"}}", -EINVAL,
		"same folder"},
	{"{\"weight_map\":{\"" W1 "\":\"..\",\"" W2 "\":\"b.safetensors\"}}", -EINVAL,
		"same folder"},
	{"{\"weight_map\":{\"" W1 "\":\"/etc/passwd\",\"" W2 "\":\"b.safetensors\"}}", -EINVAL,
		"same folder"},
	{"{\"weight_map\":{\"" W1 "\":\"\",\"" W2 "\":\"b.safetensors\"}}", -EINVAL, "same folder"},
	{"{\"weight_map\":{\"" W1 "\":5,\"" W2 "\":\"b.safetensors\"}}", -EINVAL, "no string"},
	{"{\"weight_map\":{\"" W1 "\":\"gone\",\"" W2 "\":\"b.safetensors\"}}", -ENOENT, "gone"},
	{"{\"weight_map\":{\"" W1 "\":\"a.safetensors\",\"" W2 "\":\"a.safetensors\"}}", -ENOENT,
		W2},
	{"{\"weight_map\":{\"" W1 "\":\"a.safetensors\",\"2." W1 "\":\"b.safetensors\"}}", -EINVAL,
		"several heads"},
	{"nonsense", -EINVAL, "not valid JSON"},
};
#define INDEXES (sizeof(indexes) / sizeof(indexes[0]))

START_TEST(sharded_folders)
{
	const struct table both[] = {{"m." W1, "BF16", 2, 7, 4}, {"m." W2, "BF16", 2, 5, 4}};
	struct checkpoint checkpoint;

	write_tables("a.safetensors", good, 1, NULL, 0);
	write_tables("b.safetensors", good + 1, 1, NULL, 0);
	write_tables("ab.safetensors", both, 2, NULL, 0);
	put("config.json", "{\"output_multiplier\":7}");
	put("model.safetensors.index.json", indexes[_i].index);
	if (indexes[_i].says) {
		expect_refusal(temporary_folder, indexes[_i].code, indexes[_i].says);
		return;
	}
	ck_assert_msg(checkpoint_open(temporary_folder, NULL, &checkpoint, &error) == 0, "%s",
		error.text);
	ck_assert(checkpoint.vocab == 5 && checkpoint.target_vocab == 7 &&
		  checkpoint.multiplier == 7.0f);
	checkpoint_close(&checkpoint);
}
END_TEST

START_TEST(incomplete_folders)
{
	expect_refusal(temporary_folder, -ENOENT, ": holds no config.json: name a checkpoint");
	put("config.json", "{}");
	expect_refusal(temporary_folder, -ENOENT, "model.safetensors");
	expect_refusal(temporary_path("absent"), -ENOENT, "No such file");
	ck_assert_int_eq(mkdir(temporary_path("model.safetensors.index.json"), 0700), 0);
	expect_refusal(temporary_folder, -EINVAL, "regular file");
}
END_TEST

START_TEST(long_names_are_cut_between_characters)
{
	char name[240] = "";
	struct checkpoint checkpoint;

	for (int i = 0; i < 100; i++)
		strcat(name, "\xc3\xa9");
	write_tables(name, good, 2, NULL, 0);
	ck_assert_int_eq(checkpoint_open(temporary_path(name), NULL, &checkpoint, &error), 0);
	ck_assert_uint_eq(strlen(checkpoint.name), 126);
	checkpoint_close(&checkpoint);
}
END_TEST

Suite *checkpoint_suite(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *tests = tcase_create("checkpoint");

	tcase_add_checked_fixture(tests, temporary_make, temporary_remove);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, a_lone_file);
	tcase_add_test(tests, any_prefix);
	tcase_add_loop_test(tests, wrong_tables_are_refused_by_name, 0, (int)BAD_TABLES);
	tcase_add_test(tests, rank_limit);
	tcase_add_loop_test(tests, metadata_numbers, 0, (int)NUMBERS);
	tcase_add_test(tests, options_are_checked);
	tcase_add_test(tests, reading_tells_how_far_it_is);
	tcase_add_test(tests, truncation_is_an_error);
	tcase_add_loop_test(tests, folders_with_a_config, 0, (int)CONFIGS);
	tcase_add_loop_test(tests, sharded_folders, 0, (int)INDEXES);
	tcase_add_test(tests, incomplete_folders);
	tcase_add_test(tests, long_names_are_cut_between_characters);
	suite_add_tcase(suite, tests);
	return suite;
}
