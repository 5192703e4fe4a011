/* The option table, and how one value is read. */
#include "options.h"

#include "limits.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#define FIELD(member)                                                                              \
	.offset = offsetof(struct config, member), .width = sizeof(((struct config *)0)->member)
#define IN(s, k)         .section = (s), .key = (k)
#define RANGE(low, high) .min = (low), .max = (high)
#define PATH_BYTES       4095 /* PATH_MAX less its NUL */
#define GROUP_BYTES      255

/* In the order of markov.h's enums, and of the syslog levels from LOG_ERR. */
static const char *const backends[] = {"auto", "cpu", "cuda", NULL};
static const char *const cuda_forms[] = {"auto", "block", "step", "plain", NULL};
static const char *const cuda_waits[] = {"spin", "sleep", NULL};
static const char *const cuda_l2s[] = {"release", "keep", NULL};
static const char *const log_levels[] = {"error", "warning", "notice", "info", "debug", NULL};

/* clang-format off */
const struct option_info options[] = {
	{"socket", 's', "PATH", IN("socket", "path"), OPTION_TEXT, FIELD(socket_path),
		.max = LIMIT_SOCKET_PATH_BYTES, .initial_text = "/run/draftd/draftd.sock",
		.help = "where clients connect; not used when systemd passes a socket"},
	{"socket-mode", 0, "MODE", IN("socket", "mode"), OPTION_MODE, FIELD(socket_mode), RANGE(0, 0777), .initial = 0660,
		.help = "permissions of the socket file"},
	{"socket-group", 0, "GROUP", IN("socket", "group"), OPTION_TEXT, FIELD(socket_group), .max = GROUP_BYTES,
		.help = "who may connect beside its user, by name or number"},
	{"model", 'm', "PATH", IN("model", "path"), OPTION_TEXT, FIELD(model_path), .max = PATH_BYTES,
		.help = "a .safetensors file or a checkpoint folder with a Markov head; required"},
	{"multiplier", 0, "X", IN("model", "multiplier"), OPTION_FLOAT, FIELD(multiplier),
		.given_offset = offsetof(struct config, has_multiplier), .float_min = -INFINITY,
		.help = "scale of the base logits, instead of the checkpoint's"},
	{"soft-cap", 0, "X", IN("model", "soft_cap"), OPTION_FLOAT, FIELD(soft_cap),
		.given_offset = offsetof(struct config, has_soft_cap), .float_min = 0,
		.help = "soft cap of the logits, instead of the checkpoint's; 0 turns it off"},
	{"backend", 'b', "NAME", IN("backend", "name"), OPTION_CHOICE, FIELD(backend), RANGE(MARKOV_AUTO, MARKOV_CUDA),
		.initial = MARKOV_AUTO, .choices = backends, .help = "what computes"},
	{"devices", 0, "LIST", IN("backend", "devices"), OPTION_TEXT, FIELD(devices), .max = PATH_BYTES,
		.help = "GPUs by number or UUID: 0,1 (absent: the first); on the CPU: CPU,CPU"},
	{"tensor-parallel", 0, "N", IN("backend", "tensor_parallel"), OPTION_COUNT, FIELD(tensor_parallel),
		RANGE(0, LIMIT_DEVICES_MAX),
		.help = "GPUs of a replica, a power of two; 0: one replica of all that are listed"},
	{"threads", 0, "N", IN("backend", "threads"), OPTION_COUNT, FIELD(threads), RANGE(0, LIMIT_THREADS_MAX),
		.help = "threads of a replica on the CPU; 0: its share of the usable cores"},
	{"cuda-form", 0, "NAME", IN("cuda", "form"), OPTION_CHOICE, FIELD(cuda.form), RANGE(MARKOV_CUDA_AUTO, MARKOV_CUDA_PLAIN),
		.initial = MARKOV_CUDA_AUTO, .choices = cuda_forms,
		.help = "block: the whole GPU at once; step: what is free, slower; plain: slow"},
	{"cuda-wait", 0, "NAME", IN("cuda", "wait"), OPTION_CHOICE, FIELD(cuda.wait), RANGE(MARKOV_CUDA_SPIN, MARKOV_CUDA_SLEEP),
		.initial = MARKOV_CUDA_SPIN, .choices = cuda_waits,
		.help = "spin: a core looks at the GPU all the while; sleep: up to 0.1 ms late"},
	{"cuda-l2", 0, "NAME", IN("cuda", "l2"), OPTION_CHOICE, FIELD(cuda.l2), RANGE(MARKOV_CUDA_RELEASE, MARKOV_CUDA_KEEP),
		.initial = MARKOV_CUDA_RELEASE, .choices = cuda_l2s,
		.help = "keep: part of the model stays in L2, for a GPU that nobody else uses"},
	{"cuda-timeout", 0, "TIME", IN("cuda", "timeout"), OPTION_TIME, FIELD(cuda.timeout_us),
		RANGE(LIMIT_CUDA_LAUNCH_US_MIN, LIMIT_CUDA_LAUNCH_US_MAX), .initial = LIMIT_CUDA_LAUNCH_US_DEFAULT,
		.help = "a launch that takes longer means a lost GPU, and the daemon exits"},
	{"cuda-graph-bytes", 0, "SIZE", IN("cuda", "graph_bytes"), OPTION_BYTES, FIELD(cuda.graph_bytes),
		RANGE(LIMIT_GRAPH_BYTES_MIN, LIMIT_GRAPH_BYTES_MAX), .initial = LIMIT_GRAPH_BYTES_DEFAULT,
		.help = "device memory that the captured launches may take; over it, no start"},
	{"engine-spin", 0, "TIME", IN("latency", "engine_spin"), OPTION_TIME, FIELD(engine_spin_us), RANGE(0, LIMIT_SPIN_US_MAX),
		.help = "a core looks for work so long after a launch; 0: sleep at once"},
	{"loop-spin", 0, "TIME", IN("latency", "loop_spin"), OPTION_TIME, FIELD(loop_spin_us), RANGE(0, LIMIT_SPIN_US_MAX),
		.help = "a core looks for answers and requests so long after a draft"},
	{"max-rows", 0, "N", IN("limits", "max_rows"), OPTION_COUNT, FIELD(max_rows), RANGE(1, LIMIT_ROWS_MAX),
		.initial = LIMIT_ROWS_DEFAULT, .help = "rows of a request and of a batch"},
	{"max-steps", 0, "K", IN("limits", "max_steps"), OPTION_COUNT, FIELD(max_steps), RANGE(1, LIMIT_STEPS_MAX),
		.initial = LIMIT_STEPS_DEFAULT, .help = "draft length of a request"},
	{"max-connections", 0, "N", IN("limits", "max_connections"), OPTION_COUNT, FIELD(max_connections),
		RANGE(1, LIMIT_CONNECTIONS_MAX), .initial = LIMIT_CONNECTIONS_DEFAULT, .help = "clients at one time"},
	{"max-user-connections", 0, "N", IN("limits", "max_user_connections"), OPTION_COUNT, FIELD(max_user_connections),
		RANGE(0, LIMIT_CONNECTIONS_MAX), .help = "of one user (but root and draftd's); 0: 3/4 of max_connections"},
	{"max-inflight", 0, "N", IN("limits", "max_inflight"), OPTION_COUNT, FIELD(max_inflight),
		RANGE(1, LIMIT_INFLIGHT_MAX), .initial = LIMIT_INFLIGHT_DEFAULT,
		.help = "unanswered requests of one connection"},
	{"max-user-inflight", 0, "N", IN("limits", "max_user_inflight"), OPTION_COUNT, FIELD(max_user_inflight),
		RANGE(0, LIMIT_QUEUE_MAX), .help = "unanswered requests of one user; 0: 3/4 of max_queue"},
	{"max-queue", 0, "N", IN("limits", "max_queue"), OPTION_COUNT, FIELD(max_queue), RANGE(1, LIMIT_QUEUE_MAX),
		.initial = LIMIT_QUEUE_DEFAULT, .help = "waiting requests of all connections"},
	{"max-regions", 0, "N", IN("limits", "max_regions"), OPTION_COUNT, FIELD(max_regions),
		RANGE(1, LIMIT_REGIONS_MAX), .initial = LIMIT_REGIONS_DEFAULT, .help = "memory regions of one connection"},
	{"max-region-bytes", 0, "SIZE", IN("limits", "max_region_bytes"), OPTION_BYTES, FIELD(max_region_bytes),
		RANGE(1, LIMIT_REGION_BYTES_MAX), .initial = LIMIT_REGION_BYTES_DEFAULT, .help = "one region"},
	{"max-memory-bytes", 0, "SIZE", IN("limits", "max_memory_bytes"), OPTION_BYTES, FIELD(max_memory_bytes),
		RANGE(1, LIMIT_MEMORY_BYTES_MAX), .initial = LIMIT_MEMORY_BYTES_DEFAULT,
		.help = "host memory of all connections' regions"},
	{"max-user-memory-bytes", 0, "SIZE", IN("limits", "max_user_memory_bytes"), OPTION_BYTES,
		FIELD(max_user_memory_bytes), RANGE(0, LIMIT_MEMORY_BYTES_MAX),
		.help = "of one user; 0: 3/4 of max_memory_bytes, at least one region"},
	{"max-device-bytes", 0, "SIZE", IN("limits", "max_device_bytes"), OPTION_BYTES,
		FIELD(max_device_bytes), RANGE(0, LIMIT_DEVICE_BYTES_MAX),
		.initial = LIMIT_DEVICE_BYTES_DEFAULT,
		.help = "GPU memory of all connections' regions; 0: none"},
	{"max-user-device-bytes", 0, "SIZE", IN("limits", "max_user_device_bytes"), OPTION_BYTES,
		FIELD(max_user_device_bytes), RANGE(0, LIMIT_DEVICE_BYTES_MAX),
		.help = "of one user; 0: 3/4 of max_device_bytes"},
	{"max-user-events", 0, "N", IN("limits", "max_user_events"), OPTION_COUNT, FIELD(max_user_events),
		RANGE(0, LIMIT_EVENTS * LIMIT_CONNECTIONS_MAX), .help = "CUDA events of one user; 0: 3/4 of 4 a connection"},
	{"max-frame-bytes", 0, "SIZE", IN("limits", "max_frame_bytes"), OPTION_BYTES, FIELD(max_frame_bytes),
		RANGE(LIMIT_FRAME_BYTES_MIN, LIMIT_FRAME_BYTES_MAX), .initial = LIMIT_FRAME_BYTES_DEFAULT,
		.help = "body of one frame"},
	{"max-output-bytes", 0, "SIZE", IN("limits", "max_output_bytes"), OPTION_BYTES, FIELD(max_output_bytes),
		RANGE(LIMIT_FRAME_BYTES_MIN, LIMIT_OUTPUT_BYTES_MAX), .initial = LIMIT_OUTPUT_BYTES_DEFAULT,
		.help = "memory of one connection's unread replies, before it is disconnected"},
	{"max-user-inline-bytes", 0, "SIZE", IN("limits", "max_user_inline_bytes"), OPTION_BYTES, FIELD(max_user_inline_bytes),
		RANGE(0, LIMIT_OUTPUT_BYTES_MAX), .help = "of frames and replies of one user; 0: 3/4 of what all may have"},
	{"hello-timeout", 0, "TIME", IN("limits", "hello_timeout"), OPTION_TIME, FIELD(hello_timeout_us),
		RANGE(1000, LIMIT_TIMEOUT_US_MAX), .initial = LIMIT_HELLO_TIMEOUT_US_DEFAULT,
		.help = "how long a new connection may take to say hello"},
	{"frame-timeout", 0, "TIME", IN("limits", "frame_timeout"), OPTION_TIME, FIELD(frame_timeout_us),
		RANGE(1000, LIMIT_TIMEOUT_US_MAX), .initial = LIMIT_FRAME_TIMEOUT_US_DEFAULT,
		.help = "how long a frame may take from its first byte to its last"},
	{"event-timeout", 0, "TIME", IN("limits", "event_timeout"), OPTION_TIME, FIELD(event_timeout_us),
		RANGE(1000, LIMIT_TIMEOUT_US_MAX), .initial = LIMIT_EVENT_TIMEOUT_US_DEFAULT,
		.help = "how long a draft may wait for its client's CUDA event"},
	{"drain-timeout", 0, "TIME", IN("limits", "drain_timeout"), OPTION_TIME, FIELD(drain_timeout_us),
		RANGE(0, LIMIT_TIMEOUT_US_MAX), .initial = LIMIT_DRAIN_TIMEOUT_US_DEFAULT,
		.help = "how long accepted requests may take to finish, and to be read, at the end"},
	{"log-level", 0, "NAME", IN("log", "level"), OPTION_CHOICE, FIELD(log_level), RANGE(LOG_ERR, LOG_DEBUG),
		.initial = LOG_INFO, .choices = log_levels, .help = "what is logged, and everything more urgent"},
	{"config", 'c', "FILE", .type = OPTION_TEXT, FIELD(config_path), .max = PATH_BYTES,
		.help = "configuration file; what the command line says counts more"},
	{"check-config", 0, .type = OPTION_SWITCH, FIELD(check_config),
		.help = "check the settings and the model's tensors, say the first error, and stop"},
	{"version", 'V', .type = OPTION_VERSION, .help = "print the version and stop"},
	{"help", 'h', .type = OPTION_HELP, .help = "print this and stop"},
};
/* clang-format on */
const size_t options_count = sizeof(options) / sizeof(options[0]);

