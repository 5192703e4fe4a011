/* What draftd reads in a checkpoint's JSON files: two numbers of config.json, and where
 * model.safetensors.index.json says the head's tables lie. Text in, values out; no files, no state;
 * any thread. */
#ifndef KERNELS_CHECKPOINT_JSON_H
#define KERNELS_CHECKPOINT_JSON_H

#include "error_text.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define HEAD_W1_NAME "markov_head.markov_w1.weight"
#define HEAD_W2_NAME "markov_head.markov_w2.weight"

/* A number that a checkpoint may state. */
struct stated {
	bool present;
	float value;
};

struct config_json {
	struct stated multiplier; /* output_multiplier: finite */
	struct stated soft_cap;   /* final_logit_softcapping: finite, >= 0; 0 is none */
};

/* Both look at the top level first, then in "text_config", where multimodal checkpoints keep it.
 * null is absent. Returns 0, or -EINVAL with `error` naming the key. */
int config_json_parse(
	const char *text, size_t byte_count, struct config_json *ret, struct error_text *error);

/* Files that hold the two tables, from "weight_map": plain names in the checkpoint's folder. */
struct index_json {
	char w1_file[NAME_MAX + 1];
	char w2_file[NAME_MAX + 1];
};

/* Returns 0, -ENOENT if the index lists no head, or -EINVAL (several heads, a bad file name, no
 * index). */
int index_json_parse(
	const char *text, size_t byte_count, struct index_json *ret, struct error_text *error);

/* The same rule for numbers that are strings of a .safetensors file's metadata. `text` NULL is
 * absent. */
int stated_parse(const char *key, const char *text, bool is_soft_cap, struct stated *ret,
	struct error_text *error);

/* Whether `name` is `wanted`, or ends in it after a dot: "mtp.2.markov_head.markov_w1.weight".
 * `ret_prefix_bytes` gets the length of what stands before. */
bool head_name_matches(const char *name, const char *wanted, size_t *ret_prefix_bytes);

/* Checks a multiplier or a soft cap, wherever it comes from. */
int stated_check(const char *key, double value, bool is_soft_cap, struct stated *ret,
	struct error_text *error);

#endif
