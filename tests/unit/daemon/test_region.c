/* Regions with a real loop and real memfds: what may be imported, how long memory stays, what the
 * pool counts. */
#include "daemon/limits.h"
#include "daemon/region.h"
#include "daemon/region_memory.h"
#include "daemon/user.h"
#include "kernels/backend.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *region_suite(void);

static uv_loop_t loop;
static struct region_pool pool;
static struct user *user;
static struct link users;
static struct region *opened_region;
static enum error_code opened_error;
static int opened_fd = -1;
static unsigned opened_count, closed_count;

/* A backend that wants memory pinned, and what it was asked for. */
static struct {
	int result; /* of the next pin */
	const uint8_t *address;
	size_t bytes;
	unsigned pinned, unpinned;
	uint64_t asked_bytes; /* of device memory */
	char asked_uuid[64];
	int asked_fd; /* to import; -1: to make */
	unsigned freed;
} fake;

static int fake_pin(void *state, void *address, size_t bytes, struct error_text *error)
{
	ck_assert_ptr_eq(state, &fake);
	if (fake.result < 0)
		return error_text_set(error, -fake.result, "as the test wanted");
	fake.address = address;
	fake.bytes = bytes;
	fake.pinned++;
	return 0;
}

static void fake_unpin(void *state, void *address)
{
	ck_assert_ptr_eq(state, &fake);
	ck_assert_ptr_eq(address, fake.address);
	ck_assert_uint_eq(fake.address[fake.bytes - 1], 42); /* mapped, with its pages */
	fake.unpinned++;
}

#define GRANULARITY 2048

static uint64_t fake_granularity(const void *state)
{
	ck_assert_ptr_eq(state, &fake);
	return GRANULARITY;
}

static int give(const char *uuid, int fd, uint64_t bytes, struct device_memory *ret,
	struct error_text *error)
{
	if (fake.result < 0)
		return error_text_set(error, -fake.result, "as the test wanted");
	fake.asked_bytes = bytes;
	fake.asked_fd = fd;
	snprintf(fake.asked_uuid, sizeof(fake.asked_uuid), "%s", uuid);
	*ret = (struct device_memory){.address = &fake, .bytes = bytes, .uuid = "GPU-of-the-test"};
	return 0;
}

static int fake_create(void *state, const char *uuid, uint64_t bytes, struct device_memory *ret,
	int *ret_fd, struct error_text *error)
{
	const int r = give(uuid, -1, bytes, ret, error);

	ck_assert_ptr_eq(state, &fake);
	if (r == 0)
		*ret_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return r;
}

static int fake_import(void *state, const char *uuid, int fd, uint64_t bytes,
	struct device_memory *ret, struct error_text *error)
{
	ck_assert_ptr_eq(state, &fake);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
	return give(uuid, fd, bytes, ret, error);
}

static void fake_free(void *state, struct device_memory *device)
{
	ck_assert_ptr_eq(state, &fake);
	ck_assert_ptr_eq(device->address, &fake);
	fake.freed++;
}

static const struct memory_backend fake_backend = {
	.pin = fake_pin,
	.unpin = fake_unpin,
	.granularity = fake_granularity,
	.create = fake_create,
	.import = fake_import,
	.free = fake_free,
};
static struct markov_memory plain_memory, fake_memory = {&fake_backend, &fake};

static void opened(struct region *region)
{
	opened_error = region->fault.code;
	opened_region = region->fault.code == ERROR_NONE ? region : NULL;
	opened_fd = region->order.fd;
	region->order.fd = -1;
}

static void closed(struct region *region)
{
	(void)region;
	closed_count++;
}

static void setup(void)
{
	uv_loop_init(&loop);
	pool = (struct region_pool){.loop = &loop, .bytes_max = 100000, .memory = &plain_memory};
	link_init(&users);
	user = user_hold(&users, 54321);
	pool.user_bytes_max = pool.user_device_bytes_max = UINT64_MAX;
	memset(&fake, 0, sizeof(fake));
	opened_region = NULL;
	opened_fd = -1;
	closed_count = opened_count = 0;
}

static void teardown(void)
{
	if (opened_fd >= 0)
		close(opened_fd);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	ck_assert_uint_eq(pool.count, 0);
	ck_assert_uint_eq(pool.bytes, 0);
	ck_assert_uint_eq(pool.device_bytes, 0);
	ck_assert_uint_eq(user->holds, 1);
	ck_assert_uint_eq(user->bytes, 0);
	ck_assert_uint_eq(user->device_bytes, 0);
	user_drop(user);
	ck_assert(link_alone(&users));
}

