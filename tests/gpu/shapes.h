/* The shapes of three real models, and one that is nothing but awkward; random weights. */
#ifndef TESTS_GPU_SHAPES_H
#define TESTS_GPU_SHAPES_H

#include "harness.h"

struct shape {
	const char *name;
	uint32_t vocab, rank;
};

#define SHAPES 4
extern const struct shape shapes[SHAPES];

void shape_open(const struct shape *shape, struct checkpoint *ret);
void shape_close(struct checkpoint *checkpoint);

/* Random rows: temperatures 1, or mixed (greedy ones among them). */
void fill_request(struct test_case *c, bool mixed);

#endif
