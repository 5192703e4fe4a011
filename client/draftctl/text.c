#include "text.h"

#include "proto/message.h"
#include "proto/sentence.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value below 1000 with three digits, less than that only where digits would be false. */
static struct text three_digits(double value, const char *unit)
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
	struct text text;

	snprintf(text.at, sizeof(text.at), "%.*f %s", decimals, value, unit);
	return text;
}

struct text text_duration(double ns)
{
	struct text text;

	if (ns < 999.5) {
		snprintf(text.at, sizeof(text.at), "%.0f ns", ns);
		return text;
	}
	if (ns < 999.5e3)
		return three_digits(ns / 1e3, "us");
	if (ns < 999.5e6)
		return three_digits(ns / 1e6, "ms");
	return three_digits(ns / 1e9, "s");
}

struct text text_count(uint64_t count)
{
	char digits[24];
	struct text text;
	size_t length, out = 0;

	length = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, count);
	for (size_t i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			text.at[out++] = ',';
		text.at[out++] = digits[i];
	}
	text.at[out] = '\0';
	return text;
}

struct text text_rate(double per_second)
{
	struct text text;

	if (per_second >= 99.95)
		return text_count((uint64_t)llround(per_second));
	snprintf(text.at, sizeof(text.at), "%.*f", per_second < 9.995 ? 2 : 1, per_second);
	return text;
}

void text_put_plain(FILE *to, const char *foreign)
{
	char piece[TEXT_BYTES];

	while (*foreign) {
		const int bytes = sentence_cut(foreign, sizeof(piece) - 1);

		wire_text_copy((struct wire_text){foreign, (uint32_t)bytes}, piece, sizeof(piece));
		fputs(piece, to);
		foreign += bytes;
	}
}

struct text text_bytes(uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t unit = 0;
	struct text text;

	if (bytes < 1024) {
		snprintf(text.at, sizeof(text.at), "%" PRIu64 " byte%s", bytes, sentence_s(bytes));
		return text;
	}
	for (value /= 1024; value >= 999.5; value /= 1024)
		unit++;
	return three_digits(value, units[unit]);
}

struct text text_plain(const char *foreign)
{
	struct text text;

	wire_text_copy(
		(struct wire_text){foreign, (uint32_t)strlen(foreign)}, text.at, sizeof(text.at));
	return text;
}

char *text_close(FILE *to, char **text)
{
	if (fclose(to) == 0)
		return *text;
	free(*text);
	return NULL;
}
