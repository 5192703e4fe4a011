#include "spectrum.h"

#include "text.h"

#include <math.h>
#include <stdio.h>

#define TICKS 8 /* from one halving of the distance to 1 to the next */

static void write_row(FILE *to, const struct load_result *result, double fraction)
{
	const struct histogram *columns[] = {&result->total, &result->waited, &result->wire,
		&result->served, &result->queue, &result->device};

	fprintf(to, "%.9g", fraction);
	for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
		fprintf(to, ",%.3f", (double)histogram_at(columns[c], fraction) / 1e3);
	fputc('\n', to);
}

char *spectrum_csv(const struct load_result *result)
{
	double rest = 1; /* the distance to 1 */
	char *text = NULL;
	size_t bytes;
	FILE *to;

	to = open_memstream(&text, &bytes);
	if (to == NULL)
		return NULL;
	fputs("fraction,seen_us,late_us,seen_less_total_us,total_us,queue_us,device_us\n", to);
	for (int i = 0; rest * (double)result->total.count >= 1; i++) {
		write_row(to, result, 1 - rest);
		rest = pow(0.5, i / TICKS) * (1 - (double)(i % TICKS + 1) / (2 * TICKS));
	}
	if (result->total.count > 0)
		write_row(to, result, 1);
	return text_close(to, &text);
}
