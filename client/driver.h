/* NVIDIA's driver, found at run time: programs without it link and run. Maps device memory that
 * another process exported, and copies between it and host memory.
 *
 * One thread at a time uses a driver and its mappings. Every function may block as long as the
 * driver does; the caller's current context is as it was when they return. `why` gets one
 * sentence. */
#ifndef CLIENT_DRIVER_H
#define CLIENT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct driver;

/* Device memory in this process. Freed by driver_unmap(). */
struct driver_mapping {
	uint64_t address; /* 0: none */
	uint64_t bytes;
	int device;    /* whose primary context is held meanwhile */
	void *context; /* that one */
};

/* Returns 0, or -ENOTSUP: there is no libcuda.so.1 of CUDA 11.4 or newer, or it has no device. */
int driver_open(struct driver **ret, char *why, size_t why_bytes);
void driver_close(struct driver *driver); /* NULL is fine; its mappings are gone */

/* Maps the allocation of `bytes` that `fd`, which stays the caller's, stands for, on the GPU of
 * that UUID, and holds the GPU's primary context. Returns 0; -ENODEV: this process sees no such
 * GPU; -ENOMEM; -EIO: it can't be mapped. */
int driver_map(struct driver *driver, const char *uuid, int fd, uint64_t bytes,
	struct driver_mapping *ret, char *why, size_t why_bytes);
void driver_unmap(struct driver *driver, struct driver_mapping *mapping); /* none is fine */

/* A view, for copies, of what is mapped already; holds the context alone. As driver_map(). */
int driver_hold(struct driver *driver, const char *uuid, uint64_t address, uint64_t bytes,
	struct driver_mapping *ret, char *why, size_t why_bytes);
void driver_drop(struct driver *driver, struct driver_mapping *mapping); /* none is fine */

/* Copies to and from the mapping at `offset`; complete when they return. 0, or -EIO. */
int driver_write(struct driver *driver, const struct driver_mapping *mapping, uint64_t offset,
	const void *from, size_t bytes, char *why, size_t why_bytes);
int driver_read(struct driver *driver, const struct driver_mapping *mapping, uint64_t offset,
	void *to, size_t bytes, char *why, size_t why_bytes);

#endif
