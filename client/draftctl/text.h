/* Figures as people read them, returned by value: printf("%s", text_duration(ns).at).
 *
 * No state, usable from any thread. */
#ifndef DRAFTCTL_TEXT_H
#define DRAFTCTL_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_BYTES 256 /* any name and key of the protocol's, whole */

struct text {
	char at[TEXT_BYTES];
};

struct text text_duration(double ns);     /* three digits: "870 ns", "12.3 us", "1.24 s" */
struct text text_count(uint64_t count);   /* "1,234,567" */
struct text text_rate(double per_second); /* "1,234,567"; "27.6" below a hundred */
/* What somebody else wrote, fit for a terminal: control characters and bytes that are not UTF-8
 * become '?', and what is too long is cut, between characters. */
struct text text_plain(const char *foreign);
/* The same of any length, to a stream. */
void text_put_plain(FILE *to, const char *foreign);
struct text text_bytes(uint64_t bytes); /* "74.2 MiB" */

/* Closes a stream of open_memstream() and gives what was written to it, the caller's to free; NULL
 * without memory. `*text` is the variable that the stream was opened with. */
char *text_close(FILE *to, char **text);

#endif
