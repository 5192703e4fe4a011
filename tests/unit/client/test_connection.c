#include "tests/unit/client/peer.h"
#include "tests/unit/client/suites.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct peer peer;
static char error[320];

static void setup(void)
{
	fds_count();
	peer_init(&peer);
	error[0] = '\0';
}

static void teardown(void)
{
	peer_done(&peer);
	fds_check();
}

static int64_t monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int try_connect(const struct draft_options *options)
{
	struct draft *draft = (struct draft *)&peer;
	int r = draft_connect(options, &draft, error, sizeof(error));

	ck_assert(r != 0 || draft != NULL);
	if (r != 0)
		ck_assert_ptr_null(draft);
	draft_close(draft);
	return r;
}

/* The environment says where draftd is, if the options do not. */
START_TEST(the_socket_is_the_environments)
{
	struct draft *draft;

	setenv("DRAFTD_SOCKET", "/tmp/nobody/is/here", 1);
	ck_assert_str_eq(draft_socket_default(), "/tmp/nobody/is/here");
	ck_assert_int_eq(try_connect(NULL), -ENOENT);
	ck_assert_ptr_nonnull(strstr(error, "/tmp/nobody/is/here (DRAFTD_SOCKET): "));
	draft = peer_connect(&peer); /* which names it */
	draft_close(draft);
	setenv("DRAFTD_SOCKET", "", 1);
	ck_assert_str_eq(draft_socket_default(), DRAFT_SOCKET_DEFAULT);
	unsetenv("DRAFTD_SOCKET");
	ck_assert_str_eq(draft_socket_default(), DRAFT_SOCKET_DEFAULT);
}
END_TEST

START_TEST(says_what_draftd_serves)
{
	struct draft *draft = peer_connect(&peer);
	const struct draft_model *model = draft_model(draft);
	struct draft_device device;

	ck_assert_str_eq(model->server, "draftd/9.8.7");
	ck_assert_str_eq(model->name, "tiny");
	ck_assert_str_eq(model->backend, "cpu");
	ck_assert_str_eq(model->bias_order, "mma16");
	ck_assert_uint_eq(model->generation, 3);
	ck_assert_uint_eq(model->vocab, PEER_VOCAB);
	ck_assert_uint_eq(model->rank, 16);
	ck_assert_uint_eq(model->target_vocab, 7);
	ck_assert(model->multiplier == 0.5f);
	ck_assert(model->soft_cap == 30.0f);
	ck_assert_uint_eq(model->tensor_parallel, 1);
	ck_assert_uint_eq(model->max_rows, 4);
	ck_assert_uint_eq(model->max_steps, 3);
	ck_assert_uint_eq(model->max_frame_bytes, 65536);
	ck_assert_uint_eq(model->max_inflight, 3);
	ck_assert_uint_eq(model->max_regions, 2);
	ck_assert_uint_eq(model->max_region_bytes, 1 << 20);
	ck_assert_uint_eq(model->device_count, 2);
	ck_assert(draft_device_at(draft, 1, &device));
	ck_assert_str_eq(device.uuid, "GPU-2");
	ck_assert_str_eq(device.name, "second");
	ck_assert_uint_eq(device.memory_bytes, 2000);
	ck_assert(!draft_device_at(draft, 2, &device));
	ck_assert_str_eq(draft_error(draft), "");
	draft_close(draft);
}
END_TEST

static void greet_by_name(struct peer *p)
{
	static const char *const wanted[] = {
		"libdraft/" DRAFTD_VERSION, "me/" DRAFTD_VERSION, "me/7"};
	struct hello_request hello;
	struct message_fault fault;
	struct request request;

	peer_accept(p);
	peer_take(p, METHOD_HELLO, &request);
	peer_check(hello_request_decode(request.message.params, &hello, &fault) == 0);
	peer_check(hello.client.bytes == strlen(wanted[p->argument]));
	peer_check(memcmp(hello.client.at, wanted[p->argument], hello.client.bytes) == 0);
	hello_reply_encode(&p->out, request.message.id, &p->hello);
	peer_send(p);
}

