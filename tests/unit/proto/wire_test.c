#include "proto/wire.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(literal) literal, sizeof(literal) - 1

/* ---- scan ---- */

static const struct {
	const char *bytes;
	size_t count;
	enum wire_fault fault;
} scans[] = {
	{BYTES(""), WIRE_EMPTY},
	{BYTES("\xc0"), WIRE_OK},
	{BYTES("\xc1"), WIRE_RESERVED},
	{BYTES("\xc0\xc0"), WIRE_TRAILING},
	/* every tag that has a length or number, whole and one byte short */
	{BYTES("\xcc\x01"), WIRE_OK},
	{BYTES("\xcc"), WIRE_SHORT},
	{BYTES("\xcd\x01\x02"), WIRE_OK},
	{BYTES("\xcd\x01"), WIRE_SHORT},
	{BYTES("\xce\x01\x02\x03\x04"), WIRE_OK},
	{BYTES("\xce\x01\x02\x03"), WIRE_SHORT},
	{BYTES("\xcf\x01\x02\x03\x04\x05\x06\x07\x08"), WIRE_OK},
	{BYTES("\xcf\x01\x02\x03\x04\x05\x06\x07"), WIRE_SHORT},
	{BYTES("\xd0\x01"), WIRE_OK},
	{BYTES("\xd0"), WIRE_SHORT},
	{BYTES("\xd1\x01\x02"), WIRE_OK},
	{BYTES("\xd1\x01"), WIRE_SHORT},
	{BYTES("\xd2\x01\x02\x03\x04"), WIRE_OK},
	{BYTES("\xd2\x01\x02\x03"), WIRE_SHORT},
	{BYTES("\xd3\x01\x02\x03\x04\x05\x06\x07\x08"), WIRE_OK},
	{BYTES("\xd3\x01\x02\x03\x04\x05\x06\x07"), WIRE_SHORT},
	{BYTES("\xca\x01\x02\x03\x04"), WIRE_OK},
	{BYTES("\xca\x01\x02\x03"), WIRE_SHORT},
	{BYTES("\xcb\x01\x02\x03\x04\x05\x06\x07\x08"), WIRE_OK},
	{BYTES("\xcb\x01\x02\x03\x04\x05\x06\x07"), WIRE_SHORT},
	{BYTES("\xa3\x61\x62\x63"), WIRE_OK},
	{BYTES("\xa3\x61\x62"), WIRE_SHORT},
	{BYTES("\xd9\x03\x61\x62\x63"), WIRE_OK},
	{BYTES("\xd9\x03\x61\x62"), WIRE_SHORT},
	{BYTES("\xd9"), WIRE_SHORT},
	{BYTES("\xda\x00\x03\x61\x62\x63"), WIRE_OK},
	{BYTES("\xda\x00\x03\x61\x62"), WIRE_SHORT},
	{BYTES("\xdb\x00\x00\x00\x03\x61\x62\x63"), WIRE_OK},
	{BYTES("\xdb\x00\x00\x00\x03\x61\x62"), WIRE_SHORT},
	{BYTES("\xdb\xff\xff\xff\xff\x61\x62"), WIRE_SHORT},
	{BYTES("\xc4\x03\x61\x62\x63"), WIRE_OK},
	{BYTES("\xc4\x03\x61\x62"), WIRE_SHORT},
	{BYTES("\xc5\x00\x03\x61\x62\x63"), WIRE_OK},
	{BYTES("\xc5\x00\x03\x61\x62"), WIRE_SHORT},
	{BYTES("\xc6\x00\x00\x00\x03\x61\x62\x63"), WIRE_OK},
	{BYTES("\xc6\x00\x00\x00\x03\x61\x62"), WIRE_SHORT},
	{BYTES("\xc6\xff\xff\xff\xff\x61\x62"), WIRE_SHORT},
	{BYTES("\xdc\x00\x02\x01\x02"), WIRE_OK},
	{BYTES("\xdc\x00\x02\x01"), WIRE_SHORT},
	{BYTES("\xdd\x00\x00\x00\x02\x01\x02"), WIRE_OK},
	{BYTES("\xdd\x00\x00\x00\x02\x01"), WIRE_SHORT},
	{BYTES("\xdd\x10\x00\x00\x00"), WIRE_SHORT},
	{BYTES("\xdd\xff\xff\xff\xff\x01"), WIRE_SHORT},
	{BYTES("\xde\x00\x01\x01\x02"), WIRE_OK},
	{BYTES("\xde\x00\x01\x01"), WIRE_SHORT},
	{BYTES("\xdf\x00\x00\x00\x01\x01\x02"), WIRE_OK},
	{BYTES("\xdf\x00\x00\x00\x01\x01"), WIRE_SHORT},
	/* 2^32 - 1 and 2^31 pairs owe 2^33 - 2 and 2^32 values: 32 bits would wrap to -2 and 0 */
	{BYTES("\xdf\xff\xff\xff\xff\x01\x02"), WIRE_SHORT},
	{BYTES("\xdf\x80\x00\x00\x00"), WIRE_SHORT},
	{BYTES("\x90"), WIRE_OK},
	{BYTES("\x80"), WIRE_OK},
	{BYTES("\x92\x91\xc0\x81\xa1\x61\x90"), WIRE_OK},
	/* an inner array takes what the outer one is owed */
	{BYTES("\x92\x92\xc0\xc0"), WIRE_SHORT},
	{BYTES("\xc7\x00\x01"), WIRE_EXT},
	{BYTES("\xc8\x00\x00\x01"), WIRE_EXT},
	{BYTES("\xc9\xff\xff\xff\xff\x01"), WIRE_EXT},
	{BYTES("\xd4\x00\x00"), WIRE_EXT},
	{BYTES("\xd5\x00\x00"), WIRE_EXT},
	{BYTES("\xd6\x00\x00"), WIRE_EXT},
	{BYTES("\xd7\x00\x00"), WIRE_EXT},
	{BYTES("\xd8\x00\x00"), WIRE_EXT},
	{BYTES("\x91\xd4\x00\x00"), WIRE_EXT},
	{BYTES("\x92\xc0\xc1"), WIRE_RESERVED},
	/* 8 levels and 9, as arrays and as maps; an empty ninth level is a level */
	{BYTES("\x91\x91\x91\x91\x91\x91\x91\x91\xc0"), WIRE_OK},
	{BYTES("\x91\x91\x91\x91\x91\x91\x91\x90"), WIRE_OK},
	{BYTES("\x91\x91\x91\x91\x91\x91\x91\x91\x90"), WIRE_TOO_DEEP},
	{BYTES("\x91\x91\x91\x91\x91\x91\x91\x91\x91\xc0"), WIRE_TOO_DEEP},
	{BYTES("\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\xc0"), WIRE_OK},
	{BYTES("\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x80"),
		WIRE_TOO_DEEP},
	/* levels close again: nine arrays beside each other are one level */
	{BYTES("\x99\x90\x90\x90\x90\x90\x90\x90\x90\x90"), WIRE_OK},
	{BYTES("\x92\x91\x91\x91\x91\x91\x91\xc0\x91\x91\x91\x91\x91\x91\x91\xc0"), WIRE_OK},
	{BYTES("\x92\x91\x91\x91\x91\x91\x91\xc0\x91\x91\x91\x91\x91\x91\x91\x90"), WIRE_TOO_DEEP},
};

