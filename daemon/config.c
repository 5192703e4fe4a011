/* Defaults, then the file, then the command line, then what they must say together. */
#include "config.h"

#include "config_file.h"
#include "devices.h"
#include "limits.h"
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What no single value shows. */
static int check_together(const struct config *config, struct refusal *refusal)
{
	if (!config->model_path)
		return error_text_set(refusal_about(refusal, SETTING(model_path), 0), EINVAL,
			"there is no model; give --model PATH or [model] path in the configuration "
			"file");
	if (config->max_output_bytes < config->max_frame_bytes)
		return error_text_set(
			refusal_about(refusal, SETTING(max_output_bytes), SETTING(max_frame_bytes)),
			EINVAL,
			"max_output_bytes is %" PRIu64 ", less than max_frame_bytes, %" PRIu32
			"; the longest reply must fit into it",
			config->max_output_bytes, config->max_frame_bytes);
	if (config->max_memory_bytes < config->max_region_bytes)
		return error_text_set(refusal_about(refusal, SETTING(max_memory_bytes),
					      SETTING(max_region_bytes)),
			EINVAL,
			"max_memory_bytes is %" PRIu64 ", less than max_region_bytes, %" PRIu64
			"; the largest region must fit into it",
			config->max_memory_bytes, config->max_region_bytes);
	return 0;
}

uint64_t config_held_max(const struct config *config)
{
	return LIMIT_HELD_BYTES_TOTAL + LIMIT_HELD_FRAMES_TOTAL * (uint64_t)config->max_frame_bytes;
}

uint64_t config_held_max_connection(const struct config *config)
{
	return LIMIT_HELD_BYTES_CONNECTION +
	       LIMIT_HELD_FRAMES_CONNECTION * (uint64_t)config->max_frame_bytes;
}

/* 0: a user may have three quarters of what all have, so that a quarter is left for others. */
static uint64_t share(uint64_t most, uint64_t least)
{
	const uint64_t three_quarters = most - most / 4;

	return three_quarters > least ? three_quarters : least;
}

static void fill_shares(struct config *config)
{
	if (!config->max_user_connections)
		config->max_user_connections = (uint32_t)share(config->max_connections, 1);
	if (!config->max_user_inflight)
		config->max_user_inflight = (uint32_t)share(config->max_queue, 1);
	if (!config->max_user_memory_bytes)
		config->max_user_memory_bytes =
			share(config->max_memory_bytes, config->max_region_bytes);
	if (!config->max_user_device_bytes)
		config->max_user_device_bytes = share(config->max_device_bytes, 0);
	if (!config->max_user_events)
		config->max_user_events =
			(uint32_t)share(LIMIT_EVENTS * config->max_connections, LIMIT_EVENTS);
	if (!config->max_user_inline_bytes)
		config->max_user_inline_bytes = share(config_held_max(config), 0);
}

/* Long options with their index in the table as value, beyond every letter. */
#define LONG_BASE 256

struct command_line {
	struct option longs[OPTIONS_MAX + 1];
	char letters[2 + 2 * OPTIONS_MAX];
};

_Static_assert(LONG_BASE > UCHAR_MAX, "a long option's value is no letter");

static void command_line_init(struct command_line *line)
{
	char *letter = line->letters;

	memset(line, 0, sizeof(*line));
	*letter++ = ':'; /* tell a missing argument from an unknown option, print nothing */
	for (size_t i = 0; i < options_count; i++) {
		line->longs[i].name = options[i].name;
		line->longs[i].has_arg = options[i].argument ? required_argument : no_argument;
		line->longs[i].val = LONG_BASE + (int)i;
		if (options[i].letter) {
			*letter++ = options[i].letter;
			if (options[i].argument)
				*letter++ = ':';
		}
	}
}

static const struct option_info *option_of(int value)
{
	if (value >= LONG_BASE)
		return &options[value - LONG_BASE];
	for (size_t i = 0; i < options_count; i++)
		if (options[i].letter == value)
			return &options[i];
	return NULL;
}

/* Goes over the command line; `only_first` looks only for what must be known before the file:
 * --help, --version and --config. 1: answered. */
