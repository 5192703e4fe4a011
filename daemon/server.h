/* The daemon as a whole, seen from the loop thread: connections, limits, what is shared between
 * them, and the ways it ends.
 *
 * One struct, owned by main, touched by the loop thread only. Every callback of libuv that may have
 * put something into an outbox ends with server_settle(). */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "config.h"
#include "engine.h"
#include "list.h"
#include "listener.h"
#include "model.h"
#include "outbox.h"
#include "region.h"
#include "request.h"
#include "stats.h"
#include "user.h"
#include "watchdog.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct reload;

struct server {
	uv_loop_t *loop;
	struct config config; /* owned */
	int argc;             /* to be read again by a reload */
	char **argv;

	struct engine *engine;
	uint32_t replicas;
	struct markov_facts facts; /* of what is served, of all replicas together (model.h) */
	char model_name[MODEL_NAME_BYTES];
	uint64_t generation;
	struct reload *reload; /* under way, or NULL */
	bool reload_again;     /* a signal came meanwhile */

	struct listener listener;
	uv_poll_t listen_poll;
	uv_timer_t accept_timer;
	bool accepting, accept_paused;

	struct link users;
	struct link connections;
	struct link ready; /* with frames left to handle in the next turn */
	struct link dirty; /* to settle at the end of this callback */
	uv_idle_t more;    /* runs while `ready` is not empty */
	uint32_t connection_count;
	uint64_t next_connection;

	struct region_pool regions;
	struct request_pool spare_requests;
	struct parcel_pool spare_parcels;
	uint32_t inflight;
	uint64_t held_bytes; /* inline data, columns, unread replies, unfinished frames */
	struct stats stats;

	uv_async_t finished; /* the engine has something to collect */
	uv_idle_t spin;      /* while it runs, the loop turns without sleeping and looks itself */
	uint64_t spin_until_us;
	uv_signal_t on_terminate, on_interrupt, on_hangup;
	uv_timer_t drain_timer;
	uv_timer_t watchdog_timer, manager_timer; /* server_manager.c's */
	struct watchdog watchdog;
	uint64_t finished_count; /* drafts that came back from the engine */
	bool draining, stopped, lost;
	bool signalled; /* to stop; a client may have asked for the drain before */
	int exit_code;
};

/* Sets up everything but the listener, and starts the engine on `model`, whose heads it owns from
 * now on (also on failure, as it does `config`). Returns 0 or -errno with `error`. */
int server_start(struct server *server, uv_loop_t *loop, struct config *config, int argc,
	char **argv, struct model *model, struct error_text *error);

/* Makes the socket of a claimed listener and accepts on it from now on. On failure the listener
 * stays the caller's. */
int server_listen(struct server *server, struct listener *listener, struct error_text *error);

void server_resume_accepting(struct server *server); /* a descriptor may be free again */
void server_stop_accepting(struct server *server);   /* for good; removes the socket file */

/* Holds back in this thread, and those that it starts, the signals that the loop handles.
 * `*ret_before` (or NULL) lets them in again. */
void server_hold_signals(sigset_t *ret_before);

/* Has server_run() return as soon as the launch under way has ended. */
void server_stop(struct server *server);

/* Turns the loop until the daemon has stopped, frees everything, returns the exit status. */
int server_run(struct server *server);

/* Stops accepting, says goaway, finishes what is in flight for at most drain_timeout_us, then
 * stops. */
void server_drain(struct server *server, const char *reason);

/* A device is lost, which the engine may not know yet: drains, and fails in the end. */
void server_lose_device(struct server *server, const char *reason);

/* ---- for connections ---- */

/* Takes the limits of regions out of the configuration. */
void server_limit_regions(struct server *server);

/* Sends what was put into outboxes. */
void server_settle(struct server *server);

/* Calls connection_take_turn() for the owner of `ready` in the next turn. */
void server_more_to_do(struct server *server, struct link *ready);

/* A draft has arrived, now: the loop does not sleep for loop_spin_us. */
void server_spin(struct server *server, uint64_t now_us);

/* One connection less. */
void server_connection_closed(struct server *server);

/* ---- server_manager.c: what the service manager is told ---- */

void server_start_watchdog(struct server *server); /* and sets up both timers */

/* That it serves, and what; `more` follows in STATUS=. Nothing while it drains. */
void server_tell_ready(struct server *server, const char *more);
void server_tell_reloading(struct server *server);
void server_tell_stopping(struct server *server, const char *reason);

/* ---- between server.c and server_news.c ---- */

/* Sets up the handles for the engine's news. 0 or -errno. */
int server_listen_to_engine(struct server *server);
void server_wake(void *user); /* a replica's thread: of the server `user` */

/* Stops a drained server with nobody connected and no launch under way. */
void server_stop_if_done(struct server *server);

void server_gauges(struct server *server, struct gauges *ret);

#endif
