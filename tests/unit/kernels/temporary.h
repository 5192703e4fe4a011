/* A folder of a test's own, and files in it. */
#ifndef TESTS_UNIT_KERNELS_TEMPORARY_H
#define TESTS_UNIT_KERNELS_TEMPORARY_H

#include <stddef.h>

extern char temporary_folder[]; /* between the two calls; fixtures of a test case */

void temporary_make(void);
void temporary_remove(void); /* with all files in it and in its folders */

/* Writes a file under the folder; returns its path, which lasts until the next call but one. */
const char *temporary_file(const char *name, const void *data, size_t byte_count);
const char *temporary_path(const char *name);

#endif