/* Scanned from a block of exactly this size, so that a sanitizer or valgrind sees a read past the
 * end. */
static enum wire_fault scan_exact(const char *bytes, size_t count)
{
	uint8_t *exact = malloc(count ? count : 1);
	enum wire_fault fault;

	memcpy(exact, bytes, count);
	fault = wire_scan(exact, count);
	free(exact);
	return fault;
}

START_TEST(scan_judges)
{
	ck_assert_int_eq(scan_exact(scans[_i].bytes, scans[_i].count), scans[_i].fault);
}
END_TEST

START_TEST(scan_stops_at_ten_thousand_levels)
{
	static char deep[10001], wide[WIRE_VALUES_MAX + 5];

	memset(deep, 0x91, sizeof(deep));
	ck_assert_int_eq(wire_scan((uint8_t *)deep, sizeof(deep)), WIRE_TOO_DEEP);
	/* 2000 array headers of 2^32 - 1 each: what is owed must not wrap */
	for (size_t i = 0; i < 2000; i++)
		memcpy(deep + 5 * i, "\xdd\xff\xff\xff\xff", 5);
	ck_assert_int_eq(wire_scan((uint8_t *)deep, 10000), WIRE_SHORT);

	/* as many values as there may be, with the array itself; and one more */
	memcpy(wide, "\xdd\x00\x00\xff\xff", 5);
	ck_assert_int_eq(wire_scan((uint8_t *)wide, WIRE_VALUES_MAX + 4), WIRE_OK);
	memcpy(wide, "\xdd\x00\x01\x00\x00", 5);
	ck_assert_int_eq(wire_scan((uint8_t *)wide, WIRE_VALUES_MAX + 5), WIRE_TOO_MANY);
	memcpy(wide, "\xdf\x00\x00\x80\x00", 5);
	ck_assert_int_eq(wire_scan((uint8_t *)wide, WIRE_VALUES_MAX + 5), WIRE_TOO_MANY);
}
END_TEST

