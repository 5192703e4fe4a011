#include "tests/unit/draftctl/scratch.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

void scratch_make(void)
{
	snprintf(folder, sizeof(folder), "/tmp/draftctl-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

const char *scratch_path(const char *name)
{
	static char paths[2][512];
	static unsigned turn;
	char *path = paths[turn++ % 2];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

const char *scratch_write(const char *name, const void *bytes, size_t byte_count)
{
	const char *path = scratch_path(name);
	FILE *file = fopen(path, "wb");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, byte_count, file), byte_count);
	ck_assert_int_eq(fclose(file), 0);
	return path;
}

/* Counts the files and, if asked to, unlinks them. */
static unsigned each_file(int unlink_them)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;
	unsigned count = 0;

	ck_assert_ptr_nonnull(directory);
	while ((entry = readdir(directory)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		count++;
		if (unlink_them)
			unlink(scratch_path(entry->d_name));
	}
	closedir(directory);
	return count;
}

unsigned scratch_count(void)
{
	return each_file(0);
}

void scratch_remove(void)
{
	each_file(1);
	rmdir(folder);
}
