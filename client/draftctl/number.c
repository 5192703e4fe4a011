#include "number.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

int number_parse_integer(const char *text, int64_t *ret)
{
	const char *digits = text[0] == '-' ? text + 1 : text;
	long long value;
	char *end;

	if (digits[0] == '\0')
		return -EINVAL;
	for (const char *c = digits; *c != '\0'; c++)
		if (!is_digit(*c))
			return -EINVAL;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno != 0)
		return -ERANGE;
	*ret = value;
	return 0;
}

int number_parse_real(const char *text, double *ret)
{
	const char *first = text[0] == '-' ? text + 1 : text;
	double value;
	char *end;

	/* strtod() also takes blanks, signs, hexadecimal, "inf" and "nan": the first character and
	 * the alphabet exclude them. */
	if (!is_digit(first[0]) && !(first[0] == '.' && is_digit(first[1])))
		return -EINVAL;
	if (text[strspn(text, "0123456789.eE+-")] != '\0')
		return -EINVAL;
	errno = 0;
	value = strtod(text, &end);
	if (*end != '\0')
		return -EINVAL;
	if (errno == ERANGE || !isfinite(value))
		return -ERANGE;
	*ret = value;
	return 0;
}
