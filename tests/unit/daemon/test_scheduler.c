/* Orders, priorities, deadlines, limits: launch by launch, by hand. */
#include "daemon/scheduler.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *scheduler_suite(void);

#define REPLICAS  2 /* where nothing else is said, the first one does it all */
#define MAX_ROWS  8
#define MAX_QUEUE 16

static struct scheduler scheduler;
static struct scheduler_flow flow, other; /* "other" begins with nothing paid */

static void setup(void)
{
	scheduler_init(&scheduler, REPLICAS, MAX_QUEUE, MAX_ROWS);
	scheduler_flow_init(&flow);
	scheduler_flow_init(&other);
}

static struct request *make(uint32_t id, uint32_t steps, uint32_t rows, uint32_t priority)
{
	struct request *request = request_new(id, METHOD_DRAFT);

	ck_assert_ptr_nonnull(request);
	request->draft.steps = steps;
	request->draft.rows = rows;
	request->draft.priority = priority;
	request->draft.deadline_us = UINT64_MAX;
	return request;
}

static struct request *add_to(
	struct scheduler_flow *to, uint32_t id, uint32_t steps, uint32_t rows, uint32_t priority)
{
	struct request *request = make(id, steps, rows, priority);

	ck_assert_int_eq(scheduler_add(&scheduler, to, request), 0);
	ck_assert_int_eq(request->draft.state, REQUEST_QUEUED);
	return request;
}

static struct request *add(uint32_t id, uint32_t steps, uint32_t rows, uint32_t priority)
{
	return add_to(&flow, id, steps, rows, priority);
}

/* "3 1 2": the ids of a list in order; frees them. */
static const char *ids(struct link *list)
{
	static char text[256];
	struct link *link;
	size_t at = 0;

	text[0] = '\0';
	while ((link = link_pop(list))) {
		struct request *request = LINK_OWNER(link, struct request, queue);

		at += (size_t)snprintf(
			text + at, sizeof(text) - at, at ? " %u" : "%u", request->id);
		request_free(request);
	}
	return text;
}

static struct scheduler_batch taken[REPLICAS]; /* last, without its requests */

static const char *take(uint64_t now_us)
{
	scheduler_take(&scheduler, 0, now_us, &taken[0]);
	ck_assert(link_alone(&taken[0].expired));
	return ids(&taken[0].requests);
}

static void teardown(void)
{
	struct link left;

	link_init(&left);
	scheduler_take_all(&scheduler, &left);
	ids(&left);
}

START_TEST(nothing_waits)
{
	ck_assert_str_eq(take(0), "");
	ck_assert_uint_eq(scheduler_depth(&scheduler), 0);
}
END_TEST

START_TEST(a_lone_request_runs_at_once)
{
	struct scheduler_batch batch;
	struct request *request = add(1, 7, 3, 0);

	scheduler_take(&scheduler, 0, 0, &batch);
	ck_assert_uint_eq(batch.rows, 3);
	ck_assert_uint_eq(batch.steps, 7);
	ck_assert_int_eq(request->draft.state, REQUEST_RUNNING);
	ck_assert_str_eq(ids(&batch.requests), "1");
}
END_TEST

START_TEST(one_length_a_launch_oldest_first)
{
	add(1, 4, 1, 0);
	add(2, 7, 1, 0);
	add(3, 4, 1, 0);
	add(4, 7, 1, 0);
	ck_assert_str_eq(take(0), "1 3");
	ck_assert_str_eq(take(0), "2 4");
}
END_TEST

START_TEST(oldest_leads_across_lengths)
{
	add(1, 9, 8, 0);
	add(2, 2, 8, 0);
	add(3, 9, 8, 0);
	ck_assert_str_eq(take(0), "1");
	ck_assert_str_eq(take(0), "2");
	ck_assert_str_eq(take(0), "3");
}
END_TEST

START_TEST(a_launch_holds_max_rows_and_not_one_more)
{
	add(1, 4, 5, 0);
	add(2, 4, 3, 0);
	add(3, 4, 1, 0);
	ck_assert_str_eq(take(0), "1 2"); /* exactly 8 */
	ck_assert_str_eq(take(0), "3");
	add(4, 4, 5, 0);
	add(5, 4, 4, 0); /* would be 9 */
	ck_assert_str_eq(take(0), "4");
	ck_assert_str_eq(take(0), "5");
}
END_TEST

START_TEST(nobody_is_split_or_overtaken_by_his_own_kind)
{
	add(1, 4, 5, 0);
	add(2, 4, 6, 0);
	add(3, 4, 1, 0); /* would fit beside 1 */
	ck_assert_str_eq(take(0), "1");
	ck_assert_str_eq(take(0), "2 3");
}
END_TEST

START_TEST(priority_goes_first_within_a_launch)
{
	add(1, 4, 4, 0);
	add(2, 4, 4, 0);
	add(3, 4, 4, 1);
	ck_assert_str_eq(take(0), "3 1");
	ck_assert_str_eq(take(0), "2");
}
END_TEST

START_TEST(priority_chooses_the_length)
{
	add(1, 4, 1, 0);
	add(2, 7, 1, 1);
	ck_assert_str_eq(take(0), "2");
	ck_assert_str_eq(take(0), "1");
}
END_TEST

