/* draftctl drain and reload: what root and draftd's own user may ask of the service. */
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* These commands have no options of their own. */
static const struct option_spec options[] = {{0}};

static int run_drain(const struct common *common, const void *values, char **operands)
{
	struct draft *draft = NULL;
	struct error_text error;
	int r, code = EXIT_SUCCESS;

	(void)values;
	(void)operands;
	if (command_connect(common, &draft, &error) < 0)
		return command_fail("%s", error.text);
	r = draft_drain(draft);
	if (r < 0)
		code = command_fail("drain: %s%s", draft_error(draft), command_remedy(r));
	else
		printf("%s finishes what is queued and takes no more\n",
			draft_model(draft)->server);
	draft_close(draft);
	return code;
}

static int run_reload(const struct common *common, const void *values, char **operands)
{
	struct draft *draft = NULL;
	struct error_text error;
	int code = EXIT_SUCCESS;
	int r;

	(void)values;
	(void)operands;
	if (command_connect(common, &draft, &error) < 0)
		return command_fail("%s", error.text);
	r = draft_reload(draft);
	if (r == -ETIMEDOUT) {
		code = command_fail("reload: %s and goes on loading: `draftctl info` shows the "
				    "generation, a longer --timeout waits for it",
			draft_error(draft));
		goto out;
	}
	if (r < 0) {
		code = command_fail("reload: %s", draft_error(draft));
		goto out;
	}
	/* A new hello has the new generation and the new model. */
	r = draft_reconnect(draft);
	if (r < 0) {
		code = command_fail(
			"reloaded, but then: %s%s", draft_error(draft), command_remedy(r));
		goto out;
	}
	printf("%s serves %s, generation %" PRIu64 "\n", draft_model(draft)->server,
		draft_model(draft)->name, draft_model(draft)->generation);
out:
	draft_close(draft);
	return code;
}

const struct command command_drain = {
	.name = "drain",
	.summary = "let draftd finish its work and exit (root or its own user)",
	.description =
		"Asks draftd to stop accepting, tell its clients, finish what is queued and exit.",
	.options = options,
	.run = run_drain,
};

const struct command command_reload = {
	.name = "reload",
	.summary = "load the model and configuration anew (root or draftd's own user)",
	.description =
		"Asks draftd to read its configuration and model again beside the old one and to "
		"swap them between two launches. Returns when the new one serves; if it cannot "
		"be loaded, the old one serves on. Loading can take longer than the default "
		"--timeout, and goes on after it.",
	.options = options,
	.run = run_reload,
};
