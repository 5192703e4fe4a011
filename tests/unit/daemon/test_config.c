/* The option table, the command line, the configuration file: what is taken, and the one sentence
 * for what is not. */
#include "daemon/config.h"
#include "daemon/config_file.h"
#include "daemon/devices.h"
#include "daemon/limits.h"
#include "daemon/options.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

Suite *config_suite(void);

static struct config config;
static struct refusal refusal;

/* Parses "draftd" and the given arguments. */
#define PARSE(...) parse((const char *[]){"draftd", __VA_ARGS__ __VA_OPT__(, ) NULL})

static int parse(const char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	config_done(&config);
	refusal = (struct refusal){0};
	return config_parse(argc, (char **)argv, &config, &refusal);
}

static int parse_text(const char *text)
{
	config_done(&config);
	ck_assert_int_eq(options_set_defaults(&config), 0);
	refusal = (struct refusal){0};
	return config_file_parse("x.conf", text, strlen(text), &config, &refusal);
}

/* Parses the same command line again, as a reload does. */
static int parse_again(const char **argv, struct config *ret)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	refusal = (struct refusal){0};
	return config_reparse(&config, argc, (char **)argv, ret, &refusal);
}

static void teardown(void)
{
	config_done(&config);
}

/* Of what is configured, and never so little that there is nothing. */
START_TEST(a_user_has_three_quarters_unless_told_otherwise)
{
	ck_assert_int_eq(PARSE("-m", "m", "--max-connections", "1", "--max-queue", "5",
				 "--max-memory-bytes", "1G", "--max-device-bytes", "0"),
		0);
	ck_assert_uint_eq(config.max_user_connections, 1);
	ck_assert_uint_eq(config.max_user_inflight, 4);
	ck_assert_uint_eq(config.max_user_memory_bytes, 1073741824); /* the largest region */
	ck_assert_uint_eq(config.max_user_device_bytes, 0);
	config_done(&config);
	ck_assert_int_eq(PARSE("-m", "m", "--max-user-connections", "7", "--max-user-inflight", "8",
				 "--max-user-memory-bytes", "9", "--max-user-device-bytes", "10"),
		0);
	ck_assert_uint_eq(config.max_user_connections, 7);
	ck_assert_uint_eq(config.max_user_inflight, 8);
	ck_assert_uint_eq(config.max_user_memory_bytes, 9);
	ck_assert_uint_eq(config.max_user_device_bytes, 10);
}
END_TEST

START_TEST(defaults_are_those_of_limits_h)
{
	ck_assert_int_eq(PARSE("--model", "m"), 0);
	ck_assert_str_eq(config.model_path, "m");
	ck_assert_str_eq(config.socket_path, "/run/draftd/draftd.sock");
	ck_assert_uint_eq(config.socket_mode, 0660);
	ck_assert_int_eq(config.backend, MARKOV_AUTO);
	ck_assert_ptr_null(config.devices);
	ck_assert_ptr_null(config.config_path);
	ck_assert(!config.has_multiplier && !config.has_soft_cap && !config.check_config);
	ck_assert_uint_eq(config.tensor_parallel, 1);
	ck_assert_uint_eq(config.replicas, 1);
	ck_assert_uint_eq(config.threads, 0);
	ck_assert_uint_eq(config.max_rows, 64);
	ck_assert_uint_eq(config.max_steps, 8);
	ck_assert_uint_eq(config.max_connections, 1024);
	ck_assert_uint_eq(config.max_inflight, 64);
	ck_assert_uint_eq(config.max_queue, 4096);
	ck_assert_uint_eq(config.max_regions, 16);
	ck_assert_uint_eq(config.max_region_bytes, 1073741824);
	ck_assert_uint_eq(config.max_memory_bytes, 8589934592);
	ck_assert_uint_eq(config.max_device_bytes, 4294967296);
	ck_assert_uint_eq(config.max_user_connections, 768); /* three quarters */
	ck_assert_uint_eq(config.max_user_inflight, 3072);
	ck_assert_uint_eq(config.max_user_memory_bytes, 6442450944);
	ck_assert_uint_eq(config.max_user_device_bytes, 3221225472);
	ck_assert_uint_eq(config.max_user_events, 3072);
	ck_assert_uint_eq(config.max_user_inline_bytes, 1006632960);
	ck_assert_uint_eq(config.max_frame_bytes, 67108864);
	ck_assert_uint_eq(config.max_output_bytes, 268435456);
	ck_assert_uint_eq(config.hello_timeout_us, 5000000);
	ck_assert_uint_eq(config.frame_timeout_us, 30000000);
	ck_assert_uint_eq(config.event_timeout_us, 1000000);
	ck_assert_uint_eq(config.drain_timeout_us, 10000000);
	ck_assert_int_eq(config.log_level, LOG_INFO);
	ck_assert_int_eq(config.cuda.form, MARKOV_CUDA_AUTO);
	ck_assert_int_eq(config.cuda.wait, MARKOV_CUDA_SPIN);
	ck_assert_int_eq(config.cuda.l2, MARKOV_CUDA_RELEASE);
	ck_assert_uint_eq(config.cuda.timeout_us, 10000000);
	ck_assert_uint_eq(config.engine_spin_us, 0);
	ck_assert_uint_eq(config.loop_spin_us, 0);
	ck_assert_uint_eq(config.cuda.graph_bytes, 1073741824);
}
END_TEST

