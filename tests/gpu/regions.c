/* Device regions through the real draftd: the golden cases over them, every bad input, clients that
 * die or free early. */
#include "client.h"
#include "harness.h"
#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ABSENT "GPU-00000000-0000-0000-0000-000000000000"

static void check_cycle(struct client *c, const char *after)
{
	struct draft_region *region = NULL;
	const int r = draft_region_open(c->draft, c->bytes, DRAFT_DEVICE, &region);
	test_result(r == 0 && client_drafts_well(c, region) && draft_region_close(region) == 0,
		"after %s a device region is not open, right and closed: %s", after,
		draft_error(c->draft));
}

static void refused(struct client *c, int got, int code, const char *what)
{
	test_result(got == -code, "%s: %s (%s), not %s", what, draft_error_name(got),
		draft_error(c->draft), draft_error_name(-code));
	check_cycle(c, what);
}

/* ---- bad input ---- */

static void bad_descriptors(struct client *c)
{
	struct draft_region *region;
	int ends[2];
	const int memfd = memfd_create("none", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int control = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (memfd < 0 || ftruncate(memfd, 4 << 20) || null < 0 || pipe2(ends, O_CLOEXEC))
		die("no descriptors");
	const struct {
		int fd;
		const char *what;
	} bad[] = {{memfd, "a memfd"}, {null, "/dev/null"}, {ends[0], "a pipe"},
		{control, "/dev/nvidiactl"}};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (bad[i].fd >= 0)
			refused(c,
				draft_region_import_device(
					c->draft, bad[i].fd, 2 << 20, NULL, &region),
				DRAFT_E_BAD_REQUEST, bad[i].what);
	close(memfd);
	close(null);
	close(ends[0]);
	close(ends[1]);
	if (control >= 0)
		close(control);
}

static void bad_sizes_and_devices(struct client *c)
{
	const uint64_t bytes = 4 * markov_memory_granularity(gpu_memory());
	struct draft_region *region;
	struct device_memory own;
	struct error_text error;
	int fd;
	if (markov_memory_create(gpu_memory(), "", bytes, &own, &fd, &error))
		die("%s", error.text);
	refused(c, draft_region_import_device(c->draft, fd, bytes + 1, NULL, &region),
		DRAFT_E_OUT_OF_RANGE, "an import of one byte more than there is");
	refused(c, draft_region_import_device(c->draft, fd, CLIENT_LIMIT + 1, NULL, &region),
		DRAFT_E_RESOURCE_EXHAUSTED, "an import of more than the limit");
	refused(c, draft_region_import_device(c->draft, fd, bytes, ABSENT, &region),
		DRAFT_E_BAD_REQUEST, "an import that names another device");
	test_result(draft_region_import_device(c->draft, fd, bytes, own.uuid, &region) == 0 &&
			    draft_region_close(region) == 0,
		"an import of a whole allocation: %s", draft_error(c->draft));
	test_result(draft_region_import_device(c->draft, fd, bytes - 1, NULL, &region) == 0 &&
			    draft_region_close(region) == 0,
		"an import that leaves a byte of an allocation out: %s", draft_error(c->draft));
	refused(c, draft_region_import_device(c->draft, fd, 10, NULL, &region),
		DRAFT_E_OUT_OF_RANGE, "an import of an allocation's start");
	close(fd);
	markov_memory_free(gpu_memory(), &own);
	refused(c, draft_region_open_device(c->draft, 1, ABSENT, &region), DRAFT_E_NOT_FOUND,
		"a device that is absent");
	refused(c, draft_region_open(c->draft, CLIENT_LIMIT + 1, DRAFT_DEVICE, &region),
		DRAFT_E_RESOURCE_EXHAUSTED, "a region of more than the limit");
}

/* Every GPU that this process sees besides the daemon's: read over peer access, or refused in
 * words. */
static void other_devices(struct client *c)
{
	struct draft_device own;
	int count = 0;
	draft_device_at(c->draft, 0, &own);
	cudaGetDeviceCount(&count);
	for (int i = 0; i < count; i++) {
		char uuid[64];
		struct draft_region *region;
		if (!cuda_device_uuid(i, uuid, sizeof(uuid)) || !strcmp(uuid, own.uuid))
			continue;
		const int r = draft_region_open_device(c->draft, c->bytes, uuid, &region);
		if (r == -DRAFT_E_BAD_REQUEST) {
			printf("regions on %s: refused: %s\n", uuid, draft_error(c->draft));
			continue;
		}
		test_result(r == 0 && !strcmp(draft_region_device(region), uuid) &&
				    client_drafts_well(c, region) &&
				    draft_region_close(region) == 0,
			"a region on %s: %s", uuid, draft_error(c->draft));
		printf("regions on %s: read over peer access\n", uuid);
	}
}

/* ---- clients that come to an end ---- */

/* The client's own allocation, mapped nowhere else when it is used, or given up while it is. */
static void early_frees(struct client *c)
{
	const uint64_t granularity = markov_memory_granularity(gpu_memory());
	for (int during = 0; during < 2; during++) {
		struct draft_region *region;
		struct device_memory own;
		struct error_text error;
		struct draft_result *result = NULL;
		uint64_t ticket;
		int fd;
		if (markov_memory_create(gpu_memory(), "",
			    (c->bytes + granularity - 1) / granularity * granularity, &own, &fd,
			    &error))
			die("%s", error.text);
		if (!during)
			markov_memory_free(gpu_memory(), &own);
		if (draft_region_import_device(c->draft, fd, c->bytes, NULL, &region))
			die("%s", draft_error(c->draft));
		close(fd);
		const struct draft_request request = client_request(c, region);
		if (draft_submit(c->draft, &request, &ticket))
			die("%s", draft_error(c->draft));
		if (during)
			markov_memory_free(gpu_memory(), &own);
		const int closed = draft_region_close(region);
		test_result(closed == 0 && draft_poll(c->draft, -1, &result) == 1 &&
				    result->code == 0 &&
				    !memcmp(result->tokens, c->expected, sizeof(c->expected)),
			"memory that its client freed %s use: %s", during ? "during" : "before",
			draft_error(c->draft));
		draft_result_free(result);
		check_cycle(c, "an early free");
	}
}

int dying_client(const char *socket)
{
	struct service service = {0};
	struct client c;
	snprintf(service.socket, sizeof(service.socket), "%s", socket);
	client_open(&c, &service);
	for (int i = 0; i < 4; i++) {
		struct draft_region *region;
		uint64_t ticket;
		if (draft_region_open(c.draft, c.bytes, DRAFT_DEVICE, &region))
			die("%s", draft_error(c.draft));
		const struct draft_request request = client_request(&c, region);
		for (int k = 0; k < 8; k++)
			if (draft_submit(c.draft, &request, &ticket))
				die("%s", draft_error(c.draft));
	}
	raise(SIGKILL);
	return 1;
}

/* Until draftd has given up what a dead client had; each round asks it. */
static bool comes_to(struct client *c, const char *key, unsigned long long want)
{
	const time_t end = time(NULL) + 10;
	while (service_count(c->draft, key) != want)
		if (time(NULL) > end)
			return false;
	return true;
}

static void dying_clients(struct client *c, const struct service *service)
{
	char self[4096] = {0}, socket[64];
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		die("no /proc");
	snprintf(socket, sizeof(socket), "%s", service->socket);
	for (int i = 0; i < 10; i++) {
		const int status =
			run_program((const char *const[]){self, "dying-client", socket, NULL});
		test_result(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
				    comes_to(c, "device_region_bytes", 0),
			"what a client that died mid-launch had is not given up");
		check_cycle(c, "a client's death");
	}
}

/* ---- the whole ---- */

static int is_case(const struct dirent *entry)
{
	return strstr(entry->d_name, ".safetensors") != NULL;
}

static void replay_goldens(const char *programs, const char *folder)
{
	static const char *const places[] = {"inline", "host", "device"};
	struct dirent **entries;
	const int count = scandir(folder, &entries, is_case, alphasort);
	char program[4096];
	if (count < 0)
		die("no folder %s", folder);
	snprintf(program, sizeof(program), "%s/draftctl", programs);
	for (int i = 0; i < count; i++) {
		struct service service;
		char path[4096];
		snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
		service_start(&service, programs, path, CLIENT_LIMIT_TEXT);
		for (int k = 0; k < 3; k++) {
			const int status = run_program((const char *const[]){program, "replay",
				"--socket", service.socket, "--base", places[k], path, NULL});
			test_result(
				status == 0, "replay of %s over %s", entries[i]->d_name, places[k]);
		}
		service_stop(&service);
		free(entries[i]);
	}
	free(entries);
	printf("replayed %d golden cases inline, over host and over device memory\n", count);
	fflush(stdout);
}

int region_tests(const char *programs, const char *folder)
{
	struct service service;
	struct client c;
	char model[64];
	replay_goldens(programs, folder);
	snprintf(model, sizeof(model), "/tmp/draftd-gpu-tests-%d.safetensors", getpid());
	client_make_model(programs, model);
	service_start(&service, programs, model, CLIENT_LIMIT_TEXT);
	client_open(&c, &service);
	check_cycle(&c, "the start");
	bad_descriptors(&c);
	bad_sizes_and_devices(&c);
	other_devices(&c);
	early_frees(&c);
	dying_clients(&c, &service);
	test_result(comes_to(&c, "regions", 0), "regions are left");
	draft_close(c.draft);
	service_stop(&service);
	unlink(model);
	return 0;
}
