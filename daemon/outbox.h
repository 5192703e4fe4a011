/* What a connection still has to send: frames in order, some with bulk bytes behind their head or a
 * descriptor on their first byte. Small frames that nobody waits to see written share a parcel, so
 * that many unread replies cost their bytes and not an allocation each. Loop thread. The outbox
 * owns what it was given until it is sent or dropped. Never blocks. */
#ifndef DAEMON_OUTBOX_H
#define DAEMON_OUTBOX_H

#include "list.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parcels that were sent, with the memory of their heads, for the next ones. */
struct parcel_pool {
	struct link spare; /* at most LIMIT_SPARE_PIECES, of LIMIT_SPARE_BYTES */
	unsigned count;
};

struct parcel { /* a frame to send, or several small ones */
	struct link link;
	struct parcel_pool *pool; /* where it goes when it is freed, or NULL */
	struct wire_buffer head;  /* the frame, or what comes before `bulk` */
	uint8_t *bulk;            /* malloc'd, or NULL */
	size_t bulk_bytes;
	size_t sent;              /* bytes of both */
	int fd;                   /* rides on the first byte, closed when sent; -1: none */
	uint32_t request, region; /* of a parcel with `fd`: whose they are */
	bool ends_request;        /* a request in flight ends with it: never shares */
};

struct outbox {
	struct link parcels;
	size_t bytes;  /* not sent yet */
	uint64_t sent; /* bytes that the socket has taken, since the beginning */
	size_t memory; /* allocated for all parcels */
	void (*gone)(
		void *user, const struct parcel *parcel); /* sent or dropped, about to be freed */
	void *user;
};

/* An empty parcel, or NULL without memory. */
struct parcel *parcel_new(void);
void parcel_free(struct parcel *parcel); /* NULL is fine */

void parcel_pool_init(struct parcel_pool *pool);
void parcel_pool_done(struct parcel_pool *pool);

/* An empty parcel, a spare one if there is one; it comes back when it is freed. */
struct parcel *parcel_take(struct parcel_pool *pool);

void outbox_init(
	struct outbox *outbox, void (*gone)(void *user, const struct parcel *parcel), void *user);

/* Drops everything. */
void outbox_done(struct outbox *outbox);

/* Puts a parcel, whose head is complete, at the end. It may be freed at once: when the last one has
 * room for it and neither carries a descriptor, bulk bytes or the end of a request. `gone` is not
 * called then. */
void outbox_put(struct outbox *outbox, struct parcel *parcel);

/* Takes the first parcel, of which nothing has been sent, back; the caller owns it, and `gone` is
 * not called. Puts one in its place. */
struct parcel *outbox_take_first(struct outbox *outbox);
void outbox_put_first(struct outbox *outbox, struct parcel *parcel);

/* Sends what the socket takes, but not much more than LIMIT_TURN_OUTPUT_BYTES. Returns 0 when all
 * is sent; -EAGAIN when there is more to send once the socket is writable; -ETOOMANYREFS when the
 * kernel does not pass the first parcel's descriptor on, because this user has too many on their
 * way; or another -errno when the socket is broken. */
int outbox_flush(struct outbox *outbox, int fd);

#endif
