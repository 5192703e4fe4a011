#include "request.h"

#include "limits.h"

#include <stdlib.h>
#include <string.h>

struct request *request_new(uint32_t id, enum method method)
{
	struct request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	link_init(&request->queue);
	request->id = id;
	request->method = method;
	return request;
}

void request_pool_init(struct request_pool *pool)
{
	link_init(&pool->spare);
	pool->count = 0;
}

static struct request *take_spare(struct request_pool *pool)
{
	struct link *link = link_pop(&pool->spare);

	if (!link)
		return NULL;
	pool->count--;
	return LINK_OWNER(link, struct request, queue);
}

void request_pool_done(struct request_pool *pool)
{
	struct request *request;

	while ((request = take_spare(pool)))
		free(request);
}

/* Memory for a draft of `bytes`: a spare one's, or new. A spare one that is too small makes room
 * for a larger one, so that the pool becomes what its users need. */
static struct request *allocate(struct request_pool *pool, size_t bytes)
{
	struct request *request = NULL;
	size_t has = bytes;

	if (bytes <= LIMIT_SPARE_BYTES)
		request = take_spare(pool);
	if (request && request->bytes >= bytes) {
		has = request->bytes;
	} else {
		free(request);
		request = malloc(bytes);
	}
	if (!request)
		return NULL;
	memset(request, 0, sizeof(*request));
	request->bytes = has;
	return request;
}

struct request *request_new_draft(struct request_pool *pool, uint32_t id,
	const struct draft_call *wire, uint32_t copy_bytes, uint8_t **ret_copy)
{
	size_t rows = wire->rows;
	size_t tokens = rows * wire->steps;
	size_t bytes;
	struct request *request;
	struct draft *draft;
	uint8_t *at;

	/* Widest columns first, so that each is aligned. */
	bytes = sizeof(*request) + rows * (3 * sizeof(int64_t) + sizeof(uint32_t) + sizeof(float)) +
		tokens * sizeof(uint32_t) + copy_bytes + rows;
	request = allocate(pool, bytes);
	if (!request)
		return NULL;
	link_init(&request->queue);
	request->id = id;
	request->method = METHOD_DRAFT;
	request->held_bytes = request->bytes;

	draft = &request->draft;
	draft->rows = wire->rows;
	draft->steps = wire->steps;
	draft->priority = wire->priority;
	at = (uint8_t *)(request + 1);
	draft->positions = (int64_t *)(void *)at;
	draft->seeds = draft->positions + rows;
	draft->slots = draft->seeds + rows;
	draft->anchors = (uint32_t *)(void *)(draft->slots + rows);
	draft->temperatures = (float *)(void *)(draft->anchors + rows);
	draft->tokens = (uint32_t *)(void *)(draft->temperatures + rows);
	*ret_copy = (uint8_t *)(draft->tokens + tokens);
	draft->flags = *ret_copy + copy_bytes;

	wire_column_i64(&wire->positions, draft->positions);
	wire_column_i64(&wire->seeds, draft->seeds);
	wire_column_u32(&wire->anchors, draft->anchors);
	wire_column_f32(&wire->temperatures, draft->temperatures);
	if (wire->has_slots)
		wire_column_i64(&wire->slots, draft->slots);
	else
		for (size_t row = 0; row < rows; row++)
			draft->slots[row] = (int64_t)row;
	return request;
}

static void free_buffers(struct request *request)
{
	free(request->draft.frame);
	free(request->draft.reply_logits);
}

void request_free(struct request *request)
{
	if (!request)
		return;
	free_buffers(request);
	free(request);
}

void request_recycle(struct request_pool *pool, struct request *request)
{
	if (request->method != METHOD_DRAFT || request->bytes > LIMIT_SPARE_BYTES ||
		pool->count == LIMIT_SPARE_PIECES) {
		request_free(request);
		return;
	}
	free_buffers(request);
	/* At the front: the memory that was used last is the warmest. */
	link_append(pool->spare.next, &request->queue);
	pool->count++;
}

const void *request_base_at(const struct draft *draft, uint32_t row)
{
	return draft->base.at + row * draft->base.row_stride;
}

void *request_logits_at(const struct draft *draft, uint32_t row)
{
	uint64_t place = draft->logits_by_slot ? (uint64_t)draft->slots[row] : row;

	if (!draft->logits.at || draft->slots[row] < 0)
		return NULL;
	return draft->logits.at + place * draft->logits.row_stride;
}
