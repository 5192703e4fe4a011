/* draftd: reads its settings, checks what can be checked, loads and tests the model, listens, says
 * that it is ready, turns the loop. What fails before READY is one sentence on the log and exit
 * status 1, and nothing is left behind. */
#include "config.h"
#include "limits.h"
#include "listener.h"
#include "load.h"
#include "log.h"
#include "model.h"
#include "notify.h"
#include "options.h"
#include "reload.h"
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The lock file to remove when a signal ends the start; later the loop handles signals. */
static const char *volatile lock_to_remove;
static volatile sig_atomic_t hangup_came; /* during the start */

static void stop_while_starting(int number)
{
	if (lock_to_remove)
		unlink(lock_to_remove);
	log_in_handler(LOG_NOTICE, number == SIGTERM ? "stopped by SIGTERM before it was ready"
						     : "stopped by SIGINT before it was ready");
	_exit(EXIT_SUCCESS);
}

static void note_hangup(int number)
{
	(void)number;
	hangup_came = true;
}

/* What the log writes to stderr must not end up in a socket or a file that happens to be opened
 * as descriptor 2. */
static void fill_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Before the settings are read, which a hangup may be about. */
static void note_hangups(void)
{
	struct sigaction note = {.sa_handler = note_hangup, .sa_flags = SA_RESTART};

	sigaction(SIGHUP, &note, NULL);
}

static void handle_early_signals(void)
{
	struct sigaction stop = {.sa_handler = stop_while_starting};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	/* One handler at a time: the lock may be another daemon's as soon as it is removed. */
	sigaddset(&stop.sa_mask, SIGTERM);
	sigaddset(&stop.sa_mask, SIGINT);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGXFSZ, &ignore, NULL); /* a region, or the log, over RLIMIT_FSIZE: an error */
}

/* A connection takes one descriptor; the soft limit is for programs that use select(). */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_warning("the limit of open files can't be raised: %s", strerror(errno));
}

/* libuv aborts if it can't have its first ones; and a daemon without any for a client is none. */
static int check_descriptors(struct error_text *error)
{
	int fds[LIMIT_DESCRIPTORS_FREE];
	unsigned count = 0;
	int r = 0;

	while (r == 0 && count < LIMIT_DESCRIPTORS_FREE) {
		fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (fds[count] < 0)
			r = error_text_set(error, errno, "%d files can't be opened at once: %s%s",
				LIMIT_DESCRIPTORS_FREE, strerror(errno), error_text_remedy(errno));
		else
			count++;
	}
	while (count > 0)
		close(fds[--count]);
	return r;
}

/* What is about to be done, which may take a while. */
static void announce_start(const struct config *config)
{
	const struct option_info *backend = options_at(SETTING(backend));

	log_info("starting: model %s, backend %s%s%s", config->model_path,
		backend->choices[(uint64_t)config->backend - backend->min],
		config->devices ? ", devices " : "", config->devices ? config->devices : "");
}

static void announce(const struct server *server)
{
	const struct markov_facts *facts = &server->facts;

	log_notice("%s", facts->choice);
	load_warn_unused(&server->config, facts);
	log_notice("model %s: vocabulary %" PRIu32 ", rank %" PRIu32 ", target vocabulary %" PRIu32
		   ", up to %" PRIu32 " row%s of %" PRIu32 " step%s, %.1f MiB of tables",
		server->model_name, facts->vocab, facts->rank, facts->target_vocab, facts->max_rows,
		sentence_s(facts->max_rows), facts->max_steps, sentence_s(facts->max_steps),
		(double)facts->table_bytes / (1 << 20));
	for (uint32_t i = 0; i < server->replicas; i++)
		for (uint32_t n = 0; n < facts->tensor_parallel; n++)
			log_notice("replica %" PRIu32 ": device %s, %s", i,
				model_device(facts, i, n)->uuid, model_device(facts, i, n)->name);
	if (server->listener.inherited)
		log_notice("ready on the socket that the service manager passed");
	else
		log_notice("ready on %s", server->listener.path);
}

static int find_group(const struct config *config, gid_t *ret, struct refusal *refusal)
{
	const struct setting_name name = config_name(config, SETTING(socket_group));
	int r = listener_find_group(config->socket_group, name.at, ret, &refusal->sentence);

	if (r < 0)
		refusal_about(refusal, SETTING(socket_group), 0);
	return r;
}

/* Of a path that somebody chose: the default's folder comes with the service. A socket that systemd
 * passes leaves the path without use. */