START_TEST(command_line_sets_every_type)
{
	ck_assert_int_eq(
		PARSE("-s", "/tmp/s", "--model=m", "--backend", "cuda", "--devices", "0,1",
			"--max-rows", "7", "--max-region-bytes", "3M", "--max-memory-bytes", "1GiB",
			"--hello-timeout", "250ms", "--socket-mode", "600", "--multiplier", "-1.5",
			"--soft-cap", "30e0", "--log-level", "debug", "--check-config",
			"--cuda-form", "block", "--cuda-wait", "spin", "--cuda-l2", "keep",
			"--cuda-timeout", "29s", "--cuda-graph-bytes", "1M", "--engine-spin", "1s",
			"--loop-spin", "50us"),
		0);
	ck_assert_str_eq(config.socket_path, "/tmp/s");
	ck_assert_str_eq(config.devices, "0,1");
	ck_assert_int_eq(config.backend, MARKOV_CUDA);
	ck_assert_uint_eq(config.max_rows, 7);
	ck_assert_uint_eq(config.max_region_bytes, 3145728);
	ck_assert_uint_eq(config.max_memory_bytes, 1073741824);
	ck_assert_uint_eq(config.hello_timeout_us, 250000);
	ck_assert_uint_eq(config.socket_mode, 0600);
	ck_assert(config.has_multiplier && config.has_soft_cap && config.check_config);
	ck_assert_float_eq(config.multiplier, -1.5f);
	ck_assert_float_eq(config.soft_cap, 30.0f);
	ck_assert_int_eq(config.log_level, LOG_DEBUG);
	ck_assert_int_eq(config.cuda.form, MARKOV_CUDA_BLOCK);
	ck_assert_int_eq(config.cuda.wait, MARKOV_CUDA_SPIN);
	ck_assert_int_eq(config.cuda.l2, MARKOV_CUDA_KEEP);
	ck_assert_uint_eq(config.cuda.timeout_us, 29000000);
	ck_assert_uint_eq(config.engine_spin_us, 1000000);
	ck_assert_uint_eq(config.loop_spin_us, 50);
	ck_assert_uint_eq(config.cuda.graph_bytes, 1048576);
}
END_TEST

/* Every number of the table: its bounds are taken, one beyond each is refused, and the sentence
 * names the range. */
START_TEST(number_ranges_hold_at_n_and_n_plus_1)
{
	const struct option_info *option = &options[_i];
	char text[32], range[64];
	uint64_t value = 0;

	if (option->type != OPTION_COUNT && option->type != OPTION_BYTES &&
		option->type != OPTION_TIME && option->type != OPTION_MODE)
		return;
	const char *format = option->type == OPTION_MODE   ? "%lo"
			     : option->type == OPTION_TIME ? "%luus"
							   : "%lu";
	const uint64_t good[] = {option->min, option->max},
		       bad[] = {option->max + 1, option->min - 1};

	ck_assert_int_eq(options_set_defaults(&config), 0);
	ck_assert(option->initial >= option->min && option->initial <= option->max);
	for (size_t i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), format, good[i]);
		ck_assert_int_eq(option_set(option, text, &config, &refusal.sentence), 0);
		memcpy(&value, (char *)&config + option->offset, option->width);
		ck_assert_uint_eq(value, good[i]);
	}
	option_describe_range(option, range, sizeof(range));
	for (size_t i = 0; i < (option->min > 0 ? 2 : 1); i++) {
		snprintf(text, sizeof(text), format, bad[i]);
		ck_assert_int_eq(option_set(option, text, &config, &refusal.sentence), -EINVAL);
		ck_assert_ptr_nonnull(strstr(refusal.sentence.text, range));
		memcpy(&value, (char *)&config + option->offset, option->width);
		ck_assert_uint_eq(value, option->max); /* kept */
	}
}
END_TEST

