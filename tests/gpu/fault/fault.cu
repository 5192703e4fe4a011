/* Preloaded into draftd: when somebody writes a byte to the FIFO that $DRAFTD_FAULT names, a kernel stores to an address that is
 * none, in the daemon's own context. That error sticks: every later call of the process on this device fails. */
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static __global__ void store(uintptr_t address)
{
	*(volatile int *)address = 1;
}

static void *wait_for_byte(void *path)
{
	char byte;
	const int fd = open((const char *)path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, &byte, 1) != 1 || cudaSetDevice(0))
		return NULL;
	store<<<1, 1>>>(8);
	cudaDeviceSynchronize();
	close(fd);
	return NULL;
}

__attribute__((constructor)) static void prepare()
{
	sigset_t all, before;
	pthread_t thread;
	char *path = getenv("DRAFTD_FAULT");

	if (!path)
		return;
	/* The daemon's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, wait_for_byte, path) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
