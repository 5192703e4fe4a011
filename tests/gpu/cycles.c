/* Thousands of device regions, one after the other, leave nothing behind: no device memory, no
 * descriptor, no address space. */
#include "client.h"
#include "harness.h"

#include <cuda_runtime_api.h>
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#define SLACK (4ull << 20) /* of memory: pools of the driver and the heap */

struct footprint {
	unsigned long long device_used, descriptors, own_descriptors, address_space;
};

static unsigned long long count_descriptors(pid_t pid)
{
	char path[64];
	unsigned long long count = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	DIR *directory = opendir(path);
	if (!directory)
		die("no %s", path);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static unsigned long long address_space(pid_t pid)
{
	char path[64];
	unsigned long long pages = 0;
	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	FILE *file = fopen(path, "r");
	if (!file || fscanf(file, "%llu", &pages) != 1)
		die("no %s", path);
	fclose(file);
	return pages * (unsigned long long)sysconf(_SC_PAGESIZE);
}

static struct footprint look(const struct service *service)
{
	size_t free_bytes = 0, all_bytes = 0;
	if (cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess)
		die("the device does not say how much memory is free");
	return (struct footprint){all_bytes - free_bytes, count_descriptors(service->pid),
		count_descriptors(getpid()), address_space(service->pid)};
}

int cycle_tests(const char *programs, unsigned cycles)
{
	struct footprint before = {0}, after;
	struct service service;
	struct client c;
	unsigned wrong = 0;
	char model[64];
	snprintf(model, sizeof(model), "/tmp/draftd-gpu-tests-%d.safetensors", getpid());
	client_make_model(programs, model);
	service_start(&service, programs, model, CLIENT_LIMIT_TEXT);
	client_open(&c, &service);
	for (unsigned i = 0; i < cycles; i++) {
		struct draft_region *region;
		if (i == cycles / 10)
			before = look(&service);
		if (draft_region_open(c.draft, c.bytes, DRAFT_DEVICE, &region))
			die("cycle %u: %s", i, draft_error(c.draft));
		wrong += !client_drafts_well(&c, region);
		wrong += draft_region_close(region) != 0;
	}
	after = look(&service);
	test_result(!wrong, "%u of %u cycles went wrong", wrong, cycles);
	test_result(after.device_used <= before.device_used + SLACK,
		"device memory grew from %llu to %llu bytes", before.device_used,
		after.device_used);
	test_result(after.descriptors == before.descriptors &&
			    after.own_descriptors == before.own_descriptors,
		"descriptors: draftd's from %llu to %llu, the client's from %llu to %llu",
		before.descriptors, after.descriptors, before.own_descriptors,
		after.own_descriptors);
	test_result(after.address_space <= before.address_space + SLACK,
		"draftd's address space grew from %llu to %llu bytes", before.address_space,
		after.address_space);
	printf("%u cycles: device memory %llu then %llu MiB, draftd's descriptors %llu then %llu, "
	       "its address space %llu then %llu MiB\n",
		cycles, before.device_used >> 20, after.device_used >> 20, before.descriptors,
		after.descriptors, before.address_space >> 20, after.address_space >> 20);
	draft_close(c.draft);
	service_stop(&service);
	unlink(model);
	return 0;
}