START_TEST(names_itself)
{
	static const char *const names[] = {NULL, "me", "me/7"};
	struct draft_options options = peer_options(&peer);

	for (size_t i = 0; i < 3; i++) {
		options.client_name = names[i];
		peer.argument = i;
		peer_start(&peer, greet_by_name);
		ck_assert_int_eq(try_connect(&options), 0);
		peer_join(&peer);
	}
}
END_TEST

START_TEST(bounds_its_options)
{
	struct draft_options options = peer_options(&peer);
	char path[SOCKET_PATH_MAX + 2];
	char name[CLIENT_NAME_MAX + 2];

	memset(path, 'p', sizeof(path));
	path[SOCKET_PATH_MAX + 1] = '\0';
	options.socket_path = path;
	ck_assert_int_eq(try_connect(&options), -ENAMETOOLONG);
	ck_assert_ptr_nonnull(strstr(error, "108 bytes; a Unix socket's has 1 to 107"));
	path[SOCKET_PATH_MAX] = '\0';
	ck_assert_int_eq(try_connect(&options), -ENOENT); /* the longest that fits */
	ck_assert_ptr_nonnull(strstr(error, "is draftd running?"));
	options.socket_path = "";
	ck_assert_int_eq(try_connect(&options), -EINVAL);

	options = peer_options(&peer);
	memset(name, 'n', sizeof(name));
	name[CLIENT_NAME_MAX + 1] = '\0';
	options.client_name = name;
	ck_assert_int_eq(try_connect(&options), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "client_name has 101 characters; it has 1 to 100"));
	name[CLIENT_NAME_MAX] = '\0';
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(try_connect(&options), 0);
	peer_join(&peer);
	options.client_name = "";
	ck_assert_int_eq(try_connect(&options), -EINVAL);
	options.client_name = "a\nb";
	ck_assert_int_eq(try_connect(&options), -EINVAL);

	options = peer_options(&peer);
	options.spin_us = -1;
	ck_assert_int_eq(try_connect(&options), -EINVAL);
	options.spin_us = SPIN_MAX_US + 1;
	ck_assert_int_eq(try_connect(&options), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "spin_us is 1000001; it is 0 to 1000000"));
	options.spin_us = SPIN_MAX_US;
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(try_connect(&options), 0);
	peer_join(&peer);
}
END_TEST

START_TEST(takes_older_and_newer_options)
{
	struct {
		struct draft_options options;
		char later[16];
	} newer = {.options = peer_options(&peer)};
	struct draft_options options = peer_options(&peer);

	options.size = 0;
	ck_assert_int_eq(try_connect(&options), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "sizeof(struct draft_options)"));
	/* From before `client_name`: what stands there is not read. */
	options.size = offsetof(struct draft_options, client_name);
	options.client_name = "";
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(try_connect(&options), 0);
	peer_join(&peer);
	newer.options.size = sizeof(newer);
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(try_connect(&newer.options), 0);
	peer_join(&peer);
	newer.later[15] = 1;
	ck_assert_int_eq(try_connect(&newer.options), -EINVAL);
}
END_TEST

START_TEST(says_that_nobody_is_there)
{
	struct draft_options options = peer_options(&peer);
	struct draft *draft;

	close(peer.listener);
	ck_assert_int_eq(try_connect(&options), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(error, "is draftd running?"));
	unlink(peer.path);
	ck_assert_int_eq(try_connect(&options), -ENOENT);
	ck_assert_int_eq(draft_connect(&options, &draft, NULL, 0), -ENOENT);
	peer.listener = -1;
}
END_TEST

/* A connection that takes the only place of the peer's backlog. */
static int fill_backlog(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int filler = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, peer.path);
	ck_assert_int_eq(connect(filler, (struct sockaddr *)&address, sizeof(address)), 0);
	return filler;
}

START_TEST(waits_for_room_in_the_backlog)
{
	struct draft_options options = peer_options(&peer);
	int filler = fill_backlog();

	options.timeout_us = 1000;
	ck_assert_int_eq(try_connect(&options), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(error, "is busy"));
	ck_assert_ptr_nonnull(strstr(error, "within the timeout of 0.001 s"));
	/* With time enough it gets in when the listener moves on. */
	peer_accept(&peer);
	options = peer_options(&peer);
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(try_connect(&options), 0);
	peer_join(&peer);
	close(filler);
}
END_TEST

