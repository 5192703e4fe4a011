/* Option tables: one a command, and one that all commands share. A table feeds the parser and
 * --help, so the two cannot disagree.
 *
 * Tables and defaults are constant; parsing writes into a struct of the caller's through the
 * offsets of its table. Texts point into argv. One thread (getopt_long() has global state). */
#ifndef DRAFTCTL_OPTIONS_H
#define DRAFTCTL_OPTIONS_H

#include "kernels/error_text.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {     /* and the type of the field at `offset` */
	OPTION_FLAG,   /* bool */
	OPTION_TEXT,   /* const char * */
	OPTION_U32,    /* uint32_t, min to max */
	OPTION_I64,    /* int64_t, min to max */
	OPTION_REAL,   /* double, real_min to real_max */
	OPTION_CHOICE, /* unsigned: the index into choices */
};

struct option_spec {
	const char *name; /* without the dashes; NULL ends a table */
	char letter;      /* short form, or 0 */
	enum option_kind kind;
	const char *value; /* what --help calls the value: "N", "FILE" */
	const char *help;  /* a phrase; range and default are added */
	size_t offset;
	int64_t min, max;
	double real_min, real_max;
	const char *const *choices; /* ends with NULL */
	const char *absent; /* --help: what holds without the option, where the default value says
			       nothing */
};

struct option_set {
	const struct option_spec *specs;
	void *values; /* holds the defaults before, the values after */
};

enum options_order {
	OPTIONS_BEFORE_OPERANDS, /* stop at the first operand */
	OPTIONS_ANYWHERE,        /* operands are moved behind the options */
};

/* Parses argv[1] and on. An option that stands in several sets means the first. Returns the index
 * of the first operand in argv, or -EINVAL with `error` naming the option, its value and what it
 * takes. */
int options_parse(const struct option_set *sets, size_t set_count, enum options_order order,
	int argc, char **argv, struct error_text *error);

/* Writes a table as --help shows it; the set's values are taken for the defaults. A letter that
 * `before`, a table that is parsed before this one (or NULL), has too is not shown: there it means
 * the other option. */
void options_help(FILE *to, const struct option_spec *specs, const void *defaults,
	const struct option_spec *before);

/* Writes words with a line break wherever the next one would pass column 80. */
void options_wrap(FILE *to, const char *text, int column, int indent);

#endif
