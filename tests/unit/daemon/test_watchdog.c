/* When the watchdog is fed: every way in which an engine stands still, and those in which it only
 * seems to. */
#include "daemon/limits.h"
#include "daemon/watchdog.h"

#include <check.h>

Suite *watchdog_suite(void);

#define NOW         5000000ull
#define IDLE_MAX_US (LIMIT_LAUNCH_US + 7)

static struct watchdog watchdog;

static void setup(void)
{
	watchdog = (struct watchdog){0};
}

START_TEST(an_idle_engine_is_well)
{
	struct watchdog_view view = {.now_us = NOW, .idle_max_us = IDLE_MAX_US};

	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
	view.now_us += 100 * LIMIT_LAUNCH_US;
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
}
END_TEST

START_TEST(a_launch_may_take_its_time_and_no_longer)
{
	struct watchdog_view view = {
		.now_us = NOW, .idle_max_us = IDLE_MAX_US, .busy = true, .queue_depth = 9};

	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
	view.now_us += 100 * LIMIT_LAUNCH_US; /* the engine says what is too long for this one */
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
	view.overdue_us = 77;
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 77);
}
END_TEST

START_TEST(what_waits_must_be_launched)
{
	struct watchdog_view view = {.now_us = NOW, .idle_max_us = IDLE_MAX_US, .queue_depth = 1};

	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
	view.now_us = NOW + IDLE_MAX_US;
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
	view.now_us++;
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), IDLE_MAX_US + 1);
	view.busy = true; /* it goes on after all */
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
}
END_TEST

/* Each look may fall between two launches: what came back meanwhile shows that there were some. */
START_TEST(an_engine_that_hands_back_is_well)
{
	struct watchdog_view view = {.now_us = NOW, .idle_max_us = IDLE_MAX_US, .queue_depth = 1};

	for (unsigned i = 0; i < 100; i++) {
		ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
		view.now_us += LIMIT_LAUNCH_US;
		view.finished++;
	}
	view.queue_depth = 0;
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
	view.queue_depth = 1; /* it waits since now, not since then */
	view.now_us += LIMIT_LAUNCH_US;
	ck_assert_uint_eq(watchdog_stuck_us(&watchdog, &view), 0);
}
END_TEST

Suite *watchdog_suite(void)
{
	Suite *suite = suite_create("watchdog");
	TCase *tcase = tcase_create("watchdog");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, an_idle_engine_is_well);
	tcase_add_test(tcase, a_launch_may_take_its_time_and_no_longer);
	tcase_add_test(tcase, what_waits_must_be_launched);
	tcase_add_test(tcase, an_engine_that_hands_back_is_well);
	suite_add_tcase(suite, tcase);
	return suite;
}
