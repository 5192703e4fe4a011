/* Cases as recorded, and broken in each way that a person could break one. */
#include "client/draftctl/case_file.h"
#include "tests/unit/draftctl/scratch.h"
#include "tests/unit/draftctl/suites.h"

#include <errno.h>
#include <string.h>

#define GOLDEN "tests/golden/padding_rows.safetensors"

/* A whole case of 2 rows, 1 step and V = 3, to change before it is written. */
struct parts {
	uint16_t base[6], logits[6];
	int32_t anchors[2];
	int64_t positions[2], seeds[2], slots[2], tokens[2];
	float temperatures[2];
	struct tensor_source tensors[8];
};

enum { BASE, ANCHORS, POSITIONS, SEEDS, TEMPERATURES, SLOTS, TOKENS, LOGITS };

static void parts_init(struct parts *p)
{
	*p = (struct parts){
		.base = {0x3F80, 1, 2, 3, 4, 5},
		.logits = {7, 8, 9, 10, 11, 12},
		.anchors = {-1, 2},
		.positions = {5, 6},
		.seeds = {-7, 8},
		.slots = {4, -1},
		.tokens = {2, 0},
		.temperatures = {0, 0.5f},
	};
	struct tensor_source tensors[8] = {
		[BASE] = {"base_logits", "BF16", 3, {2, 1, 3}, p->base, sizeof(p->base)},
		[ANCHORS] = {"anchors", "I32", 1, {2}, p->anchors, sizeof(p->anchors)},
		[POSITIONS] = {"positions", "I64", 1, {2}, p->positions, sizeof(p->positions)},
		[SEEDS] = {"seeds", "I64", 1, {2}, p->seeds, sizeof(p->seeds)},
		[TEMPERATURES] = {"temperatures", "F32", 1, {2}, p->temperatures,
			sizeof(p->temperatures)},
		[SLOTS] = {"slots", "I64", 1, {2}, p->slots, sizeof(p->slots)},
		[TOKENS] = {"tokens", "I64", 2, {2, 1}, p->tokens, sizeof(p->tokens)},
		[LOGITS] = {"draft_logits", "BF16", 3, {2, 1, 3}, p->logits, sizeof(p->logits)},
	};
	memcpy(p->tensors, tensors, sizeof(tensors));
}

static int open_parts(const struct parts *p, struct case_file *c, struct error_text *error)
{
	const char *path = scratch_path("case.safetensors");

	ck_assert_int_eq(safetensors_write(path, p->tensors, 8, NULL, 0, error), 0);
	return case_file_open(path, c, error);
}

static void check_refused(const struct parts *p, const char *part_of_sentence)
{
	struct case_file c = {0};
	struct error_text error = {""};

	ck_assert_int_eq(open_parts(p, &c, &error), -EINVAL);
	ck_assert_msg(strstr(error.text, part_of_sentence) != NULL, "\"%s\"", error.text);
	ck_assert_ptr_null(c.file);
}

START_TEST(reads_a_case)
{
	struct error_text error;
	struct case_file c;
	struct parts p;

	parts_init(&p);
	ck_assert_int_eq(open_parts(&p, &c, &error), 0);
	ck_assert_uint_eq(c.rows, 2);
	ck_assert_uint_eq(c.steps, 1);
	ck_assert_uint_eq(c.vocab, 3);
	ck_assert_uint_eq(c.anchors[0], UINT32_MAX); /* the bits of -1 */
	ck_assert_int_eq(c.positions[1], 6);
	ck_assert_int_eq(c.seeds[0], -7);
	ck_assert_float_eq(c.temperatures[1], 0.5f);
	ck_assert_int_eq(c.tokens[0], 2);
	ck_assert_uint_eq(c.slot_end, 5);
	ck_assert_mem_eq(c.base, p.base, sizeof(p.base));
	ck_assert_mem_eq(c.draft_logits, p.logits, sizeof(p.logits));
	case_file_close(&c);
	case_file_close(&c); /* of a zeroed one: nothing */
}
END_TEST

START_TEST(reads_a_recorded_case)
{
	struct error_text error;
	struct case_file c;

	ck_assert_int_eq(case_file_open(GOLDEN, &c, &error), 0);
	ck_assert_uint_eq(c.rows, 6);
	ck_assert_uint_eq(c.steps, 3);
	ck_assert_uint_eq(c.vocab, 512);
	ck_assert_uint_eq(c.slot_end, 4);
	case_file_close(&c);
}
END_TEST

START_TEST(refuses_what_does_not_fit)
{
	struct parts p;

	parts_init(&p);
	p.tensors[BASE].name = "base";
	check_refused(&p, "no tensor \"base_logits\"");
	parts_init(&p);
	p.tensors[SLOTS].name = "slot";
	check_refused(&p, "no tensor \"slots\"");
	parts_init(&p);
	p.tensors[TEMPERATURES].dtype_name = "I32";
	check_refused(&p, "\"temperatures\" is I32; it must be F32");
	parts_init(&p);
	p.tensors[SEEDS].shape[0] = 1;
	p.tensors[SEEDS].byte_count = 8;
	check_refused(&p, "dimension 0 of \"seeds\" is 1; \"base_logits\" makes it 2");
	parts_init(&p);
	p.tensors[TOKENS].shape[0] = 1;
	p.tensors[TOKENS].shape[1] = 2;
	check_refused(&p, "\"tokens\" is 1");
	parts_init(&p);
	p.tensors[LOGITS].dimension_count = 2;
	p.tensors[LOGITS].shape[1] = 3;
	check_refused(&p, "\"draft_logits\" has 2 dimensions");
	parts_init(&p);
	p.tensors[BASE].shape[2] = 0;
	p.tensors[BASE].byte_count = 0;
	check_refused(&p, "none of them 0");
}
END_TEST

START_TEST(refuses_bad_slots)
{
	struct error_text error;
	struct case_file c;
	struct parts p;

	parts_init(&p);
	p.slots[1] = 4;
	check_refused(&p, "rows 0 and 1 both have slot 4");
	parts_init(&p);
	p.slots[0] = CASE_SLOT_MAX;
	ck_assert_int_eq(open_parts(&p, &c, &error), 0);
	case_file_close(&c);
	p.slots[0] = CASE_SLOT_MAX + 1;
	check_refused(&p, "slot 1048577 of row 0; the most is 1048576");
	p.slots[0] = INT64_MAX;
	check_refused(&p, "the most is");
	p.slots[0] = INT64_MIN; /* padding rows may share a slot */
	p.slots[1] = INT64_MIN;
	ck_assert_int_eq(open_parts(&p, &c, &error), 0);
	ck_assert_uint_eq(c.slot_end, 0);
	case_file_close(&c);
}
END_TEST

Suite *case_file_suite(void)
{
	Suite *suite = suite_create("case_file");
	TCase *tests = tcase_create("case_file");

	tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
	tcase_add_test(tests, reads_a_case);
	tcase_add_test(tests, reads_a_recorded_case);
	tcase_add_test(tests, refuses_what_does_not_fit);
	tcase_add_test(tests, refuses_bad_slots);
	suite_add_tcase(suite, tests);
	return suite;
}
