/* The memory of drafts: used again, and not too much of it kept. */
#include "daemon/limits.h"
#include "daemon/request.h"

#include <check.h>

Suite *request_suite(void);

static struct request_pool pool;

static void setup(void)
{
	request_pool_init(&pool);
}

static void teardown(void)
{
	request_pool_done(&pool);
	ck_assert_uint_eq(pool.count, 0);
}

static struct request *make(uint32_t rows, uint32_t steps)
{
	struct draft_call wire = {.rows = rows, .steps = steps};
	uint8_t *copy;
	struct request *request = request_new_draft(&pool, 7, &wire, 0, &copy);

	ck_assert_ptr_nonnull(request);
	ck_assert_uint_eq(request->id, 7);
	ck_assert_uint_eq(request->draft.rows, rows);
	ck_assert_int_eq(request->draft.state, REQUEST_IDLE);
	ck_assert_uint_ge(request->held_bytes,
		sizeof(*request) + rows * (3 * sizeof(int64_t) + 8 + steps * sizeof(uint32_t) + 1));
	for (uint32_t row = 0; row < rows; row++)
		ck_assert_int_eq(request->draft.slots[row], row);
	/* whatever it was used for before */
	for (uint32_t i = 0; i < rows * steps; i++)
		request->draft.tokens[i] = UINT32_MAX;
	request->draft.flags[rows - 1] = 0xff;
	request->draft.state = REQUEST_DONE;
	return request;
}

START_TEST(the_next_draft_has_the_last_ones_memory)
{
	struct request *large = make(8, 4), *small;
	uint64_t bytes = large->held_bytes;

	request_recycle(&pool, large);
	ck_assert_uint_eq(pool.count, 1);
	small = make(1, 1);
	ck_assert_ptr_eq(small, large);
	ck_assert_uint_eq(small->held_bytes, bytes); /* that is what it takes */
	ck_assert_uint_eq(pool.count, 0);
	request_recycle(&pool, small);
	request_recycle(&pool, make(8, 4));
	ck_assert_uint_eq(pool.count, 1);
}
END_TEST

START_TEST(one_that_is_too_small_makes_room)
{
	request_recycle(&pool, make(1, 1));
	request_recycle(&pool, make(32, 8));
	ck_assert_uint_eq(pool.count, 1);
	request_recycle(&pool, make(32, 8));
	ck_assert_uint_eq(pool.count, 1);
}
END_TEST

START_TEST(spare_ones_are_few_and_small)
{
	static struct request *requests[LIMIT_SPARE_PIECES + 1];

	for (unsigned i = 0; i <= LIMIT_SPARE_PIECES; i++)
		requests[i] = make(1, 1);
	for (unsigned i = 0; i <= LIMIT_SPARE_PIECES; i++)
		request_recycle(&pool, requests[i]);
	ck_assert_uint_eq(pool.count, LIMIT_SPARE_PIECES);
	request_recycle(&pool, make(1024, 16));
	ck_assert_uint_eq(pool.count, LIMIT_SPARE_PIECES);
	request_free(make(1, 1));
	ck_assert_uint_eq(pool.count, LIMIT_SPARE_PIECES - 1);
	request_recycle(&pool, make(1024, 16));
	ck_assert_uint_eq(pool.count, LIMIT_SPARE_PIECES - 1);
	request_recycle(&pool, request_new(1, METHOD_REGION_OPEN));
	ck_assert_uint_eq(pool.count, LIMIT_SPARE_PIECES - 1);
}
END_TEST

Suite *request_suite(void)
{
	Suite *suite = suite_create("request");
	TCase *tcase = tcase_create("request");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_next_draft_has_the_last_ones_memory);
	tcase_add_test(tcase, one_that_is_too_small_makes_room);
	tcase_add_test(tcase, spare_ones_are_few_and_small);
	suite_add_tcase(suite, tcase);
	return suite;
}