START_TEST(free_places_go_to_the_other_priority)
{
	add(1, 4, 6, 1);
	add(2, 4, 6, 1); /* does not fit beside 1 and ends its priority */
	add(3, 4, 2, 0);
	ck_assert_str_eq(take(0), "1 3");
	ck_assert_str_eq(take(0), "2");
}
END_TEST

/* Priority 1 keeps coming, of another length, as fast as launches go. */
START_TEST(priority_0_does_not_starve)
{
	add(1, 4, 1, 0);
	add(2, 4, 8, 0);
	for (uint32_t launch = 0; launch < LIMIT_PRIORITY_LAUNCHES; launch++) {
		char expected[16];

		add(100 + launch, 7, 8, 1);
		snprintf(expected, sizeof(expected), "%u", 100 + launch);
		ck_assert_str_eq(take(0), expected);
	}
	add(200, 7, 8, 1);
	ck_assert_str_eq(take(0), "1");
	for (uint32_t launch = 0; launch < LIMIT_PRIORITY_LAUNCHES; launch++) {
		add(300 + launch, 7, 8, 1);
		ck_assert_str_ne(take(0), "2");
	}
	ck_assert_str_eq(take(0), "2");
}
END_TEST

/* The same length as the flood: its turn comes although the bucket is always full of priority 1. */
START_TEST(priority_0_does_not_starve_in_its_own_length)
{
	add(1, 7, 8, 0);
	for (uint32_t launch = 0; launch < LIMIT_PRIORITY_LAUNCHES; launch++) {
		add(100 + launch, 7, 8, 1);
		ck_assert_str_ne(take(0), "1");
	}
	add(200, 7, 8, 1);
	ck_assert_str_eq(take(0), "1");
	ck_assert_str_eq(take(0), "200");
}
END_TEST

START_TEST(turns_are_counted_only_while_priority_0_waits)
{
	for (uint32_t launch = 0; launch < 3 * LIMIT_PRIORITY_LAUNCHES; launch++) {
		add(100, 7, 8, 1);
		ck_assert_str_eq(take(0), "100");
	}
	add(1, 4, 1, 0);
	add(2, 7, 8, 1);
	ck_assert_str_eq(take(0), "2");
	ck_assert_str_eq(take(0), "1");
}
END_TEST

START_TEST(deadlines_pass_when_they_are_reached)
{
	struct request *early = add(1, 4, 1, 0);
	struct request *late = add(2, 4, 1, 0);
	struct scheduler_batch batch;

	early->draft.deadline_us = 1000;
	late->draft.deadline_us = 1001;
	scheduler_take(&scheduler, 0, 1000, &batch);
	ck_assert_int_eq(early->draft.error, ERROR_DEADLINE_EXCEEDED);
	ck_assert_int_eq(early->draft.state, REQUEST_DONE);
	ck_assert_str_eq(ids(&batch.expired), "1");
	ck_assert_str_eq(ids(&batch.requests), "2");
	ck_assert_uint_eq(scheduler_depth(&scheduler), 0);
}
END_TEST

START_TEST(everything_may_have_expired)
{
	struct scheduler_batch batch;

	add(1, 4, 1, 0)->draft.deadline_us = 5;
	add(2, 7, 1, 1)->draft.deadline_us = 5;
	scheduler_take(&scheduler, 0, 6, &batch);
	ck_assert(link_alone(&batch.requests));
	ck_assert_str_eq(ids(&batch.expired), "1 2");
}
END_TEST

START_TEST(an_expired_one_takes_no_place)
{
	struct scheduler_batch batch;

	add(1, 4, 1, 0);
	add(2, 4, 7, 0)->draft.deadline_us = 5;
	add(3, 4, 7, 0);
	scheduler_take(&scheduler, 0, 5, &batch);
	ck_assert_str_eq(ids(&batch.expired), "2");
	ck_assert_str_eq(ids(&batch.requests), "1 3");
}
END_TEST

START_TEST(removed_requests_never_run)
{
	struct request *request = add(1, 4, 1, 0);

	add(2, 4, 1, 0);
	scheduler_remove(&scheduler, request);
	ck_assert_int_eq(request->draft.state, REQUEST_IDLE);
	ck_assert_uint_eq(scheduler_depth(&scheduler), 1);
	ck_assert_str_eq(take(0), "2");
	request_free(request);
}
END_TEST

START_TEST(the_queue_holds_max_queue_and_not_one_more)
{
	struct request *surplus = make(99, 4, 1, 1);

	for (uint32_t i = 0; i < MAX_QUEUE; i++)
		add(i, 1 + i % LIMIT_STEPS_MAX, 1, i % 2);
	ck_assert_uint_eq(scheduler_depth(&scheduler), MAX_QUEUE);
	ck_assert_int_eq(scheduler_add(&scheduler, &flow, surplus), -ENOBUFS);
	take(0);
	ck_assert_int_eq(scheduler_add(&scheduler, &flow, surplus), 0);
}
END_TEST

