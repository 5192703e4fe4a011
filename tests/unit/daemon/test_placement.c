/* The arithmetic that keeps a client's rows inside its region: every term at the edge, one past it,
 * and beyond 64 bits. */
#include "daemon/placement.h"

#include <check.h>
#include <string.h>

Suite *placement_suite(void);

#define VOCAB 10 /* 20 bytes a step */
#define STEPS 3

static struct message_fault fault;

static int check(uint64_t offset, uint64_t row_stride, uint64_t step_stride, uint64_t row_last,
	uint64_t region_bytes)
{
	const struct bulk bulk = {
		.kind = BULK_REGION,
		.region = 7,
		.offset = offset,
		.row_stride = row_stride,
		.step_stride = step_stride,
	};

	memset(&fault, 0, sizeof(fault));
	return placement_check("base", &bulk, row_last, STEPS, VOCAB, region_bytes, &fault);
}

#define INSIDE(...) ck_assert_int_eq(check(__VA_ARGS__), 0)
#define OUTSIDE(...)                                                                               \
	do {                                                                                       \
		ck_assert_int_lt(check(__VA_ARGS__), 0);                                           \
		ck_assert_int_eq(fault.code, ERROR_OUT_OF_RANGE);                                  \
	} while (0)

START_TEST(exactly_the_bytes_that_are_used)
{
	/* rows of 3 * 20 bytes: 4 rows end at 240 */
	INSIDE(0, 60, 20, 3, 240);
	OUTSIDE(0, 60, 20, 3, 239);
	OUTSIDE(2, 60, 20, 3, 240);
	INSIDE(2, 60, 20, 3, 242);
	/* the last row needs no stride behind it, the last step neither */
	INSIDE(0, 1000, 20, 3, 3 * 1000 + 60);
	OUTSIDE(0, 1000, 20, 3, 3 * 1000 + 58);
	INSIDE(0, 60, 500, 0, 2 * 500 + 20);
	OUTSIDE(0, 60, 500, 0, 2 * 500 + 18);
}
END_TEST

START_TEST(nothing_fits_at_the_end_or_in_nothing)
{
	OUTSIDE(240, 60, 20, 0, 240);
	OUTSIDE(238, 60, 20, 0, 240);
	OUTSIDE(0, 0, 0, 0, 0);
	OUTSIDE(0, 0, 0, 0, 18);
	INSIDE(0, 0, 0, 0, 20);
}
END_TEST

START_TEST(stride_0_reads_the_same_row)
{
	INSIDE(0, 0, 20, UINT64_MAX, 60);
	INSIDE(0, 0, 0, 1000, 20);
}
END_TEST

/* Each term, and each pair, just where 64 bits end. */
START_TEST(no_term_wraps)
{
	const uint64_t big[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 19, UINT64_MAX - 20,
		UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1, UINT64_C(1) << 62};
	const size_t count = sizeof(big) / sizeof(big[0]);

	for (size_t i = 0; i < count; i++) {
		OUTSIDE(big[i], 60, 20, 3, 240);
		OUTSIDE(0, big[i], 20, 3, 240);
		OUTSIDE(0, 60, big[i], 3, 240);
		OUTSIDE(0, 60, 20, big[i], 240);
		for (size_t j = 0; j < count; j++) {
			OUTSIDE(big[i], big[j], 20, 3, 240);
			OUTSIDE(big[i], 60, big[j], 3, 240);
			OUTSIDE(0, big[i], big[j], 3, 240);
			OUTSIDE(0, big[i], 20, big[j], 240);
		}
	}
	/* Products that wrap to something small: 2^63 * 2 = 0, (2^64 - 60) + 60 = 0. */
	OUTSIDE(0, UINT64_C(1) << 63, 20, 2, 240);
	OUTSIDE(0, 60, UINT64_C(1) << 63, 0, 240);
	OUTSIDE(UINT64_MAX - 59, 60, 20, 1, 240);
	/* Even with the largest region there is, the end must be a number. */
	OUTSIDE(UINT64_MAX - 58, 0, 20, 0, UINT64_MAX);
	INSIDE(UINT64_MAX - 60, 0, 20, 0, UINT64_MAX);
}
END_TEST

