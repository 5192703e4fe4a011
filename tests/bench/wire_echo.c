/* What the wire and the daemon add: `ping` and a 1-row draft through a running draftd, beside a
 * bare echo of a ping's bytes between two processes over the same kind of socket, all in one run;
 * first sleeping until something comes, then with every thread looking for it (the echo too).
 *
 * Waking a process costs little on the processor that one is on, and much on another one that
 * idles; so the servers are put in the same place: beside the client, then on all processors but
 * its own. Of a draft the device's own time (what the launch took, as the daemon measured it) is
 * taken off. Each figure is the median over the runs of the p50 or p99 of the round trips of one;
 * runs of the kinds alternate, so that a busy machine disturbs all alike. */
#include "client/draft.h"

#include <errno.h>
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
#define SPIN_US    100000
#define SPIN_TEXT  "100ms"

static const char *backend = "cpu", *vocab = "512", *rank = "16";
static unsigned steps = 4;
static enum draft_memory memory = DRAFT_HOST;
static char programs[192]; /* the folder of draftd and draftctl */

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

/* Round trips of one kind. */
struct figure {
	double calls[CALLS];
	double p50[RUNS], p99[RUNS];
};

static void end_run(struct figure *figure, int run)
{
	qsort(figure->calls, CALLS, sizeof(*figure->calls), compare);
	figure->p50[run] = figure->calls[CALLS / 2];
	figure->p99[run] = figure->calls[CALLS * 99 / 100];
}

static double median(double *values)
{
	qsort(values, RUNS, sizeof(*values), compare);
	return values[RUNS / 2];
}

/* The calling process, and what it will fork, onto the first processor that it may use, or onto the
 * others. */
static void move_to(const cpu_set_t *usable, bool first)
{
	cpu_set_t chosen = *usable, one;
	size_t cpu = 0;

	while (!CPU_ISSET(cpu, usable))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CPU_CLR(cpu, &chosen);
	if (sched_setaffinity(0, sizeof(one), first ? &one : &chosen) < 0)
		give_up("no way onto a processor");
}

/* ---- the bare echo ---- */

static ssize_t receive(int fd, char *bytes, bool spin)
{
	ssize_t n;

	do
		n = recv(fd, bytes, PING_BYTES, spin ? MSG_DONTWAIT : 0);
	while (n < 0 && errno == EAGAIN);
	return n;
}

static int start_echo(bool spin)
{
	int ends[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 || (child = fork()) < 0)
		give_up("the echo can't be started");
	if (child == 0) {
		char bytes[PING_BYTES];
		ssize_t n;

		close(ends[0]);
		while ((n = receive(ends[1], bytes, spin)) > 0)
			if (send(ends[1], bytes, (size_t)n, MSG_NOSIGNAL) < 0)
				break;
		_exit(0);
	}
	close(ends[1]);
	children[child_count++] = child;
	return ends[0];
}

static double echo_call(int fd, bool spin)
{
	char bytes[PING_BYTES] = {0};
	double begin = now_us();

	if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) < 0 ||
		receive(fd, bytes, spin) != sizeof(bytes))
		give_up("the echo is gone");
	return now_us() - begin;
}

/* ---- the daemon ---- */

/* In an archive they lie beside this program, else in the build folder. */
static void find_programs(void)
{
	const char *build = getenv("BUILD");
	char own[128], beside[160];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	char *slash;

	snprintf(programs, sizeof(programs), "%s", build ? build : "build");
	own[n > 0 ? n : 0] = '\0';
	slash = strrchr(own, '/');
	if (build || !slash)
		return;
	*slash = '\0';
	snprintf(beside, sizeof(beside), "%s/draftd", own);
	if (access(beside, X_OK) == 0)
		snprintf(programs, sizeof(programs), "%s", own);
}

