/* What one draft step costs on the processor (V=151936, R=256, temperature 1, draft logits stored),
 * beside two things it can be judged by, all in one run, turn about:
 *
 *     (a) the same step the plain way: a scalar loop of float products over row-major BF16 weights,
 * base logits added, the largest kept; no noise, no rounding rule, nothing stored. On one thread,
 * and split over all of them. (b) a read of w2 alone, on the same threads: nothing that reads the
 * table once can be faster.
 *
 * Medians over RUNS. What the step returned is checked against the reference on a sample of ids.
 * Exit code 1 if it is wrong or a target is missed. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/bias.h"
#include "kernels/cpu/pool.h"
#include "kernels/markov.h"
#include "kernels/reference.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#define VOCAB    151936u
#define RANK     256u
#define ROWS_MAX 16u
#define RUNS     15
#define SAMPLE   997u /* every so manieth id is checked */
#define PIECE    512u /* ids that a thread of the plain loop takes at a time */

#define READ_TARGET 4.0 /* one row within so many reads of w2 */
#define ROWS_TARGET 6.0 /* 16 rows within so many times one row */

#ifdef __clang__
#define FULLY_OPTIMIZED /* clang's -O2 vectorizes as its -O3 does */
#else
#define FULLY_OPTIMIZED __attribute__((optimize("O3")))
#endif

static const uint32_t row_counts[] = {1, 4, 16};
#define ROW_COUNTS (sizeof(row_counts) / sizeof(row_counts[0]))

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static double uniform(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (double)(random_state >> 11) * 0x1p-53;
}

/* Near enough to a normal distribution of mean 0. */
static uint16_t normal(double deviation)
{
	double sum = uniform() + uniform() + uniform() + uniform() - 2;

	return bf16_round((float)(sum * sqrt(3.0) * deviation));
}

static void *allocate(size_t byte_count)
{
	void *memory = aligned_alloc(64, (byte_count + 63) / 64 * 64);

	if (!memory) {
		fprintf(stderr, "cpu_step: no memory\n");
		exit(EXIT_FAILURE);
	}
	return memory;
}

static uint16_t *normals(size_t count, double deviation)
{
	uint16_t *values = allocate(count * sizeof(*values));

	for (size_t i = 0; i < count; i++)
		values[i] = normal(deviation);
	return values;
}

static double now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double median(double *samples)
{
	qsort(samples, RUNS, sizeof(*samples), compare);
	return samples[RUNS / 2];
}

/* ---- (a) and (b) ---- */

struct plain {
	const uint16_t *w2, *embedding, *base;
	atomic_uint next;
	atomic_uint winner; /* keeps the work from being optimized away */
};

FULLY_OPTIMIZED static void plain_step(void *user, unsigned lane)
{
	struct plain *plain = user;
	float embedding[RANK], best = -INFINITY;
	uint32_t first, winner = 0;

	(void)lane;
	for (uint32_t k = 0; k < RANK; k++)
		embedding[k] = bf16_widen(plain->embedding[k]);
	while ((first = atomic_fetch_add(&plain->next, PIECE)) < VOCAB) {
		for (uint32_t v = first; v < first + PIECE && v < VOCAB; v++) {
			const uint16_t *weights = plain->w2 + (size_t)v * RANK;
			float sum = 0;

			for (uint32_t k = 0; k < RANK; k++)
				sum += bf16_widen(weights[k]) * embedding[k];
			sum += bf16_widen(plain->base[v]);
			if (sum > best) {
				best = sum;
				winner = v;
			}
		}
	}
	atomic_fetch_xor(&plain->winner, winner);
}

struct reading {
	const uint64_t *words;
	size_t count;
	atomic_size_t next;
	atomic_ullong mixed;
};

