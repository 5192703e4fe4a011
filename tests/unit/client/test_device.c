/* Device regions over a libcuda.so.1 that stands in for the driver, which is where there is a GPU
 * only (tests/gpu runs the real one): what is mapped, what is held meanwhile, and that nothing is
 * left when any of its calls fails. */
#include "client/driver.h"
#include "tests/unit/client/libcuda/fake.h"
#include "tests/unit/client/peer.h"
#include "tests/unit/client/suites.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 8192

static struct peer peer;
static struct draft *draft;
static struct fake *fake;
static int served = -1; /* the allocation */
static const char *uuid;
static const char *asked; /* device of the request, or NULL */

/* Beside the test's program; loaded by its path, it is found by its name from then on. */
static void load_fake(void)
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);
	void *library;

	ck_assert_int_gt(length, 0);
	path[length] = '\0';
	strcpy(strrchr(path, '/'), "/libcuda.so.1");
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(library != NULL, "%s", dlerror());
	fake = dlsym(library, "fake");
	memset(fake, 0, sizeof(*fake));
}

static void setup(void)
{
	load_fake();
	fds_count();
	peer_init(&peer);
	draft = peer_connect(&peer);
	served = memfd_create("device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(served, BYTES), 0);
	uuid = FAKE_UUID;
	asked = NULL;
}

static void teardown(void)
{
	draft_close(draft);
	peer_done(&peer);
	close(served);
	fds_check();
	ck_assert_int_eq(fake->handles, 0);
	ck_assert_int_eq(fake->mappings, 0);
	ck_assert_int_eq(fake->ranges, 0);
	ck_assert_int_eq(fake->contexts, 0);
	ck_assert_int_eq(fake->current, 0);
}

static void check_request(const struct region_request *want)
{
	peer_check(want->memory == REGION_DEVICE);
	peer_check(want->has_device == (asked != NULL));
	peer_check(!asked || (want->device.bytes == strlen(asked) &&
				     !memcmp(want->device.at, asked, want->device.bytes)));
}

static void serve_open(struct peer *p)
{
	struct region_reply reply = {.region = 9,
		.has_memory = true,
		.bytes = BYTES,
		.memory = REGION_DEVICE,
		.device = {uuid, (uint32_t)strlen(uuid)}};
	struct region_request want;
	struct message_fault fault;
	struct request request;

	peer_take(p, METHOD_REGION_OPEN, &request);
	peer_check(region_request_decode(request.message.params, &want, &fault) == 0);
	check_request(&want);
	region_reply_encode(&p->out, request.message.id, &reply);
	peer_send_with(p, &served, 1);
}

static void serve_import(struct peer *p)
{
	struct region_reply reply = {.region = 9};
	struct region_request want;
	struct message_fault fault;
	struct request request;

	peer_take(p, METHOD_REGION_IMPORT, &request);
	peer_check(region_request_decode(request.message.params, &want, &fault) == 0);
	check_request(&want);
	peer_check(want.bytes == 5000 && request.frame.fd_count == 1);
	close(request.frame.fds[0]);
	region_reply_encode(&p->out, request.message.id, &reply);
	peer_send(p);
}

static void serve_close(struct peer *p)
{
	struct message_fault fault;
	struct request request;
	uint32_t region;

	peer_take(p, METHOD_REGION_CLOSE, &request);
	peer_check(region_close_decode(request.message.params, &region, &fault) == 0);
	peer_check(region == 9);
	message_encode_empty_reply(&p->out, request.message.id);
	peer_send(p);
}

static struct draft_region *open_region(void)
{
	struct draft_region *region = NULL;
	int r;

	peer_start(&peer, serve_open);
	r = asked ? draft_region_open_device(draft, 5000, asked, &region)
		  : draft_region_open(draft, 5000, DRAFT_DEVICE, &region);
	ck_assert_msg(r == 0, "%s", draft_error(draft));
	peer_join(&peer);
	return region;
}

static void close_region(struct draft_region *region)
{
	peer_start(&peer, serve_close);
	ck_assert_int_eq(draft_region_close(region), 0);
	peer_join(&peer);
}

START_TEST(maps_the_whole_allocation_and_holds_one_context)
{
	struct draft_region *region = open_region();
	char byte = 0;

	ck_assert_uint_eq(draft_region_bytes(region), BYTES);
	ck_assert_str_eq(draft_region_device(region), FAKE_UUID);
	((char *)draft_region_data(region))[BYTES - 1] = 'd';
	ck_assert_int_eq(pread(served, &byte, 1, BYTES - 1), 1);
	ck_assert_int_eq(byte, 'd');
	ck_assert_int_eq(fake->handles, 0);
	ck_assert_int_eq(fake->contexts, 1);
	ck_assert_int_eq(fake->current, 0);
	close_region(region);
	ck_assert_int_eq(fake->mappings, 0);
	ck_assert_int_eq(fake->contexts, 0);
}
END_TEST

START_TEST(names_the_device)
{
	asked = FAKE_UUID;
	close_region(open_region());
}
END_TEST

START_TEST(goes_with_its_connection)
{
	open_region();
	open_region();
	draft_close(draft);
	draft = NULL;
	ck_assert_int_eq(fake->mappings, 0);
}
END_TEST

/* draftd has granted the region, and gets it back. */
static int failed_open(void)
{
	struct draft_region *region = NULL;
	int r;

	peer_start(&peer, serve_open);
	r = draft_region_open(draft, 5000, DRAFT_DEVICE, &region);
	peer_join(&peer);
	ck_assert_ptr_null(region);
	serve_close(&peer);
	return r;
}

START_TEST(any_call_may_fail)
{
	int calls;

	close_region(open_region());
	calls = fake->calls;
	ck_assert_int_ge(calls, 8);
	for (int i = 1; i <= calls; i++) {
		draft_close(draft);
		draft = peer_connect(&peer);
		fake->calls = 0;
		fake->fail_at = i;
		ck_assert_int_lt(failed_open(), 0);
		ck_assert_str_ne(draft_error(draft), "");
		ck_assert_int_eq(fake->contexts, 0);
		ck_assert_int_eq(fake->mappings + fake->ranges + fake->handles, 0);
		fake->fail_at = 0;
		close_region(open_region());
	}
}
END_TEST

START_TEST(says_what_it_does_not_see)
{
	uuid = "GPU-none";
	ck_assert_int_eq(failed_open(), -ENODEV);
	ck_assert_ptr_nonnull(strstr(draft_error(draft), "GPU-none"));
}
END_TEST

START_TEST(an_import_maps_nothing)
{
	struct draft_region *region;

	peer_start(&peer, serve_import);
	ck_assert_int_eq(draft_region_import_device(draft, served, 5000, NULL, &region), 0);
	peer_join(&peer);
	ck_assert_ptr_null(draft_region_data(region));
	ck_assert_uint_eq(draft_region_bytes(region), 5000);
	ck_assert_int_eq(fake->calls, 0);
	close_region(region);
	asked = "GPU-1";
	peer_start(&peer, serve_import);
	ck_assert_int_eq(draft_region_import_device(draft, served, 5000, asked, &region), 0);
	peer_join(&peer);
	ck_assert_str_eq(draft_region_device(region), "GPU-1");
	close_region(region);
}
END_TEST

START_TEST(a_device_has_a_name)
{
	struct draft_region *region;
	char name[65];

	memset(name, 'x', 64);
	name[64] = '\0';
	ck_assert_int_eq(draft_region_open_device(draft, 1, "", &region), -EINVAL);
	ck_assert_int_eq(draft_region_open_device(draft, 1, name, &region), -EINVAL);
	ck_assert_int_eq(draft_region_import_device(draft, served, 1, "", &region), -EINVAL);
	ck_assert_int_eq(draft_region_import_device(draft, served, 0, NULL, &region), -EINVAL);
}
END_TEST

/* As draftctl does, beside libdraft's own mapping. */
START_TEST(copies_in_and_out)
{
	struct draft_region *region = open_region();
	struct driver_mapping mapping;
	struct driver *driver;
	char why[200], byte = 'x';

	ck_assert_int_eq(driver_open(&driver, why, sizeof(why)), 0);
	ck_assert_int_eq(driver_hold(driver, FAKE_UUID, (uintptr_t)draft_region_data(region), BYTES,
				 &mapping, why, sizeof(why)),
		0);
	ck_assert_int_eq(driver_write(driver, &mapping, 100, &byte, 1, why, sizeof(why)), 0);
	byte = 0;
	ck_assert_int_eq(pread(served, &byte, 1, 100), 1);
	ck_assert_int_eq(byte, 'x');
	byte = 0;
	ck_assert_int_eq(driver_read(driver, &mapping, 100, &byte, 1, why, sizeof(why)), 0);
	ck_assert_int_eq(byte, 'x');
	fake->fail_at = fake->calls + 2; /* the context is pushed, the copy fails */
	ck_assert_int_eq(driver_read(driver, &mapping, 100, &byte, 1, why, sizeof(why)), -EIO);
	ck_assert_ptr_nonnull(strstr(why, "CUDA_ERROR_INVALID_VALUE"));
	driver_drop(driver, &mapping);
	driver_close(driver);
	close_region(region);
}
END_TEST

Suite *device_suite(void)
{
	Suite *suite = suite_create("device");
	TCase *tcase = tcase_create("device");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, maps_the_whole_allocation_and_holds_one_context);
	tcase_add_test(tcase, names_the_device);
	tcase_add_test(tcase, goes_with_its_connection);
	tcase_add_test(tcase, any_call_may_fail);
	tcase_add_test(tcase, says_what_it_does_not_see);
	tcase_add_test(tcase, an_import_maps_nothing);
	tcase_add_test(tcase, a_device_has_a_name);
	tcase_add_test(tcase, copies_in_and_out);
	suite_add_tcase(suite, tcase);
	return suite;
}
