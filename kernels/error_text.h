/* One sentence for the person who has to act: what is wrong and what would be right.
 *
 * Functions that can fail for a reason worth telling take a `struct error_text *`, fill it, and
 * return -errno; they do not log. */
#ifndef KERNELS_ERROR_TEXT_H
#define KERNELS_ERROR_TEXT_H

#include "proto/sentence.h"

struct error_text {
	char text[512];
};

/* Fills `error` (which may be NULL) and returns -code; `code` is a positive errno. */
int error_text_set(struct error_text *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* What to append to the text of an errno: "; raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)" where
 * it stands for a limit of the process or the system, where to look if a file may not be opened,
 * else "". A constant. `code` may be negative. */
const char *error_text_remedy(int code);

/* The same where a thread can't be started; EAGAIN says other things elsewhere. */
#define ERROR_TEXT_MORE_THREADS "; raise RLIMIT_NPROC (ulimit -u, TasksMax=) or the limit of memory"

#endif
