/* What sentences for people are made of, in every room: names that are cut to fit, and counts with
 * the word behind them. No state; any thread. */
#ifndef PROTO_SENTENCE_H
#define PROTO_SENTENCE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* How many bytes of `text` to show: all, or at most `most`, of UTF-8 only whole characters. (Bytes
 * that are no UTF-8 are counted as they come.) `text` needs no end behind `most` bytes. */
static inline int sentence_cut(const char *text, size_t most)
{
	const size_t bytes = strnlen(text, most);

	if (bytes < most)
		return (int)bytes;
	/* The last character's first byte says how many it has: 0xc0 and above two, 0xe0 three,
	 * 0xf0 four. */
	for (size_t back = 1; back <= 3 && back <= bytes; back++) {
		const unsigned char c = (unsigned char)text[bytes - back];
		const size_t whole = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

		if (c >= 0xc0 && whole > back)
			return (int)(bytes - back);
		if (c < 0x80 || c >= 0xc0)
			break;
	}
	return (int)bytes;
}

/* The arguments of a "%.*s" that shows so much of `text`. */
#define CUT(most, text) sentence_cut((text), (most)), (text)

/* vsnprintf() that cuts between characters; `bytes` is not 0. */
static inline void __attribute__((format(printf, 3, 0)))
sentence_print(char *to, size_t bytes, const char *format, va_list arguments)
{
	if (vsnprintf(to, bytes, format, arguments) >= (int)bytes)
		to[sentence_cut(to, bytes - 1)] = '\0';
}

/* "%u row%s": 1 row, 2 rows. */
static inline const char *sentence_s(uint64_t count)
{
	return count == 1 ? "" : "s";
}

/* "%u row%s %s": 1 row is, 2 rows are. */
static inline const char *sentence_is(uint64_t count)
{
	return count == 1 ? "is" : "are";
}

#endif
