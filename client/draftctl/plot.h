/* Pictures, drawn by gnuplot, which need not be there. */
#ifndef DRAFTCTL_PLOT_H
#define DRAFTCTL_PLOT_H

#include "kernels/error_text.h"

/* Whether gnuplot is there and runs: 0, or -errno with `error` saying what to install. */
int plot_check(struct error_text *error);

/* Draws a spectrum (spectrum_csv()) as a PNG, which replaces `path` whole or not at all. Blocks
 * until gnuplot has ended. Returns 0, or -errno with `error`. */
int plot_spectrum(const char *path, const char *title, const char *csv, struct error_text *error);

#endif
