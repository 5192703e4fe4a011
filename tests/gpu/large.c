/* Random weights at the shapes of real models: the forms against each other and against the CPU's
 * reference, every row against itself alone; and rows that are NaN, infinite or constant, for
 * the time they take. */
#include "harness.h"
#include "shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 70u /* more than one pass */

const struct shape shapes[SHAPES] = {
	{"muse", 202048, 512}, {"qwen3", 151936, 256}, {"dsv4", 129280, 256},
	{"odd", 100001, 200}, /* no row of a packed request is aligned */
};

void shape_open(const struct shape *shape, struct checkpoint *ret)
{
	const size_t weights = (size_t)shape->vocab * shape->rank;
	uint16_t *w1 = malloc(weights * 2), *w2 = malloc(weights * 2);
	if (!w1 || !w2)
		die("out of memory");
	fill_normal(w1, weights, 1.0f, 1);
	fill_normal(w2, weights, 0.05f, 2);
	*ret = (struct checkpoint){
		.vocab = shape->vocab,
		.target_vocab = shape->vocab,
		.rank = shape->rank,
		.w1 = w1,
		.w2 = w2,
		.multiplier = 1.0f,
	};
}

void shape_close(struct checkpoint *checkpoint)
{
	free((void *)checkpoint->w1);
	free((void *)checkpoint->w2);
}

void fill_request(struct test_case *c, bool mixed)
{
	static const float temperatures[] = {0.0f, 1.0f, 0.7f, 0.5f, 1.3f, 0.25f, 2.0f};
	uint16_t random[8];
	for (uint32_t r = 0; r < c->rows; r++) {
		fill_normal(random, 8, 1000.0f, 77 + r);
		uint64_t bits;
		memcpy(&bits, random, sizeof(bits));
		c->anchors[r] = (uint32_t)((bits * 0x9E3779B97F4A7C15u >> 33) %
					   c->checkpoint->target_vocab);
		c->seeds[r] = (int64_t)(bits * 0xD1B54A32D192ED03u);
		c->positions[r] = 1 + (int64_t)(bits % 100000);
		c->slots[r] = r;
		c->temperatures[r] = mixed ? temperatures[r % 7] : 1.0f;
	}
	fill_normal(c->base, (size_t)c->rows * c->steps * c->checkpoint->vocab, 4.0f, 3);
}

/* Batches of every tile, all lengths, and rows alone. */
static void run_batches(
	const struct test_case *c, const struct cuda_options *options, const char *label)
{
	static const uint32_t batches[] = {1, 2, 5, 8, 13, 16, 24, 32, 48, 64, ROWS};
	struct cuda_head *head = open_head(c->checkpoint, options, ROWS, CUDA_STEPS_MAX);
	for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++) {
		const struct manner m = {
			.rows = batches[i],
			.first = (uint32_t)(i * 7),
			.steps = batches[i] >= 48 ? CUDA_STEPS_MAX : 1 + (uint32_t)(i * 3 + 6) % 16,
			.memory = MEMORY_DEVICE,
			.pad = i % 3 == 2 ? 5 : 0,
		};
		run_case(head, c, &m, label);
	}
	for (uint32_t r = 0; r < ROWS; r += 6) {
		const struct manner alone = {
			.rows = 1, .first = r, .steps = CUDA_STEPS_MAX, .memory = MEMORY_PINNED};
		run_case(head, c, &alone, label);
	}
	cuda_head_close(head);
}

static void run_large(const struct shape *shape, bool soft_cap)
{
	struct checkpoint checkpoint;
	struct cuda_options options;
	shape_open(shape, &checkpoint);
	if (soft_cap) {
		checkpoint.multiplier = 0.7f;
		checkpoint.soft_cap = 20.0f;
	}
	struct test_case c = {.name = shape->name, .checkpoint = &checkpoint};
	test_case_alloc(&c, ROWS, CUDA_STEPS_MAX, false);
	fill_request(&c, true);
	c.slots[3] = -1; /* a padding row; its temperature does not count */
	c.temperatures[3] = 0.9f;

	cuda_options_init(&options);
	struct cuda_head *plain = open_plain_head(&checkpoint, ROWS, CUDA_STEPS_MAX);
	record_case(plain, &c, false);
	for (uint32_t r = 0; r < ROWS; r += 9) {
		const struct manner alone = {
			.rows = 1, .first = r, .steps = CUDA_STEPS_MAX, .memory = MEMORY_DEVICE};
		run_case(plain, &c, &alone, "plain, a row alone");
	}
	cuda_head_close(plain);
	check_against_reference(&c, 0, 16);

	options.form = MARKOV_CUDA_STEP;
	if (!devices_repeat())
		run_batches(&c, &options, "a launch a step");
	options.form = MARKOV_CUDA_BLOCK;
	run_batches(&c, &options, "a launch a block");
	test_case_free(&c);
	shape_close(&checkpoint);
}

int large_tests(const char *only)
{
	for (int i = 0; i < SHAPES; i++) {
		const unsigned failed = tests_failed;
		if (only && strcmp(only, shapes[i].name))
			continue;
		run_large(&shapes[i], i == 2);
		printf("random weights %-6s %s\n", shapes[i].name,
			tests_failed == failed ? "equal" : "DIFFERENT");
		fflush(stdout);
	}
	return 0;
}

