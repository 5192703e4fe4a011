#include "clock.h"
#include "load_private.h"
#include "text.h"

#include <stdio.h>
#include <sys/prctl.h>

#define PROGRESS_PERIOD_NS 200000000
#define TICK_NS            100000000

/* The next planned time, and where the plan ends. */
static void plan(struct worker *worker)
{
	const struct load *load = worker->load;
	int64_t at_ns;

	worker->planned_ns = INT64_MAX;
	if (!arrival_next(&worker->arrival, &at_ns))
		return;
	at_ns += load->start_ns;
	if (worker->sent >= worker->quota || at_ns >= load->end_ns)
		worker->horizon_ns = at_ns < load->end_ns ? at_ns : load->end_ns;
	else
		worker->planned_ns = at_ns;
}

static void begin(struct worker *worker)
{
	const struct load *load = worker->load;
	const struct load_options *o = &load->options;
	uint32_t threads = o->threads;

	*worker->result = (struct load_result){0};
	worker->quota = o->requests == 0 ? INT64_MAX
					 : o->requests / threads +
						   (worker->index < o->requests % threads ? 1 : 0);
	worker->sent = 0;
	worker->turn = 0;
	worker->last_reply_ns = load->measure_ns;
	worker->horizon_ns = load->measure_ns;
	worker->sending = true;
	worker->planned_ns = INT64_MAX;
	if (!load_is_open(o))
		return;
	worker->arrival =
		arrival_start(o->arrival, o->rate, o->schedule.count > 0 ? &o->schedule : NULL,
			(uint64_t)o->seed, worker->index, threads);
	plan(worker);
	/* The kernel may round the end of a wait up by this. */
	prctl(PR_SET_TIMERSLACK, 1);
}

static struct line *find_room(struct worker *worker)
{
	for (uint32_t i = 0; i < worker->line_count; i++) {
		struct line *line = &worker->lines[(worker->turn + i) % worker->line_count];

		if (!line_has_room(line))
			continue;
		worker->turn = (worker->turn + i + 1) % worker->line_count;
		return line;
	}
	return NULL;
}

/* What is due in an open load, the oldest first; what finds no room is sent late. */
static void send_due(struct worker *worker)
{
	struct line *line;

	while (worker->sending && worker->planned_ns <= clock_ns()) {
		line = find_room(worker);
		if (line == NULL)
			break;
		line_send(worker, line, worker->planned_ns);
		plan(worker);
	}
	lines_flush(worker);
}

static void send_what_may_go(struct worker *worker, struct line *line)
{
	if (load_is_open(&worker->load->options)) {
		send_due(worker);
		return;
	}
	while (worker->sending && worker->sent < worker->quota && line_has_room(line))
		line_send(worker, line, -1);
}

/* What was planned before `end_ns` and never sent is told, but for the warm-up's: its latency is
 * not in the histogram. */
static void stop_sending(struct worker *worker, int64_t end_ns)
{
	worker->sending = false;
	while (worker->planned_ns < end_ns) {
		if (worker->planned_ns >= worker->load->measure_ns) {
			worker->result->unsent++;
			worker->sent++;
		}
		plan(worker);
	}
	worker->planned_ns = INT64_MAX;
}

static void update_phase(struct worker *worker)
{
	const struct load *load = worker->load;
	int64_t now_ns = clock_ns();

	if (!worker->sending)
		return;
	if (atomic_load(load->stop) || atomic_load(&load->abandoned)) {
		worker->result->interrupted = true;
		stop_sending(worker, now_ns);
	} else if (now_ns >= load->end_ns) {
		send_due(worker);
		stop_sending(worker, load->end_ns);
	}
}

/* Takes every reply that is there, and sends what may go after each; waits up to `wait_us` for the
 * first. Sending can take replies in, too; the last look for a reply comes after the last request.
 * Replies may never cease to be there, so the end of the time is looked for here. */
static void pump(struct worker *worker, struct line *line, int64_t wait_us)
{
	send_what_may_go(worker, line);
	while (line_receive(worker, line, wait_us)) {
		wait_us = 0;
		update_phase(worker);
		send_what_may_go(worker, line);
	}
	line_check_goaway(worker, line);
}

/* Puts the lines that something can come from into the poll set; false when there is nothing to
 * wait for, on any of them or in the plan. */
