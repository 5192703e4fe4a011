/* The configuration is read again, a worker loads and tests the model beside the old one, for every
 * replica, the engine swaps between launches. Whatever fails before the swap changes nothing: the
 * old model serves on, and the log and the client that asked are told why. Settings that clients
 * rely on since hello, and the socket, stay. */
#include "reload.h"

#include "connection.h"
#include "load.h"
#include "log.h"
#include "options.h"
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reload {
	struct server *server;
	struct request *request; /* to be answered, or NULL: a signal asked */
	struct config config;
	struct model model;
	struct refusal refusal;
	int result;
	struct load progress;
	uv_work_t work;
};

static void reload_free(struct reload *reload)
{
	config_done(&reload->config);
	free(reload);
}

static void answer(
	struct server *server, struct request *request, enum error_code code, const char *text)
{
	if (!request)
		return;
	if (code == ERROR_NONE)
		connection_answer_empty(server, request);
	else
		connection_answer_error(server, request, code, text);
}

/* One is over. A signal that came meanwhile may have meant a file that was written since. */
static void next(struct server *server)
{
	const bool again = server->reload_again;

	server->reload_again = false;
	if (again)
		reload_begin(server, NULL);
}

/* Puts `words` where the sentence has the path at the beginning of a word and `next` behind it. */
static void put_in_place(
	struct error_text *text, const char *path, const char *next, const char *words)
{
	const struct error_text whole = *text;
	const size_t bytes = strlen(path);
	const char *at = whole.text;

	while ((at = strstr(at, path))) {
		const char *rest = at + bytes;

		if ((at == whole.text || at[-1] == ' ') && strncmp(rest, next, strlen(next)) == 0) {
			error_text_set(text, EINVAL, "%.*s%s%s", (int)(at - whole.text), whole.text,
				words, rest + strlen(next));
			return;
		}
		at++;
	}
}

/* No message to a client names a file of the daemon's: what that means stands in its place. A
 * sentence that has a path after all only the log tells. */
static void say_without_paths(
	const char *model_path, const struct refusal *why, struct error_text *told)
{
	bool shown = true;

	error_text_set(told, EINVAL, "%s%s", why->file_bytes > 0 ? "the configuration" : "",
		why->sentence.text + why->file_bytes);
	if (model_path) {
		/* A longer path is cut short where it stands in the sentence, and not found. */
		shown = strlen(model_path) <= 200;
		put_in_place(told, model_path, "/", "the model's ");
		put_in_place(told, model_path, ":", "the model:");
	}
	if (!shown || strchr(told->text, '/'))
		error_text_set(told, EINVAL, "the daemon's log has the reason");
}

/* `config` is the new configuration, as far as there is one. */
static void refuse(struct server *server, struct request *request, const struct config *config,
	struct refusal *why)
{
	struct error_text told, text;

	server->stats.reloads_failed++;
	refusal_place(why, config);
	log_error("reload refused, the old model serves on: %s", why->sentence.text);
	say_without_paths(config->model_path, why, &told);
	error_text_set(
		&text, EINVAL, "refused, the old model serves on: %.*s", CUT(400, told.text));
	answer(server, request, ERROR_INTERNAL, text.text);
	server_tell_ready(server, "; the last reload was refused");
}

static int check_changes(
	const struct config *old, const struct config *new, struct refusal *refusal)
{
	static const size_t fixed[] = {
		SETTING(engine_spin_us),
		SETTING(max_rows),
		SETTING(max_steps),
		SETTING(max_frame_bytes),
		SETTING(max_inflight),
		SETTING(max_queue),
		SETTING(max_regions),
		SETTING(max_region_bytes),
	};

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		const struct option_info *option = options_at(fixed[i]);
		const uint64_t was = option_value(option, old), is = option_value(option, new);
		const char *unit = option->type == OPTION_TIME ? "us" : "";

		if (was != is)
			return error_text_set(refusal_about(refusal, fixed[i], 0), EINVAL,
				"%s is %" PRIu64 "%s and would become %" PRIu64
				"%s; that needs a restart",
				option->key, was, unit, is, unit);
	}
	return 0;
}

