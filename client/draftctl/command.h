/* What a subcommand is, and what all of them share. main.c parses the options and calls run();
 * everything is one thread.
 *
 * Exit codes: 0 done, 1 failed (one sentence on stderr), 2 used wrongly. */
#ifndef DRAFTCTL_COMMAND_H
#define DRAFTCTL_COMMAND_H

#include "client/draft.h"
#include "kernels/error_text.h"
#include "options.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define EXIT_USAGE 2

/* Bounds of what options and files may ask for, far above what a draftd takes: its own limits are
 * checked once it has told them. */
#define REQUEST_ROWS_MAX  4096
#define REQUEST_STEPS_MAX 1024

/* The options that every command takes. */
struct common {
	const char *socket_path;
	double timeout_s;
	bool help;
	bool version;
};

struct command {
	const char *name;     /* "ping", "model make" */
	const char *operands; /* as the usage line shows them: "FILE..." */
	int operands_min;
	int operands_max;        /* -1: any number */
	const char *summary;     /* one line of `draftctl --help` */
	const char *description; /* a paragraph of `draftctl COMMAND --help` */
	const struct option_spec *options;
	const void *defaults; /* of the struct that `options` fills; NULL if there are none */
	size_t values_bytes;  /* its size */
	/* `values` holds the parsed options; `operands` ends with NULL. Returns the exit code. */
	int (*run)(const struct common *common, const void *values, char **operands);
};

extern const struct command command_ping, command_info, command_draft, command_replay,
	command_stats, command_metrics, command_top, command_bench, command_model_make,
	command_model_show, command_drain, command_reload;

/* Says "draftctl: ..." on stderr and returns EXIT_FAILURE. */
int command_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for options that contradict each other: returns EXIT_USAGE. */
int command_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same of something that is no failure, but not to be overlooked. */
void command_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints a document, which it takes, and returns the exit code. NULL, as json_pack() gives for what
 * it cannot encode, is a failure. */
int command_print_json(json_t *root);

/* Connects as the common options say. On failure the sentence says what to do. */
int command_connect(const struct common *common, struct draft **ret, struct error_text *error);

/* The same, with waits that look for replies for `spin_us` before they sleep. */
int command_connect_spinning(
	const struct common *common, int64_t spin_us, struct draft **ret, struct error_text *error);

/* A request that was not answered within `timeout_s`, where draftctl itself waits for it: puts the
 * sentence into `error`. -ETIMEDOUT. */
int command_no_answer(double timeout_s, struct error_text *error);

/* What to append to the reason of a call of libdraft that returned `code`: "; --timeout allows
 * more" where the time was too short, else "". A constant. */
const char *command_remedy(int code);

/* Checks a shape against what draftd takes, so that the sentence can name the options. */
int command_check_shape(
	const struct draft_model *model, uint32_t rows, uint32_t steps, struct error_text *error);

#endif
