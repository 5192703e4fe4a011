#include "region.h"

#include "limits.h"
#include "region_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static struct region *region_of(uv_work_t *work)
{
	return LINK_OWNER(work, struct region, work);
}

static void region_free(struct region *region)
{
	region->pool->count--;
	region->pool->bytes -= region->bytes;
	if (region->fd >= 0)
		close(region->fd);
	free(region);
}

static uint64_t next_slice(const struct region *region)
{
	uint64_t left = region->bytes - region->done;

	return left < LIMIT_REGION_SLICE_BYTES ? left : LIMIT_REGION_SLICE_BYTES;
}

static void release_work(uv_work_t *work)
{
	struct region *region = region_of(work);
	uint64_t slice = next_slice(region);

	if (region->unpin) {
		markov_memory_unpin(region->pool->memory, region->memory, region->kind);
		region->unpin = false;
	}
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
		region->closed(region);
	region_free(region);
}

static void release(struct region *region)
{
	region->done = 0;
	region->take_pages = !region->imported && !region->pool->ending;
	region->unpin = region->kind == MEMORY_PINNED && !region->pool->lost;
	uv_queue_work(region->pool->loop, &region->work, release_work, release_done);
}

/* As a whole, which a row needs. Where that fails, the region is copied by the processor and is
 * otherwise the same. */
static void pin(struct region *region)
{
	int r;

	if (region->bytes > LIMIT_PINNED_BYTES) {
		error_text_set(&region->plain_why, E2BIG, "the most that is pinned is %llu bytes",
			(unsigned long long)LIMIT_PINNED_BYTES);
		return;
	}
	r = markov_memory_pin(region->pool->memory, region->memory, region->bytes, &region->kind,
		&region->plain_why);
	if (r == -EIO)
		message_refuse(&region->fault, ERROR_DEVICE_LOST, "the device is lost");
}

/* Worker thread; the loop thread leaves the region alone meanwhile. The first slice makes the
 * mapping. A descriptor that is no good is closed here: it may be the last one of much memory. */
static void open_work(uv_work_t *work)
{
	struct region *region = region_of(work);
	uint64_t slice = next_slice(region);
	int r = 0;

	if (!region->memory && region->imported)
		r = region_memory_import(
			region->fd, region->bytes, &region->memory, &region->fault);
	else if (!region->memory)
		r = region_memory_create(
			region->bytes, &region->memory, &region->fd, &region->fault);
	if (r == 0)
		r = region_memory_back(region->fd, region->done, slice, &region->fault);
	if (r == 0)
		region->done += slice;
	if (r == 0 && region->done == region->bytes)
		pin(region);
	if (!region->memory && region->fd >= 0) {
		close(region->fd);
		region->fd = -1;
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
	if ((region->imported || failed) && region->fd >= 0) {
		close(region->fd); /* not the last one: it is mapped */
		region->fd = -1;
	}
	region->open = !failed;
	region->opened(region);
	if (failed && region->memory) {
		release(region);
	} else if (failed) {
		region_free(region);
	} else if (region->fd >= 0) {
		close(region->fd);
		region->fd = -1;
	}
}

int region_start(struct region_pool *pool, uint32_t id, uint64_t bytes, int fd,
	struct request *waiting, void (*opened)(struct region *region),
	void (*closed)(struct region *region))
{
	struct region *region = NULL;
	int r = 0;

	if (pool->bytes > pool->bytes_max || bytes > pool->bytes_max - pool->bytes)
		r = -ENOBUFS;
	else if (!(region = calloc(1, sizeof(*region))))
		r = -ENOMEM;
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	link_init(&region->link);
	region->pool = pool;
	region->id = id;
	region->bytes = bytes;
	region->fd = fd;
	region->imported = fd >= 0;
	region->waiting = waiting;
	region->opened = opened;
	region->closed = closed;
	pool->count++;
	pool->bytes += bytes;
	uv_queue_work(pool->loop, &region->work, open_work, open_done);
	return 0;
}

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
	region->waiting = waiting;
	release_if_unused(region);
}
