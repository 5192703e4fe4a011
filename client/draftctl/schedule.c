#include "schedule.h"

#include "lines.h"
#include "number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define ROOM_FIRST 1024

static int take_time(const char *path, const struct lines *lines, const char *text,
	struct schedule *schedule, struct error_text *error)
{
	double seconds;
	int64_t at_ns;

	if (number_parse_real(text, &seconds) < 0 || seconds < 0 || seconds > SCHEDULE_SECONDS_MAX)
		return error_text_set(error, EINVAL,
			"%s:%u: \"%.*s\" is no time; it must be seconds from 0 to %d, one number "
			"a line",
			path, lines->number, CUT(40, text), SCHEDULE_SECONDS_MAX);
	at_ns = llround(seconds * 1e9);
	if (schedule->count > 0 && at_ns < schedule->at_ns[schedule->count - 1])
		return error_text_set(error, EINVAL,
			"%s:%u: %s s is before the time above it; sort the times", path,
			lines->number, text);
	schedule->at_ns[schedule->count++] = at_ns;
	return 0;
}

int schedule_read(const char *path, struct schedule *ret, struct error_text *error)
{
	struct schedule schedule = {0};
	struct lines lines;
	size_t room = 0;
	char *text;
	int r;

	r = lines_open(path, &lines, error);
	if (r < 0)
		return r;
	while ((r = lines_next(&lines, &text, error)) > 0) {
		if (schedule.count == SCHEDULE_TIMES_MAX) {
			r = error_text_set(error, E2BIG, "%s:%u: more than %d times", path,
				lines.number, SCHEDULE_TIMES_MAX);
			break;
		}
		if (schedule.count == room) {
			int64_t *more;

			room = room > 0 ? room * 2 : ROOM_FIRST;
			more = realloc(schedule.at_ns, room * sizeof(*more));
			if (more == NULL) {
				r = error_text_set(error, ENOMEM, "out of memory");
				break;
			}
			schedule.at_ns = more;
		}
		r = take_time(path, &lines, text, &schedule, error);
		if (r < 0)
			break;
	}
	lines_close(&lines);
	if (r == 0 && schedule.count == 0)
		r = error_text_set(error, EINVAL, "%s has no times", path);
	if (r < 0)
		schedule_done(&schedule);
	else
		*ret = schedule;
	return r;
}

void schedule_done(struct schedule *schedule)
{
	free(schedule->at_ns);
	*schedule = (struct schedule){0};
}
