#include "client/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct result *result_take(struct draft *draft, uint32_t rows, uint32_t steps)
{
	struct result *result = draft->spare;
	size_t words;
	uint32_t *block;

	if (__builtin_mul_overflow((size_t)rows, (size_t)steps, &words) ||
		__builtin_add_overflow(words, (size_t)rows, &words) ||
		words > SIZE_MAX / sizeof(uint32_t))
		return NULL;
	if (!result) {
		result = calloc(1, sizeof(*result));
		if (!result)
			return NULL;
		result->draft = draft;
		result->next_all = draft->results;
		draft->results = result;
		draft->spare = result;
	}
	if (words > result->block_words) {
		block = realloc(result->block, words * sizeof(uint32_t));
		if (!block)
			return NULL; /* it stays among the spare ones */
		result->block = block;
		result->block_words = words;
	}
	draft->spare = result->next;
	result->next = NULL;
	result->error[0] = '\0';
	result->view = (struct draft_result){
		.error = result->error,
		.rows = rows,
		.steps = steps,
		.tokens = result->block,
		.flags = (uint8_t *)(result->block + (size_t)rows * steps),
	};
	return result;
}

void result_give_back(struct result *result)
{
	if (!result)
		return;
	result->next = result->draft->spare;
	result->draft->spare = result;
}

void result_queue(struct result *result)
{
	struct draft *draft = result->draft;

	result->next = NULL;
	*draft->queue_end = result;
	draft->queue_end = &result->next;
}

void result_forget_queue(struct draft *draft)
{
	struct result *next;

	for (struct result *result = draft->queue_first; result; result = next) {
		next = result->next;
		result_give_back(result);
	}
	draft->queue_first = NULL;
	draft->queue_end = &draft->queue_first;
}

void result_free_all(struct draft *draft)
{
	struct result *next;

	for (struct result *result = draft->results; result; result = next) {
		next = result->next_all;
		free(result->block);
		free(result);
	}
	draft->results = NULL;
	draft->spare = NULL;
	draft->queue_first = NULL;
	draft->queue_end = &draft->queue_first;
}

int result_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	struct draft_result *view = &call->result->view;
	size_t token_count = (size_t)view->rows * view->steps;
	uint32_t *tokens = call->result->block;
	uint32_t *wide_flags = tokens + token_count;
	uint8_t *flags = (uint8_t *)wide_flags;
	struct draft_reply reply;

	(void)frame;
	if (draft_reply_decode(message->params, &reply, fault) < 0)
		return -EBADMSG;
	if (reply.token_count != token_count || reply.row_count != view->rows)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"a draft of %u row%s and %u step%s has %u token%s and %u flag%s",
			view->rows, sentence_s(view->rows), view->steps, sentence_s(view->steps),
			reply.token_count, sentence_s(reply.token_count), reply.row_count,
			sentence_s(reply.row_count));
	if (call->logits_bytes != (reply.has_logits ? reply.logits_bytes : 0))
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"a draft has %llu byte%s of logits where %llu were asked for",
			(unsigned long long)(reply.has_logits ? reply.logits_bytes : 0),
			sentence_s(reply.has_logits ? reply.logits_bytes : 0),
			(unsigned long long)call->logits_bytes);
	wire_column_u32(&reply.tokens, tokens);
	for (size_t i = 0; i < token_count; i++)
		if (tokens[i] >= draft->model.vocab)
			return message_refuse(fault, ERROR_BAD_REQUEST,
				"token %u is not below vocab, which is %u", tokens[i],
				draft->model.vocab);
	/* Narrowed in place: byte i lies in or before the word that was read last. */
	wire_column_u32(&reply.flags, wide_flags);
	for (uint32_t i = 0; i < view->rows; i++)
		flags[i] = (uint8_t)wide_flags[i];
	if (call->logits)
		memcpy(call->logits, reply.logits, call->logits_bytes);
	view->generation = reply.generation;
	view->queue_us = reply.times_us.queue;
	view->device_us = reply.times_us.device;
	view->total_us = reply.times_us.total;
	return 0;
}

void draft_result_free(struct draft_result *result)
{
	result_give_back((struct result *)result);
}
