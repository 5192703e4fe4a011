/* Socket files in a folder of the test's own: stale ones are replaced, live ones are not stolen,
 * nothing is left behind. */
#include "daemon/limits.h"
#include "daemon/listener.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

Suite *listener_suite(void);

static char folder[] = "/tmp/draftd-listener-XXXXXX";
static char path[128], lock[140];
static struct listener listener;
static struct error_text error;

static void setup(void)
{
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/sock", folder);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	listener = (struct listener){.fd = -1, .lock_fd = -1};
}

static void teardown(void)
{
	listener_close(&listener);
	ck_assert_int_eq(rmdir(folder), 0); /* only when it is empty */
}

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	int r;

	strcpy(address.sun_path, path);
	r = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	close(fd);
	return r;
}

#define AS_MADE      ((gid_t)-1)
#define SETTING_NAME "[socket] path"

static int claim_and_open(struct listener *at)
{
	int r = listener_claim(at, path, SETTING_NAME, AS_MADE, &error);

	return r < 0 ? r : listener_open(at, 0640, &error);
}

START_TEST(listens_with_the_mode_and_leaves_nothing)
{
	struct stat file;

	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), 0);
	ck_assert_int_eq(dial(), -ENOENT); /* claimed is not open yet */
	ck_assert_int_eq(listener_open(&listener, 0640, &error), 0);
	ck_assert_int_eq(dial(), 0);
	ck_assert_int_eq(stat(path, &file), 0);
	ck_assert_int_eq(file.st_mode & 0777, 0640);
	listener_close(&listener);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(access(lock, F_OK), -1);
}
END_TEST

START_TEST(a_leftover_is_replaced)
{
	ck_assert_int_eq(claim_and_open(&listener), 0);
	close(listener.fd); /* as after kill -9: the files stay, the lock goes */
	listener.fd = -1;
	close(listener.lock_fd);
	listener.lock_fd = -1;
	listener.bound = false;
	free(listener.path);
	free(listener.lock_path);
	ck_assert_int_eq(dial(), -ECONNREFUSED);
	ck_assert_int_eq(claim_and_open(&listener), 0);
	ck_assert_int_eq(dial(), 0);
}
END_TEST

START_TEST(of_two_daemons_one_is_refused)
{
	struct listener second;

	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), 0);
	ck_assert_int_eq(listener_claim(&second, path, SETTING_NAME, AS_MADE, &error),
		-EADDRINUSE); /* even before the first listens */
	listener_close(&second);
	ck_assert_int_eq(access(lock, F_OK), 0);
	ck_assert_int_eq(listener_open(&listener, 0600, &error), 0);
	ck_assert_int_eq(listener_claim(&second, path, SETTING_NAME, AS_MADE, &error), -EADDRINUSE);
	listener_close(&second);
	ck_assert_int_eq(dial(), 0);
}
END_TEST

START_TEST(a_foreign_listener_is_not_stolen)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(
		listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), -EADDRINUSE);
	listener_close(&listener);
	ck_assert_int_eq(dial(), 0);
	close(fd);
	unlink(path);
}
END_TEST

START_TEST(other_files_are_not_touched)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	close(fd);
	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), -EEXIST);
	listener_close(&listener);
	ck_assert_int_eq(unlink(path), 0);

	/* Nobody is told to remove a folder. */
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), -EISDIR);
	ck_assert_ptr_nonnull(strstr(error.text, "is a folder; name a socket in it"));
	listener_close(&listener);
	ck_assert_int_eq(rmdir(path), 0);

	/* One that took our place while we served is not ours to remove. */
	ck_assert_int_eq(claim_and_open(&listener), 0);
	ck_assert_int_eq(unlink(path), 0);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	listener_close(&listener);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(a_lock_file_that_is_not_ours_is_not_touched)
{
	struct stat file;
	int fd = open(lock, O_CREAT | O_WRONLY, 0600);

	ck_assert_int_eq(write(fd, "precious", 8), 8);
	close(fd);
	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), -EEXIST);
	ck_assert_ptr_nonnull(strstr(error.text, lock));
	listener_close(&listener);
	ck_assert_int_eq(stat(lock, &file), 0);
	ck_assert_int_eq(file.st_size, 8);
	ck_assert_int_eq(unlink(lock), 0);
	ck_assert_int_eq(mkfifo(lock, 0600), 0);
	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), -EEXIST);
	listener_close(&listener);
	ck_assert_int_eq(unlink(lock), 0);
	/* An empty one is what a crash leaves. */
	close(open(lock, O_CREAT | O_WRONLY, 0600));
	ck_assert_int_eq(claim_and_open(&listener), 0);
	listener_close(&listener);
	ck_assert_int_eq(access(lock, F_OK), -1);
}
END_TEST

static const struct {
	const char *path;
	int code;
	const char *text;
	bool of_root; /* others are told that they may not */
} bad_places[] = {
	{"/nonexistent/deep/sock", ENOENT,
		"the socket's folder does not exist: /nonexistent/deep; make it, or choose another "
		"[socket] path",
		false},
	{"/dev/null/sock", ENOTDIR,
		"/dev/null, where the socket would be, is no folder; choose another [socket] path",
		false},
	{"/proc/sock", ENOENT,
		"no file can be made in /proc, the socket's folder; choose another [socket] path",
		true},
};

