/* The list of devices that an operator gives, and how it is cut, in order, into replicas: groups of
 * tensor_parallel devices each. Pure functions; any thread. */
#ifndef DAEMON_DEVICES_H
#define DAEMON_DEVICES_H

#include "kernels/markov.h"
#include "refusal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Checks a list ("0,1", "GPU-…", "CPU,CPU"; NULL: the first device) for a backend, with so many
 * devices a group; 0: all of them, but one each on the CPU. Returns 0 with the devices of a group
 * and the number of groups; or -EINVAL with `refusal`, to be placed; its sentence names the field,
 * the limit and the fix. Whether the host has the devices is the backend's to say. */
int devices_check(const char *list, enum markov_backend backend, uint32_t tensor_parallel,
	uint32_t *ret_tensor_parallel, uint32_t *ret_replicas, struct refusal *refusal);

/* The part of a checked list that is the group `replica`, with its NUL. False: `text` is too short.
 */
bool devices_of(const char *list, uint32_t tensor_parallel, uint32_t replica, char *text,
	size_t text_bytes);

#endif
