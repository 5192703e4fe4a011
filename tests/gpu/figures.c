/* The figures of one shape for bench_gpu.py, a line each: `row` the request and what we draft,
 * `time` a form's microseconds a block and how many values it got wrong, `stream` the limit. */
#include "shapes.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS     7
#define ROWS      64
#define REFERENCE 16 /* rows that the CPU's reference computes, too */
#define REPLAYS   41

/* Of every size, with outputs poisoned before and compared behind the replays. */
static void time_form(const char *label, const struct test_case *c,
	const struct cuda_options *options, uint32_t least, uint32_t factor)
{
	struct cuda_head *head = open_head(c->checkpoint, options, ROWS, STEPS);
	for (uint32_t rows = least; rows <= ROWS; rows *= factor) {
		float us[REPLAYS];
		size_t wrong = 0;
		const struct manner m = {
			.rows = rows,
			.steps = STEPS,
			.memory = MEMORY_DEVICE,
			.replays = REPLAYS,
			.us = us,
			.wrong = &wrong,
		};
		run_case(head, c, &m, label);
		printf("time %s %u %.1f %zu\n", label, rows, median(us, REPLAYS), wrong);
	}
	cuda_head_close(head);
}

static void print_rows(const struct test_case *c)
{
	for (uint32_t r = 0; r < c->rows; r++) {
		printf("row %u %lld %lld", c->anchors[r], (long long)c->positions[r],
			(long long)c->seeds[r]);
		for (uint32_t s = 0; s < c->steps; s++)
			printf(" %u", c->tokens[r * c->steps + s]);
		printf("\n");
	}
}

static void print_figures(const struct shape *shape)
{
	struct checkpoint checkpoint;
	struct cuda_options options;
	shape_open(shape, &checkpoint);
	struct test_case c = {.name = shape->name, .checkpoint = &checkpoint};
	test_case_alloc(&c, ROWS, STEPS, false);
	fill_request(&c, false);
	printf("shape %s %u %u %u\n", shape->name, shape->vocab, shape->rank, STEPS);

	cuda_options_init(&options);
	options.form = MARKOV_CUDA_PLAIN;
	struct cuda_head *head = open_head(&checkpoint, &options, ROWS, STEPS);
	record_case(head, &c, false);
	cuda_head_close(head);
	printf("reference %d %d\n", REFERENCE, !check_against_reference(&c, 0, REFERENCE));
	print_rows(&c);

	options.form = MARKOV_CUDA_STEP;
	time_form("step", &c, &options, 1, 8);
	options.form = MARKOV_CUDA_BLOCK;
	time_form("block", &c, &options, 1, 4);
	time_form("block", &c, &options, 8, 4);
	options.keep_l2 = true;
	time_form("keep", &c, &options, 1, 4);
	time_form("keep", &c, &options, 8, 4);
	printf("stream %.1f\n", stream_us(&checkpoint, STEPS));
	test_case_free(&c);
	shape_close(&checkpoint);
}

int figures(const char *name)
{
	for (int i = 0; i < SHAPES; i++)
		if (!strcmp(shapes[i].name, name))
			print_figures(&shapes[i]);
	return 0;
}
