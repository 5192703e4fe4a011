#include "kernels/cpu/pool.h"

#include "kernels/markov.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct helper {
	struct pool *pool;
	pthread_t thread;
	unsigned lane;
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t wake;                     /* a job is open, or the pool stops */
	pthread_cond_t idle;                     /* nobody runs the job any more */
	void (*work)(void *user, unsigned lane); /* NULL: no job is open */
	void *user;
	uint64_t job; /* counts jobs, so that a helper takes each at most once */
	unsigned running;
	bool stopping;
	unsigned helper_count;
	struct helper helpers[];
};

unsigned pool_usable_threads(void)
{
	cpu_set_t set;
	int count;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	count = CPU_COUNT(&set);
	if (count < 1)
		return 1;
	return (unsigned)count < MARKOV_THREADS_MAX ? (unsigned)count : MARKOV_THREADS_MAX;
}

static void *help(void *argument)
{
	struct helper *helper = argument;
	struct pool *pool = helper->pool;
	uint64_t seen = 0;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		void (*work)(void *user, unsigned lane);
		void *user;

		while (!pool->stopping && (!pool->work || pool->job == seen))
			pthread_cond_wait(&pool->wake, &pool->lock);
		if (pool->stopping)
			break;
		seen = pool->job;
		work = pool->work;
		user = pool->user;
		pool->running++;
		pthread_mutex_unlock(&pool->lock);
		work(user, helper->lane);
		pthread_mutex_lock(&pool->lock);
		if (--pool->running == 0)
			pthread_cond_signal(&pool->idle);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* A program's signals are for its own threads: the helpers are created with all of them blocked. */
static int start_helper(struct helper *helper)
{
	sigset_t all, before;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&helper->thread, NULL, help, helper);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

int pool_start(unsigned threads, struct pool **ret, struct error_text *error)
{
	struct pool *pool;
	int code;

	if (threads < 1 || threads > MARKOV_THREADS_MAX)
		return error_text_set(error, EINVAL, "threads is %u: it must be 0 (all) to %u",
			threads, MARKOV_THREADS_MAX);
	pool = calloc(1, sizeof(*pool) + (threads - 1) * sizeof(pool->helpers[0]));
	if (!pool)
		return error_text_set(error, ENOMEM, "no memory for the threads");
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	pthread_cond_init(&pool->idle, NULL);
	for (unsigned i = 0; i < threads - 1; i++) {
		pool->helpers[i].pool = pool;
		pool->helpers[i].lane = i + 1;
		code = start_helper(&pool->helpers[i]);
		if (code != 0) {
			pool_stop(pool);
			return error_text_set(error, code,
				"thread %u of %u can't be started: %s" ERROR_TEXT_MORE_THREADS,
				i + 2, threads, strerror(code));
		}
		pool->helper_count++;
	}
	*ret = pool;
	return 0;
}

void pool_stop(struct pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->helper_count; i++)
		pthread_join(pool->helpers[i].thread, NULL);
	pthread_cond_destroy(&pool->idle);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

unsigned pool_threads(const struct pool *pool)
{
	return pool->helper_count + 1;
}

void pool_run(struct pool *pool, void (*work)(void *user, unsigned lane), void *user)
{
	if (pool->helper_count == 0) {
		work(user, 0);
		return;
	}
	pthread_mutex_lock(&pool->lock);
	pool->work = work;
	pool->user = user;
	pool->job++;
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);

	work(user, 0);

	pthread_mutex_lock(&pool->lock);
	pool->work = NULL;
	while (pool->running > 0)
		pthread_cond_wait(&pool->idle, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}
