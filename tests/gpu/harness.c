#include "harness.h"

#include "layout.h"

#include "kernels/cuda/device.h"
#include "kernels/reference.h"

#include <cuda_runtime_api.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS 16

unsigned tests_passed, tests_failed, tests_waived;

void die(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	exit(1);
}

void test_result(bool passed, const char *format, ...)
{
	passed ? tests_passed++ : tests_failed++;
	if (passed)
		return;
	va_list arguments;
	va_start(arguments, format);
	printf("FAILED ");
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
	fflush(stdout);
}

void test_waived(const char *why)
{
	tests_waived++;
	printf("waived: %s\n", why);
}

double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

float median(float *values, size_t count)
{
	qsort(values, count, sizeof(*values), by_size);
	return values[count / 2];
}

void *room(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);
	if (!memory)
		die("out of memory");
	return memory;
}

void test_case_alloc(struct test_case *c, uint32_t rows, uint32_t steps, bool traces)
{
	const size_t blocks = (size_t)rows * steps, values = blocks * c->checkpoint->vocab;
	c->rows = rows;
	c->steps = steps;
	c->anchors = room(rows, sizeof(*c->anchors));
	c->positions = room(rows, sizeof(*c->positions));
	c->seeds = room(rows, sizeof(*c->seeds));
	c->slots = room(rows, sizeof(*c->slots));
	c->temperatures = room(rows, sizeof(*c->temperatures));
	c->base = room(values, sizeof(*c->base));
	c->tokens = room(blocks, sizeof(*c->tokens));
	c->flags = room(rows, sizeof(*c->flags));
	c->logits = room(values, sizeof(*c->logits));
	c->bias = traces ? room(values, sizeof(*c->bias)) : NULL;
	c->values = traces ? room(values, sizeof(*c->values)) : NULL;
}

void test_case_free(struct test_case *c)
{
	free(c->anchors);
	free(c->positions);
	free(c->seeds);
	free(c->slots);
	free(c->temperatures);
	free(c->base);
	free(c->tokens);
	free(c->flags);
	free(c->logits);
	free(c->bias);
	free(c->values);
}

/* Columns of a batch over a case's rows. */
struct columns {
	struct markov_batch batch;
	uint32_t *anchors, *tokens;
	int64_t *positions, *seeds, *slots;
	float *temperatures;
	const void **base;
	void **logits;
	uint64_t *strides;
	enum memory_kind *base_memory, *logits_memory;
	uint8_t *flags;
};

static void columns_new(struct columns *k, const struct test_case *c, const struct manner *m,
	char *base, char *logits, uint64_t stride)
{
	const uint32_t n = m->rows;
	k->anchors = room(n, sizeof(*k->anchors));
	k->positions = room(n, sizeof(*k->positions));
	k->seeds = room(n, sizeof(*k->seeds));
	k->slots = room(n, sizeof(*k->slots));
	k->temperatures = room(n, sizeof(*k->temperatures));
	k->base = room(n, sizeof(*k->base));
	k->logits = room(n, sizeof(*k->logits));
	k->strides = room(n, sizeof(*k->strides));
	k->base_memory = room(n, sizeof(*k->base_memory));
	k->logits_memory = room(n, sizeof(*k->logits_memory));
	k->tokens = room((size_t)n * m->steps, sizeof(*k->tokens));
	k->flags = room(n, sizeof(*k->flags));
	memset(k->tokens, 0xFF, (size_t)n * m->steps * sizeof(*k->tokens));
	memset(k->flags, 0xFF, n);
	for (uint32_t r = 0; r < n; r++) {
		const uint32_t from = (r + m->first) % c->rows;
		k->anchors[r] = c->anchors[from];
		k->positions[r] = c->positions[from];
		k->seeds[r] = c->seeds[from];
		k->slots[r] = c->slots[from];
		k->temperatures[r] = c->temperatures[from];
		k->base[r] = base + r * stride * m->steps;
		k->logits[r] = m->discard_logits ? NULL : logits + r * stride * m->steps;
		k->strides[r] = stride;
	}
	k->batch = (struct markov_batch){
		.rows = n,
		.steps = m->steps,
		.anchors = k->anchors,
		.positions = k->positions,
		.seeds = k->seeds,
		.temperatures = k->temperatures,
		.slots = k->slots,
		.base = k->base,
		.base_strides = k->strides,
		.logits = k->logits,
		.logits_strides = k->strides,
		.base_memory = k->base_memory,
		.logits_memory = k->logits_memory,
		.tokens = k->tokens,
		.flags = k->flags,
	};
}

