#include "service.h"

#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_S 120

static int listen_for_notices(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct timeval patience = {.tv_sec = START_S};
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		die("no socket %s", path);
	return fd;
}

void service_start(
	struct service *s, const char *programs, const char *model, const char *device_memory)
{
	char program[4096], notify[80], text[4096];
	snprintf(program, sizeof(program), "%s/draftd", programs);
	snprintf(s->socket, sizeof(s->socket), "/tmp/draftd-gpu-tests-%d.sock", getpid());
	snprintf(notify, sizeof(notify), "%s.notify", s->socket);
	s->notices = listen_for_notices(notify);
	s->pid = fork();
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM); /* tests may end in the middle */
		setenv("NOTIFY_SOCKET", notify, 1);
		execl(program, program, "--backend", "cuda", "--model", model, "--socket",
			s->socket, "--max-device-bytes", device_memory, "--log-level", "warning",
			NULL);
		_exit(127);
	}
	for (;;) {
		const ssize_t bytes = recv(s->notices, text, sizeof(text) - 1, 0);
		if (s->pid < 0 || bytes <= 0 || waitpid(s->pid, NULL, WNOHANG) == s->pid)
			die("%s does not start", program);
		text[bytes] = '\0';
		if (strstr(text, "READY=1"))
			break;
	}
	unlink(notify);
}

void service_stop(struct service *s)
{
	int status = -1;
	kill(s->pid, SIGTERM);
	waitpid(s->pid, &status, 0);
	test_result(WIFEXITED(status) && WEXITSTATUS(status) == 0, "draftd ended with status %x",
		(unsigned)status);
	close(s->notices);
}

struct draft *service_connect(const struct service *s)
{
	const struct draft_options options = {.size = sizeof(options), .socket_path = s->socket};
	struct draft *draft;
	char error[512];
	if (draft_connect(&options, &draft, error, sizeof(error)))
		die("%s", error);
	return draft;
}

unsigned long long service_count(struct draft *draft, const char *key)
{
	char *json, quoted[80];
	if (draft_stats(draft, &json))
		die("%s", draft_error(draft));
	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	const char *at = strstr(json, quoted);
	if (!at)
		die("no %s in the statistics", key);
	const unsigned long long count = strtoull(at + strlen(quoted), NULL, 10);
	free(json);
	return count;
}

int run_program(const char *const arguments[])
{
	int status = -1;
	const pid_t pid = fork();
	if (pid == 0) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(127);
		execv(arguments[0], (char *const *)(uintptr_t)arguments);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	return status;
}
