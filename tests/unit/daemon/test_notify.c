/* Against a real NOTIFY_SOCKET, and real descriptors at number 3 as systemd passes them. */
#include "daemon/notify.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

Suite *notify_suite(void);

static char folder[64];
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int manager = -1;
static struct error_text error;

static void setup(void)
{
	strcpy(folder, "/tmp/test_notify.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", folder);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(manager, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	ck_assert_int_eq(notify_init(&error), 0);
}

static void teardown(void)
{
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	ck_assert_int_eq(notify_init(&error), 0);
	close(manager);
	unlink(address.sun_path);
	rmdir(folder);
}

/* The next datagram; "" when none came. */
static const char *told(void)
{
	static char text[1024];
	ssize_t n = recv(manager, text, sizeof(text) - 1, MSG_DONTWAIT);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static uint64_t monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

START_TEST(the_manager_is_told)
{
	ck_assert(notify_ready("serving %d%%", 40));
	ck_assert_str_eq(told(), "READY=1\nSTATUS=serving 40%");
	ck_assert(notify_ready("one\nSTOPPING=1"));
	ck_assert_str_eq(told(), "READY=1\nSTATUS=one STOPPING=1");
	ck_assert(notify_stopping(30000000, "bye"));
	ck_assert_str_eq(told(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=30000000\nSTATUS=bye");
	notify_watchdog();
	ck_assert_str_eq(told(), "WATCHDOG=1");
	ck_assert(notify_retry());
	ck_assert_str_eq(told(), "");
}
END_TEST

START_TEST(a_load_asks_for_more_time)
{
	notify_load("starting", "reading", 40);
	ck_assert_str_eq(told(), "STATUS=Starting: reading, 40%\nEXTEND_TIMEOUT_USEC=30000000");
}
END_TEST

static void fill_the_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	while (sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof(address)) == 1)
		;
	ck_assert_int_eq(errno, EAGAIN);
	close(fd);
}

static void empty_the_socket(void)
{
	while (strcmp(told(), "x") == 0)
		;
	ck_assert_str_eq(told(), "");
}

/* In order, each once, the last of each kind: and a reload after READY=1 has its READY=1 behind. */
START_TEST(what_the_manager_must_learn_waits_for_its_socket)
{
	uint64_t before, at = 0;
	const char *text;

	fill_the_socket();
	ck_assert(!notify_ready("first"));
	ck_assert(!notify_reloading());
	before = monotonic_us();
	ck_assert(!notify_ready("second"));
	ck_assert(!notify_reloading());
	ck_assert(!notify_ready("third"));
	ck_assert(!notify_stopping(7, "bye"));
	ck_assert(!notify_retry());
	empty_the_socket();
	ck_assert(notify_retry());
	text = told();
	ck_assert_int_eq(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%" SCNu64, &at), 1);
	ck_assert_uint_ge(at, before);
	ck_assert_str_eq(told(), "READY=1\nSTATUS=third");
	ck_assert_str_eq(told(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=7\nSTATUS=bye");
	ck_assert_str_eq(told(), "");
	ck_assert(notify_retry());
	ck_assert_str_eq(told(), "");
}
END_TEST

START_TEST(a_reload_takes_back_a_ready_that_was_not_sent)
{
	fill_the_socket();
	notify_ready("before");
	notify_reloading();
	empty_the_socket();
	ck_assert(notify_retry());
	ck_assert_ptr_nonnull(strstr(told(), "RELOADING=1"));
	ck_assert_str_eq(told(), "");
	ck_assert(notify_ready("after"));
	ck_assert_str_eq(told(), "READY=1\nSTATUS=after");
}
END_TEST

START_TEST(a_manager_that_is_gone_is_not_waited_for)
{
	close(manager);
	manager = -1;
	ck_assert(notify_ready("to nobody"));
	unlink(address.sun_path);
	ck_assert(notify_stopping(1, "to nobody"));
}
END_TEST

/* More than its socket holds: the calls come back, and what was taken is whole. */
START_TEST(a_manager_that_does_not_read_is_not_waited_for)
{
	unsigned taken = 0;

	for (int i = 0; i < 20000; i++)
		notify_watchdog();
	for (const char *text; *(text = told()); taken++)
		ck_assert_str_eq(text, "WATCHDOG=1");
	ck_assert_uint_gt(taken, 0);
	ck_assert_uint_lt(taken, 20000);
}
END_TEST

START_TEST(an_abstract_name_is_told)
{
	struct sockaddr_un abstract = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char name[64], text[64] = "";
	int length = snprintf(name, sizeof(name), "@draftd-test-%d", getpid());

	memcpy(abstract.sun_path + 1, name + 1, (size_t)length - 1);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&abstract,
				 (socklen_t)(sizeof(sa_family_t) + (size_t)length)),
		0);
	setenv("NOTIFY_SOCKET", name, 1);
	ck_assert_int_eq(notify_init(&error), 0);
	notify_watchdog();
	ck_assert_int_eq(recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT), strlen("WATCHDOG=1"));
	ck_assert_str_eq(text, "WATCHDOG=1");
	close(fd);
}
END_TEST

START_TEST(reloading_says_when)
{
	uint64_t before = monotonic_us(), at = 0;

	notify_reloading();
	ck_assert_int_eq(sscanf(told(), "RELOADING=1\nMONOTONIC_USEC=%" SCNu64, &at), 1);
	ck_assert_uint_ge(at, before);
	ck_assert_uint_le(at, monotonic_us());
}
END_TEST

START_TEST(without_a_manager_nothing_happens)
{
	unsetenv("NOTIFY_SOCKET");
	ck_assert_int_eq(notify_init(&error), 0);
	ck_assert(notify_ready("x"));
	ck_assert_str_eq(told(), "");
	ck_assert_uint_eq(notify_watchdog_interval_us(), 0);
}
END_TEST

START_TEST(watchdog_interval_is_half)
{
	char pid[32];

	setenv("WATCHDOG_USEC", "3000000", 1);
	ck_assert_uint_eq(notify_watchdog_interval_us(), 1500000);
	snprintf(pid, sizeof(pid), "%d", getpid());
	setenv("WATCHDOG_PID", pid, 1);
	ck_assert_uint_eq(notify_watchdog_interval_us(), 1500000);
	setenv("WATCHDOG_PID", "1", 1); /* meant for another process */
	ck_assert_uint_eq(notify_watchdog_interval_us(), 0);
}
END_TEST

/* What a process finds that was started with these descriptors. */
struct found {
	int result, fd;
	char text[256];
};

/* Passes `count` (0 to 2) descriptors to a child from number 3 up, and gives what
 * notify_inherited_socket() said there. */
static struct found inherit(const int *fds, int count, const char *names)
{
	struct found found = {0};
	int ends[2], status;
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		char number[32];
		int out = dup(ends[1]), copies[2];

		/* Out of the way first: what is passed may itself lie at 3 or 4. */
		while (out < 10)
			out = dup(out);
		for (int i = 0; i < count; i++)
			for (copies[i] = dup(fds[i]); copies[i] < 10;)
				copies[i] = dup(copies[i]);
		for (int i = 0; i < count; i++)
			dup2(copies[i], 3 + i);
		snprintf(number, sizeof(number), "%d", getpid());
		setenv("LISTEN_PID", number, 1);
		snprintf(number, sizeof(number), "%d", count);
		setenv("LISTEN_FDS", number, 1);
		if (names)
			setenv("LISTEN_FDNAMES", names, 1);
		found.fd = -2;
		found.result = notify_inherited_socket(&found.fd, &error);
		memcpy(found.text, error.text, sizeof(found.text) - 1);
		if (getenv("LISTEN_FDS"))
			found.result = 1; /* must not reach a grandchild */
		if (write(out, &found, sizeof(found)) != sizeof(found))
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], &found, sizeof(found)), sizeof(found));
	close(ends[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	return found;
}

static int unix_socket(int type, int listening)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type, 0);

	ck_assert_int_ge(fd, 0);
	if (listening) {
		ck_assert_int_eq(
			bind(fd, (struct sockaddr *)&at, sizeof(sa_family_t)), 0); /* autobind */
		ck_assert_int_eq(listen(fd, 1), 0);
	}
	return fd;
}

