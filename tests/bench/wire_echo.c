/* What the wire and the daemon add: `ping` and a 1-row draft of a tiny model through a running
 * draftd, beside a bare echo of the same number of bytes between two processes over the same kind
 * of socket, all in one run.
 *
 * Waking a process costs little on the processor that one is on, and much on another one that
 * idles; so the two servers are put in the same place, first beside the client, then away from it.
 *
 * Of a draft the device's own time (what the launch took, as the daemon measured it) is taken off.
 * Each figure is the median over RUNS runs of the median of CALLS round trips; runs of the three
 * kinds alternate, so that a busy machine disturbs all alike. */
#include "client/draft.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUNS  11
#define CALLS 4000

#define PING_BYTES 17 /* of a ping's frame: 8 of header, [0, id, "ping", {}] */
#define VOCAB      512
#define STEPS      4

static char folder[] = "/tmp/draftd-bench.XXXXXX";
static pid_t children[2];
static unsigned child_count;

static void stop_servers(void)
{
	while (child_count > 0) {
		kill(children[--child_count], SIGTERM);
		waitpid(children[child_count], NULL, 0);
	}
}

static void clean_up(void)
{
	char command[sizeof(folder) + 16];

	stop_servers();
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (system(command) != 0)
		fprintf(stderr, "%s was not removed\n", folder);
}

static void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(EXIT_FAILURE);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare);
	return values[count / 2];
}

/* The calling process, and what it will fork, onto processor number `index` of those it may use.
 * Returns false if there are not so many. */
static bool move_to(const cpu_set_t *usable, int index)
{
	cpu_set_t one;

	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, usable) || index-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) < 0)
			give_up("no way onto processor %zu", cpu);
		return true;
	}
	return false;
}

/* ---- the bare echo ---- */

static int start_echo(void)
{
	int ends[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 || (child = fork()) < 0)
		give_up("the echo can't be started");
	if (child == 0) {
		char bytes[PING_BYTES];
		ssize_t n;

		close(ends[0]);
		while ((n = recv(ends[1], bytes, sizeof(bytes), 0)) > 0)
			if (send(ends[1], bytes, (size_t)n, MSG_NOSIGNAL) < 0)
				break;
		_exit(0);
	}
	close(ends[1]);
	children[child_count++] = child;
	return ends[0];
}

static double echo_call(int fd)
{
	char bytes[PING_BYTES] = {0};
	double begin = now_us();

	if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) < 0 ||
		recv(fd, bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes))
		give_up("the echo is gone");
	return now_us() - begin;
}

/* ---- the daemon ---- */

static const char *build_folder(void)
{
	const char *build = getenv("BUILD");

	return build ? build : "build";
}

/* Starts draftd on a tiny model of its own, and waits until it says that it is ready. */
static void start_daemon(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 30};
	char command[512], model[128], program[256], told[1024];
	int manager;
	pid_t child;

	snprintf(model, sizeof(model), "%s/tiny.safetensors", folder);
	snprintf(program, sizeof(program), "%s/draftd", build_folder());
	snprintf(command, sizeof(command),
		"%s/draftctl model make --force --vocab %d --rank 16 --seed 1 %s >/dev/null",
		build_folder(), VOCAB, model);
	if (system(command) != 0)
		give_up("draftctl made no model");

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", folder);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (manager < 0 || bind(manager, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		setsockopt(manager, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
		(child = fork()) < 0)
		give_up("draftd can't be started");
	if (child == 0) {
		setenv("NOTIFY_SOCKET", address.sun_path, 1);
		execl(program, "draftd", "--backend", "cpu", "--threads", "1", "--log-level",
			"error", "--model", model, "--socket", socket_path, (char *)NULL);
		_exit(127);
	}
	children[child_count++] = child;
	for (;;) {
		ssize_t n = recv(manager, told, sizeof(told) - 1, 0);

		if (n < 0)
			give_up("draftd did not become ready");
		told[n] = '\0';
		if (strstr(told, "READY=1"))
			break;
	}
	close(manager);
}

static double ping_call(struct draft *draft)
{
	double begin = now_us();

	if (draft_ping(draft) < 0)
		give_up("ping: %s", draft_error(draft));
	return now_us() - begin;
}