static void columns_free(struct columns *k)
{
	free(k->anchors);
	free(k->positions);
	free(k->seeds);
	free(k->slots);
	free(k->temperatures);
	free(k->base);
	free(k->logits);
	free(k->strides);
	free(k->base_memory);
	free(k->logits_memory);
	free(k->tokens);
	free(k->flags);
}

static void run_batch(struct cuda_head *head, const struct markov_batch *batch)
{
	struct error_text error;
	if (cuda_head_launch(head, batch, &error) || cuda_head_wait(head, &error))
		die("%s", error.text);
}

/* NaNs are all alike: no rule gives a value's NaN its bits. */
static bool same_value(float a, float b)
{
	return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* In the memory of one kind: what rows elsewhere own there must be as it was. */
static size_t wrong_logits(const struct test_case *c, const struct manner *m,
	const struct layout *l, enum memory_kind kind, size_t pitch)
{
	const uint32_t vocab = c->checkpoint->vocab;
	size_t wrong = 0;
	for (uint32_t r = 0; l->of[kind].host && r < m->rows; r++) {
		const uint32_t from = (r + m->first) % c->rows;
		for (uint32_t s = 0; s < m->steps; s++) {
			const uint16_t *g = l->of[kind].host + (r * m->steps + s) * pitch;
			const uint16_t *e = c->logits + ((size_t)from * c->steps + s) * vocab;
			const bool stored = c->slots[from] >= 0 && !m->discard_logits &&
					    layout_kind(l, r) == kind;
			for (size_t v = 0; v < pitch; v++)
				wrong += g[v] != (stored && v < vocab ? e[v] : POISON);
		}
	}
	return wrong;
}

struct case_run {
	const struct test_case *c;
	struct manner m;
	size_t pitch;
	struct layout base, logits;
	struct columns k;
	uint16_t *bias;
	float *noised;
};

struct case_run *case_run_new(const struct test_case *c, const struct manner *m)
{
	struct case_run *run = room(1, sizeof(*run));
	const uint32_t vocab = c->checkpoint->vocab;
	const size_t pitch = (size_t)vocab + m->pad, values = (size_t)m->rows * m->steps * vocab;
	struct columns *k = &run->k;
	run->c = c;
	run->m = *m;
	run->pitch = pitch;
	layout_new(&run->base, m, 0, m->rows * m->steps * pitch);
	layout_new(&run->logits, m, 1, m->rows * m->steps * pitch);
	columns_new(k, c, m, NULL, NULL, pitch * 2);
	for (uint32_t r = 0; r < m->rows; r++) {
		const enum memory_kind from = layout_kind(&run->base, r),
				       to = layout_kind(&run->logits, r);
		const size_t at = (size_t)r * m->steps * pitch;
		for (uint32_t s = 0; s < m->steps; s++)
			memcpy(run->base.of[from].host + at + s * pitch,
				c->base +
					((size_t)((r + m->first) % c->rows) * c->steps + s) * vocab,
				(size_t)vocab * 2);
		k->base[r] = elements_address(&run->base.of[from]) + at * 2;
		k->base_memory[r] = from;
		if (!m->discard_logits)
			k->logits[r] = elements_address(&run->logits.of[to]) + at * 2;
		k->logits_memory[r] = to;
	}
	elements_to_device(&run->base.of[MEMORY_DEVICE]);
	elements_to_device(&run->logits.of[MEMORY_DEVICE]);
	run->bias = m->trace && c->bias ? room(values, sizeof(*run->bias)) : NULL;
	run->noised = m->trace && c->values ? room(values, sizeof(*run->noised)) : NULL;
	k->batch.trace_bias = run->bias;
	k->batch.trace_values = run->noised;
	return run;
}

const struct markov_batch *case_run_batch(const struct case_run *run)
{
	return &run->k.batch;
}

bool case_run_check(struct case_run *run, const char *label)
{
	const struct test_case *c = run->c;
	const struct manner *m = &run->m;
	const struct columns *k = &run->k;
	const uint32_t vocab = c->checkpoint->vocab;
	size_t wrong_tokens = 0, wrong_flags = 0, wrong_bias = 0, wrong_values = 0;
	elements_from_device(&run->logits.of[MEMORY_DEVICE]);
	for (uint32_t r = 0; r < m->rows; r++) {
		const uint32_t from = (r + m->first) % c->rows;
		for (uint32_t s = 0; s < m->steps; s++) {
			wrong_tokens += k->tokens[r * m->steps + s] !=
					c->tokens[(size_t)from * c->steps + s];
			const size_t g = ((size_t)r * m->steps + s) * vocab,
				     e = ((size_t)from * c->steps + s) * vocab;
			for (uint32_t v = 0; v < vocab; v++) {
				wrong_bias += run->bias && run->bias[g + v] != c->bias[e + v];
				wrong_values += run->noised &&
						!same_value(run->noised[g + v], c->values[e + v]);
			}
		}
		/* A flag speaks of all steps, so only a run of all can be compared. */
		wrong_flags += m->steps == c->steps && k->flags[r] != c->flags[from];
	}
	size_t wrong = 0;
	for (unsigned kind = 0; kind < MEMORY_KINDS; kind++)
		wrong += wrong_logits(c, m, &run->logits, (enum memory_kind)kind, run->pitch);
	if (m->wrong)
		*m->wrong = wrong_tokens + wrong_flags + wrong;
	const bool passed = !wrong_tokens && !wrong_flags && !wrong && !wrong_bias && !wrong_values;
	test_result(passed,
		"%s (%s): %u rows from %u, %u steps, memory %d%s, pad %u: %zu tokens, %zu flags, "
		"%zu logits, %zu biases, "
		"%zu values differ",
		c->name, label, m->rows, m->first, m->steps, (int)m->memory,
		m->mixed ? " (mixed)" : "", m->pad, wrong_tokens, wrong_flags, wrong, wrong_bias,
		wrong_values);
	return passed;
}

void case_run_free(struct case_run *run)
{
	free(run->bias);
	free(run->noised);
	columns_free(&run->k);
	layout_free(&run->base);
	layout_free(&run->logits);
	free(run);
}

bool run_case(struct cuda_head *head, const struct test_case *c, const struct manner *m,
	const char *label)
{
	struct case_run *run = case_run_new(c, m);
	struct error_text error;
	run_batch(head, &run->k.batch);
	if (m->replays && cuda_head_replay(head, m->replays, m->us, &error))
		die("%s", error.text);
	const bool passed = case_run_check(run, label);
	case_run_free(run);
	return passed;
}

void record_case(struct cuda_head *head, struct test_case *c, bool traces)
{
	const struct manner m = {.rows = c->rows, .steps = c->steps};
	struct columns k;
	columns_new(
		&k, c, &m, (char *)c->base, (char *)c->logits, (uint64_t)c->checkpoint->vocab * 2);
	if (traces) {
		k.batch.trace_bias = c->bias;
		k.batch.trace_values = c->values;
	}
	run_batch(head, &k.batch);
	memcpy(c->tokens, k.tokens, (size_t)c->rows * c->steps * sizeof(*c->tokens));
	memcpy(c->flags, k.flags, c->rows);
	columns_free(&k);
}

void run_at(struct cuda_head *head, const struct test_case *c, void *base, void *logits,
	enum memory_kind memory)
{
	const struct manner m = {.rows = c->rows, .steps = c->steps};
	struct columns k;
	columns_new(&k, c, &m, base, logits, (uint64_t)c->checkpoint->vocab * 2);
	for (uint32_t r = 0; r < c->rows; r++)
		k.base_memory[r] = k.logits_memory[r] = memory;
	run_batch(head, &k.batch);
	test_result(!memcmp(k.tokens, c->tokens, (size_t)c->rows * c->steps * sizeof(*c->tokens)) &&
			    !memcmp(k.flags, c->flags, c->rows),
		"%s: tokens or flags differ in memory %d", c->name, (int)memory);
	columns_free(&k);
}

bool expect_lost(struct cuda_head *head, struct test_case *c)
{
	const struct manner m = {.rows = c->rows, .steps = c->steps};
	struct columns k;
	struct error_text error;
	columns_new(
		&k, c, &m, (char *)c->base, (char *)c->logits, (uint64_t)c->checkpoint->vocab * 2);
	const bool lost = cuda_head_launch(head, &k.batch, &error) == 0 &&
			  cuda_head_wait(head, &error) == -EIO &&
			  cuda_head_wait(head, &error) == -EIO &&
			  cuda_head_launch(head, &k.batch, &error) == -EIO;
	columns_free(&k);
	return lost;
}

struct reference_job {
	const struct test_case *c;
	uint32_t first;
	atomic_uint wrong;
};

static void reference_row(size_t index, void *user)
{
	struct reference_job *job = user;
	const struct test_case *c = job->c;
	const uint32_t row = job->first + (uint32_t)index, vocab = c->checkpoint->vocab;
	const size_t at = (size_t)row * c->steps * vocab, values = (size_t)c->steps * vocab;
	const struct manner m = {.rows = 1, .first = row, .steps = c->steps};
	uint16_t *logits = room(values, sizeof(*logits));
	struct columns k;
	struct error_text error;
	columns_new(&k, c, &m, (char *)(c->base + at), (char *)logits, (uint64_t)vocab * 2);
	if (reference_run(c->checkpoint, &k.batch, &error))
		die("%s", error.text);
	bool same = !memcmp(k.tokens, c->tokens + (size_t)row * c->steps,
			    c->steps * sizeof(*k.tokens)) &&
		    k.flags[0] == c->flags[row];
	if (c->slots[row] >= 0)
		same = same && !memcmp(logits, c->logits + at, values * sizeof(*logits));
	if (!same)
		atomic_fetch_add(&job->wrong, 1);
	columns_free(&k);
	free(logits);
}

bool check_against_reference(const struct test_case *c, uint32_t first, uint32_t count)
{
	struct reference_job job = {.c = c, .first = first};
	parallel_for(count, reference_row, &job);
	const unsigned wrong = atomic_load(&job.wrong);
	test_result(!wrong, "%s: %u of %u rows from %u differ from the CPU's reference", c->name,
		wrong, count, first);
	return !wrong;
}

static struct {
	const char *list;
	int ordinals[MARKOV_DEVICES_MAX];
	unsigned count, next;
	bool repeat;
} devices = {.count = 1};

/* Lets one use the other's memory, in which a row may lie, as the heads do for themselves. */
static void see(int ordinal, int other)
{
	if (cudaSetDevice(ordinal) != cudaSuccess)
		die("no GPU %d", ordinal);
	if (ordinal != other)
		cudaDeviceEnablePeerAccess(other, 0);
	cudaGetLastError(); /* it may be so already */
}

void use_devices(const char *list)
{
	struct cuda_device chosen[MARKOV_DEVICES_MAX];
	struct error_text error;
	uint32_t count = 0;
	if (cuda_devices_choose(list, true, chosen, &count, &error))
		die("%s", error.text);
	devices.list = list;
	devices.count = count;
	devices.repeat = false;
	for (unsigned i = 0; i < count; i++) {
		devices.ordinals[i] = chosen[i].ordinal;
		for (unsigned j = 0; j < i; j++)
			devices.repeat |= chosen[j].ordinal == chosen[i].ordinal;
	}
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < count; j++)
			see(devices.ordinals[i], devices.ordinals[j]);
	printf("on the GPUs %s\n", list);
}

