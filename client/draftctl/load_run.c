#include "clock.h"
#include "load_private.h"
#include "text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define POSITION_MAX       100000
#define PROGRESS_PERIOD_NS 200000000
#define TICK_MS            100

static void count_error(struct load_result *result, int code, const char *text)
{
	struct load_error *error = result->errors;

	while (error < result->errors + result->error_kinds && error->code != code)
		error++;
	if (error == result->errors + LOAD_ERROR_KINDS)
		error--; /* more kinds than the protocol has: the last one stands for the rest */
	if (error == result->errors + result->error_kinds) {
		result->error_kinds++;
		error->code = code;
		snprintf(error->text, sizeof(error->text), "%s", text);
	}
	error->count++;
}

static void line_broke(struct load *load, struct line *line, int code, const char *text)
{
	count_error(load->result, code, text);
	line->broken = true;
	line->busy_count = 0;
}

/* A draftd that said that it stops, and then stops, is no broken connection. */
static void line_failed(struct load *load, struct line *line, int code)
{
	if (draft_going_away(line->draft))
		line_broke(load, line, -DRAFT_E_DRAINING, draft_goaway_reason(line->draft));
	else
		line_broke(load, line, code, draft_error(line->draft));
}

static bool may_send(const struct load *load)
{
	return load->sending &&
	       (load->options.requests == 0 || load->sent < load->options.requests);
}

static int submit(struct load *load, struct line *line, struct lane *lane)
{
	const struct load_options *o = &load->options;
	uint32_t target_vocab = draft_model(line->draft)->target_vocab;
	struct draft_request request = {
		.size = sizeof(request),
		.rows = o->rows,
		.steps = o->steps,
		.anchors = lane->anchors,
		.positions = lane->positions,
		.seeds = lane->seeds,
		.temperatures = load->temperatures,
	};

	for (uint32_t r = 0; r < o->rows; r++) {
		lane->anchors[r] = random_below(&load->random, target_vocab);
		lane->positions[r] = random_below(&load->random, POSITION_MAX);
		lane->seeds[r] = (int64_t)random_next(&load->random);
	}
	lane->block = random_below(&load->random, load->block_count);
	if (line->shared.region != NULL) {
		request.base.region = line->shared.region;
		request.base.offset = lane->block * load->block_bytes;
	} else {
		request.base.data = load->blocks + lane->block * (load->block_bytes / 2);
	}
	if (o->logits && line->shared.region != NULL) {
		request.logits.region = line->shared.region;
		request.logits.offset = lane->logits_offset;
	} else if (o->logits) {
		request.logits.data = lane->logits;
	}
	lane->measured = load->measure_ns != 0;
	lane->sent_ns = clock_ns();
	return draft_submit(line->draft, &request, &lane->ticket);
}

static void fill_lanes(struct load *load, struct line *line)
{
	for (uint32_t i = 0; i < line->lane_count && line->busy_count < line->lane_count; i++) {
		struct lane *lane = &line->lanes[i];
		int r;

		if (lane->busy)
			continue;
		if (!may_send(load) || draft_going_away(line->draft))
			return;
		r = submit(load, line, lane);
		if (r < 0) {
			line_failed(load, line, r);
			return;
		}
		lane->busy = true;
		line->busy_count++;
		load->sent += lane->measured;
	}
}

/* draftd's times are in whole microseconds: what is left is not below zero for that. */
static uint64_t less_us(int64_t ns, uint64_t us)
{
	return (uint64_t)ns > us * 1000 ? (uint64_t)ns - us * 1000 : 0;
}

static void take_tokens(struct load *load, struct line *line, struct lane *lane,
	const struct draft_result *reply, int64_t now_ns)
{
	struct load_result *result = load->result;
	int64_t took_ns = now_ns - lane->sent_ns;
	struct error_text error;
	struct load_exchange exchange = {
		.rows = reply->rows,
		.steps = reply->steps,
		.anchors = lane->anchors,
		.positions = lane->positions,
		.seeds = lane->seeds,
		.temperatures = load->temperatures,
		.base = load->blocks + lane->block * (load->block_bytes / 2),
		.logits = lane->logits,
		.tokens = reply->tokens,
		.flags = reply->flags,
	};

	result->requests++;
	result->rows += reply->rows;
	result->tokens += (uint64_t)reply->rows * reply->steps;
	for (uint32_t r = 0; r < reply->rows; r++)
		result->nan_rows += reply->flags[r] & 1;
	histogram_add(&result->total, (uint64_t)took_ns);
	histogram_add(&result->wire, less_us(took_ns, reply->total_us));
	histogram_add(&result->around, less_us(took_ns, reply->device_us));
	histogram_add(&result->served, reply->total_us * 1000);
	histogram_add(&result->queue, reply->queue_us * 1000);
	histogram_add(&result->device, reply->device_us * 1000);
	load->last_reply_ns = now_ns;
	if (load->observe == NULL)
		return;
	/* Device memory is copied out for whoever looks, and not otherwise. */
	if (load->options.base == LOAD_BASE_DEVICE && lane->logits != NULL &&
		shared_read(&line->shared, lane->logits_offset, lane->logits, load->block_bytes,
			&error) < 0)
		count_error(result, -EIO, error.text);
	else
		load->observe(load->user, &exchange);
}

static void take_result(struct load *load, struct line *line, const struct draft_result *reply)
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
	if (reply->code != 0)
		count_error(load->result, reply->code, reply->error);
	else if (lane->measured)
		take_tokens(load, line, lane, reply, now_ns);
}

