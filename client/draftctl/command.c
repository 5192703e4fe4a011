#include "command.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void say(const char *format, va_list arguments)
{
	fflush(stdout);
	fputs("draftctl: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
}

int command_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	return EXIT_FAILURE;
}

int command_misuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	return EXIT_USAGE;
}

void command_warn(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
}

int command_print_json(json_t *root)
{
	if (root == NULL)
		return command_fail(
			"cannot be told as JSON: out of memory, or text that is not UTF-8");
	json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(root);
	return EXIT_SUCCESS;
}

int command_connect(const struct common *common, struct draft **ret, struct error_text *error)
{
	return command_connect_spinning(common, 0, ret, error);
}

int command_connect_spinning(
	const struct common *common, int64_t spin_us, struct draft **ret, struct error_text *error)
{
	/* Where it is the environment's, libdraft is not told another, so that both name it. */
	bool from_environment = common->socket_path == getenv("DRAFTD_SOCKET");
	const char *origin = from_environment ? " (DRAFTD_SOCKET)" : "";
	struct draft_options options = {
		.size = sizeof(options),
		.socket_path = from_environment ? NULL : common->socket_path,
		.client_name = "draftctl/" DRAFTD_VERSION,
		.timeout_us = (int64_t)(common->timeout_s * 1e6),
		.spin_us = spin_us,
	};
	char text[384];
	int r;

	r = draft_connect(&options, ret, text, sizeof(text));
	if (r == -ENOENT || r == -ECONNREFUSED)
		return error_text_set(error, -r,
			"no draftd listens on %s%s: is it running? Start it with "
			"`draftd --socket %s --model FILE`, or name its socket with --socket",
			common->socket_path, origin, common->socket_path);
	if (r == -EACCES)
		return error_text_set(error, -r,
			"not allowed to connect to %s%s: the socket's mode and group "
			"say who may (see `ls -l`)",
			common->socket_path, origin);
	if (r == -EISDIR || r == -ENOTSOCK || r == -ENOTDIR) /* the path is in it */
		return error_text_set(error, -r, "%s", text);
	if (r < 0)
		return error_text_set(error, r <= -1000 ? EPROTO : -r, "%s: %s%s",
			common->socket_path, text, command_remedy(r));
	return 0;
}

const char *command_remedy(int code)
{
	return code == -ETIMEDOUT ? "; --timeout allows more" : "";
}

int command_no_answer(double timeout_s, struct error_text *error)
{
	return error_text_set(error, ETIMEDOUT,
		"draftd did not answer within the timeout of %g s%s", timeout_s,
		command_remedy(-ETIMEDOUT));
}

int command_check_shape(
	const struct draft_model *model, uint32_t rows, uint32_t steps, struct error_text *error)
{
	if (rows == 0 || rows > model->max_rows)
		return error_text_set(error, EINVAL, "rows is %u; this draftd takes 1 to %u", rows,
			model->max_rows);
	if (steps == 0 || steps > model->max_steps)
		return error_text_set(error, EINVAL, "steps is %u; this draftd takes 1 to %u",
			steps, model->max_steps);
	return 0;
}