/* Kinds of rows on which pruning has little to go by. */
enum odd {
	ODD_NONE,
	ODD_ALL_NAN,
	ODD_LAST_NAN,
	ODD_ALL_MINUS_INFINITY,
	ODD_ALL_PLUS_INFINITY,
	ODD_CONSTANT,
	ODD_TINY_T,
	ODD_HUGE_T,
	ODD_NEGATIVE_T,
	ODD_INFINITE_T,
	ODD_NAN_T,
	ODD_HUGE_LOGITS,
	ODD_RISING,
	ODD_KINDS
};

static const char *const odd_names[ODD_KINDS] = {"ordinary", "all NaN", "last NaN", "all -inf",
	"all +inf", "constant", "T = 1e-40", "T = 2e38", "T = -1", "T = inf", "T = NaN",
	"logits of 1e37", "rising"};

static void make_odd(struct test_case *c, enum odd kind)
{
	const uint32_t vocab = c->checkpoint->vocab;
	const size_t values = (size_t)c->rows * c->steps * vocab;
	static const float temperatures[ODD_KINDS] = {[ODD_TINY_T] = 1e-40f,
		[ODD_HUGE_T] = 2e38f,
		[ODD_NEGATIVE_T] = -1,
		[ODD_INFINITE_T] = INFINITY,
		[ODD_NAN_T] = NAN};
	fill_request(c, false);
	if (temperatures[kind] != 0)
		for (uint32_t r = 0; r < c->rows; r++)
			c->temperatures[r] = temperatures[kind];
	if (kind == ODD_ALL_NAN || kind == ODD_ALL_MINUS_INFINITY ||
		kind == ODD_ALL_PLUS_INFINITY || kind == ODD_CONSTANT)
		for (size_t i = 0; i < values; i++)
			c->base[i] = kind == ODD_ALL_NAN              ? 0x7FC1
				     : kind == ODD_ALL_MINUS_INFINITY ? 0xFF80
				     : kind == ODD_ALL_PLUS_INFINITY  ? 0x7F80
								      : 0x3F80;
	if (kind == ODD_HUGE_LOGITS)
		fill_normal(c->base, values, 1e37f, 3);
	for (size_t block = 0; block < (size_t)c->rows * c->steps; block++) {
		uint16_t *base = c->base + block * vocab;
		if (kind == ODD_LAST_NAN)
			base[vocab - 1] = 0x7FC0;
		if (kind == ODD_RISING) /* each id beats those before it */
			for (uint32_t v = 0; v < vocab; v++)
				base[v] = (uint16_t)(0x4000 + v / 1024);
	}
}

/* Of each kind and size. All on one head: more launches than its numbers have before their lower
 * half wraps for the first time. */
#define REPLAYS 12

/* A wait that outlives its bound ends the head, and only that. */
static void bounded_wait(const struct checkpoint *checkpoint)
{
	struct test_case c = {.name = "bounded wait", .checkpoint = checkpoint};
	struct cuda_options options;
	cuda_options_init(&options);
	options.wait_bound_us = 1;
	struct cuda_head *head = open_head(checkpoint, &options, 32, 8);
	test_case_alloc(&c, 32, 8, false);
	fill_request(&c, false);
	test_result(expect_lost(head, &c), "a launch that takes longer than its bound is not lost");
	cuda_head_close(head);
	cuda_options_init(&options);
	head = open_head(checkpoint, &options, 32, 8);
	record_case(head, &c, false);
	check_against_reference(&c, 0, 1);
	cuda_head_close(head);
	test_case_free(&c);
}

int odd_tests(void)
{
	const struct shape shape = {"odd", 129280, 256};
	struct checkpoint checkpoint;
	struct cuda_options options;
	shape_open(&shape, &checkpoint);
	cuda_options_init(&options);
	struct cuda_head *plain = open_plain_head(&checkpoint, 32, 3);
	options.form = MARKOV_CUDA_BLOCK;
	struct cuda_head *block = open_head(&checkpoint, &options, 32, 3);
	for (int kind = 0; kind < ODD_KINDS; kind++) {
		struct test_case c = {.name = odd_names[kind], .checkpoint = &checkpoint};
		test_case_alloc(&c, 32, 3, false);
		make_odd(&c, (enum odd)kind);
		record_case(plain, &c, false);
		check_against_reference(&c, 0, 2);
		float us[2][REPLAYS];
		for (int i = 0; i < 2; i++) {
			const struct manner m = {
				.rows = i ? 32 : 4,
				.steps = 3,
				.memory = MEMORY_DEVICE,
				.replays = REPLAYS,
				.us = us[i],
			};
			run_case(block, &c, &m, "a launch a block");
		}
		printf("odd rows %-14s 3 steps, 4 rows %8.1f us, 32 rows %8.1f us\n", c.name,
			us[0][REPLAYS - 1], us[1][REPLAYS - 1]);
		fflush(stdout);
		test_case_free(&c);
	}
	cuda_head_close(plain);
	cuda_head_close(block);
	bounded_wait(&checkpoint);
	shape_close(&checkpoint);
	return 0;
}