_Static_assert(sizeof(options) / sizeof(options[0]) <= OPTIONS_MAX,
	"tables by option have a row for each");

struct unit {
	const char *name;
	uint64_t factor;
};

/* The largest first, so that a value is written with the largest unit that divides it. */
static const struct unit byte_units[] = {{"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20},
	{"K", 1ull << 10}, {"", 1}, {NULL, 0}};
static const struct unit time_units[] = {{"s", 1000000}, {"ms", 1000}, {"us", 1}, {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(const struct option_info *option)
{
	return option->type == OPTION_BYTES  ? byte_units
	       : option->type == OPTION_TIME ? time_units
					     : no_units;
}

/* "64M", "5s", "0660": as an operator would write it. */
static void number_print(
	const struct option_info *option, uint64_t value, char *text, size_t text_bytes)
{
	const struct unit *unit = units_of(option);

	if (option->type == OPTION_MODE) {
		snprintf(text, text_bytes, "%04" PRIo64, value);
		return;
	}
	while (value % unit->factor != 0 || (value == 0 && unit[1].name))
		unit++;
	snprintf(text, text_bytes, "%" PRIu64 "%s", value / unit->factor, unit->name);
}

void option_describe_range(const struct option_info *option, char *text, size_t text_bytes)
{
	char low[32], high[32];
	size_t used = 0;

	text[0] = '\0';
	switch (option->type) {
	case OPTION_COUNT:
	case OPTION_BYTES:
	case OPTION_TIME:
	case OPTION_MODE:
		number_print(option, option->min, low, sizeof(low));
		number_print(option, option->max, high, sizeof(high));
		snprintf(text, text_bytes, "%s to %s", low, high);
		break;
	case OPTION_FLOAT:
		snprintf(text, text_bytes,
			option->float_min == 0 ? "0 or more" : "any finite number");
		break;
	case OPTION_CHOICE:
		for (size_t i = 0; option->choices[i] && used < text_bytes; i++)
			used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
				i > 0 ? ", " : "", option->choices[i]);
		break;
	case OPTION_TEXT:
	case OPTION_SWITCH:
	case OPTION_HELP:
	case OPTION_VERSION:
		break;
	}
}

static void store(const struct option_info *option, uint64_t value, struct config *config)
{
	char *field = (char *)config + option->offset;

	if (option->width == sizeof(uint64_t)) {
		memcpy(field, &value, sizeof(value));
	} else { /* uint32_t, int, enum: the table's maximum fits */
		uint32_t narrow = (uint32_t)value;

		memcpy(field, &narrow, sizeof(narrow));
	}
}

uint64_t option_value(const struct option_info *option, const struct config *config)
{
	const char *field = (const char *)config + option->offset;
	uint64_t value = 0;
	uint32_t narrow;

	if (option->width == sizeof(value)) {
		memcpy(&value, field, sizeof(value));
	} else {
		memcpy(&narrow, field, sizeof(narrow));
		value = narrow;
	}
	return value;
}

/* Digits of `base`, nothing else before `*ret_rest`; false if there are none or the number is
 * beyond 64 bits. */
static bool digits_read(const char *text, unsigned base, uint64_t *ret_value, const char **ret_rest)
{
	const char *at = text;
	uint64_t value = 0;

	for (; *at >= '0' && *at < (char)('0' + base); at++)
		if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return false;
	*ret_value = value;
	*ret_rest = at;
	return at != text;
}

static int set_number(const struct option_info *option, const char *text, struct config *config,
	struct error_text *error)
{
	static const char *const forms[] = {
		[OPTION_COUNT] = "a whole number",
		[OPTION_BYTES] = "a whole number of bytes, or one with K, M, G or T",
		[OPTION_TIME] = "a whole number with s, ms or us",
		[OPTION_MODE] = "octal digits",
	};
	const struct unit *unit = units_of(option);
	char range[64];
	const char *rest;
	uint64_t value;

	option_describe_range(option, range, sizeof(range));
	if (!digits_read(text, option->type == OPTION_MODE ? 8 : 10, &value, &rest))
		goto malformed;
	if (option->type == OPTION_BYTES && rest[0] != '\0' && strcmp(rest + 1, "iB") == 0) {
		while (unit->name && unit->name[0] != rest[0])
			unit++;
		if (unit->factor <= 1)
			goto malformed;
	} else {
		while (unit->name && strcmp(unit->name, rest) != 0)
			unit++;
		if (!unit->name)
			goto malformed;
	}
	if (__builtin_mul_overflow(value, unit->factor, &value) || value < option->min ||
		value > option->max)
		return error_text_set(
			error, EINVAL, "is %.*s; it must be %s", CUT(64, text), range);
	store(option, value, config);
	return 0;

malformed:
	return error_text_set(error, EINVAL, "is \"%.*s\"; it must be %s, %s", CUT(64, text),
		forms[option->type], range);
}

static int set_float(const struct option_info *option, const char *text, struct config *config,
	struct error_text *error)
{
	bool given = true;
	char *rest;
	float value;

	/* The characters of a decimal float: strtof() alone would also take hexadecimal, "inf",
	 * "nan" and leading blanks. */
	value = strtof(text, &rest);
	if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0' || *rest != '\0' ||
		!isfinite(value))
		return error_text_set(error, EINVAL,
			"is \"%.*s\"; it must be a finite decimal number", CUT(64, text));
	if (value < option->float_min)
		return error_text_set(
			error, EINVAL, "is %.*s; it must be 0 or more", CUT(64, text));
	memcpy((char *)config + option->offset, &value, sizeof(value));
	memcpy((char *)config + option->given_offset, &given, sizeof(given));
	return 0;
}

static int set_text(const struct option_info *option, const char *text, struct config *config,
	struct error_text *error)
{
	size_t bytes = strlen(text);
	char *copy;

	if (bytes == 0)
		return error_text_set(error, EINVAL, "is empty; give a value or leave it out");
	if (bytes > 1 && (text[0] == '"' || text[0] == '\'') && text[bytes - 1] == text[0])
		return error_text_set(error, EINVAL, "is %.*s; write the value without the quotes",
			CUT(64, text));
	if (bytes > option->max)
		return error_text_set(error, ENAMETOOLONG,
			"is %zu bytes long; the most is %" PRIu64, bytes, option->max);
	copy = strdup(text);
	if (!copy)
		return error_text_set(error, ENOMEM, "could not be kept: out of memory");
	char **field = (char **)(void *)((char *)config + option->offset);

	free(*field);
	*field = copy;
	return 0;
}

static int set_choice(const struct option_info *option, const char *text, struct config *config,
	struct error_text *error)
{
	char range[64];

	for (size_t i = 0; option->choices[i]; i++)
		if (strcmp(option->choices[i], text) == 0) {
			store(option, option->min + i, config);
			return 0;
		}
	option_describe_range(option, range, sizeof(range));
	return error_text_set(
		error, EINVAL, "is \"%.*s\"; it must be one of %s", CUT(64, text), range);
}

int option_set(const struct option_info *option, const char *text, struct config *config,
	struct error_text *error)
{
	switch (option->type) {
	case OPTION_TEXT:
		return set_text(option, text, config, error);
	case OPTION_COUNT:
	case OPTION_BYTES:
	case OPTION_TIME:
	case OPTION_MODE:
		return set_number(option, text, config, error);
	case OPTION_FLOAT:
		return set_float(option, text, config, error);
	case OPTION_CHOICE:
		return set_choice(option, text, config, error);
	case OPTION_SWITCH:
		*((bool *)((char *)config + option->offset)) = true;
		return 0;
	case OPTION_HELP:
	case OPTION_VERSION:
		break;
	}
	return 0;
}

int options_set_defaults(struct config *config)
{
	for (size_t i = 0; i < options_count; i++) {
		const struct option_info *option = &options[i];

		switch (option->type) {
		case OPTION_TEXT:
			if (option->initial_text &&
				set_text(option, option->initial_text, config, NULL) < 0)
				return -ENOMEM;
			break;
		case OPTION_COUNT:
		case OPTION_BYTES:
		case OPTION_TIME:
		case OPTION_MODE:
		case OPTION_CHOICE:
			store(option, option->initial, config);
			break;
		case OPTION_FLOAT:
		case OPTION_SWITCH:
		case OPTION_HELP:
		case OPTION_VERSION:
			break; /* zero, and not given */
		}
	}
	return 0;
}

const struct option_info *options_find(
	const char *section, const char *key, bool *ret_section_known)
{
	*ret_section_known = false;
	for (size_t i = 0; i < options_count; i++) {
		if (!options[i].section || strcmp(options[i].section, section) != 0)
			continue;
		*ret_section_known = true;
		if (strcmp(options[i].key, key) == 0)
			return &options[i];
	}
	return NULL;
}

const struct option_info *options_at(size_t offset)
{
	const struct option_info *option = options;

	while (option->offset != offset)
		option++;
	return option;
}

void options_list_sections(char *text, size_t text_bytes)
{
	const char *last = "";
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < options_count && used < text_bytes; i++) {
		if (!options[i].section || strcmp(options[i].section, last) == 0)
			continue;
		last = options[i].section;
		used += (size_t)snprintf(
			text + used, text_bytes - used, "%s[%s]", used > 0 ? ", " : "", last);
	}
}