const char *devices_in_use(void)
{
	return devices.list;
}

bool devices_repeat(void)
{
	return devices.repeat;
}

unsigned device_count(void)
{
	return devices.count;
}

void next_device(void)
{
	if (cudaSetDevice(devices.ordinals[devices.next++ % devices.count]) != cudaSuccess)
		die("no such GPU");
}

static struct cuda_head *open_on(const char *list, const struct checkpoint *checkpoint,
	const struct cuda_options *options, uint32_t max_rows, uint32_t max_steps)
{
	const struct markov_options o = {.backend = MARKOV_CUDA,
		.devices = list,
		.max_rows = max_rows,
		.max_steps = max_steps};
	struct cuda_options tuning = *options;
	struct cuda_head *head;
	struct error_text error;
	tuning.repeated_devices = true;
	if (cuda_head_open(&o, &tuning, checkpoint, NULL, NULL, &head, &error))
		die("%s", error.text);
	return head;
}

struct cuda_head *open_head(const struct checkpoint *checkpoint, const struct cuda_options *options,
	uint32_t max_rows, uint32_t max_steps)
{
	return open_on(devices.list, checkpoint, options, max_rows, max_steps);
}

struct cuda_head *open_plain_head(
	const struct checkpoint *checkpoint, uint32_t max_rows, uint32_t max_steps)
{
	struct cuda_options options;
	cuda_options_init(&options);
	options.form = MARKOV_CUDA_PLAIN;
	return open_on(NULL, checkpoint, &options, max_rows, max_steps);
}

