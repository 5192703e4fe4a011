#include "refusal.h"

#include "config.h"
#include "options.h"

#include <errno.h>
#include <string.h>

/* As much of a file's name as a sentence shows; beside a line it may have to share the space with
 * the model's. */
#define FILE_BYTES         200
#define FILE_BYTES_BY_LINE 120

struct error_text *refusal_about(struct refusal *refusal, size_t first, size_t second)
{
	refusal->about[0] = first;
	refusal->about[1] = second;
	return &refusal->sentence;
}

/* `typed`: the option of the command line that does not fit the line, or NULL. */
static void place(struct refusal *refusal, const char *path, unsigned line, const char *typed)
{
	const struct error_text why = refusal->sentence;
	const int bytes = sentence_cut(path, line > 0 ? FILE_BYTES_BY_LINE : FILE_BYTES);

	if (line > 0)
		error_text_set(&refusal->sentence, EINVAL, "%.*s:%u%s%s: %.*s", bytes, path, line,
			typed ? " and --" : "", typed ? typed : "", CUT(340, why.text));
	else
		error_text_set(
			&refusal->sentence, EINVAL, "%.*s: %.*s", bytes, path, CUT(300, why.text));
	refusal->file_bytes = (size_t)bytes;
}

void refusal_place_at(struct refusal *refusal, const char *path, unsigned line)
{
	place(refusal, path, line, NULL);
}

void refusal_place(struct refusal *refusal, const struct config *config)
{
	const char *typed = NULL;
	uint32_t line = 0;

	for (size_t i = 0; i < 2 && refusal->about[i] > 0; i++) {
		const uint32_t origin = config_origin(config, refusal->about[i]);

		if (origin == ORIGIN_COMMAND_LINE)
			typed = options_at(refusal->about[i])->name;
		else if (line == 0)
			line = origin;
	}
	if (line > 0)
		place(refusal, config->config_path, line, typed);
	refusal_about(refusal, 0, 0);
}