static bool prepare_poll(struct worker *worker)
{
	bool any = false, usable = false;

	for (uint32_t i = 0; i < worker->line_count; i++) {
		struct line *line = &worker->lines[i];
		bool waits = !line->broken && line->busy_count > 0;

		worker->polls[i] = (struct pollfd){
			.fd = waits ? draft_fd(line->draft) : -1,
			.events = waits ? draft_events(line->draft) : (short)0,
		};
		any |= waits;
		usable |= !line->broken;
	}
	return any || (usable && worker->planned_ns != INT64_MAX);
}

static bool has_room(const struct worker *worker)
{
	for (uint32_t i = 0; i < worker->line_count; i++)
		if (line_has_room(&worker->lines[i]))
			return true;
	return false;
}

/* Waits until something came from a line, the next request is due, or for a tick, which bounds how
 * late a signal, the end of the time or a silent draftd is seen. How many lines have something. */
static int wait_for_lines(struct worker *worker)
{
	int64_t now_ns = clock_ns();
	int64_t until_ns = now_ns + TICK_NS;
	int64_t spin_end_ns = now_ns + worker->load->options.spin_us * 1000;
	struct timespec timeout;
	int ready;

	if (worker->planned_ns < until_ns && has_room(worker))
		until_ns = worker->planned_ns;
	if (spin_end_ns > until_ns)
		spin_end_ns = until_ns;
	do
		ready = poll(worker->polls, worker->line_count, 0);
	while (ready == 0 && (now_ns = clock_ns()) < spin_end_ns);
	if (ready != 0 || now_ns >= until_ns)
		return ready;
	timeout.tv_sec = (until_ns - now_ns) / 1000000000;
	timeout.tv_nsec = (until_ns - now_ns) % 1000000000;
	return ppoll(worker->polls, worker->line_count, &timeout, NULL);
}

/* A line that is alone in a closed load waits as libdraft does. */
static void wait_and_pump(struct worker *worker)
{
	int ready;

	if (worker->line_count == 1 && !load_is_open(&worker->load->options)) {
		update_phase(worker);
		pump(worker, &worker->lines[0], TICK_NS / 1000);
		return;
	}
	ready = wait_for_lines(worker);
	update_phase(worker);
	send_due(worker);
	for (uint32_t i = 0; ready > 0 && i < worker->line_count; i++)
		if (worker->polls[i].revents != 0)
			pump(worker, &worker->lines[i], 0);
}

static void draw_progress(const struct load *load, int64_t now_ns)
{
	double seconds = (double)(now_ns - load->measure_ns) / 1e9;
	uint64_t answered = 0, failed = 0;

	if (seconds <= 0) {
		fprintf(stderr, "\r%6.1f s  warming up", (double)(now_ns - load->start_ns) / 1e9);
		return;
	}
	for (uint32_t i = 0; i < load->options.threads; i++) {
		answered += atomic_load_explicit(&load->workers[i].answered, memory_order_relaxed);
		failed += atomic_load_explicit(&load->workers[i].failed, memory_order_relaxed);
	}
	fprintf(stderr, "\r%6.1f s  %s request%s, ", seconds, text_count(answered).at,
		sentence_s(answered));
	fprintf(stderr, "%s a second, ", text_rate((double)answered / seconds).at);
	fprintf(stderr, "%s error%s   ", text_count(failed).at, sentence_s(failed));
}

static void look_around(struct worker *worker, int64_t now_ns)
{
	for (uint32_t i = 0; i < worker->line_count; i++)
		line_check_silence(worker, &worker->lines[i], now_ns);
	if (worker->index == 0 && worker->load->progress)
		draw_progress(worker->load, now_ns);
}

void *worker_run(void *argument)
{
	struct worker *worker = argument;
	const struct load *load = worker->load;
	int64_t tick_ns = clock_ns(), now_ns, end_ns;

	begin(worker);
	update_phase(worker);
	for (uint32_t i = 0; i < worker->line_count; i++)
		pump(worker, &worker->lines[i], 0);
	while (prepare_poll(worker)) {
		wait_and_pump(worker);
		now_ns = clock_ns();
		if (now_ns - tick_ns < PROGRESS_PERIOD_NS)
			continue;
		tick_ns = now_ns;
		look_around(worker, now_ns);
	}
	/* A plan that was kept lasted until the next request would have come. */
	end_ns = worker->last_reply_ns;
	if (!worker->result->interrupted && worker->horizon_ns > end_ns)
		end_ns = worker->horizon_ns;
	if (worker->result->requests > 0)
		worker->result->seconds = (double)(end_ns - load->measure_ns) / 1e9;
	return NULL;
}
