#include "outbox.h"

#include "limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FLUSH_VECTORS 64

struct parcel *parcel_new(void)
{
	struct parcel *parcel = malloc(sizeof(*parcel));

	if (!parcel)
		return NULL;
	*parcel = (struct parcel){.fd = -1};
	link_init(&parcel->link);
	wire_buffer_init(&parcel->head);
	return parcel;
}

void parcel_free(struct parcel *parcel)
{
	struct parcel_pool *pool;

	if (!parcel)
		return;
	if (parcel->fd >= 0)
		close(parcel->fd);
	free(parcel->bulk);
	pool = parcel->pool;
	if (pool && pool->count < LIMIT_SPARE_PIECES &&
		parcel->head.capacity <= LIMIT_SPARE_BYTES) {
		link_append(pool->spare.next, &parcel->link); /* the warmest first */
		pool->count++;
		return;
	}
	wire_buffer_done(&parcel->head);
	free(parcel);
}

void parcel_pool_init(struct parcel_pool *pool)
{
	link_init(&pool->spare);
	pool->count = 0;
}

struct parcel *parcel_take(struct parcel_pool *pool)
{
	struct link *link = link_pop(&pool->spare);
	struct parcel *parcel;

	if (link) {
		struct wire_buffer head;

		parcel = LINK_OWNER(link, struct parcel, link);
		head = parcel->head;
		wire_buffer_clear(&head);
		*parcel = (struct parcel){.fd = -1, .head = head};
		link_init(&parcel->link);
		pool->count--;
	} else {
		parcel = parcel_new();
	}
	if (parcel)
		parcel->pool = pool;
	return parcel;
}

void parcel_pool_done(struct parcel_pool *pool)
{
	struct parcel *parcel;

	while (pool->count) {
		parcel = parcel_take(pool);
		parcel->pool = NULL;
		parcel_free(parcel);
	}
}

static size_t parcel_bytes(const struct parcel *parcel)
{
	return parcel->head.count + parcel->bulk_bytes;
}

static size_t parcel_memory(const struct parcel *parcel)
{
	return sizeof(*parcel) + parcel->head.capacity + parcel->bulk_bytes;
}

static struct parcel *parcel_of(struct link *link)
{
	return LINK_OWNER(link, struct parcel, link);
}

void outbox_init(
	struct outbox *outbox, void (*gone)(void *user, const struct parcel *parcel), void *user)
{
	*outbox = (struct outbox){.gone = gone, .user = user};
	link_init(&outbox->parcels);
}

struct parcel *outbox_take_first(struct outbox *outbox)
{
	struct parcel *parcel = parcel_of(link_pop(&outbox->parcels));

	outbox->bytes -= parcel_bytes(parcel) - parcel->sent;
	outbox->memory -= parcel_memory(parcel);
	return parcel;
}

static void drop_first(struct outbox *outbox)
{
	struct parcel *parcel = outbox_take_first(outbox);

	outbox->gone(outbox->user, parcel);
	parcel_free(parcel);
}

void outbox_done(struct outbox *outbox)
{
	while (!link_alone(&outbox->parcels))
		drop_first(outbox);
}

static bool may_share(const struct parcel *parcel)
{
	return parcel->fd < 0 && !parcel->bulk && !parcel->ends_request;
}

/* Copies a small parcel behind the last one's bytes. False: it must stand alone. */
static bool join_last(struct outbox *outbox, const struct parcel *parcel)
{
	struct parcel *last;
	size_t capacity;

	if (link_alone(&outbox->parcels))
		return false;
	last = parcel_of(outbox->parcels.prev);
	if (!may_share(parcel) || !may_share(last) ||
		last->head.count + parcel->head.count > LIMIT_PARCEL_BYTES)
		return false;
	capacity = last->head.capacity;
	if (wire_buffer_write(&last->head, parcel->head.bytes, parcel->head.count) < 0) {
		last->head.failed = false; /* what it had is still there */
		return false;
	}
	outbox->memory += last->head.capacity - capacity;
	return true;
}

