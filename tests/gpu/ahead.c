/* Launches put behind the one under way: batches of other rows, lengths and places in turn, all of
 * them looked at when the last one is over. */
#include "shapes.h"

#include <errno.h>
#include <stdio.h>

#define ROWS  70u /* more than one pass */
#define STEPS 5u
#define RUNS  24

static struct manner manner_of(unsigned i)
{
	static const uint32_t rows[] = {1, 32, 64, 3, ROWS, 16, 32, 8};
	return (struct manner){
		.rows = rows[i % 8],
		.first = i * 11,
		.steps = i % 3 ? STEPS : 1 + i % STEPS,
		.memory = MEMORY_DEVICE,
		.pad = i % 4 == 3 ? 5 : 0,
		.discard_logits = i % 5 == 4,
	};
}

static int launch(struct cuda_head *head, const struct case_run *run)
{
	struct error_text error;
	const int r = cuda_head_launch(head, case_run_batch(run), &error);
	if (r < 0 && r != -EBUSY)
		die("%s", error.text);
	return r;
}

static void wait(struct cuda_head *head)
{
	struct error_text error;
	if (cuda_head_wait(head, &error))
		die("%s", error.text);
}

/* Two under way from the first to the last. */
static void run_in_turn(struct cuda_head *head, const struct test_case *c, const char *label)
{
	struct case_run *runs[RUNS];
	bool in_time = true, bounded = true;
	for (unsigned i = 0; i < RUNS; i++) {
		const struct manner m = manner_of(i);
		runs[i] = case_run_new(c, &m);
	}
	in_time &= launch(head, runs[0]) == 0;
	for (unsigned i = 0; i < RUNS; i++) {
		if (i + 1 < RUNS)
			in_time &= launch(head, runs[i + 1]) == 0;
		if (i + 2 < RUNS)
			bounded &= launch(head, runs[i + 2]) == -EBUSY;
		wait(head);
	}
	test_result(in_time, "%s: a launch was not put behind another", label);
	test_result(bounded, "%s: three launches were under way", label);
	test_result(cuda_head_is_over(head), "%s: the last launch is not over", label);
	for (unsigned i = 0; i < RUNS; i++) {
		case_run_check(runs[i], label);
		case_run_free(runs[i]);
	}
}

/* Rows that are copied have the room for copies alone, whichever comes first. */
static void run_copied(struct cuda_head *head, const struct test_case *c, const char *label)
{
	const struct manner m[2] = {{.rows = 8, .steps = STEPS, .memory = MEMORY_DEVICE},
		{.rows = 8, .steps = STEPS, .memory = MEMORY_PINNED}};
	for (unsigned first = 0; first < 2; first++) {
		struct case_run *a = case_run_new(c, &m[first]), *b = case_run_new(c, &m[!first]);
		const bool refused = launch(head, a) == 0 && launch(head, b) == -EBUSY;
		test_result(refused, "%s: rows that are copied were launched beside others", label);
		wait(head);
		case_run_check(a, label);
		test_result(launch(head, b) == 0, "%s: busy with nothing", label);
		wait(head);
		case_run_check(b, label);
		case_run_free(a);
		case_run_free(b);
	}
}

int ahead_tests(void)
{
	static const enum markov_cuda_form forms[] = {MARKOV_CUDA_BLOCK, MARKOV_CUDA_STEP};
	static const char *const labels[] = {"a launch a block, ahead", "a launch a step, ahead"};
	struct checkpoint checkpoint;
	struct cuda_options options;
	shape_open(&shapes[SHAPES - 1], &checkpoint);
	struct test_case c = {.name = "ahead", .checkpoint = &checkpoint};
	test_case_alloc(&c, ROWS, STEPS, false);
	fill_request(&c, true);
	cuda_options_init(&options);
	struct cuda_head *plain = open_plain_head(&checkpoint, ROWS, STEPS);
	test_result(cuda_head_facts(plain)->batches_max == 1, "the plain form takes two batches");
	record_case(plain, &c, false);
	cuda_head_close(plain);
	check_against_reference(&c, 0, 8);
	for (int i = 0; i < 2 && device_count() == 1; i++) {
		options.form = forms[i];
		struct cuda_head *head = open_head(&checkpoint, &options, ROWS, STEPS);
		run_in_turn(head, &c, labels[i]);
		run_copied(head, &c, labels[i]);
		cuda_head_close(head);
	}
	options.form = MARKOV_CUDA_AUTO;
	options.sleep = true;
	struct cuda_head *napping = open_head(&checkpoint, &options, ROWS, STEPS);
	test_result(cuda_head_facts(napping)->batches_max == 1,
		"a head whose waits sleep takes two batches");
	cuda_head_close(napping);
	test_case_free(&c);
	shape_close(&checkpoint);
	printf("launches put behind others: done\n");
	return 0;
}
