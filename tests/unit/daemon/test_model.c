/* Which setting a model that can't be served is blamed on. No head is opened: the backend is the
 * fixture's. */
#include "daemon/model.h"

#include "daemon/options.h"
#include "engine_fixture.h"

#include <check.h>
#include <errno.h>
#include <string.h>

Suite *model_suite(void);

static struct config config;

static void setup(void)
{
	static char path[] = "tests/golden/greedy_small.safetensors";

	config = (struct config){
		.model_path = path,
		.backend = MARKOV_CUDA,
		.tensor_parallel = 1,
		.replicas = 1,
		.max_rows = 1,
		.max_steps = 1,
	};
	build_result = 0;
}

static void expect_refusal(int code, size_t about)
{
	struct refusal refusal = {0};
	struct model model;

	ck_assert_int_eq(model_load(&config, NULL, NULL, &model, &refusal), code);
	ck_assert_uint_eq(refusal.about[0], about);
	ck_assert_uint_eq(refusal.about[1], 0);
	ck_assert_uint_gt(strlen(refusal.sentence.text), 0);
}

static const struct {
	int result;
	size_t about;
} openings[] = {
	{-ENODEV, SETTING(backend)},
	{-ENXIO, SETTING(devices)},
	{-EIO, 0},
	{-ENOMEM, 0},
};

START_TEST(heads_that_cannot_be_opened)
{
	open_result = openings[_i].result;
	expect_refusal(open_result, openings[_i].about);
}
END_TEST

START_TEST(a_backend_that_was_not_built)
{
	struct refusal refusal = {0};

	ck_assert_int_eq(model_check(&config, &refusal), 0);
	build_result = -ENODEV;
	ck_assert_int_eq(model_check(&config, &refusal), -ENODEV);
	ck_assert_uint_eq(refusal.about[0], SETTING(backend));
	expect_refusal(-ENODEV, SETTING(backend));
}
END_TEST

START_TEST(checkpoints_that_cannot_be_opened)
{
	char missing[] = "/none/the soft cap option";

	config.has_soft_cap = true;
	config.soft_cap = 1e-45f;
	expect_refusal(-EDOM, SETTING(soft_cap));
	/* whatever words the path has */
	config.model_path = missing;
	expect_refusal(-ENOENT, SETTING(model_path));
}
END_TEST

Suite *model_suite(void)
{
	Suite *suite = suite_create("model");
	TCase *tests = tcase_create("blame");

	tcase_add_checked_fixture(tests, setup, NULL);
	tcase_add_loop_test(tests, heads_that_cannot_be_opened, 0,
		(int)(sizeof(openings) / sizeof(openings[0])));
	tcase_add_test(tests, a_backend_that_was_not_built);
	tcase_add_test(tests, checkpoints_that_cannot_be_opened);
	suite_add_tcase(suite, tests);
	return suite;
}
