/* The memory of a region: a memfd that this process maps, or an allocation on a device. Blocking
 * (the kernel may have to find and clear pages), so called by worker threads; no shared state. */
#ifndef DAEMON_REGION_MEMORY_H
#define DAEMON_REGION_MEMORY_H

#include "kernels/memory.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stdint.h>

/* Makes a memfd of `bytes`, sealed in its size, and maps it; it has no pages yet. The caller owns
 * both results. Returns 0, or -EBADMSG with RESOURCE_EXHAUSTED in `fault`. */
int region_memory_create(
	uint64_t bytes, uint8_t **ret_memory, int *ret_fd, struct message_fault *fault);

/* Maps the first `bytes` of a client's descriptor, which stays the caller's, if that can't turn
 * into a fault later: a memfd that can't shrink, of ordinary pages, writable, and long enough. It
 * may lack pages. Returns 0, or -EBADMSG with the reason. */
int region_memory_import(int fd, uint64_t bytes, uint8_t **ret_memory, struct message_fault *fault);

/* Finds pages for `bytes` from `offset` (of the memfd and of the mapping alike) where there are
 * none. Returns 0, or -EBADMSG with RESOURCE_EXHAUSTED. */
int region_memory_back(int fd, uint64_t offset, uint64_t bytes, struct message_fault *fault);

/* Unmaps `bytes` at `memory`, the start of a page. With `take_pages` their pages are taken out of
 * the memfd as well: they are this process's, and somebody may still hold a descriptor. Whatever
 * they write there later is their own. */
void region_memory_release(uint8_t *memory, uint64_t bytes, bool take_pages);

/* Device memory of `bytes` on the device `uuid`: an import of `*fd`, which stays the caller's, or
 * if that is -1, made, with its descriptor in `*fd`. Returns 0; -EBADMSG with the reason in
 * `fault`, or with DEVICE_LOST, and then `why` says how. */
int region_memory_on_device(struct markov_memory *memory, const char *uuid, uint64_t bytes, int *fd,
	struct device_memory *ret, struct message_fault *fault, struct error_text *why);

#endif