FULLY_OPTIMIZED static void read_table(void *user, unsigned lane)
{
	struct reading *reading = user;
	const size_t piece = 32768;
	size_t first;
	uint64_t mixed = 0;

	(void)lane;
	while ((first = atomic_fetch_add(&reading->next, piece)) < reading->count) {
		const uint64_t *words = reading->words + first;
		size_t count = reading->count - first < piece ? reading->count - first : piece;

		for (size_t i = 0; i < count; i++)
			mixed ^= words[i];
	}
	atomic_fetch_xor(&reading->mixed, mixed);
}

/* ---- the step ---- */

struct columns {
	uint32_t anchors[ROWS_MAX], tokens[ROWS_MAX];
	int64_t positions[ROWS_MAX], seeds[ROWS_MAX], slots[ROWS_MAX];
	float temperatures[ROWS_MAX];
	const void *base[ROWS_MAX];
	void *logits[ROWS_MAX];
	uint64_t strides[ROWS_MAX];
	uint8_t flags[ROWS_MAX];
};

static struct markov_batch make_batch(struct columns *columns, uint32_t rows)
{
	return (struct markov_batch){
		.rows = rows,
		.steps = 1,
		.anchors = columns->anchors,
		.positions = columns->positions,
		.seeds = columns->seeds,
		.temperatures = columns->temperatures,
		.slots = columns->slots,
		.base = columns->base,
		.base_strides = columns->strides,
		.logits = columns->logits,
		.logits_strides = columns->strides,
		.tokens = columns->tokens,
		.flags = columns->flags,
	};
}

static void fill_columns(struct columns *columns)
{
	for (uint32_t r = 0; r < ROWS_MAX; r++) {
		columns->anchors[r] = 1000 + 77 * r;
		columns->positions[r] = 50 + r;
		columns->seeds[r] = 42 + r;
		columns->slots[r] = r;
		columns->temperatures[r] = 1.0f;
		columns->base[r] = normals(VOCAB, 4.0);
		columns->logits[r] = allocate(VOCAB * 2);
		columns->strides[r] = VOCAB * 2;
	}
}

static int step(struct markov_head *head, const struct markov_batch *batch)
{
	struct error_text error;
	int result = markov_launch(head, batch, &error);

	if (result == 0)
		result = markov_wait(head, &error);
	if (result < 0)
		fprintf(stderr, "cpu_step: %s\n", error.text);
	return result;
}

/* Wrong logits among the sampled ids of all rows of the last batch. */
static unsigned count_wrong(const struct checkpoint *checkpoint, const struct columns *columns)
{
	unsigned wrong = 0;

	for (uint32_t r = 0; r < ROWS_MAX; r++) {
		const uint16_t *base = columns->base[r], *logits = columns->logits[r];
		const uint16_t *embedding = checkpoint->w1 + (size_t)columns->anchors[r] * RANK;

		for (uint32_t v = 0; v < VOCAB; v += SAMPLE) {
			uint16_t bias = bf16_round(
				bias_sum(checkpoint->w2 + (size_t)v * RANK, embedding, RANK));
			uint16_t x = reference_mix(base[v], bias);

			wrong += logits[v] != reference_logit(x, 1.0f, 0.0f);
		}
	}
	return wrong;
}

static void print_heading(const struct markov_facts *facts, unsigned threads)
{
	time_t now = time(NULL);
	struct utsname machine;
	struct tm utc;
	char date[32];

	uname(&machine);
	gmtime_r(&now, &utc);
	strftime(date, sizeof(date), "%Y-%m-%d", &utc);
	printf("# one draft step, V=%u R=%u T=1, milliseconds, medians of %d runs taken in turn\n",
		VOCAB, RANK, RUNS);
	printf("# %s, %u threads, path %s, %s %s, %s; command: make bench\n",
		facts->devices[0].name, threads, facts->variant, machine.sysname, machine.machine,
		date);
}

