#include "kernels/error_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Names out of files go into these sentences, and the sentences go into logs and terminals: a
 * newline or an escape sequence in a tensor's name must not write a line of its own there. */
static void disarm(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++)
		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
}

int error_text_set(struct error_text *error, int code, const char *format, ...)
{
	va_list arguments;

	if (error) {
		va_start(arguments, format);
		sentence_print(error->text, sizeof(error->text), format, arguments);
		va_end(arguments);
		disarm(error->text);
	}
	return -code;
}

const char *error_text_remedy(int code)
{
	switch (abs(code)) {
	case EMFILE:
		return "; raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)";
	case ENFILE:
		return "; raise fs.file-max (sysctl)";
	case EACCES:
		return "; the owners and modes along the path say who may (namei -l)";
	case EFBIG:
		return "; raise RLIMIT_FSIZE (ulimit -f, LimitFSIZE=)";
	default:
		return "";
	}
}
