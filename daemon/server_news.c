/* What the engine has finished, on its way to the clients. The loop is woken for it by an event,
 * or, while it spins, looks itself: every turn begins with a look at the engine's word and, if
 * something has finished, with its replies; then the sockets are asked, without a wait, for the
 * next requests. Spinning ends loop_spin_us after the last draft or answer; then the loop sleeps as
 * before. */
#include "server.h"

#include "gateway.h"
#include "kernels/clock.h"
#include "log.h"
#include "reload.h"

#include <stdlib.h>

void server_lose_device(struct server *server, const char *reason)
{
	if (server->lost)
		return;
	server->lost = true;
	server->regions.lost = true;
	server->exit_code = EXIT_FAILURE;
	log_error("the device is lost: %s; stopping", reason);
	server_drain(server, "the device is lost");
}

/* Answers what the engine has finished: each reply is on its socket when this returns. */
static void collect(struct server *server)
{
	struct engine_report report;
	struct link *link;

	engine_collect(server->engine, &report);
	if (report.swapped)
		reload_swapped(server);
	if (report.reason.text[0] && !report.lost)
		log_error("a launch failed: %s", report.reason.text);
	while ((link = link_pop(&report.finished))) {
		if (!link_alone(&report.finished)) /* it comes while this one is written */
			request_prefetch(LINK_OWNER(report.finished.next, struct request, queue));
		server->finished_count++;
		gateway_draft_done(server, LINK_OWNER(link, struct request, queue));
	}
	if (report.lost)
		server_lose_device(server, report.reason.text);
	server_settle(server);
	server_stop_if_done(server);
}

static void on_finished(uv_async_t *async)
{
	collect(async->data);
}

/* Once a turn, which does not sleep while this handle is active. */
static void on_spin(uv_idle_t *idle)
{
	struct server *server = idle->data;
	uint64_t now_us = clock_us();

	if (engine_has_news(server->engine)) {
		server->spin_until_us = now_us + server->config.loop_spin_us;
		collect(server);
	} else if (now_us >= server->spin_until_us) {
		uv_idle_stop(idle);
		engine_watch(server->engine, false);
		if (engine_has_news(server->engine)) /* and nobody would say so any more */
			collect(server);
	}
}

void server_spin(struct server *server, uint64_t now_us)
{
	if (!server->config.loop_spin_us)
		return;
	server->spin_until_us = now_us + server->config.loop_spin_us;
	if (uv_is_active((uv_handle_t *)&server->spin) ||
		uv_is_closing((uv_handle_t *)&server->spin))
		return;
	engine_watch(server->engine, true);
	uv_idle_start(&server->spin, on_spin);
}

void server_wake(void *user)
{
	struct server *server = user;

	uv_async_send(&server->finished);
}

int server_listen_to_engine(struct server *server)
{
	uv_idle_init(server->loop, &server->spin);
	server->finished.data = server->spin.data = server;
	return uv_async_init(server->loop, &server->finished, on_finished);
}
