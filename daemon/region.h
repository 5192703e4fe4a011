/* Shared-memory regions: from the call that opens one to the last use.
 *
 * Loop thread. Finding pages and giving them back run in libuv's workers, since a gigabyte of them
 * takes longer than clients may be kept waiting, and in slices, so that a small region does not
 * wait for a large one. So does pinning them for the backend, where it wants that: it is undone
 * before the first page goes, and what can't be pinned is as usable without. The pool counts what
 * exists, that is until its pages are gone. A region frees itself when it is closed, no request
 * holds it, and its memory is gone. */
#ifndef DAEMON_REGION_H
#define DAEMON_REGION_H

#include "kernels/memory.h"
#include "list.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct request;

struct region_pool {
	uv_loop_t *loop;
	uint32_t count;
	uint64_t bytes, bytes_max; /* of all regions */
	bool ending;               /* no region will be made any more: clients keep their pages */
	bool lost;                 /* the device is: nothing is asked of it any more */
	struct markov_memory *memory; /* of the backend */
};

struct region {
	struct link link; /* the connection's list, while open */
	struct region_pool *pool;
	uint32_t id;
	uint64_t bytes;
	uint8_t *memory;
	enum memory_kind kind;
	uint64_t done;  /* bytes that have been found pages for, or that have been given back */
	unsigned holds; /* requests that use it */
	bool open;
	int fd; /* while opening: made, or to be imported; -1 afterwards */
	bool imported;
	bool take_pages; /* while closing: they are the daemon's, and go back */
	bool unpin;      /* while closing */
	struct request
		*waiting; /* the call that opens or closes it; its owner frees it in the callback */
	void (*opened)(struct region *region);
	void (*closed)(struct region *region);
	struct message_fault fault;  /* of opening; code ERROR_NONE: none */
	struct error_text plain_why; /* it is not pinned where the backend wants that; "" */
	uv_work_t work;
};

/* Starts to make (`fd` -1) or import a region. Calls `opened` later on the loop thread: then either
 * `fault.code` is set and the region is freed after the call; or it is open, and `fd` is a made
 * region's descriptor, which the callback may take (set it to -1) or leave. `closed` is called when
 * a closed region's memory is gone. `fd` is closed in every case. Returns 0, -ENOBUFS when the
 * pool's bytes are used up, or -ENOMEM; then nothing is called. */
int region_start(struct region_pool *pool, uint32_t id, uint64_t bytes, int fd,
	struct request *waiting, void (*opened)(struct region *region),
	void (*closed)(struct region *region));

void region_hold(struct region *region);
void region_drop(struct region *region); /* NULL is fine */

/* Closes an open region; it goes when nothing holds it. `waiting` (or NULL) is kept for `closed`.
 */
void region_close(struct region *region, struct request *waiting);

#endif
