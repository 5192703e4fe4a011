/* Every golden case on both forms, in every kind of memory, in batches of every tile, on few and on
 * all multiprocessors. */
#include "harness.h"

#include "kernels/safetensors.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tensor *tensor(const struct safetensors *file, const char *name)
{
	const struct tensor *t = safetensors_find(file, name);
	if (!t)
		die("no tensor %s", name);
	return t;
}

static void take(const struct safetensors *file, const char *name, void *to, size_t bytes)
{
	const struct tensor *t = tensor(file, name);
	if (t->byte_count != bytes)
		die("%s has %llu bytes, not %zu", name, (unsigned long long)t->byte_count, bytes);
	memcpy(to, t->data, bytes);
}

static void load_case(const char *path, const struct checkpoint *checkpoint, struct test_case *c)
{
	struct safetensors *file;
	struct error_text error;
	if (safetensors_open(path, &file, &error))
		die("%s", error.text);
	const struct tensor *base = tensor(file, "base_logits");
	c->checkpoint = checkpoint;
	test_case_alloc(c, (uint32_t)base->shape[0], (uint32_t)base->shape[1], true);
	const size_t rows = c->rows, blocks = rows * c->steps, values = blocks * checkpoint->vocab;
	take(file, "base_logits", c->base, values * 2);
	take(file, "anchors", c->anchors, rows * 4);
	take(file, "positions", c->positions, rows * 8);
	take(file, "seeds", c->seeds, rows * 8);
	take(file, "temperatures", c->temperatures, rows * 4);
	take(file, "slots", c->slots, rows * 8);
	take(file, "draft_logits", c->logits, values * 2);
	take(file, "bias", c->bias, values * 2);
	take(file, "noised", c->values, values * 4);
	int64_t *tokens = calloc(blocks, sizeof(*tokens));
	if (!tokens)
		die("out of memory");
	take(file, "tokens", tokens, blocks * sizeof(*tokens));
	for (size_t i = 0; i < blocks; i++) {
		c->tokens[i] = (uint32_t)tokens[i];
		if (isnan(c->values[i * checkpoint->vocab + c->tokens[i]]))
			c->flags[i / c->steps] |= MARKOV_FLAG_NAN;
	}
	free(tokens);
	safetensors_close(file);
}

static void run_form(
	const struct test_case *c, const struct cuda_options *options, const char *label)
{
	static const uint32_t batches[] = {1, 3, 8, 9, 16, 17, 32, 33, 64, 65, 100, 130};
	struct cuda_head *head = open_head(c->checkpoint, options, 200, c->steps);
	const uint32_t odd = c->checkpoint->vocab % 8;
	for (int memory = MEMORY_PLAIN; memory <= MEMORY_DEVICE; memory++) {
		for (uint32_t pad = 0; pad < 3; pad++) {
			/* As it comes; steps at multiples of 16 bytes; at odd elements. */
			const struct manner m = {
				.rows = c->rows,
				.steps = c->steps,
				.memory = (enum memory_kind)memory,
				.pad = pad == 0   ? 0
				       : pad == 1 ? (8 - odd) % 8 + 8
						  : 3,
			};
			run_case(head, c, &m, label);
		}
	}
	for (size_t i = 0; i < sizeof(batches) / sizeof(*batches); i++) {
		const struct manner m = {
			.rows = batches[i],
			.first = (uint32_t)i,
			.steps = 1 + (uint32_t)i % c->steps,
			.memory = MEMORY_DEVICE,
		};
		run_case(head, c, &m, label);
	}
	const struct manner mixed = {.rows = c->rows + 5, .steps = c->steps, .mixed = true};
	run_case(head, c, &mixed, label);
	const struct manner trace = {.rows = c->rows, .steps = c->steps, .trace = true};
	if (device_count() == 1)
		run_case(head, c, &trace, label);
	const struct manner discard = {.rows = c->rows, .steps = c->steps, .discard_logits = true};
	run_case(head, c, &discard, label);
	cuda_head_close(head);
}

static void run_golden(const char *folder, const char *name)
{
	char path[4096];
	struct checkpoint checkpoint;
	struct error_text error;
	const struct checkpoint_options none = {0};
	struct test_case c = {.name = name};
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (checkpoint_open(path, &none, &checkpoint, &error))
		die("%s", error.text);
	load_case(path, &checkpoint, &c);

	struct cuda_options options;
	cuda_options_init(&options);
	options.form = MARKOV_CUDA_PLAIN;
	if (!devices_repeat())
		run_form(&c, &options, "plain");
	options.form = MARKOV_CUDA_STEP;
	if (!devices_repeat())
		run_form(&c, &options, "a launch a step");
	options.form = MARKOV_CUDA_BLOCK;
	run_form(&c, &options, "a launch a block");
	options.resident_tiles = 0;
	options.pinned_tiles = 1;
	options.multiprocessors = 3;
	run_form(&c, &options, "a launch a block, 3 multiprocessors");
	options.resident_tiles = 2;
	options.multiprocessors = 1;
	run_form(&c, &options, "a launch a block, 1 multiprocessor, 2 resident tiles");
	options.form = MARKOV_CUDA_STEP;
	if (device_count() == 1)
		run_form(&c, &options, "a launch a step, 1 multiprocessor");
	test_case_free(&c);
	checkpoint_close(&checkpoint);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int golden_tests(const char *folder)
{
	DIR *directory = opendir(folder);
	char *names[256];
	size_t count = 0;
	if (!directory)
		die("no folder %s", folder);
	for (struct dirent *entry; (entry = readdir(directory)) && count < 256;)
		if (strstr(entry->d_name, ".safetensors"))
			names[count++] = strdup(entry->d_name);
	closedir(directory);
	qsort(names, count, sizeof(*names), by_name);
	for (size_t i = 0; i < count; i++) {
		const unsigned failed = tests_failed;
		run_golden(folder, names[i]);
		printf("golden %-32s %s\n", names[i],
			tests_failed == failed ? "equal" : "DIFFERENT");
		fflush(stdout);
		free(names[i]);
	}
	return 0;
}
