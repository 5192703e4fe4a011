/* Bytes as config.json, as model.safetensors.index.json, and as a number in a file's metadata: what
 * comes out keeps its promises. */
#include "kernels/checkpoint_json.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_numbers(const struct stated *multiplier, const struct stated *soft_cap)
{
	require(!multiplier->present || isfinite(multiplier->value));
	require(!soft_cap->present ||
		(isfinite(soft_cap->value) && soft_cap->value >= 0 &&
			(soft_cap->value == 0 || isfinite(1.0f / soft_cap->value))));
}

static void check_file_name(const char *name)
{
	require(*name && strlen(name) <= NAME_MAX && !strchr(name, '/') && strcmp(name, "..") != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stated multiplier = {0}, soft_cap = {0};
	struct config_json config;
	struct index_json index;
	struct error_text error;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (config_json_parse(text, size, &config, &error) == 0)
		check_numbers(&config.multiplier, &config.soft_cap);
	if (index_json_parse(text, size, &index, &error) == 0) {
		check_file_name(index.w1_file);
		check_file_name(index.w2_file);
	}
	if (stated_parse("output_multiplier", text, false, &multiplier, &error) == 0 &&
		stated_parse("final_logit_softcapping", text, true, &soft_cap, &error) == 0)
		check_numbers(&multiplier, &soft_cap);
	free(text);
	return 0;
}
