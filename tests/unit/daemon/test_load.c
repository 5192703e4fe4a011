/* What the log and the service manager hear of a load: a pipe stands in for stderr, a socket for
 * the manager. */
#include "daemon/limits.h"
#include "daemon/load.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/options.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

Suite *load_suite(void);

static int stderr_before, from_stderr, manager;
static struct config config;
static struct load load;

static void setup(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct error_text error;
	char name[64];
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
	stderr_before = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	from_stderr = ends[0];
	unsetenv("JOURNAL_STREAM");
	unsetenv("INVOCATION_ID");
	log_init(LOG_INFO);

	snprintf(name, sizeof(name), "@test_load.%d", (int)getpid());
	setenv("NOTIFY_SOCKET", name, 1);
	strcpy(address.sun_path + 1, name + 1);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(
		bind(manager, (struct sockaddr *)&address,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
		0);
	ck_assert_int_eq(notify_init(&error), 0);
	config = (struct config){.backend = MARKOV_AUTO};
}

static void teardown(void)
{
	struct error_text error;

	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	close(from_stderr);
	close(manager);
	unsetenv("NOTIFY_SOCKET");
	ck_assert_int_eq(notify_init(&error), 0);
}

static const char *logged(void)
{
	static char text[1024];
	ssize_t n = read(from_stderr, text, sizeof(text) - 1);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

/* The next datagram; "" when none came. */
static const char *told(void)
{
	static char text[1024];
	ssize_t n = recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

/* A percent is said once, unless a second has passed: a manager may lose what comes too fast. */
START_TEST(the_manager_hears_how_far_it_is)
{
	load_begin(&load, "starting", &config);
	load_tell(&load, "reading", 0.4);
	ck_assert_str_eq(told(), "STATUS=Starting: reading, 40%\nEXTEND_TIMEOUT_USEC=30000000");
	load_tell(&load, "reading", 0.4049);
	ck_assert_str_eq(told(), "");
	load_tell(&load, "reading", 0.41);
	ck_assert_str_eq(told(), "STATUS=Starting: reading, 41%\nEXTEND_TIMEOUT_USEC=30000000");
	load_tell(&load, "testing", 0.41);
	ck_assert_str_eq(told(), "STATUS=Starting: testing, 41%\nEXTEND_TIMEOUT_USEC=30000000");
	load.said_us -= LIMIT_LOAD_SAYS_US;
	load_tell(&load, "testing", 0.41);
	ck_assert_str_eq(told(), "STATUS=Starting: testing, 41%\nEXTEND_TIMEOUT_USEC=30000000");
}
END_TEST

START_TEST(a_quick_load_is_quiet)
{
	load_begin(&load, "starting", &config);
	load_tell(&load, "reading", 0);
	load_tell(&load, "testing", 0);
	ck_assert_str_eq(logged(), "");
}
END_TEST

/* Of a phase under way as of one that begins, each once. */
START_TEST(a_slow_load_says_what_it_does)
{
	load_begin(&load, "reloading", &config);
	load_tell(&load, "reading", 0);
	ck_assert_str_eq(logged(), "");
	load.begun_us -= LIMIT_LOAD_QUIET_US;
	load_tell(&load, "reading", 0.5);
	load_tell(&load, "reading", 1);
	ck_assert_str_eq(logged(), "draftd: info: reloading: reading\n");
	load_tell(&load, "testing", 0);
	load_tell(&load, "testing", 0.5);
	ck_assert_str_eq(logged(), "draftd: info: reloading: testing\n");
}
END_TEST

START_TEST(on_gpus_each_phase_has_a_line)
{
	config.backend = MARKOV_CUDA;
	load_begin(&load, "starting", &config);
	load_tell(&load, "reading", 0);
	load_tell(&load, "reading", 1);
	load_tell(&load, "capturing graphs", 0);
	ck_assert_str_eq(logged(),
		"draftd: info: starting: reading\ndraftd: info: starting: capturing graphs\n");
}
END_TEST

static void give(size_t setting, uint32_t origin)
{
	config.origins[options_at(setting) - options] = origin;
}

START_TEST(unused_settings_are_named_as_they_were_given)
{
	const struct markov_facts cpu = {.backend = "cpu"}, cuda = {.backend = "cuda"};

	give(SETTING(max_rows), 3);
	give(SETTING(threads), ORIGIN_COMMAND_LINE);
	load_warn_unused(&config, &cpu);
	ck_assert_str_eq(logged(), "");

	give(SETTING(devices), 4);
	give(SETTING(cuda.form), ORIGIN_COMMAND_LINE);
	give(SETTING(cuda.l2), 9);
	load_warn_unused(&config, &cuda);
	config.backend = MARKOV_CPU; /* asked for: no surprise */
	load_warn_unused(&config, &cpu);
	ck_assert_str_eq(logged(), "");

	config.backend = MARKOV_AUTO;
	load_warn_unused(&config, &cpu);
	ck_assert_str_eq(logged(),
		"draftd: warning: backend auto took the CPU, which makes no use of [backend] "
		"devices, --cuda-form, [cuda] l2\n");
}
END_TEST

/* All that there are fit into the line. */
START_TEST(all_unused_settings_are_named)
{
	const struct markov_facts cpu = {.backend = "cpu"};
	const char *line;

	for (size_t i = 0; i < options_count; i++)
		config.origins[i] = ORIGIN_COMMAND_LINE;
	load_warn_unused(&config, &cpu);
	line = logged();
	ck_assert_ptr_nonnull(strstr(line,
		"no use of --devices, --tensor-parallel, --cuda-form, --cuda-wait, --cuda-l2, "
		"--cuda-timeout, --cuda-graph-bytes, --max-device-bytes, --max-user-device-bytes, "
		"--max-user-events, --event-timeout\n"));

	for (size_t i = 0; i < options_count; i++)
		config.origins[i] = 1;
	load_warn_unused(&config, &cpu);
	line = logged();
	ck_assert_ptr_nonnull(strstr(line, "[cuda] graph_bytes, [limits] max_device_bytes, "));
	ck_assert_ptr_nonnull(strstr(line, ", [limits] event_timeout\n"));
}
END_TEST

Suite *load_suite(void)
{
	Suite *suite = suite_create("load");
	TCase *tests = tcase_create("load");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, the_manager_hears_how_far_it_is);
	tcase_add_test(tests, a_quick_load_is_quiet);
	tcase_add_test(tests, a_slow_load_says_what_it_does);
	tcase_add_test(tests, on_gpus_each_phase_has_a_line);
	tcase_add_test(tests, unused_settings_are_named_as_they_were_given);
	tcase_add_test(tests, all_unused_settings_are_named);
	suite_add_tcase(suite, tests);
	return suite;
}
