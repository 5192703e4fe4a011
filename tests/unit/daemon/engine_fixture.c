#include "engine_fixture.h"

#include "kernels/backend.h"
#include "kernels/clock.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

struct gate gates[MAX_REPLICAS];
struct markov_head *heads[MAX_REPLICAS], *next_heads[MAX_REPLICAS];
uint32_t batches_max = 1;
int open_result = -ENOSYS, build_result;
struct engine *engine;
struct scheduler_flow flow, other;
sem_t woken;
struct link got;
sem_t asking, may_answer;
struct answer answers[ANSWERS];
struct event events[ANSWERS];
struct scheduler_flow flows[ANSWERS];

static struct markov_head all_heads[2][MAX_REPLICAS];
static struct request_pool pool;

/* ---- the backend ---- */

int markov_open(const struct markov_options *options, const struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct markov_head **ret, struct error_text *error)
{
	(void)options, (void)checkpoint, (void)progress, (void)user, (void)ret;
	return error_text_set(error, -open_result, "not in this program");
}

int markov_check_build(enum markov_backend backend, struct error_text *error)
{
	(void)backend;
	return build_result < 0 ? error_text_set(error, -build_result, "not in this build") : 0;
}

void markov_close(struct markov_head *head)
{
	if (head)
		head->closed = true;
}

const struct markov_facts *markov_facts(const struct markov_head *head)
{
	static struct markov_facts facts = {
		.backend = "cpu", .vocab = 1000, .rank = 500, .devices = {{.uuid = "GPU-x"}}};

	(void)head;
	if (facts.batches_max != batches_max)
		facts.batches_max = batches_max;
	return &facts;
}

/* A token says where its row came from and which step it is. */
static void compute(const struct markov_batch *batch)
{
	for (uint32_t row = 0; row < batch->rows; row++) {
		for (uint32_t step = 0; step < batch->steps; step++)
			batch->tokens[row * batch->steps + step] = batch->anchors[row] * 10 + step;
		batch->flags[row] = (uint8_t)batch->anchors[row];
	}
}

int markov_launch(
	struct markov_head *head, const struct markov_batch *batch, struct error_text *error)
{
	struct gate *gate = &gates[head->replica];

	ck_assert(!head->closed);
	if (head->under_way && gate->refuses)
		return error_text_set(error, -gate->refuses, "not behind another");
	if (head->under_way && gate->holds)
		sem_wait(&gate->may_begin);
	gate->generation = head->generation;
	gate->rows = batch->rows;
	gate->steps = batch->steps;
	memcpy(gate->base, batch->base_memory, batch->rows * sizeof(*gate->base));
	memcpy(gate->logits, batch->logits_memory, batch->rows * sizeof(*gate->logits));
	if (batches_max > 1) {
		ck_assert_uint_lt(head->under_way, batches_max);
		head->batches[head->under_way++] = batch;
		sem_post(&gate->launched);
		return 0;
	}
	sem_post(&gate->launched);
	sem_wait(&gate->may_end);
	if (gate->result < 0)
		return error_text_set(error, -gate->result, "as the test wanted");
	compute(batch);
	return 0;
}

bool markov_is_over(const struct markov_head *head)
{
	struct markov_head *own = (struct markov_head *)(uintptr_t)head;

	if (head->under_way && !head->over)
		own->over = sem_trywait(&gates[head->replica].may_end) == 0;
	return !head->under_way || head->over;
}

int markov_wait(struct markov_head *head, struct error_text *error)
{
	struct gate *gate = &gates[head->replica];

	if (!head->under_way)
		return 0;
	if (!head->over)
		sem_wait(&gate->may_end);
	head->over = false;
	if (gate->result == 0)
		compute(head->batches[0]);
	head->batches[0] = head->batches[1];
	head->under_way--;
	return gate->result < 0 ? error_text_set(error, -gate->result, "as the test wanted") : 0;
}

/* ---- the engine ---- */

static void wake(void *user)
{
	(void)user;
	sem_post(&woken);
}

void engine_set_up(unsigned replicas, uint64_t spin_us)
{
	const struct engine_options options = {
		.replicas = replicas,
		.max_queue = MAX_QUEUE,
		.max_rows = MAX_ROWS,
		.max_steps = STEPS,
		.spin_us = spin_us,
		.wake = wake,
	};
	struct error_text error;

	for (unsigned i = 0; i < MAX_REPLICAS; i++) {
		gates[i] = (struct gate){.result = 0};
		sem_init(&gates[i].launched, 0, 0);
		sem_init(&gates[i].may_end, 0, 0);
		sem_init(&gates[i].may_begin, 0, 0);
		all_heads[0][i] = (struct markov_head){.replica = i, .generation = 1};
		all_heads[1][i] = (struct markov_head){.replica = i, .generation = 2};
		heads[i] = &all_heads[0][i];
		next_heads[i] = &all_heads[1][i];
	}
	sem_init(&woken, 0, 0);
	link_init(&got);
	request_pool_init(&pool);
	scheduler_flow_init(&flow);
	scheduler_flow_init(&other);
	ck_assert_int_eq(engine_start(&options, heads, 1, &engine, &error), 0);
}

