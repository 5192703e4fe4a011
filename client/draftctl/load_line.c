#include "clock.h"
#include "load_private.h"

#include <errno.h>

#define POSITION_MAX 100000
#define TOGETHER_MAX 16 /* requests that may wait for each other to be sent: a few microseconds */

bool line_has_room(const struct line *line)
{
	return !line->broken && line->busy_count < line->lane_count &&
	       !draft_going_away(line->draft);
}

/* draftd's times are in whole microseconds: what is left is not below zero for that. */
static uint64_t less_us(int64_t ns, uint64_t us)
{
	return (uint64_t)ns > us * 1000 ? (uint64_t)ns - us * 1000 : 0;
}

static void show(struct worker *worker, struct line *line, struct lane *lane,
	const struct draft_result *reply)
{
	const struct load *load = worker->load;
	struct error_text error;
	struct load_exchange exchange = {
		.rows = reply->rows,
		.steps = reply->steps,
		.anchors = lane->anchors,
		.positions = lane->positions,
		.seeds = lane->seeds,
		.temperatures = load->temperatures + lane->kind * load->rows_max,
		.base = load->blocks + lane->block * (load->block_bytes / 2),
		.logits = lane->logits,
		.tokens = reply->tokens,
		.flags = reply->flags,
	};

	/* Device memory is copied out for whoever looks, and not otherwise. */
	if (load->options.base == LOAD_BASE_DEVICE && lane->logits != NULL &&
		shared_read(&line->shared, lane->logits_offset, lane->logits, load->block_bytes,
			&error) < 0)
		load_result_count(worker->result, -EIO, 1, error.text);
	else
		load->observe(load->user, &exchange);
}

static void take_tokens(struct worker *worker, struct line *line, struct lane *lane,
	const struct draft_result *reply, int64_t now_ns)
{
	struct load_result *result = worker->result;
	int64_t sent_ago_ns = now_ns - lane->sent_ns;
	/* Nothing is sent before its time. */
	int64_t waited_ns = lane->sent_ns - lane->planned_ns;

	result->requests++;
	result->rows += reply->rows;
	result->tokens += (uint64_t)reply->rows * reply->steps;
	for (uint32_t r = 0; r < reply->rows; r++)
		result->nan_rows += reply->flags[r] & 1;
	histogram_add(&result->total, (uint64_t)(waited_ns + sent_ago_ns));
	histogram_add(&result->kinds[lane->kind], (uint64_t)(waited_ns + sent_ago_ns));
	histogram_add(&result->waited, (uint64_t)waited_ns);
	histogram_add(&result->wire, less_us(sent_ago_ns, reply->total_us));
	histogram_add(&result->around, less_us(sent_ago_ns, reply->device_us));
	histogram_add(&result->served, reply->total_us * 1000);
	histogram_add(&result->queue, reply->queue_us * 1000);
	histogram_add(&result->device, reply->device_us * 1000);
	worker->last_reply_ns = now_ns;
	atomic_fetch_add_explicit(&worker->answered, 1, memory_order_relaxed);
	if (worker->load->observe != NULL)
		show(worker, line, lane, reply);
}

static void take_result(struct worker *worker, struct line *line, const struct draft_result *reply)
{
	int64_t now_ns = clock_ns();
	struct lane *lane = line->lanes;

	while (lane < line->lanes + line->lane_count &&
		(!lane->busy || lane->ticket != reply->ticket))
		lane++;
	if (lane == line->lanes + line->lane_count)
		return; /* libdraft gives no ticket twice */
	lane->busy = false;
	line->busy_count--;
	if (reply->code == 0) {
		if (lane->measured)
			take_tokens(worker, line, lane, reply, now_ns);
		return;
	}
	load_result_count(worker->result, reply->code, 1, reply->error);
	if (reply->code == -DRAFT_E_DEADLINE_EXCEEDED &&
		worker->load->options.mix.kinds[lane->kind].deadline_us > 0)
		worker->result->missed++;
	else
		atomic_fetch_add_explicit(&worker->failed, 1, memory_order_relaxed);
}

/* Ends a line. Whatever was answered is taken; each request that gets no answer is counted, and
 * with `unsent` one that did not come so far. A line that waits for none counts as one error. */
static void line_broke(
	struct worker *worker, struct line *line, int code, uint32_t unsent, const char *text)
{
	struct draft_result *reply;
	uint32_t lost;

	while (draft_poll(line->draft, 0, &reply) > 0) {
		take_result(worker, line, reply);
		draft_result_free(reply);
	}
	lost = line->busy_count + unsent;
	if (lost == 0)
		lost = 1;
	load_result_count(worker->result, code, lost, text);
	atomic_fetch_add_explicit(&worker->failed, lost, memory_order_relaxed);
	line->broken = true;
	line->busy_count = 0;
}

