/* What tests see of a libcuda.so.1 without a GPU: the functions that libdraft calls, over memfds.
 * An allocation's descriptor is a memfd, device addresses are addresses of this process. */
#ifndef TESTS_UNIT_CLIENT_LIBCUDA_FAKE_H
#define TESTS_UNIT_CLIENT_LIBCUDA_FAKE_H

#define FAKE_UUID "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f" /* of its only device */

/* Exported as `fake`. Counts what is held now. */
struct fake {
	int fail_at; /* the so-manieth call that can fail does; 0: none */
	int calls;   /* that can fail */
	int handles, ranges, mappings, contexts;
	int current; /* contexts on the thread's stack */
};

#endif
