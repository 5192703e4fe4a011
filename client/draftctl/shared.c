#include "shared.h"

#include "command.h"

#include <errno.h>
#include <string.h>

int shared_open(struct draft *draft, uint64_t bytes, enum draft_memory memory, struct shared *ret,
	struct error_text *error)
{
	struct shared shared = {0};
	char why[256];
	int r;

	r = draft_region_open(draft, bytes, memory, &shared.region);
	if (r < 0)
		return error_text_set(error, EPROTO, "%s%s", draft_error(draft), command_remedy(r));
	if (memory == DRAFT_DEVICE) {
		r = driver_open(&shared.driver, why, sizeof(why));
		if (r == 0)
			r = driver_hold(shared.driver, draft_region_device(shared.region),
				(uint64_t)(uintptr_t)draft_region_data(shared.region),
				draft_region_bytes(shared.region), &shared.mapping, why,
				sizeof(why));
		if (r < 0) {
			shared_close(&shared);
			return error_text_set(error, -r, "%s", why);
		}
	}
	*ret = shared;
	return 0;
}

void shared_done(struct shared *shared)
{
	if (shared->driver)
		driver_drop(shared->driver, &shared->mapping);
	driver_close(shared->driver);
	*shared = (struct shared){0};
}

void shared_close(struct shared *shared)
{
	struct draft_region *region = shared->region;

	shared_done(shared);
	draft_region_close(region);
}

int shared_write(struct shared *shared, uint64_t offset, const void *from, uint64_t bytes,
	struct error_text *error)
{
	char why[256];
	int r;

	if (!shared->driver) {
		memcpy((char *)draft_region_data(shared->region) + offset, from, bytes);
		return 0;
	}
	r = driver_write(shared->driver, &shared->mapping, offset, from, bytes, why, sizeof(why));
	return r < 0 ? error_text_set(error, -r, "%s", why) : 0;
}

int shared_read(
	struct shared *shared, uint64_t offset, void *to, uint64_t bytes, struct error_text *error)
{
	char why[256];
	int r;

	if (!shared->driver) {
		memcpy(to, (const char *)draft_region_data(shared->region) + offset, bytes);
		return 0;
	}
	r = driver_read(shared->driver, &shared->mapping, offset, to, bytes, why, sizeof(why));
	return r < 0 ? error_text_set(error, -r, "%s", why) : 0;
}