void free_all(struct link *list)
{
	struct link *link;

	while ((link = link_pop(list)))
		request_free(LINK_OWNER(link, struct request, queue));
}

void engine_tear_down(void)
{
	struct link left;

	link_init(&left);
	ck_assert_int_eq(engine_stop(engine, &left), 0);
	free_all(&left);
	free_all(&got);
}

struct request *make(uint32_t id, uint32_t rows, uint32_t steps)
{
	struct draft_call wire = {.rows = rows, .steps = steps};
	uint8_t *copy;
	struct request *request = request_new_draft(&pool, id, &wire, 0, &copy);

	ck_assert_ptr_nonnull(request);
	request->draft.deadline_us = UINT64_MAX;
	for (uint32_t row = 0; row < rows; row++) {
		request->draft.anchors[row] = id * 10 + row;
		request->draft.positions[row] = request->draft.seeds[row] = 0;
		request->draft.temperatures[row] = 0;
	}
	return request;
}

struct request *submit(uint32_t id, uint32_t rows, uint32_t steps)
{
	struct request *request = make(id, rows, steps);

	ck_assert_int_eq(engine_submit(engine, &flow, request), 0);
	return request;
}

void let_end(unsigned replica)
{
	sem_post(&gates[replica].may_end);
}

struct engine_report collect(unsigned count)
{
	struct engine_report all = {0};

	while (count) {
		struct engine_report report;
		struct link *link;

		sem_wait(&woken);
		engine_collect(engine, &report);
		all.lost = report.lost;
		if (report.reason.text[0])
			all.reason = report.reason;
		all.swapped |= report.swapped;
		while ((link = link_pop(&report.finished))) {
			ck_assert_uint_gt(count, 0);
			count--;
			link_append(&got, link);
		}
	}
	return all;
}

void check_tokens(const struct request *request)
{
	const struct draft *draft = &request->draft;

	ck_assert_int_eq(draft->state, REQUEST_DONE);
	ck_assert_int_eq(draft->error, ERROR_NONE);
	for (uint32_t row = 0; row < draft->rows; row++) {
		ck_assert_uint_eq(draft->flags[row], (request->id * 10 + row) & 0xff);
		for (uint32_t step = 0; step < draft->steps; step++)
			ck_assert_uint_eq(draft->tokens[row * draft->steps + step],
				(request->id * 10 + row) * 10 + step);
	}
}

/* ---- events ---- */

static int answer_open(void *state, const char *uuid, const uint8_t *handle, void **ret_event,
	struct error_text *error)
{
	(void)uuid, (void)handle, (void)error;
	*ret_event = state;
	return 0;
}

static int answer_query(const void *event)
{
	struct answer *answer = (struct answer *)(uintptr_t)event;

	atomic_fetch_add(&answer->asked, 1);
	if (atomic_load(&answer->gated)) {
		sem_post(&asking);
		sem_wait(&may_answer);
	}
	return atomic_load(&answer->now);
}

static void answer_close(void *event)
{
	(void)event;
}

static const struct memory_backend answers_backend = {
	.event_open = answer_open, .event_query = answer_query, .event_close = answer_close};

void events_set_up(void)
{
	static const uint8_t handle[MARKOV_EVENT_HANDLE_BYTES];
	struct error_text error;

	sem_init(&asking, 0, 0);
	sem_init(&may_answer, 0, 0);
	for (unsigned i = 0; i < ANSWERS; i++) {
		struct markov_memory memory = {&answers_backend, &answers[i]};

		atomic_store(&answers[i].now, 0);
		atomic_store(&answers[i].asked, 0);
		atomic_store(&answers[i].gated, false);
		ck_assert_int_eq(
			markov_event_open(&memory, "", handle, &events[i].event, &error), 0);
		scheduler_flow_init(&flows[i]);
	}
}

void events_tear_down(void)
{
	for (unsigned i = 0; i < ANSWERS; i++)
		markov_event_close(events[i].event);
}

struct request *make_held(uint32_t id, unsigned event)
{
	struct request *request = make(id, 1, STEPS);

	request->draft.event = &events[event];
	request->draft.arrival_us = clock_us();
	request->draft.event_until_us = UINT64_MAX;
	return request;
}

struct request *submit_held(uint32_t id, unsigned event)
{
	struct request *request = make_held(id, event);

	ck_assert_int_eq(engine_submit(engine, &flows[event], request), 0);
	return request;
}

void wait_for_look(unsigned event)
{
	unsigned before = atomic_load(&answers[event].asked);

	while (atomic_load(&answers[event].asked) < before + 2)
		sched_yield();
}

void fire(unsigned event)
{
	atomic_store(&answers[event].now, 1);
}
