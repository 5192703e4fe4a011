#include "clock.h"
#include "load_private.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void set_times(struct load *load)
{
	const struct load_options *o = &load->options;

	load->start_ns = clock_ns();
	load->measure_ns = load->start_ns + (int64_t)(o->warmup_s * 1e9);
	load->end_ns =
		o->duration_s > 0 ? load->measure_ns + (int64_t)(o->duration_s * 1e9) : INT64_MAX;
	for (uint32_t i = 0; i < o->threads; i++) {
		atomic_store(&load->workers[i].answered, 0);
		atomic_store(&load->workers[i].failed, 0);
	}
}

/* The calling thread is the first worker. */
static int run_threads(struct load *load, struct error_text *error)
{
	uint32_t started = 1;
	int code = 0;

	while (started < load->options.threads && code == 0) {
		struct worker *worker = &load->workers[started];

		code = pthread_create(&worker->thread, NULL, worker_run, worker);
		started += code == 0;
	}
	if (code != 0)
		atomic_store(&load->abandoned, true);
	else
		worker_run(&load->workers[0]);
	for (uint32_t i = 1; i < started; i++)
		pthread_join(load->workers[i].thread, NULL);
	return code == 0 ? 0
			 : error_text_set(error, code, "thread %u of %u could not be started: %s",
				   started + 1, load->options.threads, strerrordesc_np(code));
}

int load_run(struct load *load, const atomic_bool *stop, load_observer *observe, void *user,
	struct load_result *ret, struct error_text *error)
{
	struct rusage before, after;
	int r;

	load->stop = stop;
	load->observe = observe;
	load->user = user;
	load->progress = isatty(STDERR_FILENO) == 1;
	set_times(load);
	getrusage(RUSAGE_SELF, &before);
	r = run_threads(load, error);
	getrusage(RUSAGE_SELF, &after);
	if (load->progress)
		fprintf(stderr, "\r%*s\r", 78, "");
	if (r < 0)
		return r;
	*ret = (struct load_result){
		.user_s = seconds_of(after.ru_utime) - seconds_of(before.ru_utime),
		.system_s = seconds_of(after.ru_stime) - seconds_of(before.ru_stime),
		.wall_s = (double)(clock_ns() - load->start_ns) / 1e9,
	};
	for (uint32_t i = 0; i < load->options.threads; i++)
		load_result_merge(ret, &load->results[i]);
	return 0;
}
