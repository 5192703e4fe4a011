/* The suites of this room, one a module, and what they share. */
#ifndef TESTS_PROTO_SUITES_H
#define TESTS_PROTO_SUITES_H

#include "proto/message.h"

#include <check.h>

Suite *error_suite(void);
Suite *frame_suite(void);
Suite *wire_suite(void);
Suite *message_suite(void);
Suite *sentence_suite(void);
Suite *draft_suite(void);
Suite *hello_suite(void);
Suite *region_suite(void);
Suite *event_suite(void);
Suite *control_suite(void);
Suite *vectors_suite(void);

/* A key of a map and its value as MessagePack bytes; a NULL value leaves the key out. */
struct pair {
	const char *key;
	const char *value;
	size_t bytes;
};
#define PAIR(key, literal) ((struct pair){key, literal, sizeof(literal) - 1})
#define NO_PAIR(key)       ((struct pair){key, NULL, 0})

/* Packs a map: the defaults, where `change` (or NULL) replaces, adds or leaves out one key. Returns
 * a cursor at it. */
struct wire_cursor map_of(struct wire_buffer *buffer, const struct pair *defaults, size_t count,
	const struct pair *change);

/* A cursor at the params or result of the one frame in `buffer`, which must be sound. */
struct wire_cursor params_of(const struct wire_buffer *buffer, struct message *ret_message);

/* Whether `text` is what `expected` says. */
void assert_text(struct wire_text text, const char *expected);

#endif
