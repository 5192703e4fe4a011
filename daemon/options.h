/* The one table of what an operator can set.
 *
 * Each row is an option of the command line and, unless its `section` is NULL, a key of the
 * configuration file. getopt, the file's parser, --help and the manual page read this table and
 * nothing else. Constant data; any thread. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include "config.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_type {
	OPTION_HELP,    /* no argument: print the help and stop */
	OPTION_VERSION, /* no argument: print the version and stop */
	OPTION_SWITCH,  /* no argument, sets a bool; command line only */
	OPTION_TEXT,    /* char *, malloc'd: a path or a list, not empty */
	OPTION_COUNT,   /* whole number */
	OPTION_BYTES,   /* whole number with K, M, G, T (or KiB …), powers of 1024 */
	OPTION_TIME,    /* whole number with us, ms or s; kept in microseconds */
	OPTION_MODE,    /* octal permission bits */
	OPTION_FLOAT,   /* finite float, and a bool that says that it was given */
	OPTION_CHOICE,  /* one of `choices`; the first one is the value `min` */
};

struct option_info {
	const char *name;          /* "max-rows" for --max-rows */
	char letter;               /* short form, or 0 */
	const char *argument;      /* "N" in the help; NULL: takes none */
	const char *section, *key; /* where it stands in the file; NULL: command line only */
	enum option_type type;
	size_t offset, width; /* of the field in struct config */
	size_t given_offset;  /* OPTION_FLOAT: of its has_… */
	uint64_t min, max;    /* of a number, in bytes or microseconds; of a text, the most bytes */
	uint64_t initial;     /* default of a number or choice */
	const char *initial_text; /* default of a text, or NULL */
	float float_min;
	const char *const *choices; /* NULL-terminated */
	const char *help;           /* one line, no full stop */
};

extern const struct option_info options[];
extern const size_t options_count;

/* The row of a key in the file, or NULL. `*ret_section_known` tells an unknown key from an unknown
 * section. */
const struct option_info *options_find(
	const char *section, const char *key, bool *ret_section_known);

/* The row of the field that lies at `offset` in struct config: there is one. */
const struct option_info *options_at(size_t offset);

/* Gives every field of the zeroed `config` its default. Returns 0 or -ENOMEM. */
int options_set_defaults(struct config *config);

/* Reads `text` into the row's field. Returns 0, -ENOMEM, or -EINVAL with `error` as what comes
 * behind the option's name: "is 0; it must be 1 to 1024". The config keeps its old value on
 * failure. */
int option_set(const struct option_info *option, const char *text, struct config *config,
	struct error_text *error);

/* The value of a number or a choice, as it lies in the row's field. */
uint64_t option_value(const struct option_info *option, const struct config *config);

/* "1 to 1024", "error, warning, …": what is right, for messages and for --help. "" when any text
 * is. */
void option_describe_range(const struct option_info *option, char *text, size_t text_bytes);

/* "[socket], [model], …". */
void options_list_sections(char *text, size_t text_bytes);

void options_print_help(FILE *to);

#endif