static int parse_command_line(
	int argc, char **argv, bool only_first, struct config *config, struct error_text *error)
{
	const size_t config_at = offsetof(struct config, config_path);
	const struct option_info *option;
	struct command_line line;
	struct error_text why;
	int value, r;

	command_line_init(&line);
	optind = 0; /* glibc: begin anew, even in the middle of a cluster of letters */
	opterr = 0;
	while ((value = getopt_long(argc, argv, line.letters, line.longs, NULL)) != -1) {
		if (value == '?' && optopt < 0)
			return error_text_set(error, EINVAL,
				"\"-\\x%02x\" is no option; see draftd --help",
				(unsigned)optopt & 0xff);
		if (value == '?' && optopt > 0 && optopt < LONG_BASE)
			return error_text_set(
				error, EINVAL, "\"-%c\" is no option; see draftd --help", optopt);
		if (value == '?')
			return error_text_set(error, EINVAL,
				"\"%.*s\" is no option; see draftd --help",
				CUT(64, argv[optind - 1]));
		if (value == ':')
			return error_text_set(error, EINVAL,
				"\"%.*s\" needs a value; see draftd --help",
				CUT(64, argv[optind - 1]));
		option = option_of(value);
		if (option->type == OPTION_HELP) {
			options_print_help(stdout);
			return 1;
		}
		if (option->type == OPTION_VERSION) {
			puts("draftd " DRAFTD_VERSION);
			return 1;
		}
		if (only_first && !(option->type == OPTION_TEXT && option->offset == config_at))
			continue;
		r = option_set(option, optarg, config, &why);
		if (r < 0)
			return error_text_set(error, -r, "--%s %s", option->name, why.text);
		config->origins[option - options] = ORIGIN_COMMAND_LINE;
	}
	if (optind < argc)
		return error_text_set(error, EINVAL, "\"%.*s\" is no option; see draftd --help",
			CUT(64, argv[optind]));
	return 0;
}

int config_parse(int argc, char **argv, struct config *ret, struct refusal *refusal)
{
	struct config config = {0};
	int r;

	r = options_set_defaults(&config);
	if (r < 0) {
		error_text_set(
			&refusal->sentence, ENOMEM, "out of memory while reading the settings");
		goto out;
	}
	r = parse_command_line(argc, argv, true, &config, &refusal->sentence);
	if (r != 0)
		goto out;
	if (config.config_path) {
		r = config_file_read(config.config_path, &config, refusal);
		if (r < 0)
			goto out;
	}
	r = parse_command_line(argc, argv, false, &config, &refusal->sentence);
	if (r < 0)
		goto out;
	r = check_together(&config, refusal);
	if (r == 0)
		r = devices_check(config.devices, config.backend, config.tensor_parallel,
			&config.tensor_parallel, &config.replicas, refusal);
	if (r < 0) {
		refusal_place(refusal, &config);
		goto out;
	}
	fill_shares(&config);
	*ret = config;
	return 0;
out:
	config_done(&config);
	return r;
}

static bool same_text(const char *one, const char *other)
{
	return one && other ? strcmp(one, other) == 0 : one == other;
}

/* The setting of the socket that is another one now; 0: none. */
static size_t changed_socket(const struct config *running, const struct config *config)
{
	if (!same_text(config->socket_path, running->socket_path))
		return SETTING(socket_path);
	if (!same_text(config->socket_group, running->socket_group))
		return SETTING(socket_group);
	return config->socket_mode != running->socket_mode ? SETTING(socket_mode) : 0;
}

int config_reparse(const struct config *running, int argc, char **argv, struct config *ret,
	struct refusal *refusal)
{
	struct config config = {0};
	size_t changed;
	int r;

	r = config_parse(argc, argv, &config, refusal);
	if (r < 0)
		return r;
	/* Clients hold the socket open, and a new one would leave them behind. */
	changed = changed_socket(running, &config);
	if (changed) {
		r = error_text_set(refusal_about(refusal, changed, 0), EINVAL,
			"[socket] has changed; that needs a restart, a reload keeps the socket as "
			"it is");
		refusal_place(refusal, &config);
		config_done(&config);
		return r;
	}
	*ret = config;
	return 0;
}

uint32_t config_origin(const struct config *config, size_t setting)
{
	return config->origins[options_at(setting) - options];
}

struct setting_name config_name(const struct config *config, size_t setting)
{
	const struct option_info *option = options_at(setting);
	const uint32_t origin = config_origin(config, setting);
	struct setting_name name;

	if (origin == ORIGIN_COMMAND_LINE || origin == ORIGIN_DEFAULT)
		snprintf(name.at, sizeof(name.at), "--%s", option->name);
	else
		snprintf(name.at, sizeof(name.at), "[%s] %s", option->section, option->key);
	return name;
}

/* What only GPUs use, beside all of [cuda]. */
static const size_t of_gpu[] = {
	SETTING(devices),
	SETTING(tensor_parallel),
	SETTING(max_device_bytes),
	SETTING(max_user_device_bytes),
	SETTING(max_user_events),
	SETTING(event_timeout_us),
};

static bool is_of_gpu(const struct option_info *option)
{
	for (size_t i = 0; i < sizeof(of_gpu) / sizeof(of_gpu[0]); i++)
		if (option->offset == of_gpu[i])
			return true;
	return option->section && strcmp(option->section, "cuda") == 0;
}

void config_list_of_gpu(const struct config *config, char *text, size_t text_bytes)
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < options_count && used < text_bytes; i++) {
		if (!is_of_gpu(&options[i]) || config->origins[i] == ORIGIN_DEFAULT)
			continue;
		used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
			used > 0 ? ", " : "", config_name(config, options[i].offset).at);
	}
}

void config_done(struct config *config)
{
	free(config->config_path);
	free(config->socket_path);
	free(config->socket_group);
	free(config->model_path);
	free(config->devices);
	*config = (struct config){0};
}