static const struct {
	const char *option, *value, *text;
} bad_values[] = {
	{"max-rows", "", "--max-rows is \"\"; it must be a whole number, 1 to 1024"},
	{"max-rows", "-1", "--max-rows is \"-1\"; it must be a whole number, 1 to 1024"},
	{"max-rows", "+1", "--max-rows is \"+1\"; it must be a whole number, 1 to 1024"},
	{"max-rows", " 1", "--max-rows is \" 1\"; it must be a whole number, 1 to 1024"},
	{"max-rows", "1K", "--max-rows is \"1K\"; it must be a whole number, 1 to 1024"},
	{"max-rows", "0x10", "--max-rows is \"0x10\"; it must be a whole number, 1 to 1024"},
	{"max-rows", "1025", "--max-rows is 1025; it must be 1 to 1024"},
	{"max-rows", "4294967297", "--max-rows is 4294967297; it must be 1 to 1024"},
	{"max-rows", "18446744073709551617",
		"--max-rows is \"18446744073709551617\"; it must be a whole number, 1 to 1024"},
	{"max-region-bytes", "18446744073709551615K",
		"--max-region-bytes is 18446744073709551615K; it must be 1 to 1T"},
	{"max-region-bytes", "1KB",
		"--max-region-bytes is \"1KB\"; it must be a whole number of bytes, or one with K, "
		"M, G or T, 1 to 1T"},
	{"max-region-bytes", "1iB",
		"--max-region-bytes is \"1iB\"; it must be a whole number of bytes, or one with K, "
		"M, G or T, 1 to 1T"},
	{"max-frame-bytes", "1.5M",
		"--max-frame-bytes is \"1.5M\"; it must be a whole number of bytes, or one with K, "
		"M, G or T, 64K to 1G"},
	{"hello-timeout", "5",
		"--hello-timeout is \"5\"; it must be a whole number with s, ms or us, 1ms to "
		"3600s"},
	{"hello-timeout", "0s", "--hello-timeout is 0s; it must be 1ms to 3600s"},
	{"hello-timeout", "5h",
		"--hello-timeout is \"5h\"; it must be a whole number with s, ms or us, 1ms to "
		"3600s"},
	{"socket-mode", "0680", "--socket-mode is \"0680\"; it must be octal digits, 0000 to 0777"},
	{"socket-mode", "1777", "--socket-mode is 1777; it must be 0000 to 0777"},
	{"multiplier", "nan", "--multiplier is \"nan\"; it must be a finite decimal number"},
	{"multiplier", "inf", "--multiplier is \"inf\"; it must be a finite decimal number"},
	{"multiplier", "1e39", "--multiplier is \"1e39\"; it must be a finite decimal number"},
	{"multiplier", "0x1p3", "--multiplier is \"0x1p3\"; it must be a finite decimal number"},
	{"multiplier", " 1", "--multiplier is \" 1\"; it must be a finite decimal number"},
	{"multiplier", "1 ", "--multiplier is \"1 \"; it must be a finite decimal number"},
	{"multiplier", "", "--multiplier is \"\"; it must be a finite decimal number"},
	{"cuda-form", "steps",
		"--cuda-form is \"steps\"; it must be one of auto, block, step, plain"},
	{"cuda-wait", "1", "--cuda-wait is \"1\"; it must be one of spin, sleep"},
	{"cuda-l2", "on", "--cuda-l2 is \"on\"; it must be one of release, keep"},
	{"cuda-timeout", "30s", "--cuda-timeout is 30s; it must be 10ms to 29s"},
	{"cuda-graph-bytes", "1023K", "--cuda-graph-bytes is 1023K; it must be 1M to 1T"},
	{"engine-spin", "1001ms", "--engine-spin is 1001ms; it must be 0us to 1s"},
	{"loop-spin", "2s", "--loop-spin is 2s; it must be 0us to 1s"},
	{"soft-cap", "-0.5", "--soft-cap is -0.5; it must be 0 or more"},
	{"backend", "gpu", "--backend is \"gpu\"; it must be one of auto, cpu, cuda"},
	{"backend", "CPU", "--backend is \"CPU\"; it must be one of auto, cpu, cuda"},
	{"log-level", "3",
		"--log-level is \"3\"; it must be one of error, warning, notice, info, debug"},
	{"socket", "", "--socket is empty; give a value or leave it out"},
	{"devices", "", "--devices is empty; give a value or leave it out"},
};

START_TEST(bad_values_are_named_with_what_would_be_right)
{
	char option[64];

	snprintf(option, sizeof(option), "--%s", bad_values[_i].option);
	ck_assert_int_lt(PARSE("--model", "m", option, bad_values[_i].value), 0);
	ck_assert_str_eq(refusal.sentence.text, bad_values[_i].text);
}
END_TEST

