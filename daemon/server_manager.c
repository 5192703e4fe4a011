/* What the service manager is told: that the daemon serves, reloads, stops; and, again and again,
 * that all is well. A manager whose socket is full gets what it must learn later, from a timer. */
#include "server.h"

#include "kernels/clock.h"
#include "log.h"
#include "notify.h"

#include <inttypes.h>

static void on_retry(uv_timer_t *timer)
{
	if (notify_retry())
		uv_timer_stop(timer);
}

/* `known`: the manager's socket took all there was to say. */
static void see_to(struct server *server, bool known)
{
	if (!known && !uv_is_closing((uv_handle_t *)&server->manager_timer))
		uv_timer_start(&server->manager_timer, on_retry, LIMIT_NOTIFY_RETRY_US / 1000,
			LIMIT_NOTIFY_RETRY_US / 1000);
}

void server_tell_ready(struct server *server, const char *more)
{
	if (!server->draining)
		see_to(server, notify_ready("Serving %s on %s, generation %" PRIu64 "%s",
				       server->model_name, server->facts.backend,
				       server->generation, more));
}

void server_tell_reloading(struct server *server)
{
	see_to(server, notify_reloading());
}

void server_tell_stopping(struct server *server, const char *reason)
{
	see_to(server, notify_stopping(server->config.drain_timeout_us + 2 * LIMIT_STOP_TIMEOUT_US,
			       "Draining: %s", reason));
}

static void on_watchdog(uv_timer_t *timer)
{
	struct server *server = timer->data;
	const uint64_t now_us = clock_us();
	const struct watchdog_view view = {
		.now_us = now_us,
		.overdue_us = engine_overdue_us(server->engine, now_us),
		.busy = engine_busy(server->engine),
		.queue_depth = engine_queue_depth(server->engine),
		.idle_max_us = LIMIT_LAUNCH_US + server->config.event_timeout_us,
		.finished = server->finished_count,
	};
	const uint64_t stuck_us = watchdog_stuck_us(&server->watchdog, &view);

	if (!stuck_us)
		notify_watchdog();
	else
		log_error("the engine has been stuck for %" PRIu64 " s; the watchdog is not fed",
			stuck_us / 1000000);
}

void server_start_watchdog(struct server *server)
{
	const uint64_t interval_ms = notify_watchdog_interval_us() / 1000;

	uv_timer_init(server->loop, &server->manager_timer);
	uv_timer_init(server->loop, &server->watchdog_timer);
	server->watchdog_timer.data = server;
	if (notify_watchdog_interval_us())
		uv_timer_start(
			&server->watchdog_timer, on_watchdog, 0, interval_ms ? interval_ms : 1);
}
