/* What a log line looks like, as it arrives on stderr. */
#include "daemon/limits.h"
#include "daemon/log.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *log_suite(void);

static int stderr_before = -1, from_stderr = -1;

/* stderr becomes a pipe that the test reads. */
static void setup(void)
{
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_ne(fcntl(ends[0], F_SETPIPE_SZ, 1 << 20), -1);
	stderr_before = dup(STDERR_FILENO);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[1]);
	from_stderr = ends[0];
	unsetenv("JOURNAL_STREAM");
	unsetenv("INVOCATION_ID");
	log_init(LOG_INFO);
}

static void teardown(void)
{
	dup2(stderr_before, STDERR_FILENO);
	close(stderr_before);
	close(from_stderr);
	unsetenv("JOURNAL_STREAM");
	unsetenv("INVOCATION_ID");
	log_init(LOG_INFO);
}

/* What has been written so far. */
static const char *written(void)
{
	static char text[65536];
	ssize_t n;

	ck_assert_int_eq(fcntl(from_stderr, F_SETFL, O_NONBLOCK), 0);
	n = read(from_stderr, text, sizeof(text) - 1);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

START_TEST(people_get_words)
{
	log_error("no %s", "model");
	ck_assert_str_eq(written(), "draftd: error: no model\n");
	log_warning("w");
	log_notice("n");
	log_info("i");
	ck_assert_str_eq(written(), "draftd: warning: w\ndraftd: notice: n\ndraftd: info: i\n");
}
END_TEST

START_TEST(systemd_gets_priorities)
{
	setenv("INVOCATION_ID", "0123456789abcdef0123456789abcdef", 1);
	log_init(LOG_INFO);
	log_error("a");
	log_info("b");
	ck_assert_str_eq(written(), "<3>draftd: a\n<6>draftd: b\n");
}
END_TEST

START_TEST(level_drops_what_is_less_urgent)
{
	log_line(LOG_DEBUG, NULL, "dropped");
	log_set_level(LOG_ERR);
	log_warning("dropped");
	log_error("kept");
	ck_assert_str_eq(written(), "draftd: error: kept\n");
}
END_TEST

START_TEST(context_stands_behind)
{
	const struct log_context all = {
		.connection = 7, .pid = 123, .uid = 1000, .request = 42, .error = "BAD_FRAME"};
	const struct log_context some = {.connection = 8, .error = "TOO_LARGE"};
	const struct log_context root = {.connection = 9, .pid = 4};
	const struct log_context none = {0};

	log_line(LOG_WARNING, &all, "x");
	log_line(LOG_WARNING, &some, "y");
	log_line(LOG_WARNING, &root, "r");
	log_line(LOG_WARNING, &none, "z");
	ck_assert_str_eq(written(),
		"draftd: warning: x (connection 7, pid 123, uid 1000, request 42, BAD_FRAME)\n"
		"draftd: warning: y (connection 8, TOO_LARGE)\n"
		"draftd: warning: r (connection 9, pid 4, uid 0)\n"
		"draftd: warning: z\n");
}
END_TEST

START_TEST(control_characters_are_escaped)
{
	log_info("a\nb\x1b[31mc\x7f\td é");
	ck_assert_str_eq(written(), "draftd: info: a\\nb\\x1b[31mc\\x7f\\x09d é\n");
}
END_TEST

START_TEST(long_lines_are_cut_and_say_so)
{
	char text[10000];
	const char *line;

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_info("%s", text);
	line = written();
	ck_assert_uint_lt(strlen(line), 4096);
	ck_assert_str_eq(line + strlen(line) - strlen("a…\n"), "a…\n");
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);

	/* The same of characters that grow when they are escaped. */
	memset(text, '\x01', sizeof(text) - 1);
	log_info("%s", text);
	line = written();
	ck_assert_uint_lt(strlen(line), 4096);
	ck_assert_str_eq(line + strlen(line) - strlen("\\x01…\n"), "\\x01…\n");

	/* Wherever the cut comes, it comes between characters. */
	for (size_t before = 0; before < 3; before++) {
		memset(text, 'a', before);
		for (size_t at = before; at + 3 < sizeof(text); at += 3)
			memcpy(text + at, "模", 4);
		log_info("%s", text);
		line = written();
		ck_assert_str_eq(line + strlen(line) - strlen("模…\n"), "模…\n");
	}
}
END_TEST

/* What a handler of signals says looks like any other line. */
START_TEST(handlers_may_say_something)
{
	log_in_handler(LOG_NOTICE, "stopped");
	log_in_handler(LOG_DEBUG, "not at this level");
	ck_assert_str_eq(written(), "draftd: notice: stopped\n");
	setenv("INVOCATION_ID", "x", 1);
	log_init(LOG_INFO);
	log_in_handler(LOG_NOTICE, "stopped");
	ck_assert_str_eq(written(), "<5>draftd: stopped\n");
}
END_TEST

START_TEST(errno_is_kept)
{
	/* A line that can't be written, so that write(2) sets it. */
	int full = open("/dev/full", O_WRONLY);

	ck_assert_int_eq(dup2(full, STDERR_FILENO), STDERR_FILENO);
	close(full);
	errno = ENOTDIR;
	log_info("x");
	ck_assert_int_eq(errno, ENOTDIR);
}
END_TEST

/* A journal that JOURNAL_STREAM names but that isn't there (as here): the line must still come out.
 */
