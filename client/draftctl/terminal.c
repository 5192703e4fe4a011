#include "terminal.h"

#include "clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ENTER       "\x1b[?1049h\x1b[?25l" /* the alternate screen, no cursor */
#define LEAVE       "\x1b[?25h\x1b[?1049l"
#define HOME        "\x1b[H"
#define REST_BLANK  "\x1b[K" /* of the line */
#define BELOW_BLANK "\x1b[J"
#define COLUMNS_MAX 512u
#define LINES_MAX   512u

static struct termios before;
static volatile sig_atomic_t open_now, redraw;
static sigset_t waiting; /* the signals that are blocked during terminal_wait() only */

/* What a signal handler may do. A terminal that is gone needs nothing. */
static void write_all(const char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t done = write(STDOUT_FILENO, bytes, count);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return;
		bytes += done;
		count -= (size_t)done;
	}
}

static void enter(void)
{
	struct termios keys = before;

	keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	keys.c_cc[VMIN] = 1;
	keys.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
	write_all(ENTER, strlen(ENTER));
	redraw = 1;
}

static void leave(void)
{
	write_all(LEAVE, strlen(LEAVE));
	tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

void terminal_close(void)
{
	if (!open_now)
		return;
	open_now = 0;
	leave();
}

/* The signal comes again when the handler returns, and then does what it does to others. */
static void end(int number)
{
	terminal_close();
	raise(number);
}

static void stop(int number)
{
	const int saved = errno;

	(void)number;
	leave();
	raise(SIGSTOP);
	enter();
	errno = saved;
}

static void resized(int number)
{
	(void)number;
	redraw = 1;
}

static void handle(int number, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	struct sigaction old;

	/* What a parent had ignored (nohup) stays so. */
	sigaction(number, NULL, &old);
	if (old.sa_handler != SIG_IGN)
		sigaction(number, &action, NULL);
}

bool terminal_usable(void)
{
	const char *kind = getenv("TERM");

	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && kind != NULL &&
	       strcmp(kind, "dumb") != 0;
}

int terminal_open(struct error_text *error)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGABRT, SIGSEGV,
		SIGBUS, SIGFPE, SIGILL, SIGALRM, SIGUSR1, SIGUSR2};
	static bool registered;
	sigset_t blocked;

	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return error_text_set(
			error, errno, "cannot set the terminal up: %s", strerror(errno));
	if (!registered && atexit(terminal_close) != 0)
		return error_text_set(error, ENOMEM, "out of memory");
	registered = true;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGWINCH);
	sigprocmask(SIG_BLOCK, &blocked, &waiting);
	sigdelset(&waiting, SIGWINCH);
	open_now = 1;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		handle(ends[i], end, (int)SA_RESETHAND);
	handle(SIGTSTP, stop, SA_RESTART);
	handle(SIGWINCH, resized, 0);
	enter();
	redraw = 0; /* nothing has been shown yet */
	return 0;
}

void terminal_size(unsigned *ret_columns, unsigned *ret_lines)
{
	struct winsize size = {0};

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	*ret_columns = size.ws_col > 0 ? size.ws_col : 80;
	*ret_lines = size.ws_row > 0 ? size.ws_row : 24;
	if (*ret_columns > COLUMNS_MAX)
		*ret_columns = COLUMNS_MAX;
	if (*ret_lines > LINES_MAX)
		*ret_lines = LINES_MAX;
}

void terminal_show(const char *text)
{
	/* One write, so that no half of a screen is seen. */
	static char screen[LINES_MAX * (COLUMNS_MAX + 8) + 16];
	char *at = stpcpy(screen, HOME);
	unsigned columns, lines;

	terminal_size(&columns, &lines);
	for (unsigned line = 0; line < lines && *text; line++) {
		size_t length = strcspn(text, "\n");

		if (line > 0)
			at = stpcpy(at, "\r\n");
		for (size_t i = 0; i < length && i < columns; i++)
			*at++ = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
		if (length < columns)
			at = stpcpy(at, REST_BLANK);
		text += length + (text[length] == '\n');
	}
	at = stpcpy(at, BELOW_BLANK);
	write_all(screen, (size_t)(at - screen));
}

enum terminal_event terminal_wait(int64_t until_ns, char *ret_key)
{
	for (;;) {
		struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
		const int64_t left_ns = until_ns - clock_ns();
		const struct timespec left = {
			.tv_sec = left_ns > 0 ? (time_t)(left_ns / 1000000000) : 0,
			.tv_nsec = left_ns > 0 ? (long)(left_ns % 1000000000) : 0,
		};
		int r;

		if (redraw) {
			redraw = 0;
			return TERMINAL_REDRAW;
		}
		r = ppoll(&keys, 1, &left, &waiting);
		if (r == 0)
			return TERMINAL_TIMEOUT;
		if (r < 0 && errno != EINTR)
			return TERMINAL_GONE;
		if (r > 0) {
			ssize_t got = read(STDIN_FILENO, ret_key, 1);

			if (got == 1)
				return TERMINAL_KEY;
			if (got == 0 || errno != EINTR)
				return TERMINAL_GONE;
		}
	}
}