START_TEST(bad_command_lines)
{
	ck_assert_int_eq(PARSE("--model", "m", "--nonsense"), -EINVAL);
	ck_assert_str_eq(refusal.sentence.text, "\"--nonsense\" is no option; see draftd --help");
	ck_assert_int_eq(PARSE("--model", "m", "-x"), -EINVAL);
	ck_assert_str_eq(refusal.sentence.text, "\"-x\" is no option; see draftd --help");
	ck_assert_int_eq(PARSE("--model", "m", "-\xc3\xa9"), -EINVAL);
	ck_assert_str_eq(refusal.sentence.text, "\"-\\xc3\" is no option; see draftd --help");
	ck_assert_int_eq(PARSE("--model"), -EINVAL);
	ck_assert_str_eq(refusal.sentence.text, "\"--model\" needs a value; see draftd --help");
	ck_assert_int_eq(PARSE("--check-config=yes", "--model", "m"), -EINVAL);
	ck_assert_str_eq(
		refusal.sentence.text, "\"--check-config=yes\" is no option; see draftd --help");
	ck_assert_int_eq(PARSE("--model", "m", "more"), -EINVAL);
	ck_assert_str_eq(refusal.sentence.text, "\"more\" is no option; see draftd --help");
	ck_assert_int_eq(PARSE("--socket", "s"), -EINVAL);
	ck_assert_str_eq(refusal.sentence.text,
		"there is no model; give --model PATH or [model] path in the configuration file");
	ck_assert_int_eq(
		PARSE("--model", "m", "--max-frame-bytes", "2M", "--max-output-bytes", "1M"),
		-EINVAL);
	ck_assert_ptr_nonnull(strstr(refusal.sentence.text,
		"max_output_bytes is 1048576, less than max_frame_bytes, 2097152"));
	ck_assert_int_eq(PARSE("--model", "m", "--max-memory-bytes", "1M"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(
		refusal.sentence.text, "max_memory_bytes is 1048576, less than max_region_bytes"));
}
END_TEST

/* ---- devices ---- */

#define EIGHT(tens) tens "0," tens "1," tens "2," tens "3," tens "4," tens "5," tens "6," tens "7"
#define THIRTY_TWO  "0,1,2,3,4,5,6,7," EIGHT("1") "," EIGHT("2") "," EIGHT("3")
#define UUID_63     "GPU-45678901234567890123456789012345678901234567890123456789012"

static const struct {
	const char *backend, *devices, *tensor_parallel; /* NULL: not given */
	uint32_t group, replicas;
	const char *last; /* group */
} good_devices[] = {
	{"auto", NULL, "1", 1, 1, NULL},
	{"cuda", "0", NULL, 1, 1, "0"},
	{"auto", "0,1", NULL, 2, 1, "0,1"},
	{"cuda", "0,1", "2", 2, 1, "0,1"},
	{"cuda", "0,1", "1", 1, 2, "1"},
	{"cuda", "3,1,2,0", "2", 2, 2, "2,0"},
	{"cuda", "0,1,2", "1", 1, 3, "2"},
	{"cuda", "0,1,2,3,4,5", "2", 2, 3, "4,5"},
	{"cuda", "10,GPU-01234567-89ab-cdef-0123-456789abcdef", "1", 1, 2,
		"GPU-01234567-89ab-cdef-0123-456789abcdef"},
	{"cuda", UUID_63, NULL, 1, 1, UUID_63},
	{"cuda", THIRTY_TWO, NULL, 32, 1, THIRTY_TWO},
	{"cuda", THIRTY_TWO, "1", 1, 32, "37"},
	{"cuda", THIRTY_TWO, "16", 16, 2, EIGHT("2") "," EIGHT("3")},
	{"cpu", NULL, NULL, 1, 1, NULL},
	{"cpu", "CPU", NULL, 1, 1, "CPU"},
	{"cpu", "CPU,CPU,CPU", NULL, 1, 3, "CPU"},
	{"cpu", "CPU,CPU", "1", 1, 2, "CPU"},
};

static int parse_devices(const char *backend, const char *devices, const char *tensor_parallel)
{
	const char *argv[10] = {"draftd", "--model", "m", "--backend", backend};
	int argc = 5;

	if (devices) {
		argv[argc++] = "--devices";
		argv[argc++] = devices;
	}
	if (tensor_parallel) {
		argv[argc++] = "--tensor-parallel";
		argv[argc++] = tensor_parallel;
	}
	refusal = (struct refusal){0};
	return config_parse(argc, (char **)(uintptr_t)argv, &config, &refusal);
}

START_TEST(devices_are_cut_into_replicas)
{
	char text[256];

	ck_assert_int_eq(parse_devices(good_devices[_i].backend, good_devices[_i].devices,
				 good_devices[_i].tensor_parallel),
		0);
	ck_assert_uint_eq(config.tensor_parallel, good_devices[_i].group);
	ck_assert_uint_eq(config.replicas, good_devices[_i].replicas);
	if (!config.devices)
		return;
	ck_assert(devices_of(
		config.devices, config.tensor_parallel, config.replicas - 1, text, sizeof(text)));
	ck_assert_str_eq(text, good_devices[_i].last);
	ck_assert(devices_of(config.devices, config.tensor_parallel, config.replicas - 1, text,
		strlen(good_devices[_i].last) + 1));
	ck_assert(!devices_of(config.devices, config.tensor_parallel, config.replicas - 1, text,
		strlen(good_devices[_i].last)));
}
END_TEST

static const struct {
	const char *backend, *devices, *tensor_parallel, *text;
} bad_devices[] = {
	{"cuda", "0,,1", NULL,
		"devices has an empty place; write numbers or UUIDs with one comma between two"},
	{"cuda", "0,1,", NULL,
		"devices has an empty place; write numbers or UUIDs with one comma between two"},
	{"cuda", ",", NULL,
		"devices has an empty place; write numbers or UUIDs with one comma between two"},
	{"cuda", "0, 1", NULL,
		"devices has \" 1\"; write numbers or UUIDs with commas and no blanks"},
	{"cuda", "0,00", NULL, "devices has \"00\"; write a number without zeros before it"},
	{"cuda", UUID_63 "3", NULL,
		"devices has a name of 64 bytes, the most is 63; write numbers or UUIDs, as "
		"nvidia-smi -L prints them"},
	{"cuda", "0,1,0", "1", "devices has 0 twice; name each GPU once"},
	{"auto", "GPU-a,GPU-a", NULL, "devices has GPU-a twice; name each GPU once"},
	{"cuda", THIRTY_TWO ",40", "1", "devices lists 33, the most is 32; list fewer"},
	{"cuda", "0,CPU", NULL, "devices names the CPU, but backend is cuda; name GPUs or use cpu"},
	{"auto", "CPU", NULL, "devices names the CPU, but backend is auto; name GPUs or use cpu"},
	{"auto", "cpu,cpu", NULL,
		"devices names the CPU, but backend is auto; name GPUs or use cpu"},
	{"cpu", "0", NULL,
		"devices has \"0\", but backend is cpu; write CPU for each replica, leave devices "
		"out, or use cuda"},
	{"cpu", "CPU,cpu", NULL,
		"devices has \"cpu\", but backend is cpu; write CPU for each replica, leave "
		"devices "
		"out, or use cuda"},
	{"cpu", "CPU,CPU", "2",
		"tensor_parallel is 2, but backend is cpu, which shares no vocabulary; leave it "
		"out"},
	{"cuda", "0,1,2", NULL,
		"devices lists 3 GPUs, and a group must have a power of two; list so many, or set "
		"tensor_parallel (1: each is a replica)"},
	{"cuda", "0,1,2", "3", "tensor_parallel is 3; it must be a power of two up to 32"},
	{"cuda", "0,1,2", "2",
		"tensor_parallel is 2, and devices lists 3 GPUs; list a multiple of it"},
	{"cuda", "0,1", "4",
		"tensor_parallel is 4, and devices lists 2 GPUs; list a multiple of it"},
	{"cuda", "0", "4", "tensor_parallel is 4, and devices lists 1 GPU; list a multiple of it"},
	{"auto", NULL, "2", "tensor_parallel is 2, and devices lists no GPU; list 2 or a multiple"},
	{"cuda", "0", "33", "--tensor-parallel is 33; it must be 0 to 32"},
};

START_TEST(bad_devices_are_named_with_what_would_be_right)
{
	ck_assert_int_eq(parse_devices(bad_devices[_i].backend, bad_devices[_i].devices,
				 bad_devices[_i].tensor_parallel),
		-EINVAL);
	ck_assert_str_eq(refusal.sentence.text, bad_devices[_i].text);
}
END_TEST

START_TEST(socket_path_holds_107_bytes_not_108)
{
	char path[128];

	memset(path, 'a', sizeof(path));
	path[107] = '\0';
	ck_assert_int_eq(PARSE("--model", "m", "--socket", path), 0);
	ck_assert_str_eq(config.socket_path, path);
	path[107] = 'a';
	path[108] = '\0';
	ck_assert_int_eq(PARSE("--model", "m", "--socket", path), -ENAMETOOLONG);
	ck_assert_str_eq(refusal.sentence.text, "--socket is 108 bytes long; the most is 107");
}
END_TEST

START_TEST(file_sets_everything)
{
	ck_assert_int_eq(parse_text("# comment\n"
				    "; another\n"
				    "[socket]\r\n"
				    "path=/run/a b;c.sock\n"
				    "\n"
				    "  mode = 0600  \n"
				    "[model]\n"
				    "path = /m # not a comment\n"
				    "multiplier = 2\n"
				    "soft_cap = 0\n"
				    "[backend]\n"
				    "name = cuda\n"
				    "devices = GPU-1=x\n"
				    "threads = 2\n"
				    "[cuda]\n"
				    "form = step\n"
				    "wait = sleep\n"
				    "l2 = release\n"
				    "timeout = 10ms\n"
				    "graph_bytes = 2G\n"
				    "[limits]\n"
				    "\tmax_rows = 16\n"
				    "max_frame_bytes = 64K\n"
				    "drain_timeout = 0s\n"
				    "[log]\n"
				    "level = error\n"
				    "[socket]"),
		0);
	ck_assert_str_eq(config.socket_path, "/run/a b;c.sock");
	ck_assert_uint_eq(config.socket_mode, 0600);
	ck_assert_str_eq(config.model_path, "/m # not a comment");
	ck_assert(config.has_multiplier && config.multiplier == 2);
	ck_assert(config.has_soft_cap && config.soft_cap == 0);
	ck_assert_int_eq(config.backend, MARKOV_CUDA);
	ck_assert_str_eq(config.devices, "GPU-1=x");
	ck_assert_uint_eq(config.threads, 2);
	ck_assert_int_eq(config.cuda.form, MARKOV_CUDA_STEP);
	ck_assert_int_eq(config.cuda.wait, MARKOV_CUDA_SLEEP);
	ck_assert_int_eq(config.cuda.l2, MARKOV_CUDA_RELEASE);
	ck_assert_uint_eq(config.cuda.timeout_us, 10000);
	ck_assert_uint_eq(config.cuda.graph_bytes, 2147483648);
	ck_assert_uint_eq(config.max_rows, 16);
	ck_assert_uint_eq(config.max_frame_bytes, 65536);
	ck_assert_uint_eq(config.drain_timeout_us, 0);
	ck_assert_int_eq(config.log_level, LOG_ERR);
}
END_TEST

#define FORTY "0123456789012345678901234567890123456789"

static const struct {
	const char *text, *error;
} bad_files[] = {
	{"[limit]\n", "x.conf:1: there is no section [limit]; the sections are [socket], [model], "
		      "[backend], [cuda], [latency], [limits], [log]"},
	{"\n[limits]\nmax_row = 1\n",
		"x.conf:3: [limits] has no key max_row; draftd --help lists the keys"},
	{"[log]\nmax_rows = 1\n",
		"x.conf:2: [log] has no key max_rows; draftd --help lists the keys"},
	{"[limits]\nconfig = x\n",
		"x.conf:2: [limits] has no key config; draftd --help lists the keys"},
	{"max_rows = 1\n", "x.conf:1: max_rows stands before any section; write a line like "
			   "[limits] before it"},
	{"[limits]\nmax_rows = 1\n\nmax_rows = 1\n",
		"x.conf:4: [limits] max_rows was set in line 2 already; remove one of the two"},
	{"[limits]\nmax_rows = 1\n[log]\n[limits]\nmax_rows = 1",
		"x.conf:5: [limits] max_rows was set in line 2 already; remove one of the two"},
	{"[limits]\nmax_rows = 0\n", "x.conf:2: [limits] max_rows is 0; it must be 1 to 1024"},
	{"[limits]\nmax_rows =\n",
		"x.conf:2: [limits] max_rows is \"\"; it must be a whole number, 1 to 1024"},
	{"[limits]\nmax_rows = 8 ; rows\n", "x.conf:2: [limits] max_rows is \"8 ; rows\"; it must "
					    "be a whole number, 1 to 1024"},
	{"[limits]\nmax_rows\n", "x.conf:2: \"max_rows\" is no setting; write key = value, the key "
				 "in small letters and _"},
	{"[limits]\nmax_rows: 8\n", "x.conf:2: \"max_rows: 8\" is no setting; write key = value, "
				    "the key in small letters and _"},
	{"[limits]\nmax_rows: 8 = 9\n", "x.conf:2: \"max_rows: 8 = 9\" is no setting; write key = "
					"value, the key in small letters and _"},
	{"[limits]\n= 8\n", "x.conf:2: \"= 8\" is no setting; write key = value, the key in small "
			    "letters and _"},
	{"[limits]\nMAX_ROWS = 8\n", "x.conf:2: \"MAX_ROWS = 8\" is no setting; write key = value, "
				     "the key in small letters and _"},
	{"[limits\n", "x.conf:1: \"[limits\" is no section; write [name] alone on the line"},
	{"[limits] x\n", "x.conf:1: \"[limits] x\" is no section; write [name] alone on the line"},
	{"[]\n", "x.conf:1: \"[]\" is no section; write [name] alone on the line"},
	{"[", "x.conf:1: \"[\" is no section; write [name] alone on the line"},
	{"[socket]\npath = a\x01\n",
		"x.conf:2: byte 9 is 0x01, a control character; the file must be plain text"},
	{"[socket]\npath = a\rb\n",
		"x.conf:2: byte 9 is 0x0d, a control character; the file must be plain text"},
	{"[log]\n" FORTY FORTY " = 1\n", NULL},
	{"[" FORTY FORTY "]\n", NULL},
};

START_TEST(bad_files_give_one_sentence_with_the_line)
{
	ck_assert_int_eq(parse_text(bad_files[_i].text), -EINVAL);
	if (bad_files[_i].error)
		ck_assert_str_eq(refusal.sentence.text, bad_files[_i].error);
}
END_TEST

START_TEST(nul_bytes_are_refused)
{
	static const char text[] = "[log]\nlevel = err\0or\n";

	ck_assert_int_eq(options_set_defaults(&config), 0);
	ck_assert_int_eq(
		config_file_parse("x.conf", text, sizeof(text) - 1, &config, &refusal), -EINVAL);
	ck_assert_str_eq(refusal.sentence.text,
		"x.conf:2: byte 12 is 0x00, a control character; the file must be plain text");
}
END_TEST

/* inih's own buffer takes 200 bytes: a longer value has to survive, up to the limit of a line. */
START_TEST(lines_hold_4096_bytes_not_4097)
{
	char text[8192], *line;
	const size_t path_at = strlen("path=");

	line = stpcpy(text, "[model]\n");
	memset(line, 'p', 5000);
	memcpy(line, "path=", path_at);
	strcpy(line + LIMIT_CONFIG_LINE_BYTES, "\n");
	/* The path alone would be one byte over its own limit without this blank. */
	line[path_at] = ' ';
	ck_assert_int_eq(parse_text(text), 0);
	ck_assert_uint_eq(strlen(config.model_path), LIMIT_CONFIG_LINE_BYTES - path_at - 1);

	line[LIMIT_CONFIG_LINE_BYTES] = 'p';
	strcpy(line + LIMIT_CONFIG_LINE_BYTES + 1, "\n");
	ck_assert_int_eq(parse_text(text), -EINVAL);
	ck_assert_str_eq(
		refusal.sentence.text, "x.conf:2: the line is 4097 bytes long; the most is 4096");
}
END_TEST

static char folder[64], path[96];

static void make_folder(void)
{
	strcpy(folder, "/tmp/test_config.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/c", folder);
}

static void remove_folder(void)
{
	unlink(path);
	rmdir(folder);
	teardown();
}

static void write_path(const char *text, size_t bytes)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, bytes, file), bytes);
	ck_assert_int_eq(fclose(file), 0);
}