void outbox_put(struct outbox *outbox, struct parcel *parcel)
{
	outbox->bytes += parcel_bytes(parcel);
	if (join_last(outbox, parcel)) {
		parcel_free(parcel);
		return;
	}
	outbox->memory += parcel_memory(parcel);
	link_append(&outbox->parcels, &parcel->link);
}

void outbox_put_first(struct outbox *outbox, struct parcel *parcel)
{
	outbox->bytes += parcel_bytes(parcel);
	outbox->memory += parcel_memory(parcel);
	link_append(outbox->parcels.next, &parcel->link);
}

static unsigned add_vector(
	struct iovec *vector, unsigned count, const uint8_t *bytes, size_t total, size_t skip)
{
	if (skip >= total)
		return count;
	/* sendmsg() does not write through the pointer; iovec has no const. */
	vector[count].iov_base = (void *)(uintptr_t)(bytes + skip);
	vector[count].iov_len = total - skip;
	return count + 1;
}

/* Lists the bytes of as many parcels as one sendmsg() may carry. One with a descriptor begins a
 * message of its own: the kernel attaches descriptors to the first byte of the call. `ret_fd` is
 * the one to attach. */
static unsigned fill_vectors(const struct outbox *outbox, struct iovec *vectors, int *ret_fd)
{
	unsigned count = 0;

	*ret_fd = -1;
	for (struct link *link = outbox->parcels.next; link != &outbox->parcels;
		link = link->next) {
		const struct parcel *parcel = parcel_of(link);
		size_t head_sent =
			parcel->sent < parcel->head.count ? parcel->sent : parcel->head.count;

		if (count + 2 > FLUSH_VECTORS)
			break;
		if (parcel->fd >= 0 && parcel->sent == 0) {
			if (count)
				break;
			*ret_fd = parcel->fd;
		}
		count = add_vector(
			vectors, count, parcel->head.bytes, parcel->head.count, head_sent);
		count = add_vector(
			vectors, count, parcel->bulk, parcel->bulk_bytes, parcel->sent - head_sent);
	}
	return count;
}

static void took(struct outbox *outbox, size_t bytes)
{
	outbox->sent += bytes;
	while (bytes) {
		struct parcel *parcel = parcel_of(outbox->parcels.next);
		size_t left = parcel_bytes(parcel) - parcel->sent;
		size_t part = bytes < left ? bytes : left;

		parcel->sent += part;
		outbox->bytes -= part;
		bytes -= part;
		if (part == left)
			drop_first(outbox);
	}
}

int outbox_flush(struct outbox *outbox, int fd)
{
	size_t sent = 0;

	while (!link_alone(&outbox->parcels)) {
		struct iovec vectors[FLUSH_VECTORS];
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control;
		struct msghdr message = {.msg_iov = vectors};
		int attached;
		ssize_t n;

		/* A client that reads as fast as this writes must not keep the others waiting. */
		if (sent >= LIMIT_TURN_OUTPUT_BYTES)
			return -EAGAIN;
		message.msg_iovlen = fill_vectors(outbox, vectors, &attached);
		if (attached >= 0) {
			memset(&control, 0, sizeof(control));
			control.header.cmsg_level = SOL_SOCKET;
			control.header.cmsg_type = SCM_RIGHTS;
			control.header.cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(&control.header), &attached, sizeof(attached));
			message.msg_control = &control;
			message.msg_controllen = sizeof(control.bytes);
		}
		/* Most replies are one piece, for which send() takes a seventh less. */
		if (message.msg_iovlen == 1 && attached < 0)
			n = send(fd, vectors[0].iov_base, vectors[0].iov_len,
				MSG_NOSIGNAL | MSG_DONTWAIT);
		else
			n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno; /* EAGAIN among others */
		}
		sent += (size_t)n;
		took(outbox, (size_t)n);
	}
	return 0;
}
