/* draftctl top: what draftd does at the moment. On a terminal a screen that is drawn anew at every
 * look, and that waits for a draftd that is away; else a line a look, and an end with draftd's. */
#include "clock.h"
#include "command.h"
#include "devices.h"
#include "terminal.h"
#include "text.h"
#include "top_view.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct top_options {
	double interval_s;
	uint32_t count;
};

static const struct option_spec options[] = {
	{
		.name = "interval",
		.letter = 'i',
		.kind = OPTION_REAL,
		.value = "SECONDS",
		.help = "from one look to the next",
		.offset = offsetof(struct top_options, interval_s),
		.real_min = 0.1,
		.real_max = 3600,
	},
	{
		.name = "count",
		.letter = 'n',
		.kind = OPTION_U32,
		.value = "N",
		.help = "looks, then it ends; 0: until q is pressed, or a signal comes",
		.offset = offsetof(struct top_options, count),
		.max = 1000000000,
	},
	{0},
};

static const struct top_options defaults = {.interval_s = 1};

/* Two looks at draftd, and what is shown of it. */
struct look {
	struct draft *draft;
	bool away; /* to be connected to again */
	json_t *before, *now;
	char *devices;
	char *screen; /* as shown last */
};

static void look_done(struct look *look)
{
	json_decref(look->before);
	json_decref(look->now);
	free(look->devices);
	free(look->screen);
	draft_close(look->draft);
}

/* The lines about draftd's devices. NULL without memory. */
static char *describe_devices(const struct draft *draft, json_t *stats)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	if (to == NULL)
		return NULL;
	devices_print(to, draft, stats, TOP_LABEL_WIDTH);
	return text_close(to, &text);
}

/* Reads the statistics once more. Returns 0 or -errno with `error`. */
static int take(struct look *look, struct error_text *error)
{
	char *text = NULL, *devices;
	json_t *now;
	int r = 0;

	if (look->away)
		r = draft_reconnect(look->draft);
	if (r == 0)
		r = draft_stats(look->draft, &text);
	if (r < 0) {
		look->away = true;
		return error_text_set(
			error, EPROTO, "%s%s", draft_error(look->draft), command_remedy(r));
	}
	look->away = false;
	now = json_loads(text, 0, NULL);
	free(text);
	devices = describe_devices(look->draft, now);
	if (!json_is_object(now) || devices == NULL) {
		r = error_text_set(error, EPROTO, "%s",
			devices == NULL ? "out of memory"
					: "draftd's statistics are not a JSON object");
		json_decref(now);
		free(devices);
		return r;
	}
	json_decref(look->before);
	look->before = look->now;
	look->now = now;
	free(look->devices);
	look->devices = devices;
	return 0;
}

static void show_away(struct look *look, const char *why)
{
	char *text;

	if (asprintf(&text, "draftd is away: %s; trying again (q quits)\n\n%s", why,
		    look->screen != NULL ? look->screen : "") < 0)
		return;
	terminal_show(text);
	free(text);
}

/* Until the next look is due. False: that was the last one. */
static bool wait_on_screen(const struct look *look, int64_t due_ns)
{
	char key = '\0';

	for (;;) {
		switch (terminal_wait(due_ns, &key)) {
		case TERMINAL_TIMEOUT:
			return true;
		case TERMINAL_GONE:
			return false;
		case TERMINAL_KEY:
			if (key == 'q' || key == 'Q')
				return false;
			break;
		case TERMINAL_REDRAW:
			if (look->screen != NULL)
				terminal_show(look->screen);
			break;
		}
	}
}

static int run_on_screen(struct look *look, const struct top_options *wanted)
{
	const int64_t interval_ns = (int64_t)(wanted->interval_s * 1e9);
	int64_t due_ns = clock_ns();
	struct error_text error;

	if (terminal_open(&error) < 0)
		return command_fail("%s", error.text);
	for (uint32_t looks = 1;; looks++) {
		if (take(look, &error) < 0) {
			show_away(look, error.text);
		} else {
			free(look->screen);
			look->screen = top_screen(look->before, look->now, look->devices);
			if (look->screen != NULL)
				terminal_show(look->screen);
		}
		if (looks == wanted->count)
			break;
		due_ns += interval_ns;
		if (due_ns < clock_ns())
			due_ns = clock_ns(); /* a look that took longer */
		if (!wait_on_screen(look, due_ns))
			break;
	}
	terminal_close();
	return EXIT_SUCCESS;
}

static void sleep_until(int64_t at_ns)
{
	const struct timespec at = {
		.tv_sec = (time_t)(at_ns / 1000000000), .tv_nsec = (long)(at_ns % 1000000000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
		;
}

static int run_in_lines(struct look *look, const struct top_options *wanted)
{
	const int64_t interval_ns = (int64_t)(wanted->interval_s * 1e9);
	int64_t due_ns = clock_ns();
	struct error_text error;

	for (uint32_t looks = 1;; looks++) {
		char *head = NULL, *line;

		if (take(look, &error) < 0)
			return command_fail("%s", error.text);
		if (looks == 1)
			head = top_line_head(look->now);
		line = top_line(look->before, look->now);
		if (line != NULL && head != NULL)
			printf("%s%s", look->devices, head);
		if (line != NULL)
			fputs(line, stdout);
		free(head);
		free(line);
		if (line == NULL || (looks == 1 && head == NULL))
			return command_fail("out of memory");
		/* Whoever reads the pipe sees each line at once; main says why it can't be written.
		 */
		if (fflush(stdout) != 0 || looks == wanted->count)
			return EXIT_SUCCESS;
		due_ns += interval_ns;
		if (due_ns < clock_ns())
			due_ns = clock_ns();
		sleep_until(due_ns);
	}
}

static int run(const struct common *common, const void *values, char **operands)
{
	struct look look = {0};
	struct error_text error;
	int code;

	(void)operands;
	if (command_connect(common, &look.draft, &error) < 0)
		return command_fail("%s", error.text);
	code = terminal_usable() ? run_on_screen(&look, values) : run_in_lines(&look, values);
	look_done(&look);
	return code;
}

const struct command command_top = {
	.name = "top",
	.summary = "what draftd does at the moment, live",
	.description =
		"Shows rates, occupancy, queue, latencies and errors from one look to the next; "
		"at first, all since draftd's start. On a terminal it fills the screen until q is "
		"pressed, and waits for a draftd that restarts; else it prints the devices, and a "
		"line a look.",
	.options = options,
	.defaults = &defaults,
	.values_bytes = sizeof(defaults),
	.run = run,
};