static void write_text(const char *text)
{
	write_path(text, strlen(text));
}

START_TEST(command_line_goes_before_the_file)
{
	write_text("[model]\npath = from file\n[limits]\nmax_rows = 3\nmax_steps = "
		   "3\n[backend]\nname = cuda\n");
	/* whichever comes first */
	ck_assert_int_eq(PARSE("--max-rows", "5", "--config", path, "--backend", "cpu"), 0);
	ck_assert_str_eq(config.model_path, "from file");
	ck_assert_str_eq(config.config_path, path);
	ck_assert_uint_eq(config.max_rows, 5);
	ck_assert_uint_eq(config.max_steps, 3);
	ck_assert_int_eq(config.backend, MARKOV_CPU);
}
END_TEST

/* What no single line shows: the line of the setting that the sentence speaks of first, of those
 * that are from the file, and the option that it does not fit. */
static const struct {
	const char *text, *option, *value; /* of the command line */
	const char *error;                 /* behind the file's name */
} together[] = {
	{"[limits]\nmax_frame_bytes = 2M\nmax_output_bytes = 1M\n", NULL, NULL,
		":3: max_output_bytes is 1048576, less than max_frame_bytes, 2097152"},
	{"[limits]\nmax_frame_bytes = 2M\n", "--max-output-bytes", "1M",
		":2 and --max-output-bytes: max_output_bytes is 1048576, less than "
		"max_frame_bytes, 2097152"},
	{"[limits]\nmax_output_bytes = 1M\n", "--max-frame-bytes", "2M",
		":2 and --max-frame-bytes: max_output_bytes is 1048576, less than max_frame_bytes, "
		"2097152"},
	{"[limits]\nmax_region_bytes = 16G\n", NULL, NULL, ":2: max_memory_bytes is"},
	{"[backend]\n\ndevices = 0,0\n", NULL, NULL, ":3: devices has 0 twice"},
	{"[backend]\nname = cpu\n", "--devices", "0",
		":2 and --devices: devices has \"0\", but backend is cpu"},
	{"[backend]\nname = cpu\ndevices = 0\n", NULL, NULL, ":3: devices has \"0\", but backend"},
	{"[backend]\ntensor_parallel = 2\n", "--devices", "0,1,2",
		":2 and --devices: tensor_parallel is 2, and"},
	{"[backend]\ndevices = 0,1,2\n", "--tensor-parallel", "2",
		":2 and --tensor-parallel: tensor_parallel is 2, and"},
	{"[backend]\nname = cpu\ntensor_parallel = 2\n", NULL, NULL,
		":3: tensor_parallel is 2, but"},
	{"[backend]\nname = cpu\n", "--tensor-parallel", "2",
		":2 and --tensor-parallel: tensor_parallel is 2, but"},
	{"[backend]\ntensor_parallel = 0\ndevices = 0,1,2\n", NULL, NULL, ":3: devices lists 3"},
	{"[backend]\ntensor_parallel = 0\n", "--devices", "0,1,2",
		":2 and --devices: devices lists 3"},
	{"[backend]\nname = auto\n", "--devices", "CPU",
		":2 and --devices: devices names the CPU, but"},
	/* whatever words a value has */
	{"[backend]\ntensor_parallel = 1\nname = cpu\n", "--devices", "tensor_parallel",
		":3 and --devices: devices has \"tensor_parallel\", but backend is cpu"},
};