START_TEST(bad_places_get_a_sentence)
{
	char longest[LIMIT_SOCKET_PATH_BYTES + 2];
	size_t length = (size_t)snprintf(longest, sizeof(longest), "%s/", folder);

	memset(longest + length, 'x', sizeof(longest) - length);
	longest[LIMIT_SOCKET_PATH_BYTES + 1] = '\0';
	ck_assert_int_eq(
		listener_claim(&listener, longest, SETTING_NAME, AS_MADE, &error), -ENAMETOOLONG);
	listener_close(&listener);
	longest[LIMIT_SOCKET_PATH_BYTES] = '\0';
	ck_assert_int_eq(listener_claim(&listener, longest, SETTING_NAME, AS_MADE, &error), 0);
	ck_assert_int_eq(listener_open(&listener, 0600, &error), 0);
	listener_close(&listener);

	for (size_t i = 0; i < sizeof(bad_places) / sizeof(bad_places[0]); i++) {
		if (bad_places[i].of_root && getuid() != 0)
			continue;
		ck_assert_int_eq(listener_claim(&listener, bad_places[i].path, SETTING_NAME,
					 AS_MADE, &error),
			-bad_places[i].code);
		ck_assert_str_eq(error.text, bad_places[i].text);
		listener_close(&listener);
	}
}
END_TEST

static void refuses_as_the_claim_does(void)
{
	struct error_text seen;
	int r = listener_check(path, SETTING_NAME, &seen);

	ck_assert_int_lt(r, 0);
	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, AS_MADE, &error), r);
	ck_assert_str_eq(seen.text, error.text);
	listener_close(&listener);
}

START_TEST(a_check_sees_what_the_claim_would_say)
{
	char whole[sizeof(path)];

	strcpy(whole, path);
	ck_assert_int_eq(listener_check(path, SETTING_NAME, &error), 0);
	ck_assert_int_eq(access(lock, F_OK), -1); /* nothing is made */
	ck_assert_int_eq(mkdir(path, 0700), 0);
	refuses_as_the_claim_does();
	ck_assert_int_eq(rmdir(path), 0);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	refuses_as_the_claim_does();
	snprintf(path, sizeof(path), "%s/below", whole);
	refuses_as_the_claim_does();
	ck_assert_int_eq(unlink(whole), 0);
	refuses_as_the_claim_does();
	strcpy(path, whole);
	ck_assert_int_eq(mkfifo(lock, 0600), 0);
	refuses_as_the_claim_does();
	ck_assert_int_eq(unlink(lock), 0);

	/* Of a daemon that runs. */
	ck_assert_int_eq(claim_and_open(&listener), 0);
	ck_assert_int_eq(listener_check(path, SETTING_NAME, &error), 0);
	ck_assert_int_eq(dial(), 0);
}
END_TEST

/* Which group it is, and that nobody else may connect. A test of root gives it to a group of none
 * of its own; others to one of theirs. */
START_TEST(the_socket_is_given_to_its_group)
{
	gid_t wanted = getuid() == 0 ? 54321 : getgid(), found = 0;
	struct stat file;
	char name[32];

	snprintf(name, sizeof(name), "%lu", (unsigned long)wanted);
	ck_assert_int_eq(listener_find_group(name, "", &found, &error), 0);
	ck_assert_uint_eq(found, wanted);
	ck_assert_int_eq(listener_claim(&listener, path, SETTING_NAME, found, &error), 0);
	ck_assert_int_eq(listener_open(&listener, 0660, &error), 0);
	ck_assert_int_eq(stat(path, &file), 0);
	ck_assert_uint_eq(file.st_gid, wanted);
	ck_assert_int_eq(file.st_mode & 0777, 0660);
	ck_assert_int_eq(dial(), 0);

	ck_assert_int_eq(listener_find_group("root", "", &found, &error), 0);
	ck_assert_uint_eq(found, 0);
	ck_assert_int_eq(listener_find_group(NULL, "", &found, &error), 0);
	ck_assert_uint_eq(found, (gid_t)-1);
}
END_TEST

START_TEST(groups_that_do_not_exist_are_refused)
{
	static const char *const names[] = {
		"no-such-group", "12x", "-1", "4294967295", "99999999999999999999"};
	gid_t found;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ck_assert_int_eq(
			listener_find_group(names[i], "--socket-group", &found, &error), -ENOENT);
		ck_assert_ptr_nonnull(strstr(error.text, names[i]));
		ck_assert_int_eq(strncmp(error.text, "--socket-group is ", 18), 0);
		ck_assert_ptr_nonnull(strstr(error.text, "groupadd"));
	}
}
END_TEST

Suite *listener_suite(void)
{
	Suite *suite = suite_create("listener");
	TCase *tcase = tcase_create("listener");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, listens_with_the_mode_and_leaves_nothing);
	tcase_add_test(tcase, the_socket_is_given_to_its_group);
	tcase_add_test(tcase, groups_that_do_not_exist_are_refused);
	tcase_add_test(tcase, a_leftover_is_replaced);
	tcase_add_test(tcase, of_two_daemons_one_is_refused);
	tcase_add_test(tcase, a_foreign_listener_is_not_stolen);
	tcase_add_test(tcase, other_files_are_not_touched);
	tcase_add_test(tcase, a_lock_file_that_is_not_ours_is_not_touched);
	tcase_add_test(tcase, bad_places_get_a_sentence);
	tcase_add_test(tcase, a_check_sees_what_the_claim_would_say);
	suite_add_tcase(suite, tcase);
	return suite;
}
