#include "bell.h"

#include "kernels/clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Looks between two readings of the clock. */
#define LOOKS 32

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

void bell_ring_and_wake(struct bell *bell)
{
	if (bell_ring(bell))
		syscall(SYS_futex, &bell->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void spin(struct bell *bell, uint64_t end_us)
{
	while (clock_us() < end_us)
		for (unsigned i = 0; i < LOOKS; i++) {
			if (bell_has_rung(bell))
				return;
			relax();
		}
}

void bell_wait(struct bell *bell, uint64_t spin_us, uint64_t until_us)
{
	/* FUTEX_WAIT_BITSET takes a point of CLOCK_MONOTONIC, which is the daemon's clock. */
	struct timespec until = {
		.tv_sec = (time_t)(until_us / 1000000),
		.tv_nsec = (long)(until_us % 1000000) * 1000,
	};

	if (spin_us) {
		uint64_t end_us = clock_us() + spin_us;

		spin(bell, end_us < until_us ? end_us : until_us);
	}
	if (clock_us() < until_us && bell_change(bell, BELL_QUIET, BELL_SLEEPS))
		syscall(SYS_futex, &bell->state, FUTEX_WAIT_BITSET_PRIVATE, BELL_SLEEPS,
			until_us == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
	bell_silence(bell, BELL_QUIET);
}
