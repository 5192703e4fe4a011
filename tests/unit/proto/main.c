/* Runs every suite of proto/. */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

struct wire_cursor map_of(struct wire_buffer *buffer, const struct pair *defaults, size_t count,
	const struct pair *change)
{
	struct wire_cursor cursor;
	bool adds = change && change->value;
	size_t pairs = count;

	for (size_t i = 0; change && i < count; i++)
		if (!strcmp(defaults[i].key, change->key)) {
			adds = false;
			pairs -= !change->value;
		}
	wire_pack_map(buffer, pairs + adds);
	for (size_t i = 0; i < count + adds; i++) {
		const struct pair *pair = i < count ? &defaults[i] : change;

		if (change && !strcmp(pair->key, change->key))
			pair = change;
		if (!pair->value)
			continue;
		wire_pack_str(buffer, strlen(pair->key));
		wire_pack_str_body(buffer, pair->key, strlen(pair->key));
		wire_buffer_write(buffer, pair->value, pair->bytes);
	}
	ck_assert(!buffer->failed);
	ck_assert_int_eq(wire_scan(buffer->bytes, buffer->count), WIRE_OK);
	wire_cursor_init(&cursor, buffer->bytes, buffer->count);
	return cursor;
}

struct wire_cursor params_of(const struct wire_buffer *buffer, struct message *ret_message)
{
	struct message_fault fault;
	uint8_t header[FRAME_HEADER_BYTES];

	ck_assert(!buffer->failed);
	ck_assert_uint_ge(buffer->count, FRAME_HEADER_BYTES);
	frame_put_header(header, (uint32_t)(buffer->count - FRAME_HEADER_BYTES), buffer->bytes[3]);
	ck_assert_mem_eq(buffer->bytes, header, sizeof(header));
	ck_assert_int_eq(message_decode(buffer->bytes + FRAME_HEADER_BYTES,
				 buffer->count - FRAME_HEADER_BYTES, ret_message, &fault),
		0);
	return ret_message->params;
}

void assert_text(struct wire_text text, const char *expected)
{
	ck_assert_uint_eq(text.bytes, strlen(expected));
	ck_assert_mem_eq(text.at, expected, text.bytes);
}

int main(void)
{
	SRunner *runner = srunner_create(error_suite());
	int failed;

	srunner_add_suite(runner, frame_suite());
	srunner_add_suite(runner, wire_suite());
	srunner_add_suite(runner, message_suite());
	srunner_add_suite(runner, draft_suite());
	srunner_add_suite(runner, hello_suite());
	srunner_add_suite(runner, region_suite());
	srunner_add_suite(runner, event_suite());
	srunner_add_suite(runner, control_suite());
	srunner_add_suite(runner, sentence_suite());
	srunner_add_suite(runner, vectors_suite());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
