/* draftctl: the command line to draftd. `main` is a list: parse the common options, find the
 * command, parse its options, run it, make sure that what it printed was written. */
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
	&command_ping,
	&command_info,
	&command_draft,
	&command_replay,
	&command_bench,
	&command_stats,
	&command_metrics,
	&command_top,
	&command_drain,
	&command_reload,
	&command_model_make,
	&command_model_show,
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static const struct option_spec common_options[] = {
	{
		.name = "socket",
		.letter = 's',
		.kind = OPTION_TEXT,
		.value = "PATH",
		.help = "draftd's socket; the environment's DRAFTD_SOCKET sets the default",
		.offset = offsetof(struct common, socket_path),
	},
	{
		.name = "timeout",
		.letter = 't',
		.kind = OPTION_REAL,
		.value = "SECONDS",
		.help = "the longest wait for an answer",
		.offset = offsetof(struct common, timeout_s),
		.real_min = 0.001,
		.real_max = 86400,
	},
	{
		.name = "help",
		.letter = 'h',
		.kind = OPTION_FLAG,
		.help = "this text",
		.offset = offsetof(struct common, help),
	},
	{
		.name = "version",
		.letter = 'V',
		.kind = OPTION_FLAG,
		.help = "the version",
		.offset = offsetof(struct common, version),
	},
	{0},
};

static struct common common_defaults(void)
{
	return (struct common){.socket_path = draft_socket_default(), .timeout_s = 10};
}

/* Lists the commands whose name begins with `prefix`. */
static void list_commands(FILE *to, const char *prefix)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strncmp(commands[i]->name, prefix, strlen(prefix)) == 0)
			fprintf(to, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
}

/* `own` is the table of the command's options, or NULL. */
static void common_help(const struct option_spec *own)
{
	struct common defaults = common_defaults();

	printf("\nOptions of every command:\n");
	options_help(stdout, common_options, &defaults, own);
}

static int help(void)
{
	printf("usage: draftctl [--socket PATH] [--timeout SECONDS] COMMAND [OPTIONS]\n\n"
	       "Talks to draftd, which drafts tokens for speculative decoding.\n\n"
	       "Commands:\n");
	list_commands(stdout, "");
	common_help(NULL);
	printf("\n`draftctl COMMAND --help` says more. Exit status: 0 done, 1 failed, 2 used "
	       "wrongly.\n");
	return EXIT_SUCCESS;
}

static int command_help(const struct command *command)
{
	bool has_options = command->options[0].name != NULL;

	printf("usage: draftctl %s%s%s%s\n\n", command->name, has_options ? " [OPTIONS]" : "",
		command->operands != NULL ? " " : "",
		command->operands != NULL ? command->operands : "");
	options_wrap(stdout, command->description, 0, 0);
	if (has_options) {
		printf("\nOptions:\n");
		options_help(stdout, command->options, command->defaults, NULL);
	}
	common_help(command->options);
	return EXIT_SUCCESS;
}

static int version(void)
{
	printf("draftctl %s (libdraft %s)\n", DRAFTD_VERSION, draft_version());
	return EXIT_SUCCESS;
}

/* Finds the command that argv[0] (and argv[1]: "model make") names. Sets how many words it took. */
static const struct command *find_command(int argc, char **argv, int *ret_words)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const char *name = commands[i]->name;
		size_t first = strcspn(name, " ");

		if (strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0)
			continue;
		if (name[first] == '\0') {
			*ret_words = 1;
			return commands[i];
		}
		if (argc > 1 && strcmp(argv[1], name + first + 1) == 0) {
			*ret_words = 2;
			return commands[i];
		}
	}
	return NULL;
}

static int unknown_command(int argc, char **argv)
{
	/* "model" is half a name: what follows it is what nobody knows. */
	bool model = strcmp(argv[0], "model") == 0;

	if (model && argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		printf("usage: draftctl model COMMAND [OPTIONS] FILE\n\nCommands:\n");
		list_commands(stdout, "model ");
		return EXIT_SUCCESS;
	}
	fprintf(stderr, "draftctl: no command \"%s%s%s\"; the commands are\n", argv[0],
		model && argc > 1 ? " " : "", model && argc > 1 ? argv[1] : "");
	list_commands(stderr, model ? "model " : "");
	return EXIT_USAGE;
}

static int run_command(const struct command *command, struct common *common, int argc, char **argv)
{
	struct option_set sets[2];
	struct error_text error;
	void *values = NULL;
	int first, count, code;

	if (command->values_bytes > 0) {
		values = malloc(command->values_bytes);
		if (values == NULL)
			return command_fail("out of memory");
		memcpy(values, command->defaults, command->values_bytes);
	}
	sets[0] = (struct option_set){command->options, values};
	sets[1] = (struct option_set){common_options, common};
	first = options_parse(sets, 2, OPTIONS_ANYWHERE, argc, argv, &error);
	count = argc - first;
	if (first < 0)
		code = command_misuse("%s: %s; see `draftctl %s --help`", command->name, error.text,
			command->name);
	else if (common->help)
		code = command_help(command);
	else if (common->version)
		code = version();
	else if (count < command->operands_min)
		code = command_misuse("%s needs %s; see `draftctl %s --help`", command->name,
			command->operands, command->name);
	else if (command->operands_max >= 0 && count > command->operands_max)
		code = command_misuse("%s: what is \"%s\" for? See `draftctl %s --help`",
			command->name, argv[first + command->operands_max], command->name);
	else
		code = command->run(common, values, argv + first);
	free(values);
	return code;
}

static int dispatch(int argc, char **argv)
{
	struct common common = common_defaults();
	struct option_set set = {common_options, &common};
	const struct command *command;
	struct error_text error;
	int first, words;

	first = options_parse(&set, 1, OPTIONS_BEFORE_OPERANDS, argc, argv, &error);
	if (first < 0)
		return command_misuse("%s; see `draftctl --help`", error.text);
	if (common.version)
		return version();
	if (common.help || (first + 1 == argc && strcmp(argv[first], "help") == 0))
		return help();
	if (first == argc) {
		fprintf(stderr, "draftctl: which command? The commands are\n");
		list_commands(stderr, "");
		return EXIT_USAGE;
	}
	command = find_command(argc - first, argv + first, &words);
	if (command == NULL)
		return unknown_command(argc - first, argv + first);
	/* The last word of the name stands where getopt expects the program's. */
	first += words - 1;
	return run_command(command, &common, argc - first, argv + first);
}

int main(int argc, char **argv)
{
	int code;

	/* A closed pipe ends us quietly, even under a parent that ignores the signal. */
	signal(SIGPIPE, SIG_DFL);
	/* A file over RLIMIT_FSIZE is an error, after which nothing half written is left. */
	signal(SIGXFSZ, SIG_IGN);
	code = dispatch(argc, argv);
	if (fflush(stdout) != 0 || ferror(stdout))
		code = command_fail("cannot write the output: %s", strerror(errno));
	return code;
}