/* A queue that one flow has filled keeps nobody else out. */
START_TEST(full_queue_has_a_place_for_a_newcomer)
{
	struct request *surplus = make(99, 2, 1, 0);

	for (uint32_t id = 0; id < MAX_QUEUE; id++)
		add(id, 1, MAX_ROWS, 0);
	add_to(&other, 50, 2, 1, 0);
	ck_assert_int_eq(scheduler_add(&scheduler, &other, surplus), -ENOBUFS);
	ck_assert_str_eq(take(0), "0");
	ck_assert_str_eq(take(0), "50");
	ck_assert_int_eq(scheduler_add(&scheduler, &flow, surplus), 0);
	ck_assert_uint_eq(flow.waiting, MAX_QUEUE);
	ck_assert_uint_eq(other.waiting, 0);
}
END_TEST

START_TEST(take_all_empties_the_queue)
{
	struct link all;
	size_t count = 0;

	link_init(&all);
	add(1, 1, 1, 0);
	add(2, LIMIT_STEPS_MAX, 1, 1);
	scheduler_take_all(&scheduler, &all);
	for (struct link *link = all.next; link != &all; link = link->next)
		count++;
	ck_assert_uint_eq(count, 2);
	ck_assert_uint_eq(scheduler_depth(&scheduler), 0);
	ids(&all);
	ck_assert_str_eq(take(0), "");
}
END_TEST

/* ---- several flows ---- */

START_TEST(a_flood_delays_a_newcomer_by_the_launch_under_way_only)
{
	for (uint32_t id = 1; id <= 8; id++)
		add(id, 4 + id % 3, 8, 0);
	ck_assert_str_eq(take(0), "1"); /* under way when the other one comes */
	add_to(&other, 100, 9, 1, 0);
	ck_assert_str_eq(take(0), "100");
	ck_assert_str_eq(take(0), "2");
	/* and again, after a while */
	ck_assert_str_eq(take(0), "3");
	add_to(&other, 101, 4, 8, 0);
	ck_assert_str_eq(take(0), "101");
	ck_assert_str_eq(take(0), "4");
}
END_TEST

/* Two that always have something waiting get the same of rows * steps, whatever the pieces. */
START_TEST(floods_share_by_work)
{
	for (uint32_t id = 1; id <= 5; id++)
		add(id, 8, 8, 0);
	for (uint32_t id = 101; id <= 110; id++)
		add_to(&other, id, 4, 8, 0);
	ck_assert_str_eq(take(0), "1");
	ck_assert_str_eq(take(0), "101");
	ck_assert_str_eq(take(0), "102");
	ck_assert_str_eq(take(0), "2"); /* both have paid 64 */
	ck_assert_str_eq(take(0), "103");
	ck_assert_str_eq(take(0), "104");
	ck_assert_str_eq(take(0), "3");
}
END_TEST

START_TEST(a_launch_is_filled_fairly)
{
	for (uint32_t id = 1; id <= 12; id++)
		add(id, 4, 1, 0);
	for (uint32_t id = 101; id <= 104; id++)
		add_to(&other, id, 4, 1, 0);
	ck_assert_str_eq(take(0), "1 101 2 102 3 103 4 104");
	ck_assert_str_eq(take(0), "5 6 7 8 9 10 11 12");
}
END_TEST

/* Who was away has saved nothing up. */
START_TEST(a_flow_that_comes_back_begins_at_the_present)
{
	for (uint32_t id = 1; id <= 10; id++)
		add(id, 8, 8, 0);
	for (uint32_t id = 1; id <= 6; id++)
		ck_assert_str_ne(take(0), "");
	for (uint32_t id = 101; id <= 103; id++)
		add_to(&other, id, 8, 8, 0);
	ck_assert_str_eq(take(0), "101");
	ck_assert_str_eq(take(0), "7");
	ck_assert_str_eq(take(0), "102");
	ck_assert_str_eq(take(0), "8");
}
END_TEST

/* Free places in others' launches cost one full launch at most, not the future. */
START_TEST(debts_are_bounded)
{
	const unsigned most = 1 + MAX_ROWS * LIMIT_STEPS_MAX / (8 * 8);
	unsigned launches = 0;

	for (uint32_t launch = 0; launch < 40; launch++) {
		add_to(&other, 100, 1, 1, 0);
		for (uint32_t id = 1; id <= 7; id++)
			add(id, 1, 1, 0);
		ck_assert_str_ne(take(0), "");
	}
	add(50, 2, 8, 0);
	for (uint32_t id = 101; id <= 110; id++)
		add_to(&other, id, 8, 8, 0);
	while (strcmp(take(0), "50") != 0)
		launches++;
	ck_assert_uint_le(launches, most);
}
END_TEST

START_TEST(priority_goes_before_fairness)
{
	add_to(&other, 1, 4, 8, 0);
	add(2, 4, 8, 1);
	add(3, 4, 8, 1);
	ck_assert_str_eq(take(0), "2");
	ck_assert_str_eq(take(0), "3");
	ck_assert_str_eq(take(0), "1");
}
END_TEST