static sem_t alarms;

static void on_alarm(int number)
{
	(void)number;
	sem_post(&alarms);
}

static void wait_for_alarms(void)
{
	for (int i = 0; i < 5; i++)
		while (sem_wait(&alarms) < 0)
			;
}

static void greet_after_alarms(struct peer *p)
{
	struct request request;

	wait_for_alarms(); /* while connect(2) waits */
	peer_accept(p);
	peer_accept(p);
	peer_take(p, METHOD_HELLO, &request);
	wait_for_alarms(); /* while the reply is waited for */
	hello_reply_encode(&p->out, request.message.id, &p->hello);
	peer_send(p);
}

START_TEST(signals_do_not_end_a_wait)
{
	static const struct itimerval often = {{0, 1000}, {0, 1000}};
	static const struct itimerval never;
	struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
	struct draft_options options = peer_options(&peer);
	int filler = fill_backlog();
	sigset_t alarm_only;

	sem_init(&alarms, 0, 0);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	sigaction(SIGALRM, &action, NULL);
	/* All of them for this thread. */
	pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
	peer_start(&peer, greet_after_alarms);
	pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	ck_assert_int_eq(try_connect(&options), 0);
	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_IGN); /* the last one may still be on its way */
	peer_join(&peer);
	sem_destroy(&alarms);
	close(filler);
}
END_TEST

START_TEST(gives_up_on_silence)
{
	struct draft_options options = peer_options(&peer);

	options.timeout_us = 1000; /* the backlog takes it, nobody answers */
	ck_assert_int_eq(try_connect(&options), -ETIMEDOUT);
	ck_assert_str_eq(error, "draftd did not answer within the timeout of 0.001 s");
}
END_TEST

static void refuse_version(struct peer *p)
{
	struct request request;

	peer_accept(p);
	peer_take(p, METHOD_HELLO, &request);
	message_encode_error(&p->out, p->argument == 0, request.message.id, ERROR_VERSION_MISMATCH,
		"protocol is 1, this side speaks 2");
	peer_send(p);
	peer_hang_up(p);
}

START_TEST(passes_a_refusal_on)
{
	struct draft_options options = peer_options(&peer);

	for (peer.argument = 0; peer.argument < 2; peer.argument++) {
		peer_start(&peer, refuse_version);
		ck_assert_int_eq(try_connect(&options), -DRAFT_E_VERSION_MISMATCH);
		ck_assert_str_eq(error, "protocol is 1, this side speaks 2");
		peer_join(&peer);
	}
}
END_TEST

START_TEST(refuses_what_cannot_be)
{
	struct draft_options options = peer_options(&peer);
	struct hello_reply good = peer.hello;
	uint32_t *const fields[] = {&peer.hello.model.vocab, &peer.hello.model.rank,
		&peer.hello.model.target_vocab, &peer.hello.limits.max_rows,
		&peer.hello.limits.max_steps, &peer.hello.limits.max_inflight,
		&peer.hello.limits.max_frame_bytes, &peer.hello.limits.max_frame_bytes,
		&peer.hello.protocol};
	static const uint32_t values[] = {
		0, 0, 0, 0, 0, 0, FRAME_HELLO_BODY_BYTES_MAX - 1, FRAME_BYTES_MAX + 1, 2};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		peer.hello = good;
		*fields[i] = values[i];
		peer_start(&peer, peer_greet);
		ck_assert_int_eq(try_connect(&options), -EPROTO);
		ck_assert_ptr_nonnull(strstr(error, "draftd broke the protocol"));
		peer_join(&peer);
	}
	peer.hello = good;
	peer.hello.limits.max_frame_bytes = FRAME_BYTES_MAX;
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(try_connect(&options), 0);
	peer_join(&peer);
	peer.hello.limits.max_frame_bytes = FRAME_HELLO_BODY_BYTES_MAX;
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(try_connect(&options), 0);
}
END_TEST

