#include "lines.h"

#include <errno.h>
#include <string.h>

#define BLANKS " \t\r\n\f\v"

int lines_open(const char *path, struct lines *ret, struct error_text *error)
{
	FILE *file = fopen(path, "re");

	if (file == NULL)
		return error_text_set(error, errno, "cannot open %s: %s%s", path,
			strerrordesc_np(errno), error_text_remedy(errno));
	ret->file = file;
	ret->path = path;
	ret->number = 0;
	return 0;
}

void lines_close(struct lines *lines)
{
	fclose(lines->file);
}

int lines_next(struct lines *lines, char **ret, struct error_text *error)
{
	while (fgets(lines->text, sizeof(lines->text), lines->file) != NULL) {
		size_t length = strlen(lines->text);
		char *text = lines->text;

		lines->number++;
		if (length == sizeof(lines->text) - 1 && text[length - 1] != '\n')
			return error_text_set(error, EINVAL,
				"%s:%u: longer than %d bytes, no line is", lines->path,
				lines->number, LINE_BYTES_MAX - 2);
		text[strcspn(text, "#")] = '\0';
		text += strspn(text, BLANKS);
		length = strlen(text);
		while (length > 0 && strchr(BLANKS, text[length - 1]) != NULL)
			text[--length] = '\0';
		if (length == 0)
			continue;
		*ret = text;
		return 1;
	}
	if (ferror(lines->file))
		return error_text_set(
			error, errno, "cannot read %s: %s", lines->path, strerrordesc_np(errno));
	return 0;
}