static int start(enum region_memory memory, uint64_t bytes, int fd)
{
	const struct region_order order = {
		.id = 1,
		.user = user,
		.bytes = bytes,
		.memory = memory,
		.fd = fd,
		.opened = opened,
		.closed = closed,
	};

	return region_start(&pool, &order);
}

static struct region *open_region(uint64_t bytes, int fd)
{
	ck_assert_int_eq(start(REGION_HOST, bytes, fd), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	return opened_region;
}

static int make_memfd(off_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	if (seals)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

START_TEST(a_made_region_is_shared_zeroed_and_sealed)
{
	struct region *region = open_region(5000, -1);
	char byte = 1;

	ck_assert_ptr_nonnull(region);
	ck_assert_int_ge(opened_fd, 0);
	ck_assert_int_eq(pread(opened_fd, &byte, 1, 4999), 1);
	ck_assert_int_eq(byte, 0);
	region->memory[4999] = 42;
	ck_assert_int_eq(pread(opened_fd, &byte, 1, 4999), 1);
	ck_assert_int_eq(byte, 42);
	ck_assert_int_eq(ftruncate(opened_fd, 0), -1);
	ck_assert_int_eq(ftruncate(opened_fd, 10000), -1);
	ck_assert_uint_eq(pool.bytes, 5000);
	ck_assert_int_eq(region->kind, MEMORY_PLAIN); /* as this backend has no other */
	ck_assert_str_eq(region->device_why.text, "");
	region_close(region, NULL);
}
END_TEST

START_TEST(memory_stays_until_the_last_use)
{
	struct region *region = open_region(5000, -1);

	region_hold(region);
	region_hold(region);
	region_close(region, NULL);
	region_drop(region);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(closed_count, 0);
	region->memory[0] = 1; /* still mapped */
	region_drop(region);
	ck_assert_uint_eq(pool.count, 1); /* counted until it is unmapped */
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(closed_count, 1);
}
END_TEST

START_TEST(the_pool_holds_its_bytes_and_not_one_more)
{
	struct region *whole = open_region(100000, -1);

	close(opened_fd);
	opened_fd = -1;
	ck_assert_int_eq(start(REGION_HOST, 1, -1), -ENOBUFS);
	region_close(whole, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(start(REGION_HOST, 100001, -1), -ENOBUFS);
	ck_assert_int_eq(start(REGION_HOST, UINT64_MAX, -1), -ENOBUFS);
}
END_TEST

START_TEST(an_import_maps_the_client_memory)
{
	int fd = make_memfd(5000, F_SEAL_SHRINK);
	struct region *region;
	char byte = 0;

	region = open_region(5000, dup(fd));
	ck_assert_ptr_nonnull(region);
	ck_assert_int_eq(opened_fd, -1); /* closed: the mapping is enough */
	region->memory[7] = 9;
	ck_assert_int_eq(pread(fd, &byte, 1, 7), 1);
	ck_assert_int_eq(byte, 9);
	region_close(region, NULL);
	close(fd);
}
END_TEST

static void refused(uint64_t bytes, int fd, enum error_code code)
{
	ck_assert_ptr_null(open_region(bytes, fd));
	ck_assert_int_eq(opened_error, code);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* closed */
}

START_TEST(what_could_fault_later_is_refused)
{
	int ends[2], whole = make_memfd(5000, F_SEAL_SHRINK);
	char path[64];

	refused(5000, make_memfd(5000, 0), ERROR_BAD_REQUEST);
	refused(5000, make_memfd(5000, F_SEAL_GROW), ERROR_BAD_REQUEST);
	refused(5001, make_memfd(5000, F_SEAL_SHRINK), ERROR_OUT_OF_RANGE);
	refused(5000, make_memfd(5000, F_SEAL_SHRINK | F_SEAL_WRITE), ERROR_BAD_REQUEST);
	refused(5000, make_memfd(5000, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), ERROR_BAD_REQUEST);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", whole);
	refused(5000, open(path, O_RDONLY), ERROR_BAD_REQUEST);
	refused(1, open("/dev/null", O_RDWR), ERROR_BAD_REQUEST);
	refused(1, open("/proc/self/exe", O_RDONLY), ERROR_BAD_REQUEST);
	ck_assert_int_eq(pipe(ends), 0);
	refused(1, ends[0], ERROR_BAD_REQUEST);
	close(ends[1]);
	close(whole);
}
END_TEST

/* A hole is filled at once: a page that is missing when it is touched would be a signal. */
START_TEST(an_import_has_its_pages)
{
	int fd = make_memfd(40960, F_SEAL_SHRINK);
	struct stat file;

	ck_assert_int_eq(fstat(fd, &file), 0);
	ck_assert_int_eq(file.st_blocks, 0);
	ck_assert_ptr_nonnull(open_region(40960, dup(fd)));
	ck_assert_int_eq(fstat(fd, &file), 0);
	ck_assert_int_ge(file.st_blocks * 512, 40960);
	region_close(opened_region, NULL);
	close(fd);
}
END_TEST

/* Whoever still has the descriptor keeps no memory of the daemon's. */
START_TEST(a_closed_region_has_no_pages)
{
	struct region *region = open_region(50000, -1);
	struct stat file;

	memset(region->memory, 1, 50000);
	ck_assert_int_eq(fstat(opened_fd, &file), 0);
	ck_assert_int_ge(file.st_blocks * 512, 50000);
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(fstat(opened_fd, &file), 0);
	ck_assert_int_eq(file.st_blocks, 0);
	ck_assert_int_eq(file.st_size, 50000);
}
END_TEST

/* At the daemon's end the last results stay readable. */
START_TEST(the_last_regions_keep_their_pages)
{
	struct region *region = open_region(5000, -1);
	char byte = 0;

	region->memory[4999] = 9;
	pool.ending = true;
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(pread(opened_fd, &byte, 1, 4999), 1);
	ck_assert_int_eq(byte, 9);
}
END_TEST

/* What the client made is the client's: it finds there what the daemon wrote. */
START_TEST(a_closed_import_keeps_its_pages)
{
	int fd = make_memfd(5000, F_SEAL_SHRINK);
	char byte = 0;

	open_region(5000, dup(fd))->memory[4999] = 9;
	region_close(opened_region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(pread(fd, &byte, 1, 4999), 1);
	ck_assert_int_eq(byte, 9);
	close(fd);
}
END_TEST

START_TEST(a_region_is_pinned_as_a_whole_until_its_last_use)
{
	const uint64_t bytes = 2 * LIMIT_REGION_SLICE_BYTES + 5000;
	struct region *region;

	pool.memory = &fake_memory;
	pool.bytes_max = bytes;
	region = open_region(bytes, -1);
	ck_assert_uint_eq(fake.pinned, 1);
	ck_assert_ptr_eq(fake.address, region->memory);
	ck_assert_uint_eq(fake.bytes, bytes);
	ck_assert_int_eq(region->kind, MEMORY_PINNED);
	ck_assert_str_eq(region->device_why.text, "");
	region->memory[bytes - 1] = 42;
	region_hold(region);
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.unpinned, 0);
	region_drop(region);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.unpinned, 1);
	ck_assert_uint_eq(closed_count, 1);
}
END_TEST

START_TEST(an_import_is_pinned_too)
{
	int fd = make_memfd(5000, F_SEAL_SHRINK);
	struct region *region;

	pool.memory = &fake_memory;
	region = open_region(5000, dup(fd));
	ck_assert_int_eq(region->kind, MEMORY_PINNED);
	region->memory[4999] = 42;
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.unpinned, 1);
	close(fd);
}
END_TEST

START_TEST(what_cant_be_pinned_is_plain)
{
	struct region *region;

	pool.memory = &fake_memory;
	fake.result = -ENOMEM;
	region = open_region(5000, -1);
	ck_assert_ptr_nonnull(region);
	ck_assert_int_eq(region->kind, MEMORY_PLAIN);
	ck_assert_str_eq(region->device_why.text, "as the test wanted");
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.unpinned, 0);
}
END_TEST