static void print_option(FILE *to, const struct option_info *option)
{
	char left[64], range[96], initial[32] = "";
	const char *separator = "";

	snprintf(left, sizeof(left), "  %c%c%s --%s%s%s", option->letter ? '-' : ' ',
		option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
		option->argument ? " " : "", option->argument ? option->argument : "");
	fprintf(to, "%-35s%s\n", left, option->help);
	if (!option->section)
		return;
	option_describe_range(option, range, sizeof(range));
	if (option->initial_text)
		snprintf(initial, sizeof(initial), "%s", option->initial_text);
	else if (option->type == OPTION_CHOICE)
		snprintf(initial, sizeof(initial), "%s",
			option->choices[option->initial - option->min]);
	else if (option->type != OPTION_TEXT && option->type != OPTION_FLOAT)
		number_print(option, option->initial, initial, sizeof(initial));
	fprintf(to, "%-35s[%s] %s", "", option->section, option->key);
	separator = ": ";
	if (range[0]) {
		fprintf(to, "%s%s", separator, range);
		separator = "; ";
	}
	if (initial[0])
		fprintf(to, "%sdefault %s", separator, initial);
	fputc('\n', to);
}

void options_print_help(FILE *to)
{
	fputs("usage: draftd --model PATH [OPTION]...\n"
	      "Serves draft tokens of a Markov head to the clients of a Unix socket, in the "
	      "foreground.\n\n",
		to);
	for (size_t i = 0; i < options_count; i++)
		print_option(to, &options[i]);
	fputs("\nSizes take K, M, G or T, times s, ms or us. The second line of an option is its "
	      "[section] and key in the\n"
	      "configuration file, which looks so:\n\n"
	      "  # a comment has a line of its own\n"
	      "  [model]\n"
	      "  path = /srv/models/drafter.safetensors\n"
	      "  [limits]\n"
	      "  max_rows = 32\n\n"
	      "SIGTERM drains and stops; a second one stops at once. SIGHUP reads the "
	      "configuration and "
	      "the model again;\n"
	      "the socket, the devices, engine_spin, max_rows, max_steps, max_inflight, "
	      "max_queue, max_regions,\n"
	      "max_region_bytes and max_frame_bytes need a restart: a reload that would change "
	      "them is refused.\n\n"
	      "Exit status: 0 after --help, --version, --check-config and a drain; 1 after an "
	      "error, which is one line on\n"
	      "stderr or in the journal, and after a drain that was cut short.\n",
		to);
}
