#include "client/private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(DRAFT_E_BAD_FRAME == TYPED_ERROR_BASE + (int)ERROR_BAD_FRAME, "numbers of the wire");
_Static_assert(DRAFT_E_INTERNAL == TYPED_ERROR_BASE + (int)ERROR_INTERNAL, "numbers of the wire");
_Static_assert(ERROR_CODE_END == ERROR_INTERNAL + 1, "a new code needs its DRAFT_E_ name");

int handle_fail(struct draft *draft, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	sentence_print(draft->error, sizeof(draft->error), format, arguments);
	va_end(arguments);
	return code;
}

int handle_break(struct draft *draft, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	sentence_print(draft->error, sizeof(draft->error), format, arguments);
	va_end(arguments);
	memcpy(draft->broken_why, draft->error, sizeof(draft->broken_why));
	draft->broken = true;
	if (draft->fd >= 0)
		close(draft->fd);
	draft->fd = -1;
	return code;
}

int handle_check(struct draft *draft)
{
	if (!draft->broken)
		return 0;
	return handle_fail(draft, -ENOTCONN, "the connection is at its end (%.*s); reconnect",
		CUT(200, draft->broken_why));
}

int handle_copy_struct(
	struct draft *draft, const char *name, const void *from, void *to, size_t to_bytes)
{
	size_t size;

	memcpy(&size, from, sizeof(size));
	if (size < sizeof(size))
		return handle_fail(draft, -EINVAL, "size of %s is %zu; set it to sizeof(%s)", name,
			size, name);
	for (size_t i = to_bytes; i < size; i++)
		if (((const unsigned char *)from)[i] != 0)
			return handle_fail(draft, -EINVAL,
				"size of %s is %zu, this libdraft knows %zu bytes of it, and a "
				"field behind "
				"them is set; leave that 0, or use a newer libdraft",
				name, size, to_bytes);
	memset(to, 0, to_bytes);
	memcpy(to, from, size < to_bytes ? size : to_bytes);
	return 0;
}

int error_from_wire(int code)
{
	return -(TYPED_ERROR_BASE + (error_lookup(code) ? code : (int)ERROR_INTERNAL));
}

/* The row of a typed error, or NULL for a number of errno or an unknown one. */
static const struct error_info *typed(int code)
{
	if (code > -TYPED_ERROR_BASE || code <= -(TYPED_ERROR_BASE + (int)ERROR_CODE_END))
		return NULL;
	return error_lookup(-code - TYPED_ERROR_BASE);
}

const char *draft_error(const struct draft *draft)
{
	return draft->error;
}

const char *draft_error_name(int code)
{
	const struct error_info *info = typed(code);
	const char *text;

	if (info)
		return info->name;
	/* Unlike strerror(3) it has no buffer that threads could share. */
	text = code <= 0 && code > -TYPED_ERROR_BASE ? strerrordesc_np(-code) : NULL;
	return text ? text : "Unknown error";
}

bool draft_error_retryable(int code)
{
	const struct error_info *info = typed(code);

	if (info)
		return info->retryable;
	return code == -ETIMEDOUT || code == -ECONNREFUSED || code == -ECONNRESET ||
	       code == -ENOTCONN;
}
