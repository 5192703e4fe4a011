/* Shared memory. draftd's memfd is mapped only if it is sealed against shrinking and as long as it
 * is said to be: then no access to the mapping can raise SIGBUS. Device memory is mapped by the
 * driver, which knows how long it is. */
#include "client/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int region_read_open(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	struct region_reply reply;
	struct region_grant *grant;

	if (region_reply_decode(message->params, &reply, fault) < 0)
		return -EBADMSG;
	if (!call->waiter)
		return call_close_later(draft, region_close_encode, reply.region);
	grant = call->waiter->into;
	if (!reply.has_memory || reply.memory != grant->memory || reply.bytes < grant->bytes)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"region_open was answered with other memory, or less, than was asked for");
	grant->region = reply.region;
	grant->bytes = reply.bytes;
	wire_text_copy(reply.device, grant->device, sizeof(grant->device));
	grant->fd = frame->fds[0];
	frame->fds[0] = -1;
	return 0;
}

int region_read_import(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault)
{
	struct region_reply reply;

	(void)frame;
	if (region_reply_decode(message->params, &reply, fault) < 0)
		return -EBADMSG;
	if (!call->waiter)
		return call_close_later(draft, region_close_encode, reply.region);
	((struct region_grant *)call->waiter->into)->region = reply.region;
	return 0;
}

/* Maps `bytes` of a memfd that cannot shrink. On failure the sentence starts with `whose`. */
static int map(struct draft *draft, const char *whose, int fd, uint64_t bytes, void **ret)
{
	struct stat status;
	void *data;
	int seals;

	if (fstat(fd, &status) < 0)
		return handle_fail(
			draft, -errno, "%s descriptor: %s", whose, strerrordesc_np(errno));
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return handle_fail(draft, -EINVAL,
			"%s descriptor is no memfd sealed with F_SEAL_SHRINK", whose);
	if (bytes > (uint64_t)status.st_size || bytes > SIZE_MAX)
		return handle_fail(draft, -EINVAL,
			"%s memfd has %lld byte%s where the region has %llu", whose,
			(long long)status.st_size, sentence_s((uint64_t)status.st_size),
			(unsigned long long)bytes);
	data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return handle_fail(draft, -errno, "cannot map %llu byte%s of %s memfd: %s",
			(unsigned long long)bytes, sentence_s(bytes), whose,
			strerrordesc_np(errno));
	*ret = data;
	return 0;
}

/* Maps what draftd granted on a device. */
static int map_on_device(
	struct draft *draft, const struct region_grant *grant, struct draft_region *region)
{
	char why[ERROR_TEXT_BYTES];
	int r = 0;

	if (!draft->driver)
		r = driver_open(&draft->driver, why, sizeof(why));
	if (r == 0)
		r = driver_map(draft->driver, grant->device, grant->fd, grant->bytes,
			&region->mapping, why, sizeof(why));
	if (r < 0)
		return handle_fail(draft, r, "%s", why);
	region->data = (void *)(uintptr_t)region->mapping.address;
	return 0;
}

static struct draft_region *region_new(struct draft *draft)
{
	struct draft_region *region = calloc(1, sizeof(*region));

	if (!region)
		handle_fail(draft, -ENOMEM, "no memory for a region");
	else
		region->draft = draft;
	return region;
}

static void region_free(struct draft_region *region)
{
	if (!region)
		return;
	if (region->memory == DRAFT_DEVICE)
		driver_unmap(region->draft->driver, &region->mapping);
	else if (region->data)
		munmap(region->data, (size_t)region->bytes);
	free(region);
}

/* Puts a region that draftd granted into the handle's list. */
static void region_link(struct draft_region *region, const struct region_grant *grant)
{
	region->id = grant->region;
	region->bytes = grant->bytes;
	memcpy(region->device, grant->device, sizeof(region->device));
	region->epoch = region->draft->epoch;
	region->next = region->draft->regions;
	region->draft->regions = region;
}

static int check_region(
	struct draft *draft, uint64_t bytes, const char *device, struct region_grant *grant)
{
	int r = handle_check(draft);

	if (r < 0)
		return r;
	if (bytes == 0)
		return handle_fail(draft, -EINVAL, "bytes is 0; a region has at least 1");
	if (!device)
		return 0;
	if (strlen(device) == 0 || strlen(device) >= sizeof(grant->device))
		return handle_fail(draft, -EINVAL, "device has %zu characters; a UUID has 1 to %zu",
			strlen(device), sizeof(grant->device) - 1);
	strcpy(grant->device, device);
	return 0;
}

