#include "options.h"

#include "number.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define OPTIONS_MAX   64 /* of all sets together; the tables are far below */
#define LONG_BASE     256
#define HELP_COLUMN   26
#define HELP_WIDTH    80
#define HELP_TEXT_MAX 512

static void *field(const struct option_spec *spec, void *values)
{
	return (char *)values + spec->offset;
}

static const void *const_field(const struct option_spec *spec, const void *values)
{
	return (const char *)values + spec->offset;
}

static int refuse_choice(const struct option_spec *spec, const char *text, struct error_text *error)
{
	char list[128] = "";
	size_t used = 0;

	for (size_t i = 0; spec->choices[i] != NULL && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
			i == 0 ? "" : " or ", spec->choices[i]);
	return error_text_set(
		error, EINVAL, "--%s is \"%s\"; it must be %s", spec->name, text, list);
}

static int take_integer(
	const struct option_spec *spec, void *values, const char *text, struct error_text *error)
{
	int64_t value;

	if (number_parse_integer(text, &value) != 0 || value < spec->min || value > spec->max)
		return error_text_set(error, EINVAL,
			"--%s is \"%s\"; it must be a whole number from %" PRId64 " to %" PRId64,
			spec->name, text, spec->min, spec->max);
	if (spec->kind == OPTION_U32)
		*(uint32_t *)field(spec, values) = (uint32_t)value;
	else
		*(int64_t *)field(spec, values) = value;
	return 0;
}

static int take(
	const struct option_spec *spec, void *values, const char *text, struct error_text *error)
{
	double real;

	switch (spec->kind) {
	case OPTION_FLAG:
		*(bool *)field(spec, values) = true;
		return 0;
	case OPTION_TEXT:
		if (text[0] == '\0')
			return error_text_set(error, EINVAL, "--%s is empty; it must be a %s",
				spec->name, spec->value);
		*(const char **)field(spec, values) = text;
		return 0;
	case OPTION_U32:
	case OPTION_I64:
		return take_integer(spec, values, text, error);
	case OPTION_REAL:
		if (number_parse_real(text, &real) != 0 || real < spec->real_min ||
			real > spec->real_max)
			return error_text_set(error, EINVAL,
				"--%s is \"%s\"; it must be a number from %.10g to %.10g",
				spec->name, text, spec->real_min, spec->real_max);
		*(double *)field(spec, values) = real;
		return 0;
	case OPTION_CHOICE:
		for (unsigned i = 0; spec->choices[i] != NULL; i++) {
			if (strcmp(text, spec->choices[i]) == 0) {
				*(unsigned *)field(spec, values) = i;
				return 0;
			}
		}
		return refuse_choice(spec, text, error);
	}
	return -EINVAL;
}