START_TEST(breaks_once_and_reconnects)
{
	struct draft *draft = peer_connect(&peer);
	struct draft_result *result;
	int old_fd = draft_fd(draft);

	ck_assert_int_ge(old_fd, 0);
	ck_assert_int_eq(draft_events(draft), POLLIN);
	peer_hang_up(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), -ECONNRESET);
	ck_assert_str_eq(draft_error(draft), "draftd closed the connection");
	ck_assert_int_eq(draft_fd(draft), -1);
	ck_assert_int_eq(draft_events(draft), 0);
	ck_assert_int_eq(draft_poll(draft, 0, &result), -ENOTCONN);
	ck_assert_ptr_nonnull(strstr(draft_error(draft), "draftd closed the connection"));
	ck_assert_int_eq(draft_ping(draft), -ENOTCONN);
	ck_assert_int_eq(draft_cancel(draft, 1), -ENOTCONN);

	close(peer.listener);
	ck_assert_int_eq(draft_reconnect(draft), -ECONNREFUSED);
	ck_assert_int_eq(draft_ping(draft), -ENOTCONN);
	ck_assert_uint_eq(draft_model(draft)->generation, 3);

	frame_reader_done(&peer.reader);
	wire_buffer_done(&peer.out);
	unlink(peer.path);
	rmdir(peer.directory);
	peer_init(&peer);
	peer.hello.generation = 8;
	peer.hello.model.has_soft_cap = false;
	strcpy(draft->socket_path, peer.path); /* the new peer's folder has another name */
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect(draft), 0);
	peer_join(&peer);
	ck_assert_uint_eq(draft_model(draft)->generation, 8);
	ck_assert(draft_model(draft)->soft_cap == 0.0f);
	ck_assert_int_ge(draft_fd(draft), 0);
	draft_close(draft);
}
END_TEST

/* Listens again after a while, and not before a client was turned away. */
static void come_back_later(struct peer *self)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timespec pause = {.tv_nsec = 50000000};

	nanosleep(&pause, NULL);
	self->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, self->path);
	peer_check(bind(self->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	peer_check(listen(self->listener, 5) == 0);
	peer_accept(self); /* and hangs up before it said hello: that passes, too */
	peer_hang_up(self);
	peer_greet(self);
}

/* No socket, a refused connection, one that breaks: all are waited out. */
START_TEST(reconnects_to_one_that_comes_back)
{
	struct draft *draft = peer_connect(&peer);
	int64_t begin_us;

	peer_hang_up(&peer);
	close(peer.listener);
	peer.listener = -1;
	begin_us = monotonic_us();
	ck_assert_int_eq(draft_reconnect_within(draft, 100000), -ECONNREFUSED);
	/* the last pause that would have ended too late is not begun */
	ck_assert_int_ge(monotonic_us() - begin_us, 5000);
	ck_assert_int_lt(monotonic_us() - begin_us, 5000000);
	unlink(peer.path);
	ck_assert_int_eq(draft_reconnect_within(draft, 1), -ENOENT);
	ck_assert_int_eq(draft_ping(draft), -ENOTCONN);

	peer_start(&peer, come_back_later);
	ck_assert_int_eq(draft_reconnect_within(draft, -1), 0);
	peer_join(&peer);
	ck_assert_int_ge(draft_fd(draft), 0);
	draft_close(draft);
}
END_TEST

/* What will not pass ends it at once, however long it might take. */
/* The sentence has the time that the try had, and the connection's own stays as it was. */
START_TEST(reconnecting_in_less_than_the_timeout_says_so)
{
	struct draft *draft = peer_connect(&peer);
	const int64_t usual_us = draft->timeout_us;
	double said_s = 0;

	peer_hang_up(&peer); /* the backlog takes the next one, nobody answers */
	ck_assert_int_eq(draft_reconnect_within(draft, 100000), -ETIMEDOUT);
	ck_assert_int_eq(sscanf(draft_error(draft),
				 "draftd did not answer within the timeout of %lf s", &said_s),
		1);
	ck_assert_double_gt(said_s, 0);
	ck_assert_double_le(said_s, 0.1);
	ck_assert_int_eq(draft->timeout_us, usual_us);
	draft_close(draft);
}
END_TEST

START_TEST(reconnecting_gives_up_where_waiting_is_no_use)
{
	struct draft *draft = peer_connect(&peer);

	peer_hang_up(&peer);
	peer.hello.protocol = 2;
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect_within(draft, -1), -EPROTO);
	peer_join(&peer);
	draft_close(draft);
}
END_TEST

