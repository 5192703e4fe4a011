/* The lines about what draftd computes on: each device, and of several replicas what each one has.
 *
 * Any thread; the caller owns what is given. */
#ifndef DRAFTCTL_DEVICES_H
#define DRAFTCTL_DEVICES_H

#include "client/draft.h"

#include <jansson.h>
#include <stdio.h>

/* `stats` is a document of draft_stats(); what it does not tell is left out. Labels take `width`
 * columns. */
void devices_print(FILE *to, const struct draft *draft, json_t *stats, int width);

#endif
