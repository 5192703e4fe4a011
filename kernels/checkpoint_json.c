#include "kernels/checkpoint_json.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MULTIPLIER_KEY "output_multiplier"
#define SOFT_CAP_KEY   "final_logit_softcapping"

int stated_check(const char *key, double value, bool is_soft_cap, struct stated *ret,
	struct error_text *error)
{
	float narrow = (float)value;

	if (!isfinite(narrow))
		return error_text_set(error, EINVAL, "%s must be a finite FP32 number", key);
	if (is_soft_cap && (value < 0 || (value > 0 && !isfinite(1.0f / narrow))))
		return error_text_set(error, EINVAL,
			"%s is %g: it must be at least 1e-38, or 0 or absent for no soft cap", key,
			value);
	ret->present = true;
	ret->value = narrow;
	return 0;
}

int stated_parse(const char *key, const char *text, bool is_soft_cap, struct stated *ret,
	struct error_text *error)
{
	double value;
	char *end;

	if (!text)
		return 0;
	value = strtod(text, &end);
	if (end == text || *end != '\0')
		return error_text_set(error, EINVAL,
			"%s is '%.*s' in the metadata: it must be a number", key, CUT(60, text));
	return stated_check(key, value, is_soft_cap, ret, error);
}

static int read_number(const json_t *config, const char *key, bool is_soft_cap, struct stated *ret,
	struct error_text *error)
{
	const json_t *value = json_object_get(config, key);

	if (!value)
		value = json_object_get(json_object_get(config, "text_config"), key);
	if (!value || json_is_null(value))
		return 0;
	if (!json_is_number(value))
		return error_text_set(error, EINVAL, "%s must be a number or null", key);
	return stated_check(key, json_number_value(value), is_soft_cap, ret, error);
}

static json_t *load_object(const char *text, size_t byte_count, struct error_text *error)
{
	json_error_t parse_error;
	json_t *object = json_loadb(text, byte_count, JSON_REJECT_DUPLICATES, &parse_error);

	if (!object) {
		error_text_set(error, EINVAL, "not valid JSON (line %d): %.*s", parse_error.line,
			CUT(120, parse_error.text));
	} else if (!json_is_object(object)) {
		error_text_set(error, EINVAL, "must hold a JSON object");
		json_decref(object);
		object = NULL;
	}
	return object;
}

int config_json_parse(
	const char *text, size_t byte_count, struct config_json *ret, struct error_text *error)
{
	struct config_json config = {0};
	json_t *object = load_object(text, byte_count, error);
	int result;

	if (!object)
		return -EINVAL;
	result = read_number(object, MULTIPLIER_KEY, false, &config.multiplier, error);
	if (result == 0)
		result = read_number(object, SOFT_CAP_KEY, true, &config.soft_cap, error);
	if (result == 0)
		*ret = config;
	json_decref(object);
	return result;
}

bool head_name_matches(const char *name, const char *wanted, size_t *ret_prefix_bytes)
{
	size_t name_bytes = strlen(name), wanted_bytes = strlen(wanted);
	size_t prefix_bytes = name_bytes - wanted_bytes;

	if (name_bytes < wanted_bytes || strcmp(name + prefix_bytes, wanted) != 0 ||
		(prefix_bytes > 0 && name[prefix_bytes - 1] != '.'))
		return false;
	*ret_prefix_bytes = prefix_bytes;
	return true;
}

/* A name with a slash or a ".." would let an index reach files outside its folder. */
static bool plain_file_name(const char *name)
{
	return name && *name && strlen(name) <= NAME_MAX && !strchr(name, '/') &&
	       strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* A second head shows as a second key here as well as in the files, but the files need not both be
 * opened to see it. */
static int find_file(
	const json_t *map, const char *wanted, char ret[NAME_MAX + 1], struct error_text *error)
{
	const char *key, *found = NULL, *file;
	size_t prefix_bytes;
	json_t *value;

	json_object_foreach((json_t *)map, key, value)
	{
		if (!head_name_matches(key, wanted, &prefix_bytes))
			continue;
		if (found)
			return error_text_set(error, EINVAL,
				"lists several heads ('%.*s' and '%.*s'): one checkpoint must "
				"hold one",
				CUT(100, found), CUT(100, key));
		file = json_string_value(value);
		if (!plain_file_name(file))
			return error_text_set(error, EINVAL,
				"tensor '%.*s' must be in a file of the same folder, not "
				"'%.*s'",
				CUT(100, key), CUT(100, file ? file : "(no string)"));
		strcpy(ret, file);
		found = key;
	}
	if (!found)
		return error_text_set(error, ENOENT,
			"lists no tensor '%s', alone or after a prefix and a dot: this checkpoint "
			"has no Markov head",
			wanted);
	return 0;
}

int index_json_parse(
	const char *text, size_t byte_count, struct index_json *ret, struct error_text *error)
{
	struct index_json index = {{0}, {0}};
	json_t *object = load_object(text, byte_count, error);
	const json_t *map;
	int result;

	if (!object)
		return -EINVAL;
	map = json_object_get(object, "weight_map");
	if (!json_is_object(map))
		result = error_text_set(error, EINVAL, "must hold an object \"weight_map\"");
	else
		result = find_file(map, HEAD_W1_NAME, index.w1_file, error);
	if (result == 0)
		result = find_file(map, HEAD_W2_NAME, index.w2_file, error);
	if (result == 0)
		*ret = index;
	json_decref(object);
	return result;
}