static int check_socket(const struct config *config, struct refusal *refusal)
{
	int fd, r;

	r = notify_inherited_socket(&fd, &refusal->sentence);
	if (r < 0 || fd >= 0 || config_origin(config, SETTING(socket_path)) == ORIGIN_DEFAULT)
		return r;
	r = listener_check(config->socket_path, config_name(config, SETTING(socket_path)).at,
		&refusal->sentence);
	if (r < 0)
		refusal_about(refusal, SETTING(socket_path), 0);
	return r;
}

/* Answers --check-config: 1, or -errno. */
static int check_config(const struct config *config, struct refusal *refusal)
{
	gid_t group;
	int r = find_group(config, &group, refusal);

	if (r == 0)
		r = check_socket(config, refusal);
	if (r == 0)
		r = model_check(config, refusal);
	if (r < 0)
		return r;
	puts("configuration ok");
	return 1;
}

/* Claims the path, so that no signal comes between the lock file and the note that it is to be
 * removed. */
static int claim(struct listener *listener, const struct config *config, struct refusal *refusal)
{
	const struct setting_name name = config_name(config, SETTING(socket_path));
	sigset_t before;
	gid_t group;
	int r;

	r = find_group(config, &group, refusal);
	if (r < 0)
		return r;
	server_hold_signals(&before);
	r = listener_claim(listener, config->socket_path, name.at, group, &refusal->sentence);
	if (r == 0)
		lock_to_remove = listener->lock_path;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0 && listener->path) /* it is to be made, not inherited */
		refusal_about(refusal, SETTING(socket_path), 0);
	return r;
}

/* Everything between the settings and the loop. The socket file comes last: until then a signal
 * finds nothing but the lock to remove, and from server_start() on the loop handles signals. */
static int start(struct server *server, uv_loop_t *loop, struct config *config, int argc,
	char **argv, struct listener *listener, struct refusal *refusal)
{
	struct load load;
	struct model model = {0};
	sigset_t before;
	int r;

	announce_start(config);
	load_begin(&load, "starting", config);
	r = claim(listener, config, refusal);
	if (r == 0)
		r = model_load(config, load_tell, &load, &model, refusal);
	if (r < 0) {
		refusal_place(refusal, config);
		return r;
	}
	/* The threads that start here leave the signals to this one: in another thread the handler
	 * for the start could still be at work when the socket is made. */
	server_hold_signals(&before);
	r = server_start(server, loop, config, argc, argv, &model, &refusal->sentence);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return r;
	r = server_listen(server, listener, &refusal->sentence);
	if (r < 0) {
		server_stop(server);
		server_run(server);
	}
	return r;
}

int main(int argc, char **argv)
{
	static struct server server; /* its counters are too large for the stack's taste */
	static uv_loop_t loop;
	struct listener listener = {.fd = -1, .lock_fd = -1};
	struct config config = {0};
	struct refusal refusal = {0};
	sigset_t before;
	int r;

	fill_standard_descriptors();
	note_hangups();
	log_init(LOG_INFO);
	r = notify_init(&refusal.sentence);
	if (r == 0)
		r = config_parse(argc, argv, &config, &refusal);
	if (r == 0 && config.check_config) {
		r = check_config(&config, &refusal);
		refusal_place(&refusal, &config);
		config_done(&config);
	}
	if (r > 0 && (fflush(stdout) != 0 || ferror(stdout)))
		r = error_text_set(&refusal.sentence, EIO, "the answer can't be written to stdout");
	if (r != 0) {
		if (r < 0)
			log_error("%s", refusal.sentence.text);
		return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	log_set_level(config.log_level);

	handle_early_signals();
	raise_descriptor_limit();
	r = check_descriptors(&refusal.sentence);
	if (r == 0) {
		r = uv_loop_init(&loop);
		if (r < 0)
			error_text_set(&refusal.sentence, -r, "the event loop can't be made: %s",
				uv_strerror(r));
	}
	if (r < 0) {
		server_hold_signals(&before);
		log_error("%s", refusal.sentence.text);
		config_done(&config);
		return EXIT_FAILURE;
	}
	r = start(&server, &loop, &config, argc, argv, &listener, &refusal);
	if (r < 0) {
		server_hold_signals(&before); /* that it failed is how it ended */
		log_error("%s", refusal.sentence.text);
		listener_close(&listener);
		config_done(&config);
		uv_loop_close(&loop);
		return EXIT_FAILURE;
	}
	announce(&server);
	server_tell_ready(&server, "");
	/* What it is about may have changed after it was read. */
	if (hangup_came)
		reload_begin(&server, NULL);

	r = server_run(&server);
	uv_loop_close(&loop);
	log_notice("stopped");
	return r;
}
