/* Memory as the daemon's regions are: a memfd with its pages, mapped and pinned by another thread
 * than the one that launches. And what pinning costs. */
#include "shapes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION_BYTES ((size_t)1 << 30)
#define ROWS         5
#define STEPS        3

static char *map_region(void)
{
	const int fd = memfd_create("region", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)REGION_BYTES) ||
		fallocate(fd, 0, 0, (off_t)REGION_BYTES))
		die("no shared memory of %zu bytes", REGION_BYTES);
	void *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		die("no mapping of %zu bytes", REGION_BYTES);
	close(fd);
	return memory;
}

static void *pin_region(void *memory)
{
	const double start = now_ms();
	pin(memory, REGION_BYTES);
	printf("pinning a region of 1 GiB took %.1f ms", now_ms() - start);
	return NULL;
}

static void *unpin_region(void *memory)
{
	const double start = now_ms();
	unpin(memory);
	printf(", unpinning it %.1f ms\n", now_ms() - start);
	return NULL;
}

static void in_thread(void *(*work)(void *), void *memory)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, work, memory) || pthread_join(thread, NULL))
		die("no thread");
}

/* The case's base at the region's end, and its logits before. */
static void run_in_region(struct cuda_head *head, const struct test_case *c, char *region)
{
	const size_t bytes = (size_t)c->rows * c->steps * c->checkpoint->vocab * 2;
	char *base = region + REGION_BYTES - bytes, *logits = base - bytes;
	memcpy(base, c->base, bytes);
	memset(logits, 0xC5, bytes);
	run_at(head, c, base, logits, MEMORY_PINNED);
	test_result(!memcmp(logits, c->logits, bytes), "the logits in a pinned region differ");
}

int memory_tests(void)
{
	const struct shape shape = {"memory", 50000, 64};
	struct checkpoint checkpoint;
	struct cuda_options options;
	struct error_text error;
	shape_open(&shape, &checkpoint);
	struct test_case c = {.name = "memory", .checkpoint = &checkpoint};
	test_case_alloc(&c, ROWS, STEPS, false);
	fill_request(&c, true);
	cuda_options_init(&options);
	struct cuda_head *head = open_head(&checkpoint, &options, ROWS, STEPS);
	record_case(head, &c, false);
	check_against_reference(&c, 0, ROWS);

	char *region = map_region();
	in_thread(pin_region, region);
	run_in_region(head, &c, region);
	const int r = markov_memory_pin(gpu_memory(), region, REGION_BYTES, &error);
	test_result(r < 0 && r != -EIO,
		"what is pinned already was pinned again, or took the device with it");
	run_in_region(head, &c, region);
	in_thread(unpin_region, region);
	munmap(region, REGION_BYTES);
	cuda_head_close(head);
	test_case_free(&c);
	shape_close(&checkpoint);
	return 0;
}