/* A draftd that said that it stops, and then stops, is no broken connection. */
static void line_failed(struct worker *worker, struct line *line, int code, uint32_t unsent)
{
	struct error_text error;

	if (draft_going_away(line->draft)) {
		line_broke(
			worker, line, -DRAFT_E_DRAINING, unsent, draft_goaway_reason(line->draft));
		return;
	}
	error_text_set(&error, -code, "%s%s", draft_error(line->draft), command_remedy(code));
	line_broke(worker, line, code, unsent, error.text);
}

void line_check_goaway(struct worker *worker, struct line *line)
{
	if (!line->broken && line->busy_count == 0 && draft_going_away(line->draft))
		line_failed(worker, line, -DRAFT_E_DRAINING, 0);
}

static int submit(struct worker *worker, struct line *line, struct lane *lane)
{
	const struct load *load = worker->load;
	const struct mix_kind *kind = &load->options.mix.kinds[lane->kind];
	uint32_t target_vocab = draft_model(line->draft)->target_vocab;
	struct draft_request request = {
		.size = sizeof(request),
		.rows = kind->rows,
		.steps = kind->steps,
		.anchors = lane->anchors,
		.positions = lane->positions,
		.seeds = lane->seeds,
		.temperatures = load->temperatures + lane->kind * load->rows_max,
		.deadline_us = (uint64_t)kind->deadline_us,
		.priority = kind->priority,
		.more = 1, /* lines_flush() or draft_poll() follows */
	};

	for (uint32_t r = 0; r < kind->rows; r++) {
		lane->anchors[r] = random_below(&worker->random, target_vocab);
		lane->positions[r] = random_below(&worker->random, POSITION_MAX);
		lane->seeds[r] = (int64_t)random_next(&worker->random);
	}
	lane->block = random_below(&worker->random, load->block_count);
	if (line->shared.region != NULL) {
		request.base.region = line->shared.region;
		request.base.offset = lane->block * load->block_bytes;
	} else {
		request.base.data = load->blocks + lane->block * (load->block_bytes / 2);
	}
	if (load->options.logits && line->shared.region != NULL) {
		request.logits.region = line->shared.region;
		request.logits.offset = lane->logits_offset;
	} else if (load->options.logits) {
		request.logits.data = lane->logits;
	}
	lane->sent_ns = clock_ns();
	return draft_submit(line->draft, &request, &lane->ticket);
}

static void flush(struct worker *worker, struct line *line)
{
	int r;

	line->kept = 0;
	if (line->broken)
		return;
	r = draft_flush(line->draft);
	if (r < 0)
		line_failed(worker, line, r, 0);
}

void lines_flush(struct worker *worker)
{
	struct line *line;

	while ((line = worker->keeping)) {
		worker->keeping = line->next_keeping;
		line->keeps = false;
		flush(worker, line);
	}
}

void line_send(struct worker *worker, struct line *line, int64_t planned_ns)
{
	struct lane *lane = line->lanes;
	int r;

	while (lane->busy)
		lane++;
	lane->kind = mix_draw(&worker->load->options.mix, &worker->random);
	r = submit(worker, line, lane);
	if (r < 0) {
		line_failed(worker, line, r, 1);
		return;
	}
	/* In a closed load a request is planned for the moment when it is sent. */
	lane->planned_ns = planned_ns < 0 ? lane->sent_ns : planned_ns;
	lane->measured = lane->planned_ns >= worker->load->measure_ns;
	lane->busy = true;
	line->busy_count++;
	if (lane->measured) {
		worker->sent++;
		if (lane->sent_ns - lane->planned_ns >= LOAD_LATE_NS)
			worker->result->late++;
	}
	if (++line->kept >= TOGETHER_MAX)
		flush(worker, line);
	if (!line->keeps) {
		line->keeps = true;
		line->next_keeping = worker->keeping;
		worker->keeping = line;
	}
}

bool line_receive(struct worker *worker, struct line *line, int64_t wait_us)
{
	struct draft_result *reply;
	int r;

	if (line->broken)
		return false;
	r = draft_poll(line->draft, wait_us, &reply);
	if (r < 0)
		line_failed(worker, line, r, 0);
	if (r <= 0) {
		line->kept = 0;
		return false;
	}
	take_result(worker, line, reply);
	draft_result_free(reply);
	return true;
}

void line_check_silence(struct worker *worker, struct line *line, int64_t now_ns)
{
	const int64_t timeout_ns = worker->load->timeout_ns;
	struct error_text error;

	for (uint32_t i = 0; i < line->lane_count && !line->broken; i++) {
		if (!line->lanes[i].busy || now_ns - line->lanes[i].sent_ns <= timeout_ns)
			continue;
		command_no_answer((double)timeout_ns / 1e9, &error);
		line_broke(worker, line, -ETIMEDOUT, 0, error.text);
	}
}