START_TEST(nothing_is_paid_for_what_did_not_run)
{
	struct scheduler_batch batch;

	for (uint32_t id = 1; id <= 4; id++)
		add(id, 8, 8, 0)->draft.deadline_us = 5;
	for (uint32_t id = 5; id <= 8; id++) {
		struct request *request = add(id, 8, 8, 0);

		scheduler_remove(&scheduler, request);
		request_free(request);
	}
	scheduler_take(&scheduler, 0, 5, &batch);
	ck_assert(link_alone(&batch.requests));
	ck_assert_str_eq(ids(&batch.expired), "1 2 3 4");
	add(9, 8, 8, 0);
	add_to(&other, 10, 8, 8, 0);
	ck_assert_str_eq(take(6), "9");
	ck_assert_str_eq(take(6), "10");
}
END_TEST

/* As when a client dies: nothing of it waits, one of its requests runs. */
START_TEST(a_flow_may_go_while_its_requests_run)
{
	struct scheduler_flow *brief = malloc(sizeof(*brief));
	struct scheduler_batch batch;
	struct request *request;

	ck_assert_ptr_nonnull(brief);
	scheduler_flow_init(brief);
	add_to(brief, 1, 4, 8, 0);
	request = add_to(brief, 2, 4, 8, 0);
	add(3, 4, 8, 0);
	scheduler_take(&scheduler, 0, 0, &batch);
	scheduler_remove(&scheduler, request);
	request_free(request);
	memset(brief, 0xff, sizeof(*brief));
	free(brief);
	ck_assert_str_eq(take(0), "3");
	ck_assert_str_eq(ids(&batch.requests), "1");
}
END_TEST

/* ---- gathering ---- */

#define CLIENTS   MAX_ROWS
#define LAUNCH_US 100

static struct scheduler_flow clients[CLIENTS];
static uint64_t now_us;

static struct request *arrive(struct scheduler_flow *from, uint32_t id)
{
	struct request *request = make(id, 4, 1, 0);

	request->draft.arrival_us = now_us;
	ck_assert_int_eq(scheduler_add(&scheduler, from, request), 0);
	return request;
}

/* Begins a launch, which must be possible now; its ids. */
static const char *begin(void)
{
	ck_assert_uint_le(scheduler_begin_us(&scheduler, 0, now_us), now_us);
	return take(now_us);
}

/* The launch that a replica took last. */
static void ended(unsigned replica, uint64_t took_us)
{
	scheduler_ended(&scheduler, replica, &taken[replica], took_us, now_us);
}

static void end(void)
{
	now_us += LAUNCH_US;
	ended(0, LAUNCH_US);
}

/* Clients 0 and 1, of whom it is known that they come back promptly, rode in the last launch. */
static void two_prompt_ones(void)
{
	now_us = 1000;
	for (unsigned i = 0; i < CLIENTS; i++)
		scheduler_flow_init(&clients[i]);
	for (unsigned round = 0; round < 2; round++) {
		arrive(&clients[0], 0);
		arrive(&clients[1], 1);
		ck_assert_str_eq(begin(), "0 1");
		end();
		now_us += 10;
	}
}

/* Each client sends its next request 2 us after the answer to the one before: all of them fill a
 * launch exactly. They begin one after the other, so that the first rides alone. */
START_TEST(clients_that_come_back_at_once_share_their_launches)
{
	uint64_t back_us[CLIENTS];
	bool away[CLIENTS];
	uint64_t began_us = 0;
	unsigned riding = 0;

	now_us = 1000;
	for (unsigned i = 0; i < CLIENTS; i++) {
		scheduler_flow_init(&clients[i]);
		back_us[i] = now_us + i;
		away[i] = true;
	}
	for (unsigned launch = 0; launch < 20; now_us++) {
		for (unsigned i = 0; i < CLIENTS; i++)
			if (away[i] && back_us[i] <= now_us) {
				arrive(&clients[i], i);
				away[i] = false;
			}
		if (riding && now_us - began_us >= LAUNCH_US + riding) {
			ended(0, now_us - began_us);
			riding = 0;
		}
		if (!riding && scheduler_begin_us(&scheduler, 0, now_us) <= now_us) {
			struct link *link;

			scheduler_take(&scheduler, 0, now_us, &taken[0]);
			began_us = now_us;
			riding = taken[0].rows;
			if (++launch > 4)
				ck_assert_uint_eq(riding, CLIENTS);
			for (unsigned n = 0; (link = link_pop(&taken[0].requests)); n++) {
				struct request *request = LINK_OWNER(link, struct request, queue);

				back_us[request->id] = now_us + LAUNCH_US + riding + 2 * (n + 1);
				away[request->id] = true;
				request_free(request);
			}
		}
	}
}
END_TEST

START_TEST(a_lone_client_never_waits)
{
	now_us = 1000;
	for (uint32_t i = 0; i < 5; i++) {
		arrive(&flow, i);
		ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us);
		ck_assert_str_ne(take(now_us), "");
		end();
		now_us += 1 + i;
	}
}
END_TEST

START_TEST(a_launch_waits_for_those_that_are_due)
{
	uint64_t ended_us;

	two_prompt_ones();
	ended_us = now_us - 10;
	arrive(&other, 5); /* nobody's turn is lost by it: it rides along */
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), ended_us + LAUNCH_US);
	arrive(&clients[1], 1);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), ended_us + LAUNCH_US);
	arrive(&clients[0], 0);
	ck_assert_str_eq(begin(), "5 1 0");
}
END_TEST