START_TEST(journal_only_if_stderr_is_it)
{
	char stream[64];
	struct stat st;

	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino + 1);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init(LOG_INFO);
	log_info("redirected");
	ck_assert_str_eq(written(), "draftd: info: redirected\n");
	setenv("JOURNAL_STREAM", "nonsense", 1);
	log_init(LOG_INFO);
	log_info("nonsense");
	ck_assert_str_eq(written(), "draftd: info: nonsense\n");
	if (access("/run/systemd/journal/socket", F_OK) == 0)
		return; /* a journal runs here and would take it */
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init(LOG_INFO);
	log_info("no journal");
	/* sd_journal_sendv() reports success without a journal: nothing may be written twice, and
	 * nothing half. */
	const char *line = written();

	ck_assert(line[0] == '\0' || strcmp(line, "<6>draftd: no journal\n") == 0);
}
END_TEST

START_TEST(clients_get_printable_ascii_only)
{
	const struct log_context context = {.connection = 1};

	/* "é", CSI as C1, right-to-left override */
	log_line(LOG_INFO, &context, "%s", "a\xc3\xa9\xc2\x9b\xe2\x80\xae~\x80");
	ck_assert_str_eq(written(), "draftd: info: "
				    "a\\xc3\\xa9\\xc2\\x9b\\xe2\\x80\\xae~\\x80 (connection 1)\n");
}
END_TEST

/* Nobody reads: no line waits, none goes out by half, and how many are lost is said. */
START_TEST(a_full_pipe_loses_lines_and_they_are_counted)
{
	static char page[4096];
	char expected[256];
	const char *text;
	int pages = 0, lines = 0;

	ck_assert_int_eq(fcntl(from_stderr, F_SETPIPE_SZ, 1 << 16), 1 << 16);
	for (; pages < 15; pages++)
		ck_assert_int_eq(write(STDERR_FILENO, page, sizeof(page)), sizeof(page));
	memset(page, 'x', 1500);
	for (int i = 0; i < 10; i++)
		log_info("%s", page); /* one or two fit into the last page */
	for (; pages > 0; pages--)
		ck_assert_int_eq(read(from_stderr, page, sizeof(page)), sizeof(page));
	text = written();
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	ck_assert_ptr_null(strstr(text, "lost"));
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_int_ge(lines, 1);
	ck_assert_int_le(lines, 2);
	log_info("again");
	log_info("and on");
	snprintf(expected, sizeof(expected),
		"draftd: warning: %d lines were lost: the log was not read\n"
		"draftd: info: again\ndraftd: info: and on\n",
		10 - lines);
	ck_assert_str_eq(written(), expected);

	for (pages = 0; pages < 16; pages++)
		ck_assert_int_eq(write(STDERR_FILENO, page, sizeof(page)), sizeof(page));
	log_info("the only one");
	for (; pages > 0; pages--)
		ck_assert_int_eq(read(from_stderr, page, sizeof(page)), sizeof(page));
	log_info("again");
	ck_assert_str_eq(written(),
		"draftd: warning: 1 line was lost: the log was not read\ndraftd: info: again\n");
}
END_TEST

START_TEST(lines_about_clients_are_limited_and_counted)
{
	const struct log_context client = {.connection = 1};
	const char *text;
	int lines = 0;

	for (int i = 0; i < 3 * LIMIT_LOG_LINES_BURST; i++)
		log_line(LOG_WARNING, &client, "x");
	text = written();
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_int_ge(lines, LIMIT_LOG_LINES_BURST);
	ck_assert_int_lt(lines, 2 * LIMIT_LOG_LINES_BURST); /* 4 seconds' worth more */
	for (int i = 0; i < 3 * LIMIT_LOG_LINES_BURST; i++)
		log_line(LOG_WARNING, &client, "x");
	written();
	log_error("of the daemon");
	text = written();
	ck_assert_ptr_nonnull(strstr(text, " lines about clients were left out: too many\n"));
	ck_assert_ptr_nonnull(strstr(text, "\ndraftd: error: of the daemon\n"));
	log_error("told once");
	ck_assert_str_eq(written(), "draftd: error: told once\n");
}
END_TEST

#define THREADS 4
#define LINES   200

static void *write_lines(void *arg)
{
	for (int i = 0; i < LINES; i++)
		log_info("thread %d says a line of some length", *(int *)arg);
	return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
	pthread_t threads[THREADS];
	int numbers[THREADS], lines = 0, number;
	char *text = strdup(""), *at, *end;

	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, &numbers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	free(text);
	text = strdup(written());
	for (at = text; (end = strchr(at, '\n')); at = end + 1, lines++) {
		*end = '\0';
		ck_assert_int_eq(
			sscanf(at, "draftd: info: thread %d says a line of some length", &number),
			1);
		ck_assert_uint_eq(
			strlen(at), strlen("draftd: info: thread 0 says a line of some length"));
	}
	ck_assert_int_eq(lines, THREADS * LINES);
	free(text);
}
END_TEST

Suite *log_suite(void)
{
	Suite *suite = suite_create("log");
	TCase *lines = tcase_create("lines");

	tcase_add_checked_fixture(lines, setup, teardown);
	tcase_add_test(lines, people_get_words);
	tcase_add_test(lines, systemd_gets_priorities);
	tcase_add_test(lines, level_drops_what_is_less_urgent);
	tcase_add_test(lines, context_stands_behind);
	tcase_add_test(lines, control_characters_are_escaped);
	tcase_add_test(lines, long_lines_are_cut_and_say_so);
	tcase_add_test(lines, handlers_may_say_something);
	tcase_add_test(lines, errno_is_kept);
	tcase_add_test(lines, journal_only_if_stderr_is_it);
	tcase_add_test(lines, clients_get_printable_ascii_only);
	tcase_add_test(lines, a_full_pipe_loses_lines_and_they_are_counted);
	tcase_add_test(lines, lines_about_clients_are_limited_and_counted);
	tcase_add_test(lines, lines_of_threads_do_not_mix);
	suite_add_tcase(suite, lines);
	return suite;
}