START_TEST(hears_goaway_and_goes_on)
{
	struct draft *draft = peer_connect(&peer);
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	struct request got;
	uint64_t ticket;

	ck_assert(!draft_going_away(draft));
	ck_assert_str_eq(draft_goaway_reason(draft), "");
	goaway_encode(&peer.out, "going\nhome");
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	ck_assert(draft_going_away(draft));
	ck_assert_str_eq(draft_goaway_reason(draft), "going?home");
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	peer_take(&peer, METHOD_DRAFT, &got);
	message_encode_error(&peer.out, true, got.message.id, ERROR_DRAINING, "draining");
	peer_send(&peer);
	ck_assert_int_eq(draft_poll(draft, -1, &result), 1);
	ck_assert_int_eq(result->code, -DRAFT_E_DRAINING);
	draft_result_free(result);
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect(draft), 0);
	ck_assert(!draft_going_away(draft));
	ck_assert_str_eq(draft_goaway_reason(draft), "");
	draft_close(draft);
}
END_TEST

START_TEST(names_its_errors)
{
	ck_assert_str_eq(draft_error_name(-DRAFT_E_BAD_FRAME), "BAD_FRAME");
	ck_assert_str_eq(draft_error_name(-DRAFT_E_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
	ck_assert_str_eq(draft_error_name(-DRAFT_E_INTERNAL), "INTERNAL");
	ck_assert_str_eq(draft_error_name(-ENOENT), "No such file or directory");
	ck_assert_str_eq(draft_error_name(-DRAFT_E_INTERNAL - 1), "Unknown error");
	ck_assert_str_eq(draft_error_name(-1000), "Unknown error");
	ck_assert_str_eq(draft_error_name(5), "Unknown error");
	ck_assert_str_eq(draft_error_name(INT_MIN), "Unknown error");
	ck_assert(draft_error_retryable(-DRAFT_E_RESOURCE_EXHAUSTED));
	ck_assert(draft_error_retryable(-DRAFT_E_DRAINING));
	ck_assert(draft_error_retryable(-DRAFT_E_DEVICE_LOST));
	ck_assert(draft_error_retryable(-ETIMEDOUT));
	ck_assert(!draft_error_retryable(-DRAFT_E_TOO_LARGE));
	ck_assert(!draft_error_retryable(-EINVAL));
	ck_assert(!draft_error_retryable(0));
	ck_assert_str_eq(draft_version(), DRAFTD_VERSION);
}
END_TEST

START_TEST(null_is_fine)
{
	draft_close(NULL);
	draft_result_free(NULL);
	ck_assert_int_eq(draft_region_close(NULL), 0);
}
END_TEST

Suite *connection_suite(void)
{
	Suite *suite = suite_create("client/connection");
	TCase *tcase = tcase_create("connection");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, the_socket_is_the_environments);
	tcase_add_test(tcase, says_what_draftd_serves);
	tcase_add_test(tcase, names_itself);
	tcase_add_test(tcase, bounds_its_options);
	tcase_add_test(tcase, takes_older_and_newer_options);
	tcase_add_test(tcase, says_that_nobody_is_there);
	tcase_add_test(tcase, waits_for_room_in_the_backlog);
	tcase_add_test(tcase, signals_do_not_end_a_wait);
	tcase_add_test(tcase, gives_up_on_silence);
	tcase_add_test(tcase, passes_a_refusal_on);
	tcase_add_test(tcase, refuses_what_cannot_be);
	tcase_add_test(tcase, breaks_once_and_reconnects);
	tcase_add_test(tcase, reconnects_to_one_that_comes_back);
	tcase_add_test(tcase, reconnecting_in_less_than_the_timeout_says_so);
	tcase_add_test(tcase, reconnecting_gives_up_where_waiting_is_no_use);
	tcase_add_test(tcase, hears_goaway_and_goes_on);
	tcase_add_test(tcase, names_its_errors);
	tcase_add_test(tcase, null_is_fine);
	suite_add_tcase(suite, tcase);
	return suite;
}