START_TEST(a_lost_device_opens_no_region)
{
	pool.memory = &fake_memory;
	fake.result = -EIO;
	ck_assert_ptr_null(open_region(5000, -1));
	ck_assert_int_eq(opened_error, ERROR_DEVICE_LOST);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.unpinned, 0);
}
END_TEST

/* It may never answer. */
START_TEST(a_lost_device_is_asked_for_nothing)
{
	struct region *region;

	pool.memory = &fake_memory;
	region = open_region(5000, -1);
	pool.lost = true;
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(closed_count, 1);
	ck_assert_uint_eq(fake.unpinned, 0);
}
END_TEST

static struct region *open_on_device(uint64_t bytes, int fd)
{
	pool.memory = &fake_memory;
	ck_assert_int_eq(start(REGION_DEVICE, bytes, fd), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	return opened_region;
}

START_TEST(a_device_region_is_whole_pieces_of_the_device)
{
	struct region *region;

	pool.device_bytes_max = 3 * GRANULARITY;
	region = open_on_device(GRANULARITY + 1, -1);
	ck_assert_uint_eq(region->bytes, 2 * GRANULARITY);
	ck_assert_uint_eq(fake.asked_bytes, 2 * GRANULARITY);
	ck_assert_str_eq(fake.asked_uuid, "");
	ck_assert_ptr_eq(region->memory, &fake);
	ck_assert_int_eq(region->kind, MEMORY_DEVICE);
	ck_assert_str_eq(region->device.uuid, "GPU-of-the-test");
	ck_assert_int_ge(opened_fd, 0);
	ck_assert_uint_eq(fake.pinned, 0);
	ck_assert_uint_eq(pool.bytes, 0); /* host and device memory are counted apart */
	ck_assert_uint_eq(pool.device_bytes, 2 * GRANULARITY);
	region_hold(region);
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.freed, 0);
	region_drop(region);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.freed, 1);
	ck_assert_uint_eq(closed_count, 1);
	ck_assert_uint_eq(pool.device_bytes, 0);
}
END_TEST

