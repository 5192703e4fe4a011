/* Frames through a real socket: order, short writes, descriptors, the books. */
#include "daemon/limits.h"
#include "daemon/outbox.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Suite *outbox_suite(void);

static int ends[2] = {-1, -1};
static struct outbox outbox;
static unsigned gone_count;
static size_t gone_bytes;

static void gone(void *user, const struct parcel *parcel)
{
	ck_assert_ptr_eq(user, &outbox);
	gone_count++;
	gone_bytes += parcel->head.count + parcel->bulk_bytes;
}

static void setup(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	outbox_init(&outbox, gone, &outbox);
	gone_count = 0;
	gone_bytes = 0;
}

static void teardown(void)
{
	outbox_done(&outbox);
	close(ends[0]);
	if (ends[1] >= 0)
		close(ends[1]);
}

static struct parcel *make(const char *head, size_t bulk_bytes)
{
	struct parcel *parcel = parcel_new();

	ck_assert_ptr_nonnull(parcel);
	wire_buffer_write(&parcel->head, head, strlen(head));
	if (bulk_bytes) {
		parcel->bulk = malloc(bulk_bytes);
		for (size_t i = 0; i < bulk_bytes; i++)
			parcel->bulk[i] = (uint8_t)(i * 7);
		parcel->bulk_bytes = bulk_bytes;
	}
	return parcel;
}

static void put(const char *head, size_t bulk_bytes)
{
	outbox_put(&outbox, make(head, bulk_bytes));
}

static void put_fd(const char *head, size_t bulk_bytes, int fd)
{
	struct parcel *parcel = make(head, bulk_bytes);

	parcel->fd = fd;
	outbox_put(&outbox, parcel);
}

/* The reply of a request in flight. */
static void put_end(const char *head)
{
	struct parcel *parcel = make(head, 0);

	parcel->ends_request = true;
	outbox_put(&outbox, parcel);
}

/* Reads what is there; `ret_fds` counts descriptors, which are closed. */
static size_t receive(char *bytes, size_t size, unsigned *ret_fds)
{
	size_t total = 0;

	for (;;) {
		union {
			struct cmsghdr header;
			char room[CMSG_SPACE(sizeof(int) * 8)];
		} control;
		struct iovec vector = {bytes + total, size - total};
		struct msghdr message = {.msg_iov = &vector,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(ends[1], &message, 0);

		if (n <= 0)
			return total;
		total += (size_t)n;
		for (struct cmsghdr *h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
			for (size_t at = CMSG_LEN(0); at < h->cmsg_len; at += sizeof(int)) {
				int fd;

				memcpy(&fd, (char *)h + at, sizeof(fd));
				close(fd);
				++*ret_fds;
			}
		}
	}
}

START_TEST(everything_in_order)
{
	char bytes[64];
	unsigned fds = 0;

	put("one", 0);
	put("two", 5);
	put("three", 0);
	ck_assert_uint_eq(outbox.bytes, 3 + 3 + 5 + 5);
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), 0);
	ck_assert_uint_eq(outbox.bytes, 0);
	ck_assert_uint_eq(gone_count, 3);
	ck_assert_uint_eq(receive(bytes, sizeof(bytes), &fds), 16);
	ck_assert_mem_eq(bytes, "onetwo\0\x07\x0e\x15\x1cthree", 16);
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), 0); /* of nothing */
}
END_TEST