static int report(double step_ms[ROW_COUNTS], double plain_alone, double plain_all, double read,
	unsigned threads, unsigned wrong)
{
	double read_ratio = step_ms[0] / read, rows_ratio = step_ms[ROW_COUNTS - 1] / step_ms[0];

	printf("%-44s %9.3f\n", "(b) read of w2 alone, all threads", read);
	printf("%-44s %9.3f\n", "(a) plain float loop, 1 row, 1 thread", plain_alone);
	printf("%-44s %9.3f\n", "(a) plain float loop, 1 row, all threads", plain_all);
	for (size_t i = 0; i < ROW_COUNTS; i++)
		printf("CPU step, %2u rows, %u threads %15s %9.3f   %6.3f a row, %5.2f reads of "
		       "w2, plain loop "
		       "%5.1f times as long\n",
			row_counts[i], threads, "", step_ms[i], step_ms[i] / row_counts[i],
			step_ms[i] / read, row_counts[i] * plain_all / step_ms[i]);
	printf("1 row / read of w2: %.2f (target: under %.0f) %s\n", read_ratio, READ_TARGET,
		read_ratio < READ_TARGET ? "ok" : "MISSED");
	printf("16 rows / 1 row: %.2f (target: under %.0f) %s\n", rows_ratio, ROWS_TARGET,
		rows_ratio < ROWS_TARGET ? "ok" : "MISSED");
	printf("#wrong %u of %u sampled logits\n", wrong, ROWS_MAX * ((VOCAB - 1) / SAMPLE + 1));
	return wrong == 0 && read_ratio < READ_TARGET && rows_ratio < ROWS_TARGET ? EXIT_SUCCESS
										  : EXIT_FAILURE;
}

int main(void)
{
	static double steps[ROW_COUNTS][RUNS], alone[RUNS], all[RUNS], reads[RUNS];
	struct markov_options options = {
		.backend = MARKOV_CPU, .max_rows = ROWS_MAX, .max_steps = 1};
	static struct columns columns;
	struct checkpoint checkpoint = {
		.name = "bench",
		.vocab = VOCAB,
		.rank = RANK,
		.target_vocab = 4096,
		.w1 = normals(4096 * RANK, 0.25),
		.w2 = normals((size_t)VOCAB * RANK, 0.25),
		.multiplier = 1.0f,
	};
	struct plain plain = {.w2 = checkpoint.w2};
	struct reading reading = {
		.words = (const uint64_t *)checkpoint.w2, .count = (size_t)VOCAB * RANK / 4};
	struct markov_head *head = NULL;
	struct pool *pool = NULL;
	struct error_text error;
	double step_ms[ROW_COUNTS], start;

	fill_columns(&columns);
	plain.base = columns.base[0];
	plain.embedding = checkpoint.w1 + (size_t)columns.anchors[0] * RANK;
	if (markov_open(&options, &checkpoint, NULL, NULL, &head, &error) < 0 ||
		pool_start(pool_usable_threads(), &pool, &error) < 0) {
		fprintf(stderr, "cpu_step: %s\n", error.text);
		return EXIT_FAILURE;
	}
	print_heading(markov_facts(head), pool_threads(pool));
	for (int run = -1; run < RUNS; run++) { /* run -1 warms up */
		int slot = run < 0 ? 0 : run;

		atomic_store(&reading.next, 0);
		start = now_ms();
		pool_run(pool, read_table, &reading);
		reads[slot] = now_ms() - start;
		atomic_store(&plain.next, 0);
		start = now_ms();
		pool_run(pool, plain_step, &plain);
		all[slot] = now_ms() - start;
		atomic_store(&plain.next, 0);
		start = now_ms();
		plain_step(&plain, 0);
		alone[slot] = now_ms() - start;
		for (size_t i = 0; i < ROW_COUNTS; i++) {
			struct markov_batch batch = make_batch(&columns, row_counts[i]);

			start = now_ms();
			if (step(head, &batch) < 0)
				return EXIT_FAILURE;
			steps[i][slot] = now_ms() - start;
		}
	}
	for (size_t i = 0; i < ROW_COUNTS; i++)
		step_ms[i] = median(steps[i]);
	return report(step_ms, median(alone), median(all), median(reads), pool_threads(pool),
		count_wrong(&checkpoint, &columns));
}
