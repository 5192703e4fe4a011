/* Events with a real loop and a backend of the test's: what is asked of it, what its refusals
 * become, and that an event goes after its last use and not before. */
#include "daemon/event.h"
#include "daemon/region.h"
#include "daemon/user.h"
#include "kernels/backend.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *event_suite(void);

static uv_loop_t loop;
static struct region_pool pool;
static struct user user;
static struct event *opened_event;
static struct message_fault opened_fault;
static unsigned opened_count, closed_count;
static bool close_in_opened;

static struct {
	int result; /* of the next opening */
	uint8_t handle[EVENT_HANDLE_BYTES];
	char uuid[64];
	unsigned open, closed;
} fake;

static int fake_open(void *state, const char *uuid, const uint8_t *handle, void **ret_event,
	struct error_text *error)
{
	ck_assert_ptr_eq(state, &fake);
	if (fake.result < 0)
		return error_text_set(error, -fake.result, "as the test wanted");
	memcpy(fake.handle, handle, sizeof(fake.handle));
	snprintf(fake.uuid, sizeof(fake.uuid), "%s", uuid);
	fake.open++;
	*ret_event = &fake.open;
	return 0;
}

static int fake_query(const void *event)
{
	ck_assert_ptr_eq(event, &fake.open);
	return 1;
}

static void fake_close(void *event)
{
	ck_assert_ptr_eq(event, &fake.open);
	fake.closed++;
}

static const struct memory_backend fake_backend = {
	.event_open = fake_open, .event_query = fake_query, .event_close = fake_close};
static struct markov_memory fake_memory = {&fake_backend, &fake};

static void setup(void)
{
	uv_loop_init(&loop);
	user = (struct user){.holds = 1};
	memset(&fake, 0, sizeof(fake));
	pool = (struct region_pool){.loop = &loop, .memory = &fake_memory};
	opened_event = NULL;
	opened_count = closed_count = 0;
	close_in_opened = false;
}

static void teardown(void)
{
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	ck_assert_uint_eq(user.events, 0); /* whichever way they went */
	ck_assert_uint_eq(user.holds, 1);
}

static void opened(struct event *event)
{
	opened_count++;
	opened_event = event;
	opened_fault = event->fault;
	if (close_in_opened)
		event_close(event, NULL);
}

static void closed(struct event *event)
{
	ck_assert_ptr_eq(event, opened_event);
	closed_count++;
}

static void start(const char *device)
{
	struct event_order order = {.id = 3, .user = &user, .opened = opened, .closed = closed};

	memset(order.handle, 7, sizeof(order.handle));
	snprintf(order.device, sizeof(order.device), "%s", device);
	ck_assert_int_eq(event_start(&pool, &order), 0);
	ck_assert_uint_eq(opened_count, 0); /* later */
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(opened_count, 1);
}

START_TEST(an_event_is_opened_and_closed)
{
	start("GPU-1");
	ck_assert_int_eq(opened_fault.code, ERROR_NONE);
	ck_assert_str_eq(fake.uuid, "GPU-1");
	ck_assert_uint_eq(fake.handle[0], 7);
	ck_assert_uint_eq(fake.handle[EVENT_HANDLE_BYTES - 1], 7);
	ck_assert_int_eq(markov_event_query(opened_event->event), 1);
	event_close(opened_event, NULL);
	ck_assert_uint_eq(closed_count, 0); /* later: a worker lets it go */
	ck_assert_uint_eq(user.events, 1);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.closed, 1);
	ck_assert_uint_eq(closed_count, 1);
}
END_TEST

START_TEST(a_closed_event_stays_until_its_last_draft_is_gone)
{
	start("");
	event_hold(opened_event);
	event_hold(opened_event);
	event_close(opened_event, NULL);
	event_drop(opened_event);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.closed, 0);
	event_drop(opened_event);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.closed, 1);
	ck_assert_uint_eq(closed_count, 1);
	event_drop(NULL);
}
END_TEST

/* The client went away meanwhile. */
START_TEST(an_event_can_be_closed_as_it_opens)
{
	close_in_opened = true;
	start("");
	ck_assert_uint_eq(closed_count, 1);
	ck_assert_uint_eq(fake.closed, 1);
}
END_TEST

START_TEST(nothing_is_asked_of_a_lost_device)
{
	struct markov_event *kept;

	start("");
	kept = opened_event->event;
	pool.lost = true;
	event_close(opened_event, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(closed_count, 1);
	ck_assert_uint_eq(fake.closed, 0);
	markov_event_close(kept); /* in the daemon it goes with the process */
}
END_TEST

static const struct {
	int result;
	enum error_code code;
	const char *text;
} refusals[] = {
	{-EINVAL, ERROR_BAD_REQUEST, "as the test wanted"},
	{-EXDEV, ERROR_BAD_REQUEST, "as the test wanted"},
	{-ENODEV, ERROR_NOT_FOUND, "as the test wanted"},
	{-ENOMEM, ERROR_RESOURCE_EXHAUSTED, "as the test wanted"},
	{-EIO, ERROR_DEVICE_LOST, "the device is lost"},
};

START_TEST(a_refusal_has_a_type_of_its_own)
{
	fake.result = refusals[_i].result;
	start("");
	ck_assert_int_eq(opened_fault.code, refusals[_i].code);
	ck_assert_str_eq(opened_fault.text, refusals[_i].text);
	ck_assert_uint_eq(closed_count, 0);
	ck_assert_uint_eq(fake.closed, 0);
}
END_TEST

START_TEST(a_backend_without_devices_has_no_events)
{
	static const uint8_t handle[EVENT_HANDLE_BYTES];
	struct markov_memory memory = {NULL, NULL};
	struct markov_event *event;
	struct error_text error;

	ck_assert(!markov_event_possible(&memory));
	ck_assert(markov_event_possible(&fake_memory));
	ck_assert_int_eq(markov_event_open(&memory, "", handle, &event, &error), -ENOTSUP);
	markov_event_close(NULL);
}
END_TEST

Suite *event_suite(void)
{
	Suite *suite = suite_create("event");
	TCase *tcase = tcase_create("event");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_event_is_opened_and_closed);
	tcase_add_test(tcase, a_closed_event_stays_until_its_last_draft_is_gone);
	tcase_add_test(tcase, an_event_can_be_closed_as_it_opens);
	tcase_add_test(tcase, nothing_is_asked_of_a_lost_device);
	tcase_add_loop_test(tcase, a_refusal_has_a_type_of_its_own, 0,
		(int)(sizeof(refusals) / sizeof(*refusals)));
	tcase_add_test(tcase, a_backend_without_devices_has_no_events);
	suite_add_tcase(suite, tcase);
	return suite;
}