/* The round trip less the device's time. */
static double draft_call(struct draft *draft, const struct draft_request *request)
{
	struct draft_result *result;
	double begin = now_us(), took;
	uint64_t ticket;

	if (draft_submit(draft, request, &ticket) < 0 || draft_poll(draft, -1, &result) != 1)
		give_up("draft: %s", draft_error(draft));
	took = now_us() - begin;
	if (result->code < 0)
		give_up("draft: %s", result->error);
	took -= (double)result->device_us;
	draft_result_free(result);
	return took;
}

static void print_machine(void)
{
	char processor[128] = "unknown processor", line[256], date[64];
	time_t now = time(NULL);
	FILE *file = fopen("/proc/cpuinfo", "r");
	struct utsname system;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "model name : %127[^\n]", processor) == 1)
			break;
	if (file)
		fclose(file);
	uname(&system);
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime(&now));
	printf("%s, %ld processors, Linux %s; %s; BUILD=%s tests/bench/wire_echo\n", processor,
		sysconf(_SC_NPROCESSORS_ONLN), system.release, date, build_folder());
}

static void print_row(const char *what, double us, double echo_us, const char *target)
{
	printf("  %-42s %8.2f %9.2f %8s\n", what, us, us / echo_us, target);
}

/* Servers on this processor of the usable ones, the client on the first. */
static void measure(const cpu_set_t *usable, int server_index, const char *where)
{
	static double calls[CALLS], echo[RUNS], ping[RUNS], drafted[RUNS];
	static const uint32_t anchors[] = {1};
	static const int64_t positions[] = {1}, seeds[] = {1};
	static const float temperatures[] = {0};
	char socket_path[64], error[256];
	struct draft_options options = {.size = sizeof(options), .socket_path = socket_path};
	struct draft_request request = {
		.size = sizeof(request),
		.rows = 1,
		.steps = STEPS,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
	};
	struct draft *draft;
	double echo_us;
	int fd;

	snprintf(socket_path, sizeof(socket_path), "%s/draftd.sock", folder);
	move_to(usable, server_index);
	fd = start_echo();
	start_daemon(socket_path);
	move_to(usable, 0);
	if (draft_connect(&options, &draft, error, sizeof(error)) < 0)
		give_up("%s", error);
	if (draft_region_open(
		    draft, STEPS * VOCAB * sizeof(uint16_t), DRAFT_HOST, &request.base.region) < 0)
		give_up("region: %s", draft_error(draft));

	for (int run = -1; run < RUNS; run++) { /* the first one warms up */
		for (int i = 0; i < CALLS; i++)
			calls[i] = echo_call(fd);
		echo[run < 0 ? 0 : run] = median(calls, CALLS);
		for (int i = 0; i < CALLS; i++)
			calls[i] = ping_call(draft);
		ping[run < 0 ? 0 : run] = median(calls, CALLS);
		for (int i = 0; i < CALLS; i++)
			calls[i] = draft_call(draft, &request);
		drafted[run < 0 ? 0 : run] = median(calls, CALLS);
	}
	echo_us = median(echo, RUNS);
	printf("\n  %-42s %8s %9s %8s\n", where, "us", "to echo", "target");
	print_row("bare echo of 17 bytes, two processes", echo_us, echo_us, "");
	print_row("ping through libdraft and draftd", median(ping, RUNS), echo_us, "<= 2");
	print_row(
		"1-row draft, V=512 K=4, less device time", median(drafted, RUNS), echo_us, "< 3");
	draft_close(draft);
	close(fd);
	stop_servers();
	unlink(strcat(strcpy(error, folder), "/notify"));
}

int main(void)
{
	cpu_set_t usable;

	if (sched_getaffinity(0, sizeof(usable), &usable) < 0 || !mkdtemp(folder))
		give_up("no processors, or no temporary folder");
	atexit(clean_up);
	print_machine();
	printf("p50 of %d round trips, median of %d runs\n", CALLS, RUNS);
	measure(&usable, 0, "all on one processor");
	if (CPU_COUNT(&usable) > 1)
		measure(&usable, 1, "servers on another processor");
	return EXIT_SUCCESS;
}
