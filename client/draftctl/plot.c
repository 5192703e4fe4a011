#include "plot.h"

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char commands[] =
	"set terminal pngcairo noenhanced size 1100,650\n"
	"set datafile separator ','\n"
	"set logscale xy\n"
	"set xrange [1:]\n"
	"set xtics ('0%%' 1, '50%%' 2, '90%%' 10, '99%%' 100, '99.9%%' 1e3, '99.99%%' 1e4, "
	"'99.999%%' "
	"1e5, "
	"'99.9999%%' 1e6, '99.99999%%' 1e7)\n"
	"set xlabel 'share of the requests'\n"
	"set ylabel 'microseconds'\n"
	"set grid\n"
	"set key left top\n"
	"share(f) = f < 1 ? 1 / (1 - f) : NaN\n"
	"plot $spectrum using (share($1)):2 with lines lw 2 title 'latency seen by the client', "
	"'' using (share($1)):5 with lines lw 2 title 'draftd: total', "
	"'' using (share($1)):7 with lines lw 2 title 'draftd: device'\n";

/* Runs gnuplot from one descriptor to another; its complaints go where ours go. -ENOENT without it,
 * -EIO when it fails. */
static int run_gnuplot(char *argument, int in, int out)
{
	char *arguments[] = {(char[]){"gnuplot"}, argument, NULL};
	posix_spawn_file_actions_t actions;
	int status, r;
	pid_t child;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return -ENOMEM;
	r = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return -r;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int fail(int code, struct error_text *error)
{
	if (code == -ENOENT)
		return error_text_set(error, ENOENT,
			"--plot needs gnuplot, and there is none on the PATH: install it (Debian: "
			"gnuplot-nox), or take the figures with --csv FILE");
	return error_text_set(error, -code, "--plot: gnuplot failed: %s", strerrordesc_np(-code));
}

int plot_check(struct error_text *error)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int r = null < 0 ? -errno : run_gnuplot((char[]){"--version"}, null, null);

	if (null >= 0)
		close(null);
	return r < 0 ? fail(r, error) : 0;
}

/* The title between quotes, which it can't leave. */
static int write_script(int fd, const char *title, const char *csv)
{
	FILE *to = fdopen(dup(fd), "w");

	if (to == NULL)
		return -errno;
	fputs("$spectrum << END\n", to);
	fputs(csv, to);
	fputs("END\nset title '", to);
	for (; *title != '\0'; title++)
		fputc(*title == '\'' || *title < ' ' ? '?' : *title, to);
	fputs("'\n", to);
	fputs(commands, to);
	return fclose(to) == 0 ? 0 : -errno;
}

/* Draws into a file in memory, for gnuplot does not say when a disk is full. */
static int draw(const char *title, const char *csv, int picture)
{
	int script = memfd_create("gnuplot", MFD_CLOEXEC);
	int r = script < 0 ? -errno : write_script(script, title, csv);

	if (r == 0 && lseek(script, 0, SEEK_SET) < 0)
		r = -errno;
	if (r == 0)
		r = run_gnuplot((char[]){"-"}, script, picture);
	if (script >= 0)
		close(script);
	return r;
}

int plot_spectrum(const char *path, const char *title, const char *csv, struct error_text *error)
{
	int picture = memfd_create("picture", MFD_CLOEXEC);
	int r = picture < 0 ? -errno : draw(title, csv, picture);
	off_t size = r == 0 ? lseek(picture, 0, SEEK_END) : 0;
	char *bytes = MAP_FAILED;

	if (r == 0 && size <= 0)
		r = size < 0 ? -errno : -EIO;
	if (r == 0) {
		bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, picture, 0);
		r = bytes == MAP_FAILED ? -errno : 0;
	}
	r = r < 0 ? fail(r, error) : file_replace(path, bytes, (size_t)size, error);
	if (bytes != MAP_FAILED)
		munmap(bytes, (size_t)size);
	if (picture >= 0)
		close(picture);
	return r;
}