/* Starts draftd on a model of its own, and waits until it says that it is ready. */
static void start_daemon(const char *socket_path, bool spin)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = 1};
	char command[512], model[128], program[256], told[1024];
	const char *time = spin ? SPIN_TEXT : "0us";
	int manager;
	pid_t child;

	snprintf(model, sizeof(model), "%s/tiny.safetensors", folder);
	snprintf(program, sizeof(program), "%s/draftd", programs);
	snprintf(command, sizeof(command),
		"%s/draftctl model make --force --vocab %s --rank %s --seed 1 %s >/dev/null",
		programs, vocab, rank, model);
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
		execl(program, "draftd", "--backend", backend, "--threads", "1", "--log-level",
			"error", "--model", model, "--socket", socket_path, "--engine-spin", time,
			"--loop-spin", time, (char *)NULL);
		_exit(127);
	}
	children[child_count++] = child;
	for (unsigned seconds = 0;;) {
		ssize_t n = recv(manager, told, sizeof(told) - 1, 0);

		told[n > 0 ? n : 0] = '\0';
		if (strstr(told, "READY=1"))
			break;
		if (n < 0 && (waitpid(child, NULL, WNOHANG) == child || ++seconds == 120))
			give_up("draftd did not become ready");
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

/* The round trip, and of it the device's time. */
static double draft_call(
	struct draft *draft, const struct draft_request *request, double *ret_device_us)
{
	struct draft_result *result;
	double begin = now_us(), took;
	uint64_t ticket;

	if (draft_submit(draft, request, &ticket) < 0 || draft_poll(draft, -1, &result) != 1)
		give_up("draft: %s", draft_error(draft));
	took = now_us() - begin;
	if (result->code < 0)
		give_up("draft: %s", result->error);
	*ret_device_us = (double)result->device_us;
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
	printf("%s, %ld processors, Linux %s; %s\n", processor, sysconf(_SC_NPROCESSORS_ONLN),
		system.release, date);
}

static void print_row(const char *what, struct figure *figure, double echo_us, const char *target)
{
	double p50 = median(figure->p50);

	printf("  %-42s %8.2f %8.2f %9.2f %8s\n", what, p50, median(figure->p99), p50 / echo_us,
		target);
}

/* Servers beside the client on the first of the usable processors, or on the others. */
static void measure(const cpu_set_t *usable, bool beside, bool spin, const char *where)
{
	static struct figure echo, ping, whole, device, rest;
	static const uint32_t anchors[] = {1};
	static const int64_t positions[] = {1}, seeds[] = {1};
	static const float temperatures[] = {0};
	char socket_path[64], error[256];
	struct draft_options options = {
		.size = sizeof(options),
		.socket_path = socket_path,
		.spin_us = spin ? SPIN_US : 0,
	};
	struct draft_request request = {
		.size = sizeof(request),
		.rows = 1,
		.steps = steps,
		.anchors = anchors,
		.positions = positions,
		.seeds = seeds,
		.temperatures = temperatures,
	};
	struct draft *draft;
	double echo_us;
	int fd;

	snprintf(socket_path, sizeof(socket_path), "%s/draftd.sock", folder);
	move_to(usable, beside);
	fd = start_echo(spin);
	start_daemon(socket_path, spin);
	move_to(usable, true);
	if (draft_connect(&options, &draft, error, sizeof(error)) < 0)
		give_up("%s", error);
	if (draft_region_open(draft, (uint64_t)steps * strtoul(vocab, NULL, 10) * sizeof(uint16_t),
		    memory, &request.base.region) < 0)
		give_up("region: %s", draft_error(draft));

	for (int run = -1; run < RUNS; run++) { /* the first one warms up */
		int at = run < 0 ? 0 : run;

		for (int i = 0; i < CALLS; i++)
			echo.calls[i] = echo_call(fd, spin);
		for (int i = 0; i < CALLS; i++)
			ping.calls[i] = ping_call(draft);
		for (int i = 0; i < CALLS; i++) {
			whole.calls[i] = draft_call(draft, &request, &device.calls[i]);
			rest.calls[i] = whole.calls[i] - device.calls[i];
		}
		end_run(&echo, at);
		end_run(&ping, at);
		end_run(&whole, at);
		end_run(&device, at);
		end_run(&rest, at);
	}
	echo_us = median(echo.p50);
	printf("\n  %-42s %8s %8s %9s %8s\n", where, "p50 us", "p99 us", "to echo", "target");
	print_row("bare echo of 17 bytes, two processes", &echo, echo_us, "");
	print_row("ping through libdraft and draftd", &ping, echo_us, spin ? "" : "<= 2");
	print_row("1-row draft", &whole, echo_us, "");
	print_row("  its launch, as draftd measured it", &device, echo_us, "");
	print_row("  the rest of each", &rest, echo_us, spin ? "" : "< 3");
	fflush(stdout);
	draft_close(draft);
	close(fd);
	stop_servers();
	unlink(strcat(strcpy(error, folder), "/notify"));
}

static void read_options(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "b:v:r:k:d")) >= 0) {
		switch (option) {
		case 'b':
			backend = optarg;
			break;
		case 'v':
			vocab = optarg;
			break;
		case 'r':
			rank = optarg;
			break;
		case 'k':
			steps = (unsigned)strtoul(optarg, NULL, 10);
			break;
		case 'd':
			memory = DRAFT_DEVICE;
			break;
		default:
			give_up("usage: %s [-b cpu|cuda] [-v VOCAB] [-r RANK] [-k STEPS] [-d]\n"
				"-d: base logits in a device region, not a host region",
				argv[0]);
		}
	}
}

int main(int argc, char **argv)
{
	cpu_set_t usable;

	read_options(argc, argv);
	find_programs();
	if (sched_getaffinity(0, sizeof(usable), &usable) < 0 || !mkdtemp(folder))
		give_up("no processors, or no temporary folder");
	atexit(clean_up);
	print_machine();
	printf("V=%s R=%s K=%u on %s, base in a %s region; %d round trips, median of %d runs\n",
		vocab, rank, steps, backend, memory == DRAFT_HOST ? "host" : "device", CALLS, RUNS);
	measure(&usable, true, false, "all on one processor");
	if (CPU_COUNT(&usable) > 1)
		measure(&usable, false, false, "servers on other processors");
	/* The client, the daemon's loop and its engine, and one for everything else. */
	if (CPU_COUNT(&usable) >= 4)
		measure(&usable, false, true, "the same, all spinning");
	else
		printf("\n  the same, all spinning: waived, it takes 4 processors\n");
	return EXIT_SUCCESS;
}