/* What counts is what the device gives, not what was asked for. */
START_TEST(the_pool_holds_its_device_bytes_and_not_one_more)
{
	struct region *one;

	pool.device_bytes_max = 3 * GRANULARITY;
	one = open_on_device(1, -1);
	ck_assert_int_eq(start(REGION_DEVICE, 2 * GRANULARITY + 1, -1), -ENOBUFS);
	ck_assert_int_eq(start(REGION_DEVICE, UINT64_MAX, -1), -ENOBUFS);
	close(opened_fd);
	opened_fd = -1;
	region_close(open_on_device(2 * GRANULARITY, -1), NULL);
	region_close(one, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	pool.device_bytes_max = 0;
	ck_assert_int_eq(start(REGION_DEVICE, 1, -1), -ENOBUFS);
}
END_TEST

/* Host and device memory apart, to the byte; what is given back may be had again; an operator has
 * no such limit. */
START_TEST(a_user_has_its_bytes_and_not_one_more)
{
	struct region *region;

	pool.user_bytes_max = 5000;
	pool.user_device_bytes_max = 2 * GRANULARITY;
	pool.device_bytes_max = UINT64_MAX;
	ck_assert_int_eq(start(REGION_HOST, 5001, -1), -EDQUOT);
	region = open_region(5000, -1);
	close(opened_fd);
	opened_fd = -1;
	ck_assert_uint_eq(user->bytes, 5000);
	ck_assert_int_eq(start(REGION_HOST, 1, -1), -EDQUOT);
	region_close(open_on_device(GRANULARITY + 1, -1), NULL);
	ck_assert_uint_eq(user->device_bytes, 2 * GRANULARITY);
	ck_assert_int_eq(start(REGION_DEVICE, 1, -1), -EDQUOT);
	uv_run(&loop, UV_RUN_DEFAULT);
	close(opened_fd);
	opened_fd = -1;
	pool.memory = &plain_memory;
	user->limited = false;
	region_close(open_region(1, -1), NULL);
	user->limited = true;
	close(opened_fd);
	opened_fd = -1;
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(user->bytes, 0);
	region_close(open_region(5000, -1), NULL);
}
END_TEST

START_TEST(an_imported_allocation_is_as_long_as_the_client_says)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct region *region;

	pool.device_bytes_max = GRANULARITY;
	region = open_on_device(5, fd);
	ck_assert_int_eq(fake.asked_fd, fd);
	ck_assert_uint_eq(fake.asked_bytes, 5);
	ck_assert_uint_eq(region->bytes, 5);
	ck_assert_int_eq(opened_fd, -1);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1); /* closed: the mapping is enough */
	region_close(region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(fake.freed, 1);
}
END_TEST

