#include "server.h"

#include "connection.h"
#include "gateway.h"
#include "kernels/clock.h"
#include "log.h"
#include "reload.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* libuv's threads, for loading models and making regions, with its stacks. */
#define WORKERS            4
#define WORKERS_TEXT       "4"
#define WORKER_STACK_BYTES (8u << 20)

void server_limit_regions(struct server *server)
{
	const struct config *config = &server->config;

	server->regions.bytes_max = config->max_memory_bytes;
	server->regions.device_bytes_max = config->max_device_bytes;
	server->regions.user_bytes_max = config->max_user_memory_bytes;
	server->regions.user_device_bytes_max = config->max_user_device_bytes;
}

void server_gauges(struct server *server, struct gauges *ret)
{
	*ret = (struct gauges){
		.now_us = clock_us(),
		.generation = server->generation,
		.draining = server->draining,
		.model = server->model_name,
		.replicas = server->replicas,
		.facts = &server->facts,
		.connections = server->connection_count,
		.inflight = server->inflight,
		.queue_depth = engine_queue_depth(server->engine),
		.queue_max = server->config.max_queue,
		.regions = server->regions.count,
		.region_bytes = server->regions.bytes,
		.device_region_bytes = server->regions.device_bytes,
		.held_bytes = server->held_bytes,
	};
}

/* ---- turns ---- */

void server_settle(struct server *server)
{
	struct link *link;

	while ((link = link_pop(&server->dirty)))
		connection_settle(LINK_OWNER(link, struct connection, dirty));
}

static void on_more(uv_idle_t *idle)
{
	struct server *server = idle->data;
	const uint64_t until_us = clock_us() + LIMIT_TURN_US;
	struct link now;
	struct link *link;

	/* Those that have still more to do put themselves behind, into the next turn; those that
	 * this one had no time for come first then. */
	link_init(&now);
	link_splice(&now, &server->ready);
	while (clock_us() < until_us && (link = link_pop(&now))) {
		connection_take_turn(LINK_OWNER(link, struct connection, ready));
		server_settle(server);
	}
	link_splice(&now, &server->ready);
	link_splice(&server->ready, &now);
	if (link_alone(&server->ready))
		uv_idle_stop(idle);
}

void server_more_to_do(struct server *server, struct link *ready)
{
	link_append(&server->ready, ready);
	uv_idle_start(&server->more, on_more);
}

/* ---- stopping ---- */

static void close_handle(void *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* Nobody is connected any more: closes what keeps the loop turning. What workers still do for
 * regions, it waits for. */
void server_stop(struct server *server)
{
	if (server->stopped)
		return;
	server->stopped = true;
	server_stop_accepting(server);
	close_handle(&server->more);
	/* Without its handle a signal has its default effect, which would end a daemon that has
	 * done its work as one that was killed. */
	server_hold_signals(NULL);
	close_handle(&server->on_terminate);
	close_handle(&server->on_interrupt);
	close_handle(&server->on_hangup);
	close_handle(&server->watchdog_timer);
	close_handle(&server->manager_timer);
	close_handle(&server->drain_timer);
	close_handle(&server->finished);
	close_handle(&server->spin);
	/* A model that is being loaded is not needed any more, and its loading can't be
	 * interrupted; nor can workers that wait for a lost device. */
	if (server->reload || server->lost)
		uv_stop(server->loop);
}

/* The launch of a client that is gone is waited for here, where signals are heard and the watchdog
 * is fed, and not in the join. */
void server_stop_if_done(struct server *server)
{
	if (server->draining && !server->connection_count && !engine_busy(server->engine))
		server_stop(server);
}

void server_connection_closed(struct server *server)
{
	server->connection_count--;
	if (server->draining)
		server_stop_if_done(server);
	else
		server_resume_accepting(server);
}

static void close_all(struct server *server, const char *reason)
{
	while (!link_alone(&server->connections))
		connection_close(LINK_OWNER(server->connections.next, struct connection, link),
			LOG_WARNING, reason);
}

static void drain_timeout(uv_timer_t *timer)
{
	struct server *server = timer->data;

	if (server->connection_count)
		log_warning("drain_timeout is over; %" PRIu32
			    " connection%s %s closed with work in flight",
			server->connection_count, sentence_s(server->connection_count),
			sentence_is(server->connection_count));
	else
		log_warning("drain_timeout is over with a launch under way");
	server->exit_code = EXIT_FAILURE;
	close_all(server, "drain_timeout is over");
	server_stop(server);
}

void server_drain(struct server *server, const char *reason)
{
	struct link *next;

	if (server->draining)
		return;
	log_notice("draining: %s", reason);
	server_tell_stopping(server, reason);
	server->draining = true;
	server->regions.ending = true;
	server_stop_accepting(server);
	reload_drained(server);
	uv_timer_start(
		&server->drain_timer, drain_timeout, server->config.drain_timeout_us / 1000, 0);
	for (struct link *link = server->connections.next; link != &server->connections;
		link = next) {
		next = link->next;
		connection_drain(LINK_OWNER(link, struct connection, link), reason);
	}
	server_stop_if_done(server);
}

static void on_stop_signal(uv_signal_t *handle, int number)
{
	struct server *server = handle->data;

	if (!server->signalled) {
		server->signalled = true;
		if (!server->draining)
			server_drain(server, number == SIGTERM ? "the daemon got SIGTERM"
							       : "the daemon got SIGINT");
		server_settle(server);
		return;
	}
	log_warning("a second signal: stopping now, %" PRIu32 " request%s %s dropped",
		server->inflight, sentence_s(server->inflight), sentence_is(server->inflight));
	server->exit_code = EXIT_FAILURE;
	close_all(server, "stopped by a second signal");
	server_stop(server);
}

static void on_hangup(uv_signal_t *handle, int number)
{
	(void)number;
	reload_begin(handle->data, NULL);
}

/* ---- beginning and end ---- */

void server_hold_signals(sigset_t *ret_before)
{
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ours, ret_before);
}

