#include "mix.h"

#include "command.h"
#include "lines.h"
#include "number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define SHARE_MAX       1e9
#define TEMPERATURE_MAX 1e6
#define DEADLINE_US_MAX 3600000000 /* an hour, as draftd takes at most */

/* A number of a line, "name=value". */
static const struct {
	const char *name;
	bool real;
	double min, max;
} fields[] = {
	{"share", true, 1e-9, SHARE_MAX},
	{"rows", false, 1, REQUEST_ROWS_MAX},
	{"steps", false, 1, REQUEST_STEPS_MAX},
	{"temperature", true, 0, TEMPERATURE_MAX},
	{"priority", false, 0, 1},
	{"deadline_us", false, 0, DEADLINE_US_MAX},
};
enum { SHARE, ROWS, STEPS, TEMPERATURE, PRIORITY, DEADLINE, FIELD_COUNT };

static void set_field(struct mix_kind *kind, unsigned field, double real)
{
	switch (field) {
	case SHARE:
		kind->share = real;
		break;
	case ROWS:
		kind->rows = (uint32_t)real;
		break;
	case STEPS:
		kind->steps = (uint32_t)real;
		break;
	case TEMPERATURE:
		kind->temperature = real;
		break;
	case PRIORITY:
		kind->priority = (uint32_t)real;
		break;
	case DEADLINE:
		kind->deadline_us = (int64_t)real;
		break;
	}
}

static int take_field(const struct lines *lines, char *text, struct mix_kind *kind, unsigned *seen,
	struct error_text *error)
{
	char *value = strchr(text, '=');
	unsigned f = 0;
	int64_t whole;
	double real;
	int r;

	if (value != NULL)
		*value++ = '\0';
	while (f < FIELD_COUNT && strcmp(text, fields[f].name) != 0)
		f++;
	if (value == NULL || f == FIELD_COUNT)
		return error_text_set(error, EINVAL,
			"%s:%u: \"%.*s\" must be share=, rows=, steps=, temperature=, priority= "
			"or deadline_us=, and a number",
			lines->path, lines->number, CUT(40, text));
	if ((*seen & 1u << f) != 0)
		return error_text_set(
			error, EINVAL, "%s:%u: %s stands twice", lines->path, lines->number, text);
	*seen |= 1u << f;
	if (fields[f].real) {
		r = number_parse_real(value, &real);
	} else {
		r = number_parse_integer(value, &whole);
		real = r == 0 ? (double)whole : 0;
	}
	if (r < 0 || real < fields[f].min || real > fields[f].max)
		return error_text_set(error, EINVAL,
			"%s:%u: %s is \"%.*s\"; it must be a %snumber from %.10g to %.10g",
			lines->path, lines->number, text, CUT(40, value),
			fields[f].real ? "" : "whole ", fields[f].min, fields[f].max);
	set_field(kind, f, real);
	return 0;
}

static int take_line(const struct lines *lines, char *text, const struct mix_kind *defaults,
	struct mix *mix, struct error_text *error)
{
	struct mix_kind *kind = &mix->kinds[mix->count];
	char *rest = text, *word;
	unsigned seen = 0;
	int r;

	if (mix->count == MIX_KINDS_MAX)
		return error_text_set(error, E2BIG, "%s:%u: more than %d kinds of requests",
			lines->path, lines->number, MIX_KINDS_MAX);
	*kind = *defaults;
	kind->line = lines->number;
	while ((word = strsep(&rest, " \t")) != NULL) {
		if (*word == '\0')
			continue;
		r = take_field(lines, word, kind, &seen, error);
		if (r < 0)
			return r;
	}
	if ((seen & 1u << SHARE) == 0)
		return error_text_set(error, EINVAL,
			"%s:%u: share is missing: how many of all requests are of this kind, in "
			"any unit",
			lines->path, lines->number);
	mix->count++;
	return 0;
}

int mix_read(const char *path, const struct mix_kind *defaults, struct mix *ret,
	struct error_text *error)
{
	struct mix mix = {0};
	struct lines lines;
	char *text;
	int r;

	r = lines_open(path, &lines, error);
	if (r < 0)
		return r;
	while ((r = lines_next(&lines, &text, error)) > 0) {
		r = take_line(&lines, text, defaults, &mix, error);
		if (r < 0)
			break;
	}
	lines_close(&lines);
	if (r == 0 && mix.count == 0)
		r = error_text_set(error, EINVAL, "%s has no kinds of requests", path);
	if (r == 0)
		*ret = mix;
	return r;
}

unsigned mix_draw(const struct mix *mix, struct random *random)
{
	double sum = 0, at;
	unsigned k = 0;

	if (mix->count == 1)
		return 0;
	for (unsigned i = 0; i < mix->count; i++)
		sum += mix->kinds[i].share;
	at = (double)(random_next(random) >> 11) * 0x1p-53 * sum;
	while (k + 1 < mix->count && at >= mix->kinds[k].share)
		at -= mix->kinds[k++].share;
	return k;
}

uint32_t mix_rows_max(const struct mix *mix)
{
	uint32_t most = 0;

	for (unsigned k = 0; k < mix->count; k++)
		most = mix->kinds[k].rows > most ? mix->kinds[k].rows : most;
	return most;
}

uint32_t mix_steps_max(const struct mix *mix)
{
	uint32_t most = 0;

	for (unsigned k = 0; k < mix->count; k++)
		most = mix->kinds[k].steps > most ? mix->kinds[k].steps : most;
	return most;
}

uint64_t mix_cells_max(const struct mix *mix)
{
	uint64_t most = 0;

	for (unsigned k = 0; k < mix->count; k++) {
		uint64_t cells = (uint64_t)mix->kinds[k].rows * mix->kinds[k].steps;

		most = cells > most ? cells : most;
	}
	return most;
}