START_TEST(what_the_device_refuses_is_a_typed_error)
{
	static const struct {
		int result;
		enum error_code code;
	} refusals[] = {
		{-ENODEV, ERROR_NOT_FOUND},
		{-EINVAL, ERROR_BAD_REQUEST},
		{-EXDEV, ERROR_BAD_REQUEST},
		{-ENOTSUP, ERROR_BAD_REQUEST},
		{-ERANGE, ERROR_OUT_OF_RANGE},
		{-ENOMEM, ERROR_RESOURCE_EXHAUSTED},
		{-EIO, ERROR_DEVICE_LOST},
	};

	pool.device_bytes_max = GRANULARITY;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

		fake.result = refusals[i].result;
		ck_assert_ptr_null(open_on_device(5, fd));
		ck_assert_int_eq(opened_error, refusals[i].code);
		ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
		ck_assert_ptr_null(open_on_device(5, -1));
		ck_assert_int_eq(opened_error, refusals[i].code);
	}
	ck_assert_uint_eq(pool.device_bytes, 0);
	ck_assert_uint_eq(fake.freed, 0);
}
END_TEST

START_TEST(a_lost_device_frees_nothing)
{
	pool.device_bytes_max = GRANULARITY;
	open_on_device(1, -1);
	pool.lost = true;
	region_close(opened_region, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(closed_count, 1);
	ck_assert_uint_eq(fake.freed, 0);
}
END_TEST

static unsigned small_at;

static void opened_in_order(struct region *region)
{
	ck_assert_int_eq(region->fault.code, ERROR_NONE);
	ck_assert_uint_eq(region->memory[region->bytes - 1], 0);
	opened_count++;
	if (region->bytes == 1)
		small_at = opened_count;
	region_close(region, NULL);
}

/* Large regions, and a small one that comes last: with one worker (region_suite()) it waits for one
 * slice of each, and opens before any of them. */
START_TEST(a_small_region_overtakes_large_ones)
{
	struct region_order order = {.user = user,
		.bytes = LIMIT_REGION_SLICE_BYTES + 5000,
		.fd = -1,
		.opened = opened_in_order,
		.closed = closed};

	small_at = 0;
	pool.bytes_max = 1ull << 30;
	for (; order.id < 8; order.id++)
		ck_assert_int_eq(region_start(&pool, &order), 0);
	order.bytes = 1;
	ck_assert_int_eq(region_start(&pool, &order), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(opened_count, 9);
	ck_assert_uint_eq(closed_count, 9);
	ck_assert_uint_eq(small_at, 1);
}
END_TEST

Suite *region_suite(void)
{
	Suite *suite = suite_create("region");
	TCase *tcase = tcase_create("region");

	setenv("UV_THREADPOOL_SIZE", "1",
		1); /* so that the order of work is the order of results */
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_made_region_is_shared_zeroed_and_sealed);
	tcase_add_test(tcase, memory_stays_until_the_last_use);
	tcase_add_test(tcase, the_pool_holds_its_bytes_and_not_one_more);
	tcase_add_test(tcase, an_import_maps_the_client_memory);
	tcase_add_test(tcase, what_could_fault_later_is_refused);
	tcase_add_test(tcase, an_import_has_its_pages);
	tcase_add_test(tcase, a_closed_region_has_no_pages);
	tcase_add_test(tcase, the_last_regions_keep_their_pages);
	tcase_add_test(tcase, a_closed_import_keeps_its_pages);
	tcase_add_test(tcase, a_region_is_pinned_as_a_whole_until_its_last_use);
	tcase_add_test(tcase, an_import_is_pinned_too);
	tcase_add_test(tcase, what_cant_be_pinned_is_plain);
	tcase_add_test(tcase, a_lost_device_opens_no_region);
	tcase_add_test(tcase, a_lost_device_is_asked_for_nothing);
	tcase_add_test(tcase, a_device_region_is_whole_pieces_of_the_device);
	tcase_add_test(tcase, the_pool_holds_its_device_bytes_and_not_one_more);
	tcase_add_test(tcase, a_user_has_its_bytes_and_not_one_more);
	tcase_add_test(tcase, an_imported_allocation_is_as_long_as_the_client_says);
	tcase_add_test(tcase, what_the_device_refuses_is_a_typed_error);
	tcase_add_test(tcase, a_lost_device_frees_nothing);
	tcase_add_test(tcase, a_small_region_overtakes_large_ones);
	suite_add_tcase(suite, tcase);
	return suite;
}
