/* The percentile spectrum of a load as CSV: ever closer to 100%, as far as there are requests. */
#ifndef DRAFTCTL_SPECTRUM_H
#define DRAFTCTL_SPECTRUM_H

#include "load.h"

/* The columns: a share of the requests, and the latency that it does not exceed, in microseconds,
 * as a whole and of each phase; from 0 to 1. malloc'd; NULL without memory. */
char *spectrum_csv(const struct load_result *result);

#endif
