#include "tests/unit/kernels/temporary.h"

#include <check.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char temporary_folder[64];

void temporary_make(void)
{
	strcpy(temporary_folder, "/tmp/draftd-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(temporary_folder));
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

void temporary_remove(void)
{
	nftw(temporary_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *temporary_path(const char *name)
{
	static char paths[2][PATH_MAX];
	static int turn;

	turn = !turn;
	snprintf(paths[turn], sizeof(paths[turn]), "%s/%s", temporary_folder, name);
	return paths[turn];
}

const char *temporary_file(const char *name, const void *data, size_t byte_count)
{
	const char *path = temporary_path(name);
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(data, 1, byte_count, file), byte_count);
	ck_assert_int_eq(fclose(file), 0);
	return path;
}
