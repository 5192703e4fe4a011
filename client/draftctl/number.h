/* Numbers as people type them: decimal, whole text, nothing assumed.
 *
 * Pure functions, usable from any thread. */
#ifndef DRAFTCTL_NUMBER_H
#define DRAFTCTL_NUMBER_H

#include <stdint.h>

/* A decimal integer with an optional minus sign and nothing around it. Returns 0; -EINVAL when the
 * text is no such number, -ERANGE when it does not fit. */
int number_parse_integer(const char *text, int64_t *ret);

/* A finite decimal number ("0.7", "1e-3"): no hexadecimal, infinity, NaN or blanks. Errors as
 * above; a number too small to be told from zero is -ERANGE, too. */
int number_parse_real(const char *text, double *ret);

#endif
