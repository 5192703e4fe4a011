#include "region.h"

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

/* Worker thread; the loop thread leaves the region alone meanwhile. */
static void open_work(uv_work_t *work)
{
	struct region *region = region_of(work);

	if (region->imported)
		region_memory_import(region->fd, region->bytes, &region->memory, &region->fault);
	else
		region_memory_create(region->bytes, &region->memory, &region->fd, &region->fault);
}

static void open_done(uv_work_t *work, int status)
{
	struct region *region = region_of(work);

	(void)status; /* never cancelled */
	if (region->imported || region->fault.code != ERROR_NONE) {
		if (region->fd >= 0)
			close(region->fd);
		region->fd = -1;
	}
	region->open = region->fault.code == ERROR_NONE;
	region->opened(region);
	if (region->fault.code != ERROR_NONE) {
		region_free(region);
		return;
	}
	if (region->fd >= 0)
		close(region->fd);
	region->fd = -1;
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

static void release_work(uv_work_t *work)
{
	struct region *region = region_of(work);

	region_memory_release(region->memory, region->bytes);
}

static void release_done(uv_work_t *work, int status)
{
	struct region *region = region_of(work);
	void (*closed)(struct region *) = region->closed;

	(void)status; /* never cancelled */
	closed(region);
	region_free(region);
}

static void release_if_unused(struct region *region)
{
	if (!region->open && !region->pins)
		uv_queue_work(region->pool->loop, &region->work, release_work, release_done);
}

void region_pin(struct region *region)
{
	region->pins++;
}

void region_unpin(struct region *region)
{
	if (!region)
		return;
	region->pins--;
	release_if_unused(region);
}

void region_close(struct region *region, struct request *waiting)
{
	link_remove(&region->link);
	region->open = false;
	region->waiting = waiting;
	release_if_unused(region);
}