static void update_phase(struct load *load, int64_t now_ns, bool stop)
{
	const struct load_options *o = &load->options;

	if (load->measure_ns == 0 && (double)(now_ns - load->start_ns) >= o->warmup_s * 1e9)
		load->measure_ns = now_ns;
	if (stop && load->sending)
		load->result->interrupted = true;
	if (stop || (o->duration_s > 0 && load->measure_ns != 0 &&
			    (double)(now_ns - load->measure_ns) >= o->duration_s * 1e9))
		load->sending = false;
}

/* Takes every reply that is there, and sends the next request for each; waits up to `wait_us` for
 * the first. Sending can take replies in, too; the last look for a reply comes after the last
 * request. Replies may never cease to be there, so the end of the time is looked for here. */
static void pump(struct load *load, struct line *line, int64_t wait_us)
{
	struct draft_result *reply;
	int r;

	fill_lanes(load, line);
	while (!line->broken && (r = draft_poll(line->draft, wait_us, &reply)) != 0) {
		wait_us = 0;
		if (r < 0) {
			line_failed(load, line, r);
			return;
		}
		take_result(load, line, reply);
		draft_result_free(reply);
		update_phase(load, clock_ns(), *load->stop);
		fill_lanes(load, line);
	}
	if (!line->broken && line->busy_count == 0 && draft_going_away(line->draft))
		line_failed(load, line, -DRAFT_E_DRAINING);
}

/* A request that is never answered must not hold the load for ever. */
static void check_silence(struct load *load, struct line *line, int64_t now_ns)
{
	for (uint32_t i = 0; i < line->lane_count && !line->broken; i++)
		if (line->lanes[i].busy && now_ns - line->lanes[i].sent_ns > load->timeout_ns)
			line_broke(load, line, -ETIMEDOUT, "a request was not answered in time");
}

static void draw_progress(const struct load *load, int64_t now_ns)
{
	const struct load_result *result = load->result;
	double seconds = (double)(now_ns - load->measure_ns) / 1e9;

	if (load->measure_ns == 0) {
		fprintf(stderr, "\r%6.1f s  warming up", (double)(now_ns - load->start_ns) / 1e9);
		return;
	}
	fprintf(stderr, "\r%6.1f s  %s requests, ", seconds, text_count(result->requests).at);
	fprintf(stderr, "%s a second, ", text_rate((double)result->requests / seconds).at);
	fprintf(stderr, "p50 %s, ", text_duration((double)histogram_at(&result->total, 0.5)).at);
	fprintf(stderr, "p99 %s, ", text_duration((double)histogram_at(&result->total, 0.99)).at);
	fprintf(stderr, "%s errors   ", text_count(load_error_count(result)).at);
}

/* Puts the lines that something can come from into the poll set; false when there is none. */
static bool prepare_poll(struct load *load)
{
	bool any = false;

	for (uint32_t i = 0; i < load->options.connections; i++) {
		struct line *line = &load->lines[i];
		bool waits = !line->broken && line->busy_count > 0;

		load->polls[i] = (struct pollfd){
			.fd = waits ? draft_fd(line->draft) : -1,
			.events = waits ? draft_events(line->draft) : (short)0,
		};
		any |= waits;
	}
	return any;
}

/* Waits until something came from a line, or for a tick, which bounds how late a signal, the end of
 * the time or a silent draftd is seen. A line that is alone waits as libdraft does. */
static void wait_and_pump(struct load *load)
{
	uint32_t count = load->options.connections;
	int64_t end_ns = clock_ns() + load->options.spin_us * 1000;
	int ready;

	if (count == 1) {
		update_phase(load, clock_ns(), *load->stop);
		pump(load, &load->lines[0], TICK_MS * 1000);
		return;
	}
	do
		ready = poll(load->polls, count, 0);
	while (ready == 0 && clock_ns() < end_ns);
	if (ready == 0)
		ready = poll(load->polls, count, TICK_MS);
	update_phase(load, clock_ns(), *load->stop);
	for (uint32_t i = 0; ready > 0 && i < count; i++)
		if (load->polls[i].revents != 0)
			pump(load, &load->lines[i], 0);
}

void load_run(struct load *load, const volatile sig_atomic_t *stop, load_observer *observe,
	void *user, struct load_result *ret)
{
	bool progress = isatty(STDERR_FILENO);
	int64_t tick_ns, now_ns;

	*ret = (struct load_result){0};
	load->result = ret;
	load->observe = observe;
	load->user = user;
	load->stop = stop;
	load->sending = true;
	load->start_ns = tick_ns = now_ns = clock_ns();
	update_phase(load, now_ns, *stop);
	for (uint32_t i = 0; i < load->options.connections; i++)
		pump(load, &load->lines[i], 0);
	while (prepare_poll(load)) {
		wait_and_pump(load);
		now_ns = clock_ns();
		if (now_ns - tick_ns < PROGRESS_PERIOD_NS)
			continue;
		tick_ns = now_ns;
		for (uint32_t i = 0; i < load->options.connections; i++)
			check_silence(load, &load->lines[i], now_ns);
		if (progress)
			draw_progress(load, now_ns);
	}
	if (progress)
		fprintf(stderr, "\r%*s\r", 78, "");
	if (ret->requests > 0)
		ret->seconds = (double)(load->last_reply_ns - load->measure_ns) / 1e9;
}

uint64_t load_error_count(const struct load_result *result)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < result->error_kinds; i++)
		count += result->errors[i].count;
	return count;
}
