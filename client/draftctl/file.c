#include "file.h"

#include "kernels/replacement.h"

#include <errno.h>

int file_replace(const char *path, const char *bytes, size_t byte_count, struct error_text *error)
{
	struct replacement file;
	int r = replacement_begin(path, &file, error);

	if (r < 0)
		return r;
	r = replacement_write(&file, bytes, byte_count);
	return replacement_end(&file, r, false, error);
}

int file_check(const char *path, struct error_text *error)
{
	struct replacement file;
	int r = replacement_begin(path, &file, error);

	if (r == 0)
		replacement_end(&file, -ECANCELED, false, NULL);
	return r;
}