START_TEST(the_wait_ends)
{
	two_prompt_ones();
	arrive(&clients[0], 0);
	now_us += LAUNCH_US - 11;
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us + 1);
	now_us++;
	ck_assert_str_eq(begin(), "0");
	end();
	/* Client 1 has been away for longer than a launch: it is due no more. */
	now_us += 10;
	arrive(&clients[0], 0);
	ck_assert_str_eq(begin(), "0");
	end();
	arrive(&clients[1], 1);
	arrive(&clients[0], 0);
	ck_assert_str_eq(begin(), "1 0");
	end();
	arrive(&clients[0], 0);
	ck_assert_str_eq(begin(), "0");
}
END_TEST

/* It saves a launch of few rows, and never waits longer than one takes. */
START_TEST(the_wait_is_as_long_as_the_shortest_launch)
{
	two_prompt_ones();
	arrive(&clients[0], 0);
	arrive(&clients[1], 1);
	ck_assert_str_eq(begin(), "0 1");
	now_us += 5000000;
	ended(0, 5000000);
	arrive(&clients[0], 0);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us + LAUNCH_US);
	arrive(&clients[1], 1);
	ck_assert_str_eq(begin(), "0 1");
	now_us += 10;
	ended(0, 10);
	arrive(&clients[0], 0);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us + 10);
	arrive(&clients[1], 1);
	ck_assert_str_eq(begin(), "0 1");
	ended(0, 0); /* failed: no time to learn from, or to save */
	arrive(&clients[0], 0);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us);

	/* Another model: its launches are slow, but that is no reason to wait long. */
	scheduler_forget_times(&scheduler);
	arrive(&clients[1], 1);
	ck_assert_str_eq(begin(), "0 1");
	now_us += 5000000;
	ended(0, 5000000);
	arrive(&clients[0], 0);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us + LIMIT_GATHER_US);
}
END_TEST

/* Where rows cost what they cost in one launch or in two, waiting for them is lost. */
START_TEST(nobody_waits_where_nothing_is_saved)
{
	now_us = 1000;
	for (unsigned i = 0; i < CLIENTS; i++)
		scheduler_flow_init(&clients[i]);
	for (unsigned rows = 1; rows <= CLIENTS; rows++) {
		for (unsigned i = 0; i < rows; i++)
			arrive(&clients[i], i);
		ck_assert_str_ne(begin(), "");
		now_us += 50 * rows;
		ended(0, 50 * rows);
	}
	now_us += 1;
	arrive(&clients[0], 0);
	ck_assert_str_eq(begin(), "0");
	now_us += 50;
	ended(0, 50);
	ck_assert_uint_eq(
		scheduler.replicas[0].gather_until_us, now_us); /* one row again: nothing new */

	/* Launches of 20 us and 10 us a row: 20 are saved, which is known from the second on. */
	scheduler_forget_times(&scheduler);
	now_us += 1;
	arrive(&clients[0], 0);
	ck_assert_str_eq(begin(), "0");
	now_us += 20 + 10 * 1;
	ended(0, 20 + 10 * 1);
	ck_assert_uint_eq(scheduler.replicas[0].gather_until_us, now_us + 20 + 10 * 1);
	arrive(&clients[0], 0);
	arrive(&clients[1], 1);
	ck_assert_str_ne(begin(), "");
	now_us += 20 + 10 * 2;
	ended(0, 20 + 10 * 2);
	ck_assert_uint_eq(scheduler.replicas[0].gather_until_us, now_us + 20);
}
END_TEST

/* A full launch is taken while the one before is under way: for those who ride in that nobody
 * waits, but they are still known to come back at once when they do. */
START_TEST(a_launch_is_taken_ahead)
{
	struct scheduler_batch first;

	two_prompt_ones();
	arrive(&clients[0], 0);
	arrive(&clients[1], 1);
	ck_assert_str_eq(begin(), "0 1");
	first = taken[0];
	ck_assert(!scheduler_is_full(&scheduler));
	for (unsigned i = 2; i < CLIENTS; i++)
		arrive(&clients[i], i);
	arrive(&other, 8);
	ck_assert(!scheduler_is_full(&scheduler));
	arrive(&other, 9);
	ck_assert(scheduler_is_full(&scheduler));
	now_us += LAUNCH_US - 10;
	ck_assert_str_eq(take(now_us), "2 3 4 5 6 7 8 9");
	ck_assert_uint_eq(taken[0].launch, first.launch + 1);
	ck_assert_uint_eq(scheduler.replicas[0].pauses, 0); /* nobody was waited for in vain */
	now_us += 10;
	scheduler_ended(&scheduler, 0, &first, LAUNCH_US, now_us);
	now_us += 10;
	arrive(&clients[0], 0);
	arrive(&clients[1], 1);
	ck_assert(clients[0].prompt && clients[1].prompt);
	end();
	ck_assert_str_eq(begin(), "0 1"); /* nobody of the full one was known to be prompt */
	end();
	now_us += 10;
	arrive(&clients[0], 0);
	ck_assert_uint_gt(scheduler_begin_us(&scheduler, 0, now_us), now_us); /* 1 is due */
}
END_TEST

