/* Memory of every kind for the rows of a case, poisoned. The test's. */
#ifndef TESTS_GPU_LAYOUT_H
#define TESTS_GPU_LAYOUT_H

#include "harness.h"

#define POISON       0xC5C5
#define MEMORY_KINDS 3u

/* Elements of one kind; `host` is what the test reads and writes. */
struct elements {
	enum memory_kind memory;
	size_t bytes;
	uint16_t *host;
	void *device;
};

void elements_to_device(struct elements *e);
void elements_from_device(struct elements *e);
char *elements_address(const struct elements *e);

/* Rows in one kind of memory, or each in another: elements for all rows of every kind in use. */
struct layout {
	bool mixed;
	unsigned shift;
	enum memory_kind memory;
	struct elements of[MEMORY_KINDS];
};

/* Of `count` elements. Mixed rows of two layouts with different shifts lie in different kinds. */
void layout_new(struct layout *l, const struct manner *m, unsigned shift, size_t count);
enum memory_kind layout_kind(const struct layout *l, uint32_t row);
void layout_free(struct layout *l);

#endif