START_TEST(faults_have_texts)
{
	for (int a = WIRE_OK; a <= WIRE_RESERVED; a++)
		for (int b = WIRE_OK; b < a; b++)
			ck_assert_str_ne(wire_fault_text((enum wire_fault)a),
				wire_fault_text((enum wire_fault)b));
	ck_assert_str_eq(wire_fault_text((enum wire_fault)99), "an unknown fault");
}
END_TEST

/* ---- cursor ---- */

static struct wire_value first(const char *bytes, size_t count)
{
	struct wire_cursor cursor;
	struct wire_value value;

	ck_assert_int_eq(scan_exact(bytes, count), WIRE_OK);
	wire_cursor_init(&cursor, (const uint8_t *)bytes, count);
	ck_assert(wire_next(&cursor, &value));
	return value;
}
#define FIRST(literal) first(literal, sizeof(literal) - 1)

#define ASSERT_UINT(literal, number)                                                               \
	do {                                                                                       \
		struct wire_value v = FIRST(literal);                                              \
		ck_assert_int_eq(v.type, WIRE_UINT);                                               \
		ck_assert_uint_eq(v.uint, number);                                                 \
	} while (0)
#define ASSERT_INT(literal, number)                                                                \
	do {                                                                                       \
		struct wire_value v = FIRST(literal);                                              \
		ck_assert_int_eq(v.type, WIRE_INT);                                                \
		ck_assert_int_eq(v.sint, number);                                                  \
	} while (0)

START_TEST(integers_of_every_width)
{
	ASSERT_UINT("\x00", 0);
	ASSERT_UINT("\x7f", 127);
	ASSERT_UINT("\xcc\xff", 255);
	ASSERT_UINT("\xcd\xff\xff", 65535);
	ASSERT_UINT("\xce\xff\xff\xff\xff", UINT32_MAX);
	ASSERT_UINT("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", UINT64_MAX);
	ASSERT_UINT("\xd0\x7f", 127);
	ASSERT_UINT("\xd1\x7f\xff", 32767);
	ASSERT_UINT("\xd2\x7f\xff\xff\xff", INT32_MAX);
	ASSERT_UINT("\xd3\x7f\xff\xff\xff\xff\xff\xff\xff", (uint64_t)INT64_MAX);
	ASSERT_UINT("\xd3\x00\x00\x00\x00\x00\x00\x00\x00", 0);
	ASSERT_INT("\xff", -1);
	ASSERT_INT("\xe0", -32);
	ASSERT_INT("\xd0\x80", -128);
	ASSERT_INT("\xd1\x80\x00", -32768);
	ASSERT_INT("\xd2\x80\x00\x00\x00", INT32_MIN);
	ASSERT_INT("\xd3\x80\x00\x00\x00\x00\x00\x00\x00", INT64_MIN);
	ASSERT_INT("\xd3\xff\xff\xff\xff\xff\xff\xff\xff", -1);
}
END_TEST

START_TEST(other_values)
{
	struct wire_value v = FIRST("\xc0");

	ck_assert_int_eq(v.type, WIRE_NIL);
	v = FIRST("\xc2");
	ck_assert(v.type == WIRE_BOOL && !v.boolean);
	v = FIRST("\xc3");
	ck_assert(v.type == WIRE_BOOL && v.boolean);
	v = FIRST("\xca\x3f\xc0\x00\x00");
	ck_assert(v.type == WIRE_FLOAT && v.real == 1.5);
	v = FIRST("\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a");
	ck_assert(v.type == WIRE_FLOAT && v.real == 0.1);
	v = FIRST("\xca\x7f\xc0\x00\x00");
	ck_assert(v.type == WIRE_FLOAT && isnan(v.real));
	v = FIRST("\xca\xff\x80\x00\x00");
	ck_assert(v.type == WIRE_FLOAT && isinf(v.real) && v.real < 0);
	v = FIRST("\xa2hi");
	ck_assert(v.type == WIRE_STR && v.data.bytes == 2 && !memcmp(v.data.at, "hi", 2));
	v = FIRST("\xc4\x02hi");
	ck_assert(v.type == WIRE_BIN && v.data.bytes == 2 && !memcmp(v.data.at, "hi", 2));
	v = FIRST("\x92\x01\x02");
	ck_assert(v.type == WIRE_ARRAY && v.count == 2);
	v = FIRST("\xde\x00\x01\x01\x02");
	ck_assert(v.type == WIRE_MAP && v.count == 1);
}
END_TEST

