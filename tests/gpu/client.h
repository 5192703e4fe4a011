/* A connection to a draftd that a test started, which drafts from base logits of zeros. A new
 * region is zeroed, so what comes back over one must be what inline zeros gave; and each draft
 * writes its logits into its region, which so is never zero when it is given back. */
#ifndef TESTS_GPU_CLIENT_H
#define TESTS_GPU_CLIENT_H

#include "service.h"

#include <stdbool.h>
#include <stdint.h>

#define CLIENT_ROWS       4
#define CLIENT_STEPS      7
#define CLIENT_VOCAB      129280
#define CLIENT_VOCAB_TEXT "129280"

/* Of device memory, for the service. */
#define CLIENT_LIMIT_TEXT "256M"
#define CLIENT_LIMIT      (256ull << 20)

struct client {
	struct draft *draft;
	uint64_t bytes; /* of base and draft logits together */
	uint32_t expected[CLIENT_ROWS * CLIENT_STEPS];
};

/* Makes the model that a service needs for it. */
void client_make_model(const char *programs, const char *path);

void client_open(struct client *c, const struct service *service);

/* A draft whose base and logits are the halves of a region. */
struct draft_request client_request(const struct client *c, struct draft_region *region);

bool client_drafts_well(struct client *c, struct draft_region *region);

#endif