START_TEST(what_settings_say_together_has_a_line)
{
	char text[256];

	write_text(together[_i].text);
	if (together[_i].option)
		ck_assert_int_eq(PARSE("--model", "m", "--config", path, together[_i].option,
					 together[_i].value),
			-EINVAL);
	else
		ck_assert_int_eq(PARSE("--model", "m", "--config", path), -EINVAL);
	snprintf(text, sizeof(text), "%s%s", path, together[_i].error);
	ck_assert_msg(strncmp(refusal.sentence.text, text, strlen(text)) == 0, "%s",
		refusal.sentence.text);
	ck_assert_uint_eq(refusal.file_bytes, strlen(path));
}
END_TEST

START_TEST(what_the_command_line_says_has_no_line)
{
	write_text(
		"[limits]\nmax_output_bytes = 8M\nmax_frame_bytes = 1M\n[backend]\ndevices = 0\n");
	ck_assert_int_eq(PARSE("--model", "m", "--config", path, "--max-output-bytes", "2M",
				 "--max-frame-bytes", "4M"),
		-EINVAL);
	ck_assert_msg(strncmp(refusal.sentence.text, "max_output_bytes is", 19) == 0, "%s",
		refusal.sentence.text);
	ck_assert_int_eq(PARSE("--model", "m", "--config", path, "--devices", "0,0"), -EINVAL);
	ck_assert_msg(strncmp(refusal.sentence.text, "devices has 0 twice", 19) == 0, "%s",
		refusal.sentence.text);
	ck_assert_uint_eq(refusal.file_bytes, 0);
}
END_TEST