int options_parse(const struct option_set *sets, size_t set_count, enum options_order order,
	int argc, char **argv, struct error_text *error)
{
	struct option longs[OPTIONS_MAX + 1] = {0};
	const struct option_spec *specs[OPTIONS_MAX];
	void *values[OPTIONS_MAX];
	/* '+' stops at an operand; ':' tells a missing value from an unknown option. */
	char letters[2 * OPTIONS_MAX + 3] = {0};
	size_t letter_count = 0, count = 0;
	int got, r;

	if (order == OPTIONS_BEFORE_OPERANDS)
		letters[letter_count++] = '+';
	letters[letter_count++] = ':';
	for (size_t s = 0; s < set_count; s++) {
		for (const struct option_spec *spec = sets[s].specs; spec->name != NULL; spec++) {
			bool flag = spec->kind == OPTION_FLAG;

			if (count == OPTIONS_MAX)
				return error_text_set(
					error, EINVAL, "more than %d options", OPTIONS_MAX);
			longs[count] = (struct option){
				.name = spec->name,
				.has_arg = flag ? no_argument : required_argument,
				.val = LONG_BASE + (int)count,
			};
			specs[count] = spec;
			values[count] = sets[s].values;
			count++;
			if (spec->letter == 0)
				continue;
			letters[letter_count++] = spec->letter;
			if (!flag)
				letters[letter_count++] = ':';
		}
	}

	optind = 0; /* glibc: start over */
	opterr = 0;
	while ((got = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		size_t at = 0;

		if (got == ':')
			return error_text_set(error, EINVAL, "%s needs a value", argv[optind - 1]);
		if (got == '?' && optopt >= LONG_BASE)
			return error_text_set(error, EINVAL, "--%s takes no value",
				specs[optopt - LONG_BASE]->name);
		if (got == '?' && optopt != 0)
			return error_text_set(error, EINVAL, "unknown option -%c", optopt);
		if (got == '?')
			return error_text_set(error, EINVAL, "unknown option %s", argv[optind - 1]);
		if (got >= LONG_BASE)
			at = (size_t)(got - LONG_BASE);
		else
			while (specs[at]->letter != got)
				at++;
		r = take(specs[at], values[at], optarg, error);
		if (r < 0)
			return r;
	}
	return optind;
}

void options_wrap(FILE *to, const char *text, int column, int indent)
{
	bool first = true;

	while (*text != '\0') {
		int length = (int)strcspn(text, " \n");

		if (!first && (text[-1] == '\n' || column + 1 + length > HELP_WIDTH)) {
			fprintf(to, "\n%*s", indent, "");
			column = indent;
		} else if (!first) {
			fputc(' ', to);
			column++;
		}
		fprintf(to, "%.*s", length, text);
		column += length;
		text += length;
		if (*text != '\0')
			text++;
		first = false;
	}
	fputc('\n', to);
}

/* "(1 to 64, default 8)", from the table and the defaults. */
static int describe(char *text, size_t size, const struct option_spec *spec, const void *defaults)
{
	const void *at = const_field(spec, defaults);
	char range[96] = "", absent[96] = "";

	switch (spec->kind) {
	case OPTION_FLAG:
		break;
	case OPTION_TEXT:
		if (*(const char *const *)at != NULL)
			snprintf(absent, sizeof(absent), "%s", *(const char *const *)at);
		break;
	case OPTION_U32:
	case OPTION_I64:
		if (spec->min != INT64_MIN)
			snprintf(range, sizeof(range), "%" PRId64 " to %" PRId64, spec->min,
				spec->max);
		snprintf(absent, sizeof(absent), "%" PRId64,
			spec->kind == OPTION_U32 ? (int64_t) * (const uint32_t *)at
						 : *(const int64_t *)at);
		break;
	case OPTION_REAL:
		snprintf(range, sizeof(range), "%.10g to %.10g", spec->real_min, spec->real_max);
		snprintf(absent, sizeof(absent), "%.10g", *(const double *)at);
		break;
	case OPTION_CHOICE:
		for (size_t i = 0, used = 0; spec->choices[i] != NULL && used < sizeof(range); i++)
			used += (size_t)snprintf(range + used, sizeof(range) - used, "%s%s",
				i == 0 ? "" : " or ", spec->choices[i]);
		snprintf(absent, sizeof(absent), "%s", spec->choices[*(const unsigned *)at]);
		break;
	}
	if (spec->absent != NULL)
		snprintf(absent, sizeof(absent), "%s", spec->absent);
	if (range[0] == '\0' && absent[0] == '\0')
		return snprintf(text, size, "%s", spec->help);
	return snprintf(text, size, "%s (%s%s%s%s)", spec->help, range,
		range[0] != '\0' && absent[0] != '\0' ? ", " : "",
		absent[0] != '\0' ? "default " : "", absent);
}

static bool has_letter(const struct option_spec *specs, char letter)
{
	while (specs != NULL && specs->name != NULL && specs->letter != letter)
		specs++;
	return specs != NULL && specs->name != NULL;
}

void options_help(FILE *to, const struct option_spec *specs, const void *defaults,
	const struct option_spec *before)
{
	for (const struct option_spec *spec = specs; spec->name != NULL; spec++) {
		bool shown = spec->letter != 0 && !has_letter(before, spec->letter);
		char text[HELP_TEXT_MAX];
		int column = 2;

		column += shown ? fprintf(to, "  -%c, ", spec->letter) - 2 : fprintf(to, "  ") - 2;
		column += fprintf(to, "--%s", spec->name);
		if (spec->value != NULL)
			column += fprintf(to, " %s", spec->value);
		if (column + 2 > HELP_COLUMN) {
			fputc('\n', to);
			column = 0;
		}
		fprintf(to, "%*s", HELP_COLUMN - column, "");
		describe(text, sizeof(text), spec, defaults);
		options_wrap(to, text, HELP_COLUMN, HELP_COLUMN);
	}
}
