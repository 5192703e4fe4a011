#include "tests/unit/client/peer.h"
#include "tests/unit/client/suites.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct peer peer;
static struct draft *draft;

/* What the peer grants next; a field of -1 or 0 follows the request. */
static struct {
	bool file; /* no memfd */
	bool unsealed;
	bool device;
	unsigned fds;       /* descriptors on the reply */
	uint64_t bytes;     /* said */
	uint64_t file_size; /* real */
} grant;

static int served = -1; /* the peer's own descriptor of the last region */

static void setup(void)
{
	fds_count();
	peer_init(&peer);
	draft = peer_connect(&peer);
	memset(&grant, 0, sizeof(grant));
	grant.fds = 1;
}

static void teardown(void)
{
	draft_close(draft);
	peer_done(&peer);
	if (served >= 0)
		close(served);
	served = -1;
	fds_check();
}

static int make_memfd(uint64_t bytes, int seals)
{
	int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	peer_check(fd >= 0);
	peer_check(ftruncate(fd, (off_t)bytes) == 0);
	peer_check(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void serve_open(struct peer *p)
{
	struct region_request want;
	struct region_reply reply = {.region = 9, .has_memory = true, .device = {"", 0}};
	struct message_fault fault;
	struct request request;
	int fds[2];

	peer_take(p, METHOD_REGION_OPEN, &request);
	peer_check(region_request_decode(request.message.params, &want, &fault) == 0);
	reply.bytes = grant.bytes ? grant.bytes : want.bytes;
	reply.memory = grant.device ? REGION_DEVICE : REGION_HOST;
	if (served >= 0)
		close(served);
	if (grant.file)
		served = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	else
		served = make_memfd(grant.file_size ? grant.file_size : reply.bytes,
			grant.unsealed ? F_SEAL_GROW : F_SEAL_SHRINK);
	region_reply_encode(&p->out, request.message.id, &reply);
	p->out.bytes[3] = (uint8_t)grant.fds;
	fds[0] = fds[1] = served;
	peer_send_with(p, fds, grant.fds);
}

static struct draft_region *open_region(uint64_t bytes)
{
	struct draft_region *region = NULL;

	peer_start(&peer, serve_open);
	ck_assert_msg(draft_region_open(draft, bytes, DRAFT_HOST, &region) == 0, "%s",
		draft_error(draft));
	peer_join(&peer);
	return region;
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

START_TEST(shares_memory_both_ways)
{
	struct draft_region *region = open_region(5000);
	char byte;

	ck_assert_uint_eq(draft_region_bytes(region), 5000);
	((char *)draft_region_data(region))[4999] = 'c';
	ck_assert_int_eq(pread(served, &byte, 1, 4999), 1);
	ck_assert_int_eq(byte, 'c');
	ck_assert_int_eq(pwrite(served, "d", 1, 0), 1);
	ck_assert_int_eq(((char *)draft_region_data(region))[0], 'd');
	peer_start(&peer, serve_close);
	ck_assert_int_eq(draft_region_close(region), 0);
	peer_join(&peer);
	open_region(1); /* freed with the connection */
}
END_TEST

START_TEST(draws_over_a_region)
{
	struct draft_region *region = open_region(4096);
	struct draft_request request = peer_request(2, 3);
	struct draft_call got;
	struct message_fault fault;
	struct request taken;
	uint64_t ticket;

	request.base.region = region; /* its data pointer does not count */
	request.logits = (struct draft_place){
		.region = region, .offset = 64, .row_stride = 512, .step_stride = 128};
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), 0);
	peer_take(&peer, METHOD_DRAFT, &taken);
	ck_assert_int_eq(draft_request_decode(taken.message.params, &got, &fault), 0);
	ck_assert_int_eq(got.base.kind, BULK_REGION);
	ck_assert_uint_eq(got.base.region, 9);
	ck_assert_uint_eq(got.base.offset, 0);
	ck_assert_uint_eq(got.base.row_stride, 3 * PEER_VOCAB * 2);
	ck_assert_uint_eq(got.base.step_stride, PEER_VOCAB * 2);
	ck_assert_int_eq(got.logits.kind, BULK_REGION);
	ck_assert_uint_eq(got.logits.region, 9);
	ck_assert_uint_eq(got.logits.offset, 64);
	ck_assert_uint_eq(got.logits.row_stride, 512);
	ck_assert_uint_eq(got.logits.step_stride, 128);
}
END_TEST

/* The peer's grant must be refused: -EPROTO, and `what`. The region is given back unless the
 * connection broke. */
static void expect_refusal(const char *what, bool breaks)
{
	struct draft_region *region = NULL;

	peer_start(&peer, serve_open);
	ck_assert_int_eq(draft_region_open(draft, 4096, DRAFT_HOST, &region), -EPROTO);
	ck_assert_ptr_null(region);
	ck_assert_msg(strstr(draft_error(draft), what) != NULL, "%s", draft_error(draft));
	peer_join(&peer);
	if (!breaks) {
		serve_close(&peer);
		return;
	}
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect(draft), 0);
	peer_join(&peer);
}