static int ask(struct draft *draft, enum method method, int fd, struct region_grant *grant)
{
	struct region_request request = {
		.bytes = grant->bytes,
		.memory = grant->memory,
		.has_device = grant->device[0] != '\0',
		.device = {grant->device, (uint32_t)strlen(grant->device)},
	};
	struct waiter waiter = {.into = grant};
	struct call *call;
	int r;

	r = call_begin(draft, method == METHOD_REGION_OPEN ? region_read_open : region_read_import,
		&waiter, &call);
	if (r < 0)
		return r;
	call->reply_fds = method == METHOD_REGION_OPEN ? 1 : 0;
	region_request_encode(&draft->head, (uint32_t)call->ticket, method, &request);
	return call_run(draft, call, fd, deadline_after(draft->timeout_us));
}

/* Both kinds; `device` is NULL or a UUID. */
static int open_region(struct draft *draft, uint64_t bytes, enum draft_memory memory,
	const char *device, struct draft_region **ret)
{
	struct region_grant grant = {.bytes = bytes, .fd = -1};
	struct draft_region *region = NULL;
	int r;

	r = check_region(draft, bytes, device, &grant);
	if (r < 0)
		return r;
	region = region_new(draft);
	if (!region)
		return -ENOMEM;
	region->memory = memory;
	grant.memory = memory == DRAFT_HOST ? REGION_HOST : REGION_DEVICE;
	r = ask(draft, METHOD_REGION_OPEN, -1, &grant);
	if (r < 0)
		goto out;
	if (memory == DRAFT_DEVICE)
		r = map_on_device(draft, &grant, region);
	else
		r = map(draft, "draftd's", grant.fd, grant.bytes, &region->data);
	if (r < 0) {
		if (r == -EINVAL)
			r = -EPROTO; /* it is draftd that gave something wrong */
		if (!draft->broken &&
			call_close_later(draft, region_close_encode, grant.region) == 0)
			transport_flush(draft);
		goto out;
	}
	region_link(region, &grant);
	*ret = region;
	region = NULL;
out:
	if (grant.fd >= 0)
		close(grant.fd);
	region_free(region);
	return r;
}

int draft_region_open(
	struct draft *draft, uint64_t bytes, enum draft_memory memory, struct draft_region **ret)
{
	if (memory != DRAFT_HOST && memory != DRAFT_DEVICE)
		return handle_fail(draft, -EINVAL, "memory is %d; it is DRAFT_HOST or DRAFT_DEVICE",
			(int)memory);
	return open_region(draft, bytes, memory, NULL, ret);
}

int draft_region_open_device(
	struct draft *draft, uint64_t bytes, const char *device, struct draft_region **ret)
{
	return open_region(draft, bytes, DRAFT_DEVICE, device, ret);
}

/* Device memory is mapped by the caller already. */
static int import_region(struct draft *draft, int fd, uint64_t bytes, enum draft_memory memory,
	const char *device, struct draft_region **ret)
{
	struct region_grant grant = {
		.memory = memory == DRAFT_HOST ? REGION_HOST : REGION_DEVICE,
		.bytes = bytes,
		.fd = -1,
	};
	struct draft_region *region = NULL;
	int r;

	r = check_region(draft, bytes, device, &grant);
	if (r < 0)
		return r;
	region = region_new(draft);
	if (!region)
		return -ENOMEM;
	region->memory = memory;
	region->bytes = bytes;
	if (memory == DRAFT_HOST)
		r = map(draft, "the caller's", fd, bytes, &region->data);
	if (r == 0)
		r = ask(draft, METHOD_REGION_IMPORT, fd, &grant);
	if (r < 0)
		goto out;
	region_link(region, &grant);
	*ret = region;
	region = NULL;
out:
	region_free(region);
	return r;
}

int draft_region_import(struct draft *draft, int fd, uint64_t bytes, struct draft_region **ret)
{
	return import_region(draft, fd, bytes, DRAFT_HOST, NULL, ret);
}

int draft_region_import_device(
	struct draft *draft, int fd, uint64_t bytes, const char *device, struct draft_region **ret)
{
	return import_region(draft, fd, bytes, DRAFT_DEVICE, device, ret);
}

int draft_region_close(struct draft_region *region)
{
	struct draft *draft;
	struct draft_region **at;
	int r = 0;

	if (!region)
		return 0;
	draft = region->draft;
	for (at = &draft->regions; *at != region; at = &(*at)->next)
		;
	*at = region->next;
	/* With its connection draftd's side of it has gone already. */
	if (!draft->broken && region->epoch == draft->epoch)
		r = call_close(draft, region_close_encode, region->id);
	region_free(region);
	return r;
}

void region_free_all(struct draft *draft)
{
	struct draft_region *next;

	for (struct draft_region *region = draft->regions; region; region = next) {
		next = region->next;
		region_free(region);
	}
	draft->regions = NULL;
}

void *draft_region_data(const struct draft_region *region)
{
	return region->data;
}

const char *draft_region_device(const struct draft_region *region)
{
	return region->device;
}

uint64_t draft_region_bytes(const struct draft_region *region)
{
	return region->bytes;
}
