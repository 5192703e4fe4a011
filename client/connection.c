#include "client/private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(DRAFT_VERSION_MAJOR == 1 && DRAFT_VERSION_MINOR == 0, "say so in VERSION too");

struct draft *handle_new(void)
{
	struct draft *draft = calloc(1, sizeof(*draft));

	if (!draft)
		return NULL;
	draft->fd = -1;
	draft->call_free = CALLS_MAX;
	draft->queue_end = &draft->queue_first;
	frame_reader_init(&draft->reader, FRAME_HELLO_BODY_BYTES_MAX);
	wire_buffer_init(&draft->head);
	wire_buffer_init(&draft->unsent);
	return draft;
}

void handle_reset(struct draft *draft)
{
	if (draft->fd >= 0)
		close(draft->fd);
	draft->fd = -1;
	draft->epoch++;
	frame_reader_done(&draft->reader);
	frame_reader_init(&draft->reader, FRAME_HELLO_BODY_BYTES_MAX);
	wire_buffer_clear(&draft->unsent);
	draft->unsent_at = 0;
	draft->going_away = false;
	draft->goaway_reason[0] = '\0';
	for (uint32_t i = 0; i < draft->call_capacity; i++)
		call_drop(draft, draft->calls[i].ticket);
	result_forget_queue(draft);
	draft->tickets_out = 0;
}

void handle_free(struct draft *draft)
{
	if (!draft)
		return;
	handle_reset(draft);
	region_free_all(draft);
	event_free_all(draft);
	result_free_all(draft);
	driver_close(draft->driver);
	free(draft->calls);
	wire_buffer_done(&draft->head);
	wire_buffer_done(&draft->unsent);
	frame_reader_done(&draft->reader);
	free(draft);
}

int handle_open(struct draft *draft)
{
	const int64_t deadline_us = deadline_after(draft->timeout_us);
	char why[ERROR_TEXT_BYTES];
	int r;

	handle_reset(draft);
	draft->broken = false;
	r = transport_connect(draft, deadline_us);
	if (r == 0)
		r = hello_exchange(draft, deadline_us);
	if (r == 0)
		return 0;
	/* Half a connection is none. */
	memcpy(why, draft->error, sizeof(why));
	return handle_break(draft, r, "%s", why);
}

/* The wire wants "name/version": a name without a version gets this library's. */
static int set_client_name(struct draft *draft, const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < length; i++)
		if (name[i] < ' ' || name[i] > '~')
			return handle_fail(draft, -EINVAL,
				"client_name has an unprintable character at %zu; use ASCII", i);
	if (length == 0 || length > CLIENT_NAME_MAX)
		return handle_fail(draft, -EINVAL, "client_name has %zu characters; it has 1 to %d",
			length, CLIENT_NAME_MAX);
	snprintf(draft->client_name, sizeof(draft->client_name), "%s%s", name,
		strchr(name, '/') ? "" : "/" DRAFTD_VERSION);
	return 0;
}

/* NULL: it names none. */
static const char *socket_of_environment(void)
{
	const char *path = secure_getenv("DRAFTD_SOCKET");

	return path && path[0] ? path : NULL;
}

const char *draft_socket_default(void)
{
	const char *path = socket_of_environment();

	return path ? path : DRAFT_SOCKET_DEFAULT;
}

static int set_socket_path(struct draft *draft, const char *given)
{
	const char *path = given ? given : draft_socket_default();
	size_t length = strlen(path);

	if (length == 0 || length > SOCKET_PATH_MAX)
		return handle_fail(draft, length ? -ENAMETOOLONG : -EINVAL,
			"%s has %zu bytes; a Unix socket's has 1 to %zu",
			given ? "socket_path" : "DRAFTD_SOCKET", length, SOCKET_PATH_MAX);
	memcpy(draft->socket_path, path, length + 1);
	draft->socket_origin = !given && socket_of_environment() ? " (DRAFTD_SOCKET)" : "";
	return 0;
}

static int set_options(struct draft *draft, const struct draft_options *given)
{
	struct draft_options options = {0};
	int r;

	if (given) {
		r = handle_copy_struct(
			draft, "struct draft_options", given, &options, sizeof(options));
		if (r < 0)
			return r;
	}
	draft->timeout_us = options.timeout_us == 0 ? TIMEOUT_DEFAULT_US : options.timeout_us;
	if (options.spin_us < 0 || options.spin_us > SPIN_MAX_US)
		return handle_fail(draft, -EINVAL, "spin_us is %lld; it is 0 to %d",
			(long long)options.spin_us, SPIN_MAX_US);
	draft->spin_us = options.spin_us;
	r = set_client_name(draft, options.client_name ? options.client_name : "libdraft");
	if (r < 0)
		return r;
	return set_socket_path(draft, options.socket_path);
}

int draft_connect(
	const struct draft_options *options, struct draft **ret, char *error, size_t error_bytes)
{
	struct draft *draft = handle_new();
	int r = -ENOMEM;

	*ret = NULL;
	if (draft) {
		r = set_options(draft, options);
		if (r == 0)
			r = handle_open(draft);
	}
	if (r == 0) {
		*ret = draft;
		return 0;
	}
	if (error && error_bytes > 0)
		snprintf(error, error_bytes, "%.*s",
			CUT(error_bytes - 1, draft ? draft->error : "no memory"));
	handle_free(draft);
	return r;
}

int draft_reconnect(struct draft *draft)
{
	return handle_open(draft);
}

void draft_close(struct draft *draft)
{
	handle_free(draft);
}

const struct draft_model *draft_model(const struct draft *draft)
{
	return &draft->model;
}

bool draft_device_at(const struct draft *draft, uint32_t index, struct draft_device *ret)
{
	if (index >= draft->model.device_count)
		return false;
	*ret = (struct draft_device){
		.uuid = draft->devices[index].uuid,
		.name = draft->devices[index].name,
		.memory_bytes = draft->devices[index].memory_bytes,
	};
	return true;
}

int draft_fd(const struct draft *draft)
{
	return draft->fd;
}

short draft_events(const struct draft *draft)
{
	if (draft->fd < 0)
		return 0;
	return draft->unsent.count > 0 ? POLLIN | POLLOUT : POLLIN;
}

bool draft_going_away(const struct draft *draft)
{
	return draft->going_away;
}

const char *draft_goaway_reason(const struct draft *draft)
{
	return draft->goaway_reason;
}

const char *draft_version(void)
{
	return DRAFTD_VERSION;
}