START_TEST(what_a_launch_will_take_is_known_from_others)
{
	now_us = 1000;
	for (unsigned i = 0; i < CLIENTS; i++)
		scheduler_flow_init(&clients[i]);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 1, 4), 0);
	arrive(&clients[0], 0);
	begin();
	ended(0, 0); /* failed */
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 1, 4), 0);
	arrive(&clients[0], 0);
	begin();
	ended(0, 30);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 1, 4), 30);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 5, 4), 30);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 1, 3), 0);
	for (unsigned i = 0; i < 3; i++)
		arrive(&clients[i], i);
	begin();
	ended(0, 50);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 1, 4), 30);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 3, 4), 50);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 8, 4), 100);
	scheduler_forget_times(&scheduler);
	ck_assert_uint_eq(scheduler_expect_us(&scheduler, 1, 4), 0);
}
END_TEST

/* As if each time another client were due that does not come. */
START_TEST(waiting_in_vain_makes_pauses)
{
	unsigned waited = 0;

	two_prompt_ones();
	for (unsigned launch = 0; launch < 1000; launch++) {
		scheduler.replicas[0].due = 2;
		arrive(&clients[0], 0);
		ck_assert_uint_eq(scheduler.replicas[0].due, 1);
		if (scheduler_begin_us(&scheduler, 0, now_us) > now_us) {
			waited++;
			now_us = scheduler_begin_us(&scheduler, 0, now_us);
		}
		ck_assert_str_eq(begin(), "0");
		end();
		now_us += 10;
	}
	/* pauses of 1 + 2 + 4 + … + 64 launches, and then one wait in 65 */
	ck_assert_uint_ge(waited, 6);
	ck_assert_uint_le(waited, 7 + 1000 / (LIMIT_GATHER_PAUSE + 1));
}
END_TEST

START_TEST(a_full_launch_waits_for_nobody)
{
	two_prompt_ones();
	arrive(&clients[0], 0);
	for (uint32_t id = 10; id < 9 + MAX_ROWS; id++)
		arrive(&other, id);
	ck_assert_uint_eq(strlen(begin()), strlen("0 10 11 12 13 14 15 16"));
}
END_TEST

START_TEST(priority_1_does_not_wait)
{
	two_prompt_ones();
	arrive(&clients[0], 0);
	ck_assert_uint_gt(scheduler_begin_us(&scheduler, 0, now_us), now_us);
	add_to(&other, 5, 4, 1, 1);
	ck_assert_str_eq(begin(), "5 0");
}
END_TEST

START_TEST(another_length_does_not_wait)
{
	two_prompt_ones();
	arrive(&clients[0], 0);
	ck_assert_uint_gt(scheduler_begin_us(&scheduler, 0, now_us), now_us);
	add_to(&other, 5, 7, 1, 0); /* those that are due could not ride with it */
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us);
}
END_TEST

START_TEST(a_deadline_does_not_wait)
{
	struct request *request = make(6, 4, 1, 0);

	two_prompt_ones();
	request->draft.deadline_us = now_us + 1000;
	ck_assert_int_eq(scheduler_add(&scheduler, &other, request), 0);
	ck_assert_str_eq(begin(), "6");
	end();
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), UINT64_MAX);
}
END_TEST

/* While somebody is due, the time that is told is one at which to look again. */
START_TEST(nothing_waits_but_somebody_is_due)
{
	two_prompt_ones();
	ck_assert_uint_lt(scheduler_begin_us(&scheduler, 0, now_us), now_us + LAUNCH_US);
	ck_assert_uint_gt(scheduler_begin_us(&scheduler, 0, now_us), now_us);
	now_us += LAUNCH_US;
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), UINT64_MAX);
}
END_TEST

/* What is admitted takes a place in the queue, and is otherwise not there. */
/* ---- replicas ---- */

static const char *take_on(unsigned replica)
{
	ck_assert_uint_le(scheduler_begin_us(&scheduler, replica, now_us), now_us);
	scheduler_take(&scheduler, replica, now_us, &taken[replica]);
	return ids(&taken[replica].requests);
}

/* Clients 0 and 1 have one replica, 2 and 3 the other, and all come back promptly; the launches end
 * half a launch apart. The first one's has just ended. */
static void two_and_two(void)
{
	now_us = 1000;
	for (unsigned i = 0; i < CLIENTS; i++)
		scheduler_flow_init(&clients[i]);
	arrive(&clients[0], 0);
	arrive(&clients[1], 1);
	ck_assert_str_eq(take_on(0), "0 1");
	now_us += LAUNCH_US / 2;
	for (unsigned round = 0; round < 3; round++) {
		arrive(&clients[2], 2);
		arrive(&clients[3], 3);
		ck_assert_str_eq(take_on(1), "2 3");
		now_us += LAUNCH_US / 2;
		ended(0, LAUNCH_US);
		if (round == 2)
			break;
		arrive(&clients[0], 0);
		arrive(&clients[1], 1);
		ck_assert_str_eq(take_on(0), "0 1");
		now_us += LAUNCH_US / 2;
		ended(1, LAUNCH_US);
	}
}

