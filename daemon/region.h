/* Shared-memory regions, of host or of device memory: from the call that opens one to the last use.
 *
 * Loop thread. Finding pages and giving them back run in libuv's workers, since a gigabyte of them
 * takes longer than clients may be kept waiting, and in slices, so that a small region does not
 * wait for a large one. So does pinning them for the backend, where it wants that: it is undone
 * before the first page goes, and what can't be pinned is as usable without. A device region is
 * made and given up in one piece: there are no pages to find. The pool counts what exists, that is
 * until its pages are gone, host and device memory apart. A region frees itself when it is closed,
 * no request holds it, and its memory is gone. */
#ifndef DAEMON_REGION_H
#define DAEMON_REGION_H

#include "kernels/memory.h"
#include "list.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct region;
struct request;
struct user;

struct region_pool {
	uv_loop_t *loop;
	uint32_t count;
	uint64_t bytes, bytes_max;                      /* of all regions of host memory */
	uint64_t device_bytes, device_bytes_max;        /* of device memory */
	uint64_t user_bytes_max, user_device_bytes_max; /* of those of one user */
	bool ending; /* no region will be made any more: clients keep their pages */
	bool lost;   /* the device is: nothing is asked of it any more */
	struct markov_memory *memory; /* of the backend */
};

/* What a client asks for, and who is told. */
struct region_order {
	uint32_t id;
	struct user *user; /* whose it is; the region holds it */
	uint64_t bytes;
	enum region_memory memory;
	char device[MESSAGE_UUID_BYTES]; /* a UUID; "": the first, or the import's own */
	int fd; /* to be imported; -1: memory is to be made, and this becomes its own; -1 once open
		 */
	struct request
		*waiting; /* the call that opens or closes it; its owner frees it in the callback */
	void (*opened)(struct region *region);
	void (*closed)(struct region *region);
};

struct region {
	struct link link; /* the connection's list, while open */
	struct region_pool *pool;
	struct region_order order;
	uint64_t bytes; /* at least as many as asked for */
	uint8_t *memory;
	enum memory_kind kind;
	struct device_memory device; /* of device memory; its address is `memory` */
	uint64_t done;  /* bytes that have been found pages for, or that have been given back */
	unsigned holds; /* requests that use it */
	bool open;
	bool imported;
	bool take_pages;            /* while closing: they are the daemon's, and go back */
	bool ask_device;            /* while closing: to unpin or free it */
	struct message_fault fault; /* of opening; code ERROR_NONE: none */
	/* what a device said: why a region is not pinned where the backend wants that, or was
	 * refused; "" */
	struct error_text device_why;
	uv_work_t work;
};

/* Starts to make or import a region. Calls `opened` later on the loop thread: then either
 * `fault.code` is set and the region is freed after the call; or it is open, and `order.fd` is a
 * made region's descriptor, which the callback may take (set it to -1) or leave. `closed` is called
 * when a closed region's memory is gone. The order's `fd` is closed in every case. Returns 0,
 * -ENOBUFS when the pool's bytes of that memory are used up, -EDQUOT when the user's are, or
 * -ENOMEM; then nothing is called.
 * Device memory is only ordered where markov_memory_granularity() is not 0. */
int region_start(struct region_pool *pool, const struct region_order *order);

void region_hold(struct region *region);
void region_drop(struct region *region); /* NULL is fine */

/* Closes an open region; it goes when nothing holds it. `waiting` (or NULL) is kept for `closed`.
 */
void region_close(struct region *region, struct request *waiting);

#endif
