#include "region.h"

#include "limits.h"
#include "region_memory.h"
#include "user.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static struct region *region_of(uv_work_t *work)
{
	return LINK_OWNER(work, struct region, work);
}

/* What the pool counts memory of that kind in, and the most. */
static uint64_t *used(struct region_pool *pool, enum region_memory memory)
{
	return memory == REGION_DEVICE ? &pool->device_bytes : &pool->bytes;
}

static uint64_t most(const struct region_pool *pool, enum region_memory memory)
{
	return memory == REGION_DEVICE ? pool->device_bytes_max : pool->bytes_max;
}

/* The same of one user. */
static uint64_t *used_by(struct user *user, enum region_memory memory)
{
	return memory == REGION_DEVICE ? &user->device_bytes : &user->bytes;
}

static uint64_t most_by_user(const struct region_pool *pool, enum region_memory memory)
{
	return memory == REGION_DEVICE ? pool->user_device_bytes_max : pool->user_bytes_max;
}

static void region_free(struct region *region)
{
	region->pool->count--;
	*used(region->pool, region->order.memory) -= region->bytes;
	*used_by(region->order.user, region->order.memory) -= region->bytes;
	user_drop(region->order.user);
	if (region->order.fd >= 0)
		close(region->order.fd);
	free(region);
}

static uint64_t next_slice(const struct region *region)
{
	uint64_t left = region->bytes - region->done;

	return left < LIMIT_REGION_SLICE_BYTES ? left : LIMIT_REGION_SLICE_BYTES;
}

/* ---- giving up ---- */

static void release_work(uv_work_t *work)
{
	struct region *region = region_of(work);
	uint64_t slice = next_slice(region);

	if (region->kind == MEMORY_DEVICE) {
		if (region->ask_device)
			markov_memory_free(region->pool->memory, &region->device);
		region->done = region->bytes;
		return;
	}
	if (region->ask_device && region->done == 0)
		markov_memory_unpin(region->pool->memory, region->memory);
	region_memory_release(region->memory + region->done, slice, region->take_pages);
	region->done += slice;
}

static void release_done(uv_work_t *work, int status)
{
	struct region *region = region_of(work);

	(void)status; /* never cancelled */
	if (region->done < region->bytes) {
		uv_queue_work(region->pool->loop, &region->work, release_work, release_done);
		return;
	}
	if (region->fault.code == ERROR_NONE)
		region->order.closed(region);
	region_free(region);
}

static void release(struct region *region)
{
	region->done = 0;
	region->take_pages = !region->imported && !region->pool->ending;
	region->ask_device = region->kind != MEMORY_PLAIN && !region->pool->lost;
	uv_queue_work(region->pool->loop, &region->work, release_work, release_done);
}

/* ---- opening ---- */

/* As a whole, which a row needs. Where that fails, the region is copied by the processor and is
 * otherwise the same. */
static void pin(struct region *region)
{
	int r;

	if (!markov_memory_pins(region->pool->memory))
		return;
	if (region->bytes > LIMIT_PINNED_BYTES) {
		error_text_set(&region->device_why, E2BIG, "the most that is pinned is %llu bytes",
			(unsigned long long)LIMIT_PINNED_BYTES);
		return;
	}
	r = markov_memory_pin(
		region->pool->memory, region->memory, region->bytes, &region->device_why);
	if (r == 0)
		region->kind = MEMORY_PINNED;
	else if (r == -EIO)
		message_refuse(&region->fault, ERROR_DEVICE_LOST, "the device is lost");
}

static void open_device_memory(struct region *region)
{
	if (region_memory_on_device(region->pool->memory, region->order.device, region->bytes,
		    &region->order.fd, &region->device, &region->fault, &region->device_why) < 0)
		return;
	region->memory = region->device.address;
	region->kind = MEMORY_DEVICE;
	region->done = region->bytes;
}

