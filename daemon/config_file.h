/* The configuration file: [section], key = value, comments on lines of their own. Strict: whatever
 * is not understood is an error with its line. Called before threads exist and, for a reload, by
 * the loop thread. */
#ifndef DAEMON_CONFIG_FILE_H
#define DAEMON_CONFIG_FILE_H

#include "config.h"

#include <stddef.h>

/* Reads `path` into `config`, over what is there. Returns 0, or -errno with `refusal` placed,
 * "PATH:LINE: what is wrong; what would be right"; then `config` may hold some of the file's
 * settings. Blocks on the file. */
int config_file_read(const char *path, struct config *config, struct refusal *refusal);

/* The same of a file's contents; `path` is only for messages. */
int config_file_parse(const char *path, const char *text, size_t text_bytes, struct config *config,
	struct refusal *refusal);

#endif
