/* What draftd did between two looks at its statistics, as text. Pure: documents in, text out. */
#ifndef DRAFTCTL_TOP_VIEW_H
#define DRAFTCTL_TOP_VIEW_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Over the time from one document of draft_stats() to the next. */
struct top_rates {
	double seconds;
	double requests, rows, tokens, launches, errors; /* a second */
	double occupancy, busy; /* parts of one; NaN: nothing was launched */
};

/* `before` may be NULL, or of a draftd that has been restarted since: then all since the start. */
struct top_rates top_rates(json_t *before, json_t *now);

/* The smallest bucket end of latency `which` ("queue", "device", "total") that at least `part` of
 * what came between the two documents does not exceed, in microseconds; NaN if nothing came. */
double top_quantile_us(json_t *before, json_t *now, const char *which, double part);

#define TOP_LABEL_WIDTH 10 /* of the screen's first column */

/* The screen, or a line and the one that is to stand above all of them, each line ending in a
 * newline. NULL without memory; else the caller's to free. */
char *top_screen(json_t *before, json_t *now, const char *devices);
char *top_line_head(json_t *now);
char *top_line(json_t *before, json_t *now);

#endif
