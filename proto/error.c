#include "error.h"

#include <stddef.h>
#include <string.h>

static const struct error_info errors[ERROR_CODE_END] = {
	[ERROR_BAD_FRAME] = {.name = "BAD_FRAME", .closes_connection = true},
	[ERROR_VERSION_MISMATCH] = {.name = "VERSION_MISMATCH", .closes_connection = true},
	[ERROR_BAD_REQUEST] = {.name = "BAD_REQUEST"},
	[ERROR_UNKNOWN_METHOD] = {.name = "UNKNOWN_METHOD"},
	[ERROR_NOT_FOUND] = {.name = "NOT_FOUND"},
	[ERROR_OUT_OF_RANGE] = {.name = "OUT_OF_RANGE"},
	[ERROR_TOO_LARGE] = {.name = "TOO_LARGE"},
	[ERROR_RESOURCE_EXHAUSTED] = {.name = "RESOURCE_EXHAUSTED", .retryable = true},
	[ERROR_DEADLINE_EXCEEDED] = {.name = "DEADLINE_EXCEEDED"},
	[ERROR_CANCELLED] = {.name = "CANCELLED"},
	[ERROR_DRAINING] = {.name = "DRAINING", .retryable = true},
	[ERROR_PERMISSION_DENIED] = {.name = "PERMISSION_DENIED"},
	[ERROR_DEVICE_LOST] = {.name = "DEVICE_LOST", .retryable = true, .closes_connection = true},
	[ERROR_INTERNAL] = {.name = "INTERNAL"},
};

const struct error_info *error_lookup(int code)
{
	if (code <= ERROR_NONE || code >= ERROR_CODE_END)
		return NULL;
	return &errors[code];
}

enum error_code error_by_name(const char *name)
{
	for (int code = ERROR_NONE + 1; code < ERROR_CODE_END; code++)
		if (!strcmp(errors[code].name, name))
			return (enum error_code)code;
	return ERROR_NONE;
}