START_TEST(one_listening_socket_is_taken)
{
	static const char *const names[] = {NULL, "draftd.socket", "draftd@0.socket", "unknown"};
	int fd = unix_socket(SOCK_STREAM, 1);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct found found = inherit(&fd, 1, names[i]);

		ck_assert_int_eq(found.result, 0);
		ck_assert_int_eq(found.fd, 3);
	}
	close(fd);
}
END_TEST

START_TEST(none_is_no_error)
{
	int fd = -2;

	ck_assert_int_eq(notify_inherited_socket(&fd, &error), 0);
	ck_assert_int_eq(fd, -1);
}
END_TEST

START_TEST(other_descriptors_are_refused)
{
	int listening = unix_socket(SOCK_STREAM, 1), deaf = unix_socket(SOCK_STREAM, 0);
	int packets = unix_socket(SOCK_SEQPACKET, 1), file = fileno(tmpfile());
	const int kinds[] = {deaf, packets, file}, two[] = {listening, listening};
	struct found found;

	for (size_t i = 0; i < 3; i++) {
		found = inherit(&kinds[i], 1, NULL);
		ck_assert_int_eq(found.result, -EINVAL);
		ck_assert_int_eq(found.fd, -2);
		ck_assert_ptr_nonnull(strstr(found.text, "no listening Unix stream socket"));
	}
	found = inherit(two, 2, "draftd.socket:draftd.socket");
	ck_assert_int_eq(found.result, -EINVAL);
	ck_assert_ptr_nonnull(strstr(found.text, "2 sockets"));
	found = inherit(&listening, 1, "metrics.socket");
	ck_assert_int_eq(found.result, -EINVAL);
	ck_assert_ptr_nonnull(strstr(found.text, "\"metrics.socket\""));
	close(listening);
	close(deaf);
	close(packets);
}
END_TEST

Suite *notify_suite(void)
{
	Suite *suite = suite_create("notify");
	TCase *manager_case = tcase_create("manager"), *sockets = tcase_create("sockets");

	tcase_add_checked_fixture(manager_case, setup, teardown);
	tcase_add_test(manager_case, the_manager_is_told);
	tcase_add_test(manager_case, a_load_asks_for_more_time);
	tcase_add_test(manager_case, what_the_manager_must_learn_waits_for_its_socket);
	tcase_add_test(manager_case, a_reload_takes_back_a_ready_that_was_not_sent);
	tcase_add_test(manager_case, a_manager_that_is_gone_is_not_waited_for);
	tcase_add_test(manager_case, a_manager_that_does_not_read_is_not_waited_for);
	tcase_add_test(manager_case, an_abstract_name_is_told);
	tcase_add_test(manager_case, reloading_says_when);
	tcase_add_test(manager_case, without_a_manager_nothing_happens);
	tcase_add_test(manager_case, watchdog_interval_is_half);
	suite_add_tcase(suite, manager_case);
	tcase_add_test(sockets, one_listening_socket_is_taken);
	tcase_add_test(sockets, none_is_no_error);
	tcase_add_test(sockets, other_descriptors_are_refused);
	suite_add_tcase(suite, sockets);
	return suite;
}
