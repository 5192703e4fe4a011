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

void refusal_place_at(struct refusal *refusal, const char *path, unsigned line)
{
	const struct error_text why = refusal->sentence;
	const int bytes = sentence_cut(path, line > 0 ? FILE_BYTES_BY_LINE : FILE_BYTES);

	if (line > 0)
		error_text_set(&refusal->sentence, EINVAL, "%.*s:%u: %.*s", bytes, path, line,
			CUT(370, why.text));
	else
		error_text_set(
			&refusal->sentence, EINVAL, "%.*s: %.*s", bytes, path, CUT(300, why.text));
	refusal->file_bytes = (size_t)bytes;
}

void refusal_place(struct refusal *refusal, const struct config *config)
{
	unsigned line = 0;

	for (size_t i = 0; i < 2 && refusal->about[i] > 0 && line == 0; i++)
		line = config->lines[options_at(refusal->about[i]) - options];
	if (line > 0)
		refusal_place_at(refusal, config->config_path, line);
	refusal_about(refusal, 0, 0);
}