/* Much more than the socket takes at once: every byte arrives once. */
START_TEST(short_writes_go_on_where_they_stopped)
{
	const size_t bulk = 3000000;
	char *bytes = malloc(bulk + 100);
	uint8_t *expected = malloc(bulk);
	unsigned fds = 0, rounds = 0;
	size_t total = 0;
	int r;

	put("head", bulk);
	put("tail", 0);
	do {
		r = outbox_flush(&outbox, ends[0]);
		total += receive(bytes + total, bulk + 100 - total, &fds);
		ck_assert_uint_eq(outbox.bytes + total, bulk + 8);
		ck_assert_uint_eq(outbox.sent, total);
		rounds++;
	} while (r == -EAGAIN);
	ck_assert_int_eq(r, 0);
	ck_assert_uint_gt(rounds, 1);
	ck_assert_uint_eq(total, bulk + 8);
	ck_assert_mem_eq(bytes, "head", 4);
	for (size_t i = 0; i < bulk; i++)
		expected[i] = (uint8_t)(i * 7);
	ck_assert(memcmp(bytes + 4, expected, bulk) == 0);
	ck_assert_mem_eq(bytes + 4 + bulk, "tail", 4);
	free(expected);
	free(bytes);
}
END_TEST

START_TEST(many_parcels_need_several_calls)
{
	char bytes[4096];
	unsigned fds = 0;

	for (unsigned i = 0; i < 500; i++)
		put_end("frame");
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), 0);
	ck_assert_uint_eq(gone_count, 500);
	ck_assert_uint_eq(receive(bytes, sizeof(bytes), &fds), 2500);
}
END_TEST

/* Each descriptor rides on the first byte of its own frame: the reader gets no second one with the
 * same message. */
START_TEST(descriptors_ride_on_their_frame)
{
	char bytes[64];
	unsigned fds = 0;
	int first = dup(0), second = dup(0);

	put("a", 0);
	put_fd("bb", 0, first);
	put_fd("cc", 0, second);
	put("d", 0);
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), 0);
	ck_assert_int_eq(close(first), -1); /* sent and closed here */
	ck_assert_int_eq(close(second), -1);
	ck_assert_uint_eq(receive(bytes, sizeof(bytes), &fds), 6);
	ck_assert_mem_eq(bytes, "abbccd", 6);
	ck_assert_uint_eq(fds, 2);
}
END_TEST

START_TEST(what_is_dropped_is_closed_and_booked)
{
	int fd = dup(0);

	put_fd("never", 100, fd);
	outbox_done(&outbox);
	ck_assert_uint_eq(gone_bytes, 105);
	ck_assert_uint_eq(outbox.bytes, 0);
	ck_assert_int_eq(close(fd), -1);
}
END_TEST

START_TEST(a_broken_socket_says_so)
{
	close(ends[1]);
	ends[1] = -1;
	put("nobody", 0);
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), -EPIPE);
}
END_TEST

/* A 13-byte reply must not cost an allocation of its own: a client that reads nothing would make
 * the daemon hold many times what it is charged for. */
START_TEST(small_frames_share_memory)
{
	const unsigned count = 100000;
	char *bytes = malloc(count * 13);
	unsigned fds = 0;
	size_t total = 0;
	int r;

	for (unsigned i = 0; i < count; i++) {
		char frame[14];

		snprintf(frame, sizeof(frame), "%013u", i);
		put(frame, 0);
	}
	ck_assert_uint_eq(outbox.bytes, count * 13);
	ck_assert_uint_ge(outbox.memory, count * 13);
	ck_assert_uint_lt(outbox.memory, 2 * count * 13);
	do {
		r = outbox_flush(&outbox, ends[0]);
		put("", 0); /* joins a parcel that may be half sent */
		total += receive(bytes + total, count * 13 - total, &fds);
	} while (r == -EAGAIN);
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(total, count * 13);
	for (unsigned i = 0; i < count; i++) {
		char frame[14];

		snprintf(frame, sizeof(frame), "%013u", i);
		ck_assert_mem_eq(bytes + i * 13, frame, 13);
	}
	outbox_done(&outbox);
	ck_assert_uint_eq(outbox.memory, 0);
	free(bytes);
}
END_TEST