START_TEST(files_that_are_no_file)
{
	char text[256];

	ck_assert_int_eq(PARSE("--model", "m", "--config", path), -ENOENT);
	snprintf(text, sizeof(text), "%s: can't be opened: No such file or directory", path);
	ck_assert_str_eq(refusal.sentence.text, text);

	ck_assert_int_eq(PARSE("--model", "m", "--config", folder), -EINVAL);
	snprintf(text, sizeof(text), "%s: is a directory; the configuration must be a regular file",
		folder);
	ck_assert_str_eq(refusal.sentence.text, text);

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(PARSE("--model", "m", "--config", path), -EINVAL);
	snprintf(text, sizeof(text),
		"%s: is no regular file; the configuration must be a regular file", path);
	ck_assert_str_eq(refusal.sentence.text, text);
}
END_TEST

START_TEST(files_hold_1_mib_not_more)
{
	const size_t most = LIMIT_CONFIG_FILE_BYTES;
	char *text = malloc(most + 1);

	ck_assert_ptr_nonnull(text);
	memset(text, '\n', most + 1);
	write_path(text, most);
	ck_assert_int_eq(PARSE("--model", "m", "--config", path), 0);
	write_path(text, most + 1);
	ck_assert_int_eq(PARSE("--model", "m", "--config", path), -EFBIG);
	free(text);
}
END_TEST

