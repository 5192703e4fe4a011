/* Calls about the service: no params, a small result. */
#include "client/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int ask(struct draft *draft, enum method method, call_take *take, void *into)
{
	struct waiter waiter = {.into = into};
	struct call *call;
	int r;

	r = handle_check(draft);
	if (r < 0)
		return r;
	r = call_begin(draft, take, &waiter, &call);
	if (r < 0)
		return r;
	message_encode_request(&draft->head, (uint32_t)call->ticket, method);
	return call_run(draft, call, -1, deadline_after(draft->timeout_us));
}

int stats_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	int r;

	(void)draft;
	(void)frame;
	if (!call->waiter)
		return 0;
	r = json_from_wire(&message->params, call->waiter->into);
	if (r == -ENOMEM)
		return message_refuse(
			fault, ERROR_INTERNAL, "stats need more memory than there is");
	if (r < 0)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"stats is no map of string keys to numbers, strings and such maps and "
			"arrays");
	return 0;
}

int metrics_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	struct wire_text text;
	char *copy;

	(void)draft;
	(void)frame;
	if (metrics_reply_decode(message->params, &text, fault) < 0)
		return -EBADMSG;
	if (!call->waiter)
		return 0;
	copy = malloc((size_t)text.bytes + 1);
	if (!copy)
		return message_refuse(
			fault, ERROR_INTERNAL, "metrics need more memory than there is");
	memcpy(copy, text.at, text.bytes);
	copy[text.bytes] = '\0';
	*(char **)call->waiter->into = copy;
	return 0;
}

int draft_ping(struct draft *draft)
{
	return ask(draft, METHOD_PING, call_take_empty, NULL);
}

int draft_stats(struct draft *draft, char **ret_json)
{
	return ask(draft, METHOD_STATS, stats_read, ret_json);
}

int draft_metrics(struct draft *draft, char **ret_text)
{
	return ask(draft, METHOD_METRICS, metrics_read, ret_text);
}

int draft_drain(struct draft *draft)
{
	return ask(draft, METHOD_DRAIN, call_take_empty, NULL);
}

int draft_reload(struct draft *draft)
{
	return ask(draft, METHOD_RELOAD, call_take_empty, NULL);
}