START_TEST(refuses_memory_that_could_fault)
{
	grant.file_size = 4095;
	expect_refusal("has 4095 bytes where the region has 4096", false);
	grant.file_size = 4096;
	grant.bytes = UINT64_MAX;
	expect_refusal("where the region has 18446744073709551615", false);
	grant.bytes = 0;
	grant.unsealed = true;
	expect_refusal("no memfd sealed with F_SEAL_SHRINK", false);
	grant.file = true;
	expect_refusal("no memfd sealed with F_SEAL_SHRINK", false);
}
END_TEST

START_TEST(refuses_other_memory_than_asked_for)
{
	grant.bytes = 4095;
	expect_refusal("or less", true);
	grant.bytes = 0;
	grant.device = true;
	expect_refusal("other memory", true);
	grant.device = false;
	grant.fds = 0;
	expect_refusal("wrong number of descriptors", true);
	grant.fds = 2;
	expect_refusal("wrong number of descriptors", true);
}
END_TEST

static void refuse_open(struct peer *p)
{
	struct request request;

	peer_take(p, METHOD_REGION_OPEN, &request);
	message_encode_error(
		&p->out, true, request.message.id, ERROR_TOO_LARGE, "bytes is 2, the most is 1");
	peer_send(p);
}

START_TEST(passes_errors_on)
{
	struct draft_region *region;

	peer_start(&peer, refuse_open);
	ck_assert_int_eq(draft_region_open(draft, 2, DRAFT_HOST, &region), -DRAFT_E_TOO_LARGE);
	ck_assert_str_eq(draft_error(draft), "bytes is 2, the most is 1");
	peer_join(&peer);
	ck_assert_int_eq(draft_region_open(draft, 0, DRAFT_HOST, &region), -EINVAL);
	ck_assert_int_eq(draft_region_open(draft, 1, (enum draft_memory)2, &region), -EINVAL);
	ck_assert_int_eq(draft_region_import(draft, 0, 0, &region), -EINVAL);
	grant.device = true;
	peer_start(&peer, serve_open);
	/* Where there is a driver, it is no device of its. */
	ck_assert_int_eq(draft_region_open(draft, 2, DRAFT_DEVICE, &region),
		dlopen("libcuda.so.1", RTLD_NOW) ? -ENODEV : -ENOTSUP);
	ck_assert_str_ne(draft_error(draft), "");
	peer_join(&peer);
	serve_close(&peer);
}
END_TEST

static void serve_import(struct peer *p)
{
	struct region_reply reply = {.region = 9};
	struct region_request want;
	struct message_fault fault;
	struct request request;

	peer_take(p, METHOD_REGION_IMPORT, &request);
	peer_check(region_request_decode(request.message.params, &want, &fault) == 0);
	peer_check(want.bytes == 4000 && want.memory == REGION_HOST);
	peer_check(request.frame.fd_count == 1);
	served = request.frame.fds[0];
	region_reply_encode(&p->out, request.message.id, &reply);
	peer_send(p);
}

