#include "kernels/cpu/path.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHOICE_VARIABLE "DRAFTD_CPU_PATH"

static const struct path *usable[6];
static pthread_once_t usable_once = PTHREAD_ONCE_INIT;

static void find_usable(void)
{
	size_t count = 0;

	usable[count++] = &path_scalar;
#ifdef __x86_64__
	__builtin_cpu_init();
	usable[count++] = &path_sse2;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		usable[count++] = &path_avx2;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("fma"))
		usable[count++] = &path_avx512;
	if (usable[count - 1] == &path_avx512 && __builtin_cpu_supports("avx512bf16"))
		usable[count++] = &path_avx512bf16;
#endif
}

const struct path *const *path_list(void)
{
	pthread_once(&usable_once, find_usable);
	return usable;
}

int path_choose(const struct path **ret, struct error_text *error)
{
	const char *wanted = getenv(CHOICE_VARIABLE);
	const struct path *const *paths = path_list();
	const struct path *best = NULL;

	for (; *paths; paths++)
		if (!wanted || strcmp((*paths)->name, wanted) == 0)
			best = *paths;
	if (!best)
		return error_text_set(error, EINVAL,
			CHOICE_VARIABLE " is '%.*s': it must be scalar, sse2, avx2, avx512 or "
					"avx512bf16, and this processor "
					"must have it; unset it for the fastest",
			CUT(40, wanted));
	*ret = best;
	return 0;
}