/* The one that is free waits for its own, and for nobody who rides with the other. */
START_TEST(each_replica_waits_for_its_own)
{
	two_and_two();
	arrive(&clients[1], 1);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, now_us), now_us + LAUNCH_US);
	now_us += 10;
	arrive(&clients[0], 0);
	ck_assert_str_eq(take_on(0), "1 0");
	now_us += LAUNCH_US / 2 - 10;
	ended(1, LAUNCH_US);
	arrive(&clients[3], 3);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 1, now_us), now_us + LAUNCH_US);
	arrive(&clients[2], 2);
	ck_assert_str_eq(take_on(1), "3 2");
}
END_TEST

/* What one leaves or waits with, another that waits for nobody takes. */
START_TEST(who_waits_for_nobody_takes_what_another_waits_with)
{
	two_and_two();
	now_us += LAUNCH_US / 2;
	ended(1, 0); /* failed: it waits for nobody */
	arrive(&clients[1], 1);
	ck_assert_uint_gt(scheduler_begin_us(&scheduler, 0, now_us), now_us);
	ck_assert_str_eq(take_on(1), "1");
	/* It has come back all the same: only client 0 is still due. */
	arrive(&clients[0], 0);
	ck_assert_str_eq(take_on(0), "0");
}
END_TEST

/* A connection with requests on both: each that comes back follows on the one that still waits. */
START_TEST(a_connection_may_ride_with_several)
{
	now_us = 1000;
	scheduler_flow_init(&clients[0]);
	for (unsigned round = 0; round < 4; round++) {
		arrive(&clients[0], 0);
		ck_assert_str_eq(take_on(0), "0");
		now_us += 10;
		arrive(&clients[0], 1);
		ck_assert_str_eq(take_on(1), "1");
		now_us += LAUNCH_US;
		ended(0, LAUNCH_US);
		now_us += 10;
		ended(1, LAUNCH_US);
		ck_assert_uint_eq(scheduler.replicas[0].due, round > 0);
		ck_assert_uint_eq(scheduler.replicas[1].due, round > 0);
	}
	arrive(&clients[0], 0);
	ck_assert_uint_eq(scheduler.replicas[0].due, 0); /* it ended first */
	ck_assert_uint_eq(scheduler.replicas[1].due, 1);
	ck_assert_str_eq(take_on(0), "0");
	arrive(&clients[0], 1);
	ck_assert_uint_eq(scheduler.replicas[1].due, 0);
	ck_assert_str_eq(take_on(1), "1");
}
END_TEST

/* The first one's launch ended so long ago that it waits for nobody: what comes back follows on the
 * other's, which still waits. */
START_TEST(what_comes_back_follows_on_who_still_waits)
{
	now_us = 1000;
	scheduler_flow_init(&clients[0]);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 2; i++) {
			arrive(&clients[0], i);
			ck_assert_str_ne(take_on(i), "");
		}
		now_us += LAUNCH_US;
		ended(0, LAUNCH_US);
		now_us += 2 * LAUNCH_US * round;
		ended(1, (1 + 2 * round) * LAUNCH_US);
	}
	ck_assert_uint_eq(scheduler.replicas[1].due, 1);
	now_us++;
	arrive(&clients[0], 0);
	ck_assert_uint_eq(scheduler.replicas[1].due, 0);
	ck_assert_uint_eq(scheduler.replicas[0].due, 1);
	ck_assert(clients[0].prompt);
}
END_TEST

/* Work is shared as with one replica: by rows * K paid, whoever launches. */
START_TEST(fairness_is_across_replicas)
{
	for (uint32_t id = 0; id < 6; id++)
		add(id, 4, MAX_ROWS, 0);
	ck_assert_str_eq(take_on(0), "0");
	ck_assert_str_eq(take_on(1), "1");
	add_to(&other, 50, 4, 1, 0);
	ended(1, LAUNCH_US);
	ck_assert_str_eq(take_on(1), "50");
	ended(0, LAUNCH_US);
	ck_assert_str_eq(take_on(0), "2");
}
END_TEST

START_TEST(an_admitted_draft_is_not_taken_until_it_enters)
{
	struct request *held = make(1, 4, 1, 1), *surplus = make(99, 4, 1, 0);

	ck_assert_int_eq(scheduler_admit(&scheduler, &flow, held), 0);
	ck_assert_int_eq(held->draft.state, REQUEST_HELD);
	ck_assert_uint_eq(scheduler_begin_us(&scheduler, 0, 0), UINT64_MAX);
	ck_assert_str_eq(take(0), "");
	for (uint32_t i = 1; i < MAX_QUEUE; i++)
		add(10 + i, 1, 1, 0);
	ck_assert_uint_eq(scheduler_depth(&scheduler), MAX_QUEUE);
	ck_assert_int_eq(scheduler_add(&scheduler, &flow, surplus), -ENOBUFS);
	request_free(surplus);
	scheduler_enter(&scheduler, held, 0);
	ck_assert_int_eq(held->draft.state, REQUEST_QUEUED);
	ck_assert_uint_eq(scheduler_depth(&scheduler), MAX_QUEUE);
	ck_assert_str_eq(take(0), "1"); /* priority 1 */
}
END_TEST

