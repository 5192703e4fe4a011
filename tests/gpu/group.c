/* Heads on several GPUs: starting and stopping leaves nothing behind; a GPU that hangs ends the
 * head within its bound, and the next head works; what the exchange of winners adds to a step. */
#include "foreign.h"
#include "shapes.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CYCLE_SLACK ((size_t)64 << 20) /* of the driver's and NCCL's pools */
#define HOLD_MS     3000
#define BOUND_US    500000
#define REPLAYS     61
#define STEPS       7

static size_t free_memory(void)
{
	size_t free_bytes = 0, all_bytes;
	next_device();
	if (cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess)
		die("no device memory to see");
	return free_bytes;
}

static void request(struct test_case *c, const struct checkpoint *checkpoint, const char *name)
{
	struct cuda_head *plain = open_plain_head(checkpoint, 32, STEPS);
	*c = (struct test_case){.name = name, .checkpoint = checkpoint};
	test_case_alloc(c, 32, STEPS, false);
	fill_request(c, true);
	record_case(plain, c, false);
	check_against_reference(c, 0, 4);
	cuda_head_close(plain);
}

static void start_and_stop(
	const struct test_case *c, enum markov_cuda_form form, unsigned cycles, const char *label)
{
	const struct manner m = {.rows = 9, .steps = STEPS, .memory = MEMORY_DEVICE};
	struct cuda_options options;
	size_t before[2] = {0}, after[2];
	const double start = now_ms();
	cuda_options_init(&options);
	options.form = form;
	for (int i = 0; (unsigned)i < cycles; i++) {
		struct cuda_head *head = open_head(c->checkpoint, &options, 16, STEPS);
		run_case(head, c, &m, label);
		cuda_head_close(head);
		if (i == 1) /* what stays for good is there */
			for (int d = 0; d < 2; d++)
				before[d] = free_memory();
	}
	for (int d = 0; d < 2; d++)
		after[d] = free_memory();
	printf("%s: %u heads, one after the other, in %.1f s; free device memory %zu and %zu MiB, "
	       "then "
	       "%zu and %zu\n",
		label, cycles, (now_ms() - start) / 1e3, before[0] >> 20, before[1] >> 20,
		after[0] >> 20, after[1] >> 20);
	test_result(before[0] <= after[0] + CYCLE_SLACK && before[1] <= after[1] + CYCLE_SLACK,
		"%s: %u heads left device memory behind", label, cycles);
}

/* The last GPU is taken away for longer than a launch may take. */
static void hang(struct test_case *c, enum markov_cuda_form form, const char *label)
{
	const struct manner m = {.rows = 9, .steps = STEPS, .memory = MEMORY_DEVICE};
	const struct manner as_below = {.rows = c->rows, .steps = STEPS};
	struct cuda_options options;
	cuda_options_init(&options);
	options.form = form;
	options.wait_bound_us = BOUND_US;
	struct cuda_head *head = open_head(c->checkpoint, &options, 32, STEPS);
	run_case(head, c, &as_below, label); /* the memory that it needs is there then */
	/* A launch leaves the last one this thread's. */
	if (foreign_hold(HOLD_MS))
		die("a GPU can't be held");
	const double start = now_ms();
	test_result(expect_lost(head, c), "%s: a GPU that hangs is not noticed", label);
	const double took = now_ms() - start;
	cuda_head_close(head);
	printf("%s: a GPU hangs: lost after %.0f ms, closed after %.0f\n", label, took,
		now_ms() - start);
	test_result(took < 2.0 * BOUND_US / 1000, "%s: it took %.0f ms to notice", label, took);
	cuda_options_init(&options);
	options.form = form;
	head = open_head(c->checkpoint, &options, 32, STEPS);
	run_case(head, c, &m, label);
	cuda_head_close(head);
}

static float block_us(const struct test_case *c, enum markov_cuda_form form, uint32_t rows)
{
	struct cuda_options options;
	float us[REPLAYS];
	const struct manner m = {.rows = rows,
		.steps = STEPS,
		.memory = MEMORY_DEVICE,
		.replays = REPLAYS,
		.us = us};
	cuda_options_init(&options);
	options.form = form;
	struct cuda_head *head = open_head(c->checkpoint, &options, 32, STEPS);
	run_case(head, c, &m, "exchange");
	cuda_head_close(head);
	return median(us, REPLAYS);
}

/* With so few ids that a step is little but its exchange, the same number on each multiprocessor
 * with one GPU and with all. */
static void exchange_cost(void)
{
	static const struct {
		enum markov_cuda_form form;
		const char *label;
	} forms[] = {{MARKOV_CUDA_BLOCK, "peer stores"}, {MARKOV_CUDA_STEP, "NCCL"}};
	const unsigned all = device_count();
	const struct shape one = {"one tile", 132 * 64, 256},
			   more = {"one tile", all * 132 * 64, 256};
	const char *const list = devices_in_use();
	float alone[2][2], together[2][2];
	for (int i = 0; i < 2; i++) {
		struct checkpoint checkpoint;
		struct test_case c;
		shape_open(i ? &more : &one, &checkpoint);
		request(&c, &checkpoint, "exchange");
		use_devices(i ? list : "0");
		for (int f = 0; f < 2; f++)
			for (int r = 0; r < 2; r++)
				(i ? together : alone)[f][r] =
					block_us(&c, forms[f].form, r ? 32 : 1);
		test_case_free(&c);
		shape_close(&checkpoint);
	}
	for (int f = 0; f < 2; f++)
		printf("exchange by %s, us a step: 1 row %.2f alone, %.2f with %u GPUs: +%.2f; 32 "
		       "rows "
		       "%.2f, %.2f: +%.2f\n",
			forms[f].label, alone[f][0] / STEPS, together[f][0] / STEPS, all,
			(together[f][0] - alone[f][0]) / STEPS, alone[f][1] / STEPS,
			together[f][1] / STEPS, (together[f][1] - alone[f][1]) / STEPS);
}

int group_tests(unsigned cycles)
{
	const struct shape shape = {"group", 9000, 256};
	struct checkpoint checkpoint;
	struct test_case c;
	if (device_count() < 2 || devices_repeat()) {
		test_waived("tests of a group need devices=0,1, two GPUs");
		return 0;
	}
	shape_open(&shape, &checkpoint);
	request(&c, &checkpoint, "group");
	start_and_stop(&c, MARKOV_CUDA_BLOCK, cycles, "a launch a block");
	hang(&c, MARKOV_CUDA_BLOCK, "a launch a block");
	start_and_stop(&c, MARKOV_CUDA_STEP, cycles, "a launch a step, NCCL");
	hang(&c, MARKOV_CUDA_STEP, "a launch a step, NCCL");
	test_case_free(&c);
	shape_close(&checkpoint);
	exchange_cost();
	fflush(stdout);
	return 0;
}