/* What clients rely on, and where their regions lie. */
static int check_model(
	const struct server *server, const struct model *model, struct refusal *refusal)
{
	const struct markov_facts *old = &server->facts, *new = &model->facts;

	if (model->replicas != server->replicas || new->tensor_parallel != old->tensor_parallel)
		return error_text_set(
			refusal_about(refusal, SETTING(devices), SETTING(tensor_parallel)), EINVAL,
			"there would be %" PRIu32 " replica%s of %" PRIu32 " device%s, now %" PRIu32
			" of %" PRIu32 "; that needs a restart",
			model->replicas, sentence_s(model->replicas), new->tensor_parallel,
			sentence_s(new->tensor_parallel), server->replicas, old->tensor_parallel);
	if (new->vocab != old->vocab)
		return error_text_set(refusal_about(refusal, SETTING(model_path), 0), EINVAL,
			"the new model scores %" PRIu32 " id%s, the old one %" PRIu32
			"; that needs a restart",
			new->vocab, sentence_s(new->vocab), old->vocab);
	if (new->device_count != old->device_count)
		return error_text_set(&refusal->sentence, EINVAL,
			"the new heads take %" PRIu32 " device%s, the old ones %" PRIu32
			"; that needs a restart",
			new->device_count, sentence_s(new->device_count), old->device_count);
	for (uint32_t i = 0; i < new->device_count; i++)
		if (strcmp(new->devices[i].uuid, old->devices[i].uuid) != 0)
			return error_text_set(&refusal->sentence, EINVAL,
				"device %" PRIu32
				" of the new heads is %s, of the old ones %s; that needs a "
				"restart, because regions are bound to devices",
				i, new->devices[i].uuid, old->devices[i].uuid);
	return 0;
}

static void load_work(uv_work_t *work)
{
	struct reload *reload = LINK_OWNER(work, struct reload, work);

	reload->result = model_load(
		&reload->config, load_tell, &reload->progress, &reload->model, &reload->refusal);
	if (reload->result < 0)
		return;
	reload->result = check_model(reload->server, &reload->model, &reload->refusal);
	if (reload->result < 0)
		model_close(&reload->model);
}

static void load_done(uv_work_t *work, int status)
{
	struct reload *reload = LINK_OWNER(work, struct reload, work);
	struct server *server = reload->server;

	(void)status; /* never cancelled */
	if (reload->result < 0) {
		server->reload = NULL;
		refuse(server, reload->request, &reload->config, &reload->refusal);
		reload_free(reload);
		next(server);
	} else {
		engine_swap(server->engine, reload->model.heads, server->generation + 1);
	}
	server_settle(server);
}

void reload_swapped(struct server *server)
{
	struct reload *reload = server->reload;

	server->reload = NULL;
	server->generation++;
	server->stats.reloads++;
	server->facts = reload->model.facts;
	memcpy(server->model_name, reload->model.name, sizeof(server->model_name));
	config_done(&server->config);
	server->config = reload->config;
	reload->config = (struct config){0};
	server_limit_regions(server);
	log_set_level(server->config.log_level);
	log_notice("reloaded: serving %s as generation %" PRIu64, server->model_name,
		server->generation);
	load_warn_unused(&server->config, &server->facts);
	server_tell_ready(server, "");
	answer(server, reload->request, ERROR_NONE, NULL);
	reload_free(reload);
	next(server);
}

void reload_drained(struct server *server)
{
	if (!server->reload)
		return;
	answer(server, server->reload->request, ERROR_DRAINING, "the daemon is about to stop");
	server->reload->request = NULL;
}

void reload_abandoned(struct server *server)
{
	if (!server->reload)
		return;
	reload_free(server->reload);
	server->reload = NULL;
}

void reload_begin(struct server *server, struct request *request)
{
	struct refusal refusal = {0};
	struct reload *reload;
	int r;

	/* Also when one is under way, behind which none follows any more. */
	if (server->draining) {
		answer(server, request, ERROR_DRAINING, "the daemon is about to stop");
		return;
	}
	if (server->reload && !request) {
		log_notice("a reload is under way; another one follows it");
		server->reload_again = true;
		return;
	}
	if (server->reload) {
		answer(server, request, ERROR_RESOURCE_EXHAUSTED, "a reload is under way");
		return;
	}
	server_tell_reloading(server);
	reload = calloc(1, sizeof(*reload));
	if (!reload) {
		error_text_set(&refusal.sentence, ENOMEM, "out of memory");
		refuse(server, request, &server->config, &refusal);
		return;
	}
	r = config_reparse(&server->config, server->argc, server->argv, &reload->config, &refusal);
	if (r == 0)
		r = check_changes(&server->config, &reload->config, &refusal);
	/* Falling back from a GPU to the CPU is for the start alone. */
	if (r == 0 && reload->config.backend == MARKOV_AUTO &&
		strcmp(server->facts.backend, "cuda") == 0)
		reload->config.backend = MARKOV_CUDA;
	if (r != 0) {
		refuse(server, request, &reload->config, &refusal);
		reload_free(reload);
		return;
	}
	reload->server = server;
	reload->request = request;
	load_begin(&reload->progress, "reloading", &reload->config);
	server->reload = reload;
	log_notice("reloading");
	uv_queue_work(server->loop, &reload->work, load_work, load_done);
}