/* A reply that ends a request is told of as soon as it is written, not with others. */
START_TEST(ends_of_requests_stand_alone)
{
	put("a", 0);
	put_end("b");
	put("c", 0);
	put("d", 0);
	put_end("e");
	put_end("f");
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), 0);
	ck_assert_uint_eq(gone_count, 5);
	ck_assert_uint_eq(gone_bytes, 6);
}
END_TEST

START_TEST(the_first_is_replaced)
{
	char bytes[64];
	unsigned fds = 0;
	struct parcel *parcel;

	put_fd("with a descriptor", 0, dup(0));
	put_end("second");
	parcel = outbox_take_first(&outbox);
	ck_assert_uint_eq(outbox.bytes, 6);
	parcel_free(parcel);
	outbox_put_first(&outbox, make("without", 0));
	ck_assert_uint_eq(outbox.bytes, 13);
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), 0);
	ck_assert_uint_eq(receive(bytes, sizeof(bytes), &fds), 13);
	ck_assert_mem_eq(bytes, "withoutsecond", 13);
	ck_assert_uint_eq(fds, 0);
	ck_assert_uint_eq(outbox.memory, 0);
}
END_TEST

START_TEST(a_parcel_is_used_again_with_its_memory)
{
	struct parcel_pool pool;
	struct parcel *parcel, *again;
	const uint8_t *head;

	parcel_pool_init(&pool);
	parcel = parcel_take(&pool);
	wire_buffer_write(&parcel->head, "first", 5);
	head = parcel->head.bytes;
	parcel->ends_request = true;
	outbox_put(&outbox, parcel);
	ck_assert_int_eq(outbox_flush(&outbox, ends[0]), 0);
	ck_assert_uint_eq(pool.count, 1);
	again = parcel_take(&pool);
	ck_assert_ptr_eq(again, parcel);
	ck_assert_ptr_eq(again->head.bytes, head);
	ck_assert_uint_eq(again->head.count, 0);
	ck_assert(!again->ends_request);
	ck_assert_int_eq(again->fd, -1);
	parcel_free(again);
	parcel_pool_done(&pool);
	ck_assert_uint_eq(pool.count, 0);
}
END_TEST

START_TEST(spare_parcels_are_few_and_small)
{
	static struct parcel *parcels[LIMIT_SPARE_PIECES + 1];
	static const char large[LIMIT_SPARE_BYTES + 1];
	struct parcel_pool pool;

	parcel_pool_init(&pool);
	for (size_t i = 0; i <= LIMIT_SPARE_PIECES; i++)
		parcels[i] = parcel_take(&pool);
	for (size_t i = 0; i <= LIMIT_SPARE_PIECES; i++)
		parcel_free(parcels[i]);
	ck_assert_uint_eq(pool.count, LIMIT_SPARE_PIECES);
	parcels[0] = parcel_take(&pool);
	wire_buffer_write(&parcels[0]->head, large, sizeof(large));
	parcel_free(parcels[0]);
	ck_assert_uint_eq(pool.count, LIMIT_SPARE_PIECES - 1);
	parcel_pool_done(&pool);
}
END_TEST

Suite *outbox_suite(void)
{
	Suite *suite = suite_create("outbox");
	TCase *tcase = tcase_create("outbox");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, everything_in_order);
	tcase_add_test(tcase, short_writes_go_on_where_they_stopped);
	tcase_add_test(tcase, many_parcels_need_several_calls);
	tcase_add_test(tcase, descriptors_ride_on_their_frame);
	tcase_add_test(tcase, what_is_dropped_is_closed_and_booked);
	tcase_add_test(tcase, a_broken_socket_says_so);
	tcase_add_test(tcase, small_frames_share_memory);
	tcase_add_test(tcase, ends_of_requests_stand_alone);
	tcase_add_test(tcase, the_first_is_replaced);
	tcase_add_test(tcase, a_parcel_is_used_again_with_its_memory);
	tcase_add_test(tcase, spare_parcels_are_few_and_small);
	suite_add_tcase(suite, tcase);
	return suite;
}
