/* What the GPU tests share: cases (a model, a request and what must come back), running them
 * through a head with the data in any kind of memory, comparing bit for bit, and counting. */
#ifndef TESTS_GPU_HARNESS_H
#define TESTS_GPU_HARNESS_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Everything is [rows, steps, vocab] without gaps. Owns its arrays; `checkpoint` is the caller's.
 */
struct test_case {
	const char *name;
	const struct checkpoint *checkpoint;
	uint32_t rows, steps;
	uint32_t *anchors;
	int64_t *positions, *seeds, *slots;
	float *temperatures;
	uint16_t *base;
	uint32_t *tokens; /* from here on: expected */
	uint8_t *flags;
	uint16_t *logits;
	uint16_t *bias; /* or NULL */
	float *values;  /* or NULL */
};

void test_case_alloc(struct test_case *c, uint32_t rows, uint32_t steps, bool traces);
void test_case_free(struct test_case *c);

/* How a case is run: batch row r is the case's row (r + first) % rows, its first `steps` steps. */
struct manner {
	uint32_t rows, first, steps;
	enum memory_kind memory; /* that base and logits lie in */
	bool mixed;              /* instead: in another one from row to row */
	uint32_t pad;            /* elements between the steps of a row */
	bool trace;
	bool discard_logits; /* no row wants them */
	unsigned replays;    /* of the graph, before what it wrote is looked at */
	float *us;           /* their times */
	size_t *wrong;       /* or NULL: gets how many tokens, flags and logits differ */
};

/* Launches the case and tells whether the wait says, now and from then on, that the device is lost.
 */
bool expect_lost(struct cuda_head *head, struct test_case *c);

/* Tells whether the head returned what the case expects, every element written and nothing else.
 * Counts a test. */
bool run_case(struct cuda_head *head, const struct test_case *c, const struct manner *manner,
	const char *label);

/* The parts of it, for launches that are not over before others begin: rows in memory, as a batch;
 * and, when it is over, what run_case() tells. */
struct case_run;
struct case_run *case_run_new(const struct test_case *c, const struct manner *manner);
const struct markov_batch *case_run_batch(const struct case_run *run);
bool case_run_check(struct case_run *run, const char *label);
void case_run_free(struct case_run *run);

/* Runs it and takes what comes back as what is expected (traces too when the case has them). */
void record_case(struct cuda_head *head, struct test_case *c, bool traces);

/* Compares `count` rows from `first` of what is expected with what the CPU's reference says. Counts
 * a test. */
bool check_against_reference(const struct test_case *c, uint32_t first, uint32_t count);

/* Runs it as recorded, on base and logits at these places of one kind, and compares tokens and
 * flags; the logits are the caller's to compare. Counts a test. */
void run_at(struct cuda_head *head, const struct test_case *c, void *base, void *logits,
	enum memory_kind memory);

/* Pins host memory as the daemon does, for the GPU of all tests. */
struct markov_memory *gpu_memory(void);
void pin(void *address, size_t bytes);
void unpin(void *address);

/* The GPUs of the heads that follow; NULL: the first. One that is named several times is as many
 * shards, in the block form alone. */
void use_devices(const char *devices);
const char *devices_in_use(void);
bool devices_repeat(void);
unsigned device_count(void);
/* Makes the next of them this thread's: what is allocated then lies there. */
void next_device(void);

struct cuda_head *open_head(const struct checkpoint *checkpoint, const struct cuda_options *options,
	uint32_t max_rows, uint32_t max_steps);
/* On the first GPU alone, in the plain form: what others are held against. */
struct cuda_head *open_plain_head(
	const struct checkpoint *checkpoint, uint32_t max_rows, uint32_t max_steps);

double now_ms(void);
/* Sorts them. */
float median(float *values, size_t count);

/* Zeroed, or the end. */
void *room(size_t count, size_t size);

void parallel_for(size_t count, void (*work)(size_t index, void *user), void *user);

/* Normal numbers of that deviation as BF16, the same for the same seed. */
void fill_normal(uint16_t *to, size_t count, float deviation, uint64_t seed);

extern unsigned tests_passed, tests_failed, tests_waived;
void test_result(bool passed, const char *format, ...) __attribute__((format(printf, 2, 3)));
void test_waived(const char *why);
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

int golden_tests(const char *folder);
int large_tests(const char *shape); /* NULL: all */
int odd_tests(void);
/* Launches put behind others. */
int ahead_tests(void);
/* Of heads on several GPUs: start and stop, one that hangs, what the exchange takes. */
int group_tests(unsigned cycles);
int memory_tests(void);
/* Through draftd and draftctl in the folder `programs`: the golden cases in `folder`, bad input. */
int region_tests(const char *programs, const char *folder);
int cycle_tests(const char *programs, unsigned cycles);
/* Dies with drafts in flight; started by region_tests(). */
int dying_client(const char *socket);
/* Forks, so it must come before anything else has touched the GPU. */
int sharing_tests(void);
int bench(const char *shape, bool sweep);
/* Prints what bench_gpu.py reads of a shape: requests and tokens, times, the limit. */
int figures(const char *shape);

#endif
