/* The terminal of a command that fills the screen: keys as they are pressed, and the alternate
 * screen.
 *
 * Put back on every way out that a program sees: terminal_close(), exit(), and each signal that
 * ends or stops it, also in the middle of a wait. One at a time; main's thread. */
#ifndef DRAFTCTL_TERMINAL_H
#define DRAFTCTL_TERMINAL_H

#include "kernels/error_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether stdin and stdout are a terminal that can do this. */
bool terminal_usable(void);

/* Returns 0 or -errno with `error`. */
int terminal_open(struct error_text *error);
void terminal_close(void); /* not open is fine */

/* Columns and lines, 80 x 24 if it does not say. */
void terminal_size(unsigned *ret_columns, unsigned *ret_lines);

/* Shows `text`, lines that each end in a newline, in place of what was there. What does not fit is
 * cut; what is no printable ASCII becomes '?', so that each byte is a column. */
void terminal_show(const char *text);

enum terminal_event {
	TERMINAL_TIMEOUT,
	TERMINAL_KEY,    /* `*ret_key` */
	TERMINAL_REDRAW, /* it has another size, or was somebody else's meanwhile */
	TERMINAL_GONE,   /* no more keys will come */
};

/* Waits until `until_ns` of the monotonic clock. */
enum terminal_event terminal_wait(int64_t until_ns, char *ret_key);

#endif
