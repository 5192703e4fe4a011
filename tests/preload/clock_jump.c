/* For LD_PRELOAD: whoever reads the wall clock finds it set forward by an hour right afterwards:
 * the readings are an hour old. All other clocks are as they are. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);

	if (r == 0 && clock == CLOCK_REALTIME)
		ret->tv_sec -= 3600;
	return r;
}
