/* The protocol's error table (PROTOCOL.md, "Errors").
 *
 * Pure data, usable from any thread. Numbers are on the wire: they are never changed or reused. */
#ifndef PROTO_ERROR_H
#define PROTO_ERROR_H

#include <stdbool.h>

enum error_code {
	ERROR_NONE = 0,
	ERROR_BAD_FRAME = 1,
	ERROR_VERSION_MISMATCH = 2,
	ERROR_BAD_REQUEST = 3,
	ERROR_UNKNOWN_METHOD = 4,
	ERROR_NOT_FOUND = 5,
	ERROR_OUT_OF_RANGE = 6,
	ERROR_TOO_LARGE = 7,
	ERROR_RESOURCE_EXHAUSTED = 8,
	ERROR_DEADLINE_EXCEEDED = 9,
	ERROR_CANCELLED = 10,
	ERROR_DRAINING = 11,
	ERROR_PERMISSION_DENIED = 12,
	ERROR_DEVICE_LOST = 13,
	ERROR_INTERNAL = 14,
	ERROR_CODE_END, /* one past the last code */
};

struct error_info {
	const char *name;       /* "BAD_FRAME" */
	bool retryable;         /* the same request may succeed later, unchanged */
	bool closes_connection; /* the server closes after the reply */
};

/* The row of `code`, or NULL if no such code exists. */
const struct error_info *error_lookup(int code);

/* The code of a name as it stands on the wire, or ERROR_NONE. */
enum error_code error_by_name(const char *name);

#endif
