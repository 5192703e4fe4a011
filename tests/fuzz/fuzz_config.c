/* The configuration file's parser: any bytes give a config or one sentence, and leak nothing. */
#include "daemon/config_file.h"
#include "daemon/options.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct config config = {0};
	struct refusal refusal = {0};
	int r;

	if (options_set_defaults(&config) < 0)
		abort();
	r = config_file_parse("x.conf", (const char *)bytes, byte_count, &config, &refusal);
	/* A refusal names its line; what is accepted keeps the table's ranges. */
	if (r < 0 && strncmp(refusal.sentence.text, "x.conf:", strlen("x.conf:")) != 0)
		abort();
	for (size_t i = 0; r == 0 && i < options_count; i++) {
		const struct option_info *option = &options[i];
		uint64_t value = 0;

		if (option->type == OPTION_TEXT || option->max == 0)
			continue;
		memcpy(&value, (const char *)&config + option->offset, option->width);
		if (value < option->min || value > option->max)
			abort();
	}
	config_done(&config);
	return 0;
}
