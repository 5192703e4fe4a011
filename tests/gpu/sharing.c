/* Beside others on the GPU: nothing stays pinned in L2 after a block; launches end, and are right,
 * while another process keeps every multiprocessor busy. */
#include "foreign.h"
#include "shapes.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOREIGN_BYTES ((size_t)40 << 20) /* fits L2 when nobody else holds it */
#define LOAD_MS       4000

static float foreign_after_flush(const void *memory, const void *other, size_t other_bytes)
{
	foreign_read(other, other_bytes, 1);
	foreign_read(memory, FOREIGN_BYTES, 1);
	return foreign_read(memory, FOREIGN_BYTES, 4);
}

/* The foreign kernel's second pass over its data, after a flush of L2 and after blocks. */
static void nothing_stays(void)
{
	struct checkpoint checkpoint;
	struct cuda_options options;
	struct error_text error;
	void *memory, *other;
	const size_t other_bytes = (size_t)256 << 20;
	float before[15], after[15], us[1];
	if (cudaMalloc(&memory, FOREIGN_BYTES) != cudaSuccess ||
		cudaMalloc(&other, other_bytes) != cudaSuccess)
		die("no device memory");
	shape_open(&shapes[2], &checkpoint);
	cuda_options_init(&options);
	struct cuda_head *head = open_head(&checkpoint, &options, 8, 7);
	struct test_case c = {.name = "sharing", .checkpoint = &checkpoint};
	test_case_alloc(&c, 8, 7, false);
	fill_request(&c, true);
	record_case(head, &c, false);
	for (int i = 0; i < 15; i++)
		before[i] = foreign_after_flush(memory, other, other_bytes);
	for (int i = 0; i < 15; i++) {
		foreign_read(other, other_bytes, 1);
		if (cuda_head_replay(head, 1, us, &error))
			die("%s", error.text);
		foreign_read(memory, FOREIGN_BYTES, 1);
		after[i] = foreign_read(memory, FOREIGN_BYTES, 4);
	}
	const float then = median(before, 15), since = median(after, 15);
	test_result(since <= then * 1.05f + 1,
		"a foreign kernel's reads of %zu MiB take %.1f us after a block, %.1f us before",
		FOREIGN_BYTES >> 20, since, then);
	printf("foreign reads of %zu MiB from L2: %.1f us before, %.1f us after a block\n",
		FOREIGN_BYTES >> 20, then, since);
	test_case_free(&c);
	cuda_head_close(head);
	shape_close(&checkpoint);
	cudaFree(memory);
	cudaFree(other);
}

/* `child` is under way already: it was started before this process touched the GPU. */
static void beside_load(pid_t child)
{
	struct checkpoint checkpoint;
	struct cuda_options options;
	shape_open(&shapes[2], &checkpoint);
	cuda_options_init(&options);
	struct cuda_head *head = open_head(&checkpoint, &options, 32, 7);
	struct test_case c = {.name = "beside a busy process", .checkpoint = &checkpoint};
	test_case_alloc(&c, 32, 7, false);
	fill_request(&c, true);
	record_case(head, &c, false);
	check_against_reference(&c, 0, 4);
	double slowest = 0;
	unsigned launches = 0;
	int status;
	while (waitpid(child, &status, WNOHANG) == 0) {
		const struct manner m = {
			.rows = 1 + launches % 32, .steps = 7, .memory = MEMORY_DEVICE};
		const double start = now_ms();
		run_case(head, &c, &m, "beside load");
		const double took = now_ms() - start;
		slowest = took > slowest ? took : slowest;
		launches++;
	}
	test_result(launches > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"the busy process failed");
	printf("beside a busy process: %u batches, the slowest %.1f ms with its copies and "
	       "comparisons\n",
		launches, slowest);
	test_case_free(&c);
	cuda_head_close(head);
	shape_close(&checkpoint);
}

int sharing_tests(void)
{
	const pid_t child = fork(); /* before CUDA is initialized here */
	if (child < 0)
		die("no process");
	if (child == 0)
		_exit(foreign_load(LOAD_MS));
	struct error_text error;
	if (cuda_probe(NULL, &error)) {
		waitpid(child, NULL, 0);
		test_waived(error.text);
		return 0;
	}
	beside_load(child);
	nothing_stays();
	return 0;
}