START_TEST(reload_reads_again_and_keeps_the_socket)
{
	const char *argv[] = {"draftd", "--config", path, NULL};
	struct config next;

	write_text("[model]\npath = one\n[socket]\npath = s\n");
	ck_assert_int_eq(PARSE("--config", path), 0);

	write_text("[model]\npath = two\n[socket]\npath = s\n");
	ck_assert_int_eq(parse_again(argv, &next), 0);
	ck_assert_str_eq(next.model_path, "two");
	ck_assert_str_eq(config.model_path, "one");
	config_done(&next);

	write_text("[model]\npath = two\n[socket]\npath = t\n");
	ck_assert_int_eq(parse_again(argv, &next), -EINVAL);
	ck_assert_ptr_nonnull(strstr(refusal.sentence.text, "needs a restart"));

	write_text("[model]\npath = two\n[socket]\npath = s\nmode = 0666\n");
	ck_assert_int_eq(parse_again(argv, &next), -EINVAL);

	write_text("[model]\npath = two\nnonsense\n");
	ck_assert_int_eq(parse_again(argv, &next), -EINVAL);
	ck_assert_ptr_nonnull(strstr(refusal.sentence.text, ":3: "));
	ck_assert_str_eq(config.model_path, "one");
}
END_TEST

/* The table is also documentation: it must be complete and its file keys unique. */
START_TEST(table_is_sound)
{
	char *help = NULL, name[64];
	size_t help_bytes = 0;
	FILE *to = open_memstream(&help, &help_bytes);

	options_print_help(to);
	fclose(to);
	for (size_t i = 0; i < options_count; i++) {
		bool known;

		ck_assert_ptr_nonnull(options[i].help);
		ck_assert_uint_le(options[i].offset + options[i].width, sizeof(struct config));
		snprintf(name, sizeof(name), "--%s", options[i].name);
		ck_assert_ptr_nonnull(strstr(help, name));
		if (options[i].section)
			ck_assert_ptr_eq(options_find(options[i].section, options[i].key, &known),
				&options[i]);
		for (size_t j = 0; j < i; j++) {
			ck_assert_str_ne(options[i].name, options[j].name);
			ck_assert(!options[i].letter || options[i].letter != options[j].letter);
		}
	}
	for (char *at = help, *end; (end = strchr(at, '\n')); at = end + 1)
		ck_assert_int_le(end - at, 110);
	free(help);
}
END_TEST

Suite *config_suite(void)
{
	Suite *suite = suite_create("config");
	TCase *values = tcase_create("values"), *files = tcase_create("files");

	tcase_add_checked_fixture(values, NULL, teardown);
	tcase_add_test(values, defaults_are_those_of_limits_h);
	tcase_add_test(values, a_user_has_three_quarters_unless_told_otherwise);
	tcase_add_test(values, command_line_sets_every_type);
	tcase_add_loop_test(values, number_ranges_hold_at_n_and_n_plus_1, 0, (int)options_count);
	tcase_add_loop_test(values, bad_values_are_named_with_what_would_be_right, 0,
		(int)(sizeof(bad_values) / sizeof(bad_values[0])));
	tcase_add_test(values, bad_command_lines);
	tcase_add_loop_test(values, devices_are_cut_into_replicas, 0,
		sizeof(good_devices) / sizeof(good_devices[0]));
	tcase_add_loop_test(values, bad_devices_are_named_with_what_would_be_right, 0,
		sizeof(bad_devices) / sizeof(bad_devices[0]));
	tcase_add_test(values, socket_path_holds_107_bytes_not_108);
	tcase_add_test(values, file_sets_everything);
	tcase_add_loop_test(values, bad_files_give_one_sentence_with_the_line, 0,
		(int)(sizeof(bad_files) / sizeof(bad_files[0])));
	tcase_add_test(values, nul_bytes_are_refused);
	tcase_add_test(values, lines_hold_4096_bytes_not_4097);
	tcase_add_test(values, table_is_sound);
	suite_add_tcase(suite, values);

	tcase_add_checked_fixture(files, make_folder, remove_folder);
	tcase_add_test(files, command_line_goes_before_the_file);
	tcase_add_loop_test(files, what_settings_say_together_has_a_line, 0,
		sizeof(together) / sizeof(together[0]));
	tcase_add_test(files, what_the_command_line_says_has_no_line);
	tcase_add_test(files, files_that_are_no_file);
	tcase_add_test(files, files_hold_1_mib_not_more);
	tcase_add_test(files, reload_reads_again_and_keeps_the_socket);
	suite_add_tcase(suite, files);
	return suite;
}
