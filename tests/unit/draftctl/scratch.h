/* A folder for a test's files, removed with them by scratch_done(). */
#ifndef TESTS_UNIT_DRAFTCTL_SCRATCH_H
#define TESTS_UNIT_DRAFTCTL_SCRATCH_H

#include <stddef.h>

/* Fixtures of a TCase: make and remove the folder. */
void scratch_make(void);
void scratch_remove(void);

/* The path of a name in it; valid until the next call but one. */
const char *scratch_path(const char *name);
const char *scratch_write(const char *name, const void *bytes, size_t byte_count);

/* How many files are in it. */
unsigned scratch_count(void);

#endif