START_TEST(imports_a_memfd)
{
	int fd = make_memfd(4096, F_SEAL_SHRINK);
	struct draft_region *region;
	char byte;

	peer_start(&peer, serve_import);
	ck_assert_int_eq(draft_region_import(draft, fd, 4000, &region), 0);
	peer_join(&peer);
	close(fd);
	ck_assert_uint_eq(draft_region_bytes(region), 4000);
	((char *)draft_region_data(region))[3999] = 'i';
	ck_assert_int_eq(pread(served, &byte, 1, 3999), 1);
	ck_assert_int_eq(byte, 'i');
	peer_start(&peer, serve_close);
	ck_assert_int_eq(draft_region_close(region), 0);
}
END_TEST

START_TEST(imports_nothing_that_could_fault)
{
	struct draft_region *region;
	int fd = make_memfd(4096, F_SEAL_SHRINK);

	ck_assert_int_eq(draft_region_import(draft, fd, 4097, &region), -EINVAL);
	ck_assert_str_eq(
		draft_error(draft), "the caller's memfd has 4096 bytes where the region has 4097");
	close(fd);
	fd = make_memfd(4096, F_SEAL_GROW);
	ck_assert_int_eq(draft_region_import(draft, fd, 4096, &region), -EINVAL);
	close(fd);
	ck_assert_int_eq(draft_region_import(draft, -1, 4096, &region), -EBADF);
}
END_TEST

START_TEST(gives_back_what_comes_too_late)
{
	struct draft_region *region;
	struct draft_result *result;

	draft->timeout_us = 1;
	ck_assert_int_eq(draft_region_open(draft, 4096, DRAFT_HOST, &region), -ETIMEDOUT);
	draft->timeout_us = -1;
	serve_open(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
	serve_close(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), 0);
}
END_TEST

START_TEST(outlives_its_connection_as_memory_only)
{
	struct draft_region *region = open_region(4096);
	struct draft_region *other = open_region(4096);
	struct draft_request request = peer_request(1, 1);
	struct draft_result *result;
	uint64_t ticket;

	((char *)draft_region_data(region))[0] = 'x';
	peer_hang_up(&peer);
	ck_assert_int_eq(draft_poll(draft, 0, &result), -ECONNRESET);
	ck_assert_int_eq(draft_region_close(other), 0);
	peer_start(&peer, peer_greet);
	ck_assert_int_eq(draft_reconnect(draft), 0);
	peer_join(&peer);
	ck_assert_int_eq(((char *)draft_region_data(region))[0], 'x');
	request.base.region = region;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -DRAFT_E_NOT_FOUND);
	ck_assert_int_eq(draft_region_close(region), 0);
}
END_TEST

START_TEST(belongs_to_one_connection)
{
	struct draft_region *region = open_region(4096);
	struct draft_request request = peer_request(1, 1);
	struct draft *mine = draft;
	struct peer other;
	uint64_t ticket;

	peer_init(&other);
	draft = peer_connect(&other);
	request.base.region = region;
	ck_assert_int_eq(draft_submit(draft, &request, &ticket), -EINVAL);
	ck_assert_ptr_nonnull(strstr(draft_error(draft), "another connection's"));
	draft_close(draft);
	peer_done(&other);
	draft = mine;
}
END_TEST

Suite *region_suite(void)
{
	Suite *suite = suite_create("client/region");
	TCase *tcase = tcase_create("region");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, shares_memory_both_ways);
	tcase_add_test(tcase, draws_over_a_region);
	tcase_add_test(tcase, refuses_memory_that_could_fault);
	tcase_add_test(tcase, refuses_other_memory_than_asked_for);
	tcase_add_test(tcase, passes_errors_on);
	tcase_add_test(tcase, imports_a_memfd);
	tcase_add_test(tcase, imports_nothing_that_could_fault);
	tcase_add_test(tcase, gives_back_what_comes_too_late);
	tcase_add_test(tcase, outlives_its_connection_as_memory_only);
	tcase_add_test(tcase, belongs_to_one_connection);
	suite_add_tcase(suite, tcase);
	return suite;
}