struct pool {
	size_t count;
	atomic_size_t next;
	void (*work)(size_t index, void *user);
	void *user;
};

static void *pool_thread(void *argument)
{
	struct pool *pool = argument;
	size_t i;
	while ((i = atomic_fetch_add(&pool->next, 1)) < pool->count)
		pool->work(i, pool->user);
	return NULL;
}

void parallel_for(size_t count, void (*work)(size_t index, void *user), void *user)
{
	struct pool pool = {.count = count, .work = work, .user = user};
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, pool_thread, &pool))
			die("no thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

#define FILL_CHUNK ((size_t)1 << 16)

struct filling {
	uint16_t *to;
	size_t count;
	float deviation;
	uint64_t seed;
};

static uint64_t mix64(uint64_t x)
{
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

/* Twelve uniform numbers' sum is close to normal. */
static void fill_chunk(size_t index, void *user)
{
	const struct filling *f = user;
	const size_t end =
		(index + 1) * FILL_CHUNK < f->count ? (index + 1) * FILL_CHUNK : f->count;
	for (size_t i = index * FILL_CHUNK; i < end; i++) {
		const uint64_t a = mix64(f->seed + i * 0x9E3779B97F4A7C15u), b = mix64(a + 1);
		int32_t sum = 0;
		for (int part = 0; part < 6; part++)
			sum += (int32_t)(a >> 10 * part & 1023) + (int32_t)(b >> 10 * part & 1023);
		const float x = (float)(sum - 6138) * (f->deviation / 1024);
		uint32_t bits;
		memcpy(&bits, &x, sizeof(bits));
		f->to[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
	}
}

void fill_normal(uint16_t *to, size_t count, float deviation, uint64_t seed)
{
	struct filling f = {to, count, deviation, mix64(seed)};
	parallel_for((count + FILL_CHUNK - 1) / FILL_CHUNK, fill_chunk, &f);
}