/* The next slice; the first one makes the mapping. */
static void open_host_memory(struct region *region)
{
	uint64_t slice = next_slice(region);
	int r = 0;

	if (!region->memory && region->imported)
		r = region_memory_import(
			region->order.fd, region->bytes, &region->memory, &region->fault);
	else if (!region->memory)
		r = region_memory_create(
			region->bytes, &region->memory, &region->order.fd, &region->fault);
	if (r == 0)
		r = region_memory_back(region->order.fd, region->done, slice, &region->fault);
	if (r == 0)
		region->done += slice;
	if (r == 0 && region->done == region->bytes)
		pin(region);
}

/* Worker thread; the loop thread leaves the region alone meanwhile. A descriptor that is no good is
 * closed here: it may be the last one of much memory. */
static void open_work(uv_work_t *work)
{
	struct region *region = region_of(work);

	if (region->order.memory == REGION_DEVICE)
		open_device_memory(region);
	else
		open_host_memory(region);
	if (!region->memory && region->order.fd >= 0) {
		close(region->order.fd);
		region->order.fd = -1;
	}
}

static void open_done(uv_work_t *work, int status)
{
	struct region *region = region_of(work);
	bool failed = region->fault.code != ERROR_NONE;

	(void)status; /* never cancelled */
	if (!failed && region->done < region->bytes) {
		uv_queue_work(region->pool->loop, &region->work, open_work, open_done);
		return;
	}
	if ((region->imported || failed) && region->order.fd >= 0) {
		close(region->order.fd); /* not the last one: it is mapped */
		region->order.fd = -1;
	}
	region->open = !failed;
	region->order.opened(region);
	if (failed && region->memory) {
		release(region);
	} else if (failed) {
		region_free(region);
	} else if (region->order.fd >= 0) {
		close(region->order.fd);
		region->order.fd = -1;
	}
}

/* Devices give memory in multiples of a granularity: then a made region has all that there is.
 * False when that is no 64-bit number. */
static bool round_up(const struct region_pool *pool, uint64_t *bytes)
{
	uint64_t granularity = markov_memory_granularity(pool->memory);

	if (__builtin_add_overflow(*bytes, granularity - 1, bytes))
		return false;
	*bytes -= *bytes % granularity;
	return true;
}

int region_start(struct region_pool *pool, const struct region_order *order)
{
	uint64_t bytes = order->bytes, in_use = *used(pool, order->memory);
	bool imported = order->fd >= 0;
	struct region *region = NULL;
	int r = 0;

	if (order->memory == REGION_DEVICE && !imported && !round_up(pool, &bytes))
		r = -ENOBUFS;
	else if (in_use > most(pool, order->memory) || bytes > most(pool, order->memory) - in_use)
		r = -ENOBUFS;
	else if (!user_may(order->user, *used_by(order->user, order->memory), bytes,
			 most_by_user(pool, order->memory)))
		r = -EDQUOT;
	else if (!(region = calloc(1, sizeof(*region))))
		r = -ENOMEM;
	if (r < 0) {
		if (imported)
			close(order->fd);
		return r;
	}
	link_init(&region->link);
	region->pool = pool;
	region->order = *order;
	region->bytes = bytes;
	region->imported = imported;
	pool->count++;
	*used(pool, order->memory) += bytes;
	*used_by(order->user, order->memory) += bytes;
	order->user->holds++;
	uv_queue_work(pool->loop, &region->work, open_work, open_done);
	return 0;
}

/* ---- use ---- */

static void release_if_unused(struct region *region)
{
	if (!region->open && !region->holds)
		release(region);
}

void region_hold(struct region *region)
{
	region->holds++;
}

void region_drop(struct region *region)
{
	if (!region)
		return;
	region->holds--;
	release_if_unused(region);
}

void region_close(struct region *region, struct request *waiting)
{
	link_remove(&region->link);
	region->open = false;
	region->order.waiting = waiting;
	release_if_unused(region);
}