START_TEST(an_admitted_draft_can_be_removed)
{
	struct request *held = make(1, 4, 1, 0);

	ck_assert_int_eq(scheduler_admit(&scheduler, &flow, held), 0);
	scheduler_remove(&scheduler, held);
	ck_assert_int_eq(held->draft.state, REQUEST_IDLE);
	ck_assert_uint_eq(scheduler_depth(&scheduler), 0);
	ck_assert_uint_eq(flow.waiting, 0);
	request_free(held);
}
END_TEST

/* Prompt is who enters soon after the last answer, not who was sent soon: the others would wait in
 * vain for an event. */
START_TEST(a_draft_that_entered_late_was_not_prompt)
{
	struct request *held = make(0, 4, 1, 0);

	two_prompt_ones();
	held->draft.arrival_us = now_us;
	ck_assert(clients[0].prompt);
	ck_assert_int_eq(scheduler_admit(&scheduler, &clients[0], held), 0);
	now_us += LAUNCH_US; /* longer than anybody is waited for */
	scheduler_enter(&scheduler, held, now_us);
	ck_assert(!clients[0].prompt);
	ck_assert_str_eq(begin(), "0");
}
END_TEST

Suite *scheduler_suite(void)
{
	Suite *suite = suite_create("scheduler");
	TCase *tcase = tcase_create("scheduler");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, nothing_waits);
	tcase_add_test(tcase, each_replica_waits_for_its_own);
	tcase_add_test(tcase, who_waits_for_nobody_takes_what_another_waits_with);
	tcase_add_test(tcase, a_connection_may_ride_with_several);
	tcase_add_test(tcase, what_comes_back_follows_on_who_still_waits);
	tcase_add_test(tcase, fairness_is_across_replicas);
	tcase_add_test(tcase, an_admitted_draft_is_not_taken_until_it_enters);
	tcase_add_test(tcase, an_admitted_draft_can_be_removed);
	tcase_add_test(tcase, a_lone_request_runs_at_once);
	tcase_add_test(tcase, one_length_a_launch_oldest_first);
	tcase_add_test(tcase, oldest_leads_across_lengths);
	tcase_add_test(tcase, a_launch_holds_max_rows_and_not_one_more);
	tcase_add_test(tcase, nobody_is_split_or_overtaken_by_his_own_kind);
	tcase_add_test(tcase, priority_goes_first_within_a_launch);
	tcase_add_test(tcase, priority_chooses_the_length);
	tcase_add_test(tcase, free_places_go_to_the_other_priority);
	tcase_add_test(tcase, priority_0_does_not_starve);
	tcase_add_test(tcase, priority_0_does_not_starve_in_its_own_length);
	tcase_add_test(tcase, turns_are_counted_only_while_priority_0_waits);
	tcase_add_test(tcase, deadlines_pass_when_they_are_reached);
	tcase_add_test(tcase, everything_may_have_expired);
	tcase_add_test(tcase, an_expired_one_takes_no_place);
	tcase_add_test(tcase, removed_requests_never_run);
	tcase_add_test(tcase, the_queue_holds_max_queue_and_not_one_more);
	tcase_add_test(tcase, full_queue_has_a_place_for_a_newcomer);
	tcase_add_test(tcase, take_all_empties_the_queue);
	tcase_add_test(tcase, a_flood_delays_a_newcomer_by_the_launch_under_way_only);
	tcase_add_test(tcase, floods_share_by_work);
	tcase_add_test(tcase, a_launch_is_filled_fairly);
	tcase_add_test(tcase, a_flow_that_comes_back_begins_at_the_present);
	tcase_add_test(tcase, debts_are_bounded);
	tcase_add_test(tcase, priority_goes_before_fairness);
	tcase_add_test(tcase, nothing_is_paid_for_what_did_not_run);
	tcase_add_test(tcase, a_flow_may_go_while_its_requests_run);
	tcase_add_test(tcase, clients_that_come_back_at_once_share_their_launches);
	tcase_add_test(tcase, a_lone_client_never_waits);
	tcase_add_test(tcase, a_launch_waits_for_those_that_are_due);
	tcase_add_test(tcase, the_wait_ends);
	tcase_add_test(tcase, the_wait_is_as_long_as_the_shortest_launch);
	tcase_add_test(tcase, nobody_waits_where_nothing_is_saved);
	tcase_add_test(tcase, a_launch_is_taken_ahead);
	tcase_add_test(tcase, what_a_launch_will_take_is_known_from_others);
	tcase_add_test(tcase, waiting_in_vain_makes_pauses);
	tcase_add_test(tcase, a_full_launch_waits_for_nobody);
	tcase_add_test(tcase, priority_1_does_not_wait);
	tcase_add_test(tcase, another_length_does_not_wait);
	tcase_add_test(tcase, a_deadline_does_not_wait);
	tcase_add_test(tcase, nothing_waits_but_somebody_is_due);
	tcase_add_test(tcase, a_draft_that_entered_late_was_not_prompt);
	suite_add_tcase(suite, tcase);
	return suite;
}
