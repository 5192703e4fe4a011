/* Sizes of what safetensors files hold, for reading and writing them. Pure functions; any thread.
 */
#ifndef KERNELS_DTYPE_H
#define KERNELS_DTYPE_H

#include "kernels/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

/* Bits of one element, or 0 for a dtype that is newer than this program: its length can't be
 * checked. */
unsigned dtype_bits(const char *name, enum tensor_dtype *ret_dtype);

/* The bytes that a shape needs. False when the product doesn't fit 64 bits or ends inside a byte.
 */
bool dtype_shape_bytes(const uint64_t *shape, unsigned count, unsigned bits, uint64_t *ret_bytes);

#endif