static int start_signal(
	struct server *server, uv_signal_t *handle, int number, uv_signal_cb callback)
{
	int r = uv_signal_init(server->loop, handle);

	handle->data = server;
	return r < 0 ? r : uv_signal_start(handle, callback, number);
}

/* What the loop hears of beside sockets. */
static int start_handles(struct server *server, struct error_text *error)
{
	int r;

	uv_idle_init(server->loop, &server->more);
	uv_timer_init(server->loop, &server->drain_timer);
	server->more.data = server->drain_timer.data = server;
	server_start_watchdog(server);
	r = start_signal(server, &server->on_terminate, SIGTERM, on_stop_signal);
	if (r == 0)
		r = start_signal(server, &server->on_interrupt, SIGINT, on_stop_signal);
	if (r == 0)
		r = start_signal(server, &server->on_hangup, SIGHUP, on_hangup);
	if (r == 0)
		r = server_listen_to_engine(server);
	if (r < 0)
		return error_text_set(error, -r,
			"signals and the engine can't be listened to: %s%s", uv_strerror(r),
			error_text_remedy(r));
	return 0;
}

static void no_work(uv_work_t *work)
{
	(void)work;
}

static void no_work_done(uv_work_t *work, int status)
{
	(void)status;
	free(work);
}

static void *wait_for_others(void *user)
{
	sem_wait(user);
	return NULL;
}

/* Whether as many threads as libuv will start can be there at once. */
static int try_threads(struct error_text *error)
{
	pthread_t threads[WORKERS];
	pthread_attr_t attributes;
	unsigned started = 0;
	sem_t go;
	int r = 0;

	sem_init(&go, 0, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
	while (r == 0 && started < WORKERS) {
		r = pthread_create(&threads[started], &attributes, wait_for_others, &go);
		started += r == 0;
	}
	for (unsigned i = 0; i < started; i++)
		sem_post(&go);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_attr_destroy(&attributes);
	sem_destroy(&go);
	if (r)
		return error_text_set(error, r,
			"%d worker threads can't be started: %s" ERROR_TEXT_MORE_THREADS, WORKERS,
			strerror(r));
	return 0;
}

/* libuv starts its worker threads with the first work and aborts if it can't. So it is tried
 * before, and done now rather than under a client. */
static int start_workers(struct server *server, struct error_text *error)
{
	uv_work_t *work;
	int r;

	r = try_threads(error);
	if (r < 0)
		return r;
	work = malloc(sizeof(*work));
	if (!work)
		return error_text_set(error, ENOMEM, "out of memory for the worker threads");
	setenv("UV_THREADPOOL_SIZE", WORKERS_TEXT, 1);
	return uv_queue_work(server->loop, work, no_work, no_work_done);
}

int server_start(struct server *server, uv_loop_t *loop, struct config *config, int argc,
	char **argv, struct model *model, struct error_text *error)
{
	struct engine_options options;
	int r;

	*server = (struct server){
		.loop = loop,
		.config = *config,
		.argc = argc,
		.argv = argv,
		.replicas = model->replicas,
		.facts = model->facts,
		.generation = 1,
		.next_connection = 1,
		.listener = {.fd = -1, .lock_fd = -1},
		.regions = {.loop = loop},
	};
	*config = (struct config){0};
	memcpy(server->model_name, model->name, sizeof(server->model_name));
	server_limit_regions(server);
	link_init(&server->users);
	link_init(&server->connections);
	link_init(&server->ready);
	link_init(&server->dirty);
	request_pool_init(&server->spare_requests);
	parcel_pool_init(&server->spare_parcels);
	server->stats.started_us = clock_us();

	options = (struct engine_options){
		.replicas = server->replicas,
		.max_queue = server->config.max_queue,
		.max_rows = server->config.max_rows,
		.max_steps = server->config.max_steps,
		.spin_us = server->config.engine_spin_us,
		.wake = server_wake,
		.user = server,
	};
	r = start_handles(server, error);
	if (r == 0)
		r = markov_memory_open(&server->facts, &server->regions.memory, error);
	if (r == 0)
		r = start_workers(server, error);
	if (r < 0)
		model_close(model);
	else
		r = engine_start(
			&options, model->heads, server->generation, &server->engine, error);
	*model = (struct model){0};
	if (r < 0)
		goto fail;
	return 0;
fail:
	markov_memory_close(server->regions.memory);
	config_done(&server->config);
	return r;
}

int server_run(struct server *server)
{
	struct link left;
	struct link *link;
	int exit_code;

	uv_run(server->loop, UV_RUN_DEFAULT);
	if (server->lost) {
		log_notice("stopped; what a lost device has goes with the process");
		_exit(server->exit_code);
	}
	if (server->reload && uv_loop_alive(server->loop)) {
		log_notice("stopped; a reload was under way");
		_exit(server->exit_code);
	}

	link_init(&left);
	if (engine_stop(server->engine, &left) < 0) {
		log_error("the last launch does not end; leaving without it");
		_exit(EXIT_FAILURE);
	}
	while ((link = link_pop(&left)))
		gateway_draft_done(server, LINK_OWNER(link, struct request, queue));
	reload_abandoned(server);
	uv_run(server->loop, UV_RUN_DEFAULT); /* regions that these requests held */
	markov_memory_close(server->regions.memory);
	exit_code = server->exit_code;
	request_pool_done(&server->spare_requests);
	parcel_pool_done(&server->spare_parcels);
	config_done(&server->config);
	return exit_code;
}