START_TEST(skip_takes_all_that_a_value_contains)
{
	/* [[1, {"a": [2]}], 3] after its head: skip the inner array, then read 3, then the end */
	static const char bytes[] = "\x92\x92\x01\x81\xa1\x61\x91\x02\x03";
	struct wire_cursor cursor;
	struct wire_value value;

	wire_cursor_init(&cursor, (const uint8_t *)bytes, sizeof(bytes) - 1);
	ck_assert(wire_next(&cursor, &value));
	ck_assert(wire_skip(&cursor));
	ck_assert(wire_next(&cursor, &value));
	ck_assert(value.type == WIRE_UINT && value.uint == 3);
	ck_assert(!wire_next(&cursor, &value));
	ck_assert(!wire_skip(&cursor));
}
END_TEST

START_TEST(reading_past_the_end_moves_nothing)
{
	static const uint8_t bytes[] = {0x92, 0x01}; /* not scanned: a lie */
	struct wire_cursor cursor;

	wire_cursor_init(&cursor, bytes, sizeof(bytes));
	ck_assert(!wire_skip(&cursor));
	ck_assert_ptr_eq(cursor.at, bytes);
}
END_TEST

/* ---- buffer ---- */

START_TEST(buffer_grows_and_keeps_order)
{
	struct wire_buffer buffer;
	char piece[100];

	wire_buffer_init(&buffer);
	for (int i = 0; i < 100; i++) {
		memset(piece, i, sizeof(piece));
		ck_assert_int_eq(wire_buffer_write(&buffer, piece, sizeof(piece)), 0);
	}
	ck_assert_uint_eq(buffer.count, 10000);
	ck_assert_uint_le(buffer.capacity, 20000);
	for (size_t i = 0; i < buffer.count; i++)
		ck_assert_uint_eq(buffer.bytes[i], i / 100);
	ck_assert_int_eq(wire_buffer_write(&buffer, NULL, 0), 0);

	wire_buffer_clear(&buffer);
	ck_assert_uint_eq(buffer.count, 0);
	ck_assert_ptr_nonnull(buffer.bytes);
	wire_buffer_done(&buffer);
	ck_assert_ptr_null(buffer.bytes);
	wire_buffer_done(&buffer);
}
END_TEST

START_TEST(buffer_remembers_failure)
{
	struct wire_buffer buffer;

	wire_buffer_init(&buffer);
	ck_assert_int_eq(wire_buffer_write(&buffer, "abc", 3), 0);
	/* no such amount of memory exists */
	ck_assert(!wire_buffer_reserve(&buffer, SIZE_MAX / 2));
	ck_assert(buffer.failed);
	ck_assert_int_ne(wire_buffer_write(&buffer, "abc", 3), 0);
	ck_assert_uint_eq(buffer.count, 3);
	wire_buffer_clear(&buffer);
	ck_assert_int_eq(wire_buffer_write(&buffer, "d", 1), 0);
	ck_assert_uint_eq(buffer.bytes[0], 'd');
	wire_buffer_done(&buffer);
}
END_TEST

Suite *wire_suite(void)
{
	Suite *suite = suite_create("wire");
	TCase *tcase = tcase_create("wire");

	tcase_add_loop_test(tcase, scan_judges, 0, sizeof(scans) / sizeof(scans[0]));
	tcase_add_test(tcase, scan_stops_at_ten_thousand_levels);
	tcase_add_test(tcase, faults_have_texts);
	tcase_add_test(tcase, integers_of_every_width);
	tcase_add_test(tcase, other_values);
	tcase_add_test(tcase, skip_takes_all_that_a_value_contains);
	tcase_add_test(tcase, reading_past_the_end_moves_nothing);
	tcase_add_test(tcase, buffer_grows_and_keeps_order);
	tcase_add_test(tcase, buffer_remembers_failure);
	suite_add_tcase(suite, tcase);
	return suite;
}