START_TEST(the_refusal_names_field_and_limit)
{
	check(2, 60, 20, 3, 240);
	ck_assert_str_eq(fault.text, "base reaches byte 242 of region 7, which has 240 bytes");
}
END_TEST

static int check_slots(const int64_t *slots, uint32_t rows, uint32_t steps, uint64_t slot_stride,
	uint64_t step_stride, int64_t *ret_last)
{
	const struct bulk bulk = {
		.kind = BULK_REGION, .row_stride = slot_stride, .step_stride = step_stride};

	memset(&fault, 0, sizeof(fault));
	return placement_check_slots(&bulk, slots, rows, steps, VOCAB, ret_last, &fault);
}

START_TEST(slots_in_any_order_once)
{
	const int64_t fine[] = {5, -1, 0, -7, 3};
	const int64_t twice[] = {5, -1, 0, 5};
	int64_t last = -2;

	ck_assert_int_eq(check_slots(fine, 5, STEPS, 60, 20, &last), 0);
	ck_assert_int_eq(last, 5);
	ck_assert_int_lt(check_slots(twice, 4, STEPS, 60, 20, &last), 0);
	ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
	ck_assert_str_eq(fault.text, "slots has 5 twice");
}
END_TEST

START_TEST(padding_needs_no_place)
{
	const int64_t padding[] = {-1, -1, INT64_MIN};
	int64_t last = 0;

	ck_assert_int_eq(check_slots(padding, 3, STEPS, 0, 0, &last), 0);
	ck_assert_int_eq(last, -1);
}
END_TEST

START_TEST(overlaps_are_refused)
{
	const int64_t two[] = {0, 1};
	const int64_t one[] = {4};
	const int64_t apart[] = {0, INT64_MAX};
	int64_t last;

	/* whole slots behind each other: 2 * 20 + 20 = 60 */
	ck_assert_int_eq(check_slots(two, 2, STEPS, 60, 20, &last), 0);
	ck_assert_int_lt(check_slots(two, 2, STEPS, 58, 20, &last), 0);
	ck_assert_int_eq(fault.code, ERROR_BAD_REQUEST);
	ck_assert_int_lt(check_slots(two, 2, STEPS, 60, 18, &last), 0);
	ck_assert_int_lt(check_slots(two, 2, STEPS, 0, 0, &last), 0);
	/* whole steps behind each other: 1 * 20 + 20 = 40 */
	ck_assert_int_eq(check_slots(two, 2, STEPS, 20, 40, &last), 0);
	ck_assert_int_lt(check_slots(two, 2, STEPS, 20, 38, &last), 0);
	ck_assert_int_lt(check_slots(two, 2, STEPS, 18, 40, &last), 0);
	/* one row: only its steps count; one step: only its slots */
	ck_assert_int_eq(check_slots(one, 1, STEPS, 0, 20, &last), 0);
	ck_assert_int_lt(check_slots(one, 1, STEPS, 0, 18, &last), 0);
	ck_assert_int_eq(check_slots(one, 1, 1, 0, 0, &last), 0);
	ck_assert_int_eq(check_slots(two, 2, 1, 20, 0, &last), 0);
	ck_assert_int_lt(check_slots(two, 2, 1, 18, 0, &last), 0);
	/* spans beyond 64 bits are no way around it */
	ck_assert_int_lt(check_slots(apart, 2, STEPS, 20, 40, &last), 0);
}
END_TEST

Suite *placement_suite(void)
{
	Suite *suite = suite_create("placement");
	TCase *tcase = tcase_create("placement");

	tcase_add_test(tcase, exactly_the_bytes_that_are_used);
	tcase_add_test(tcase, nothing_fits_at_the_end_or_in_nothing);
	tcase_add_test(tcase, stride_0_reads_the_same_row);
	tcase_add_test(tcase, no_term_wraps);
	tcase_add_test(tcase, the_refusal_names_field_and_limit);
	tcase_add_test(tcase, slots_in_any_order_once);
	tcase_add_test(tcase, padding_needs_no_place);
	tcase_add_test(tcase, overlaps_are_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
