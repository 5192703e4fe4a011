/* What the operator asked for: defaults, then the configuration file, then the command line.
 *
 * One table (options.h) feeds the file's parser, getopt and --help. Parsed before any thread
 * exists; a parsed config is a value that owns its strings and is never changed afterwards (a
 * reload parses a new one). */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include "kernels/markov.h"
#include "refusal.h"

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_MAX 64 /* rows of options.h's table, at most */

/* Where an option's value is from: a line of the file, or one of these. */
#define ORIGIN_DEFAULT      0u
#define ORIGIN_COMMAND_LINE UINT32_MAX

struct config {
	uint32_t origins[OPTIONS_MAX]; /* of each option's value */

	/* where and what */
	char *config_path;    /* NULL: none */
	char *socket_path;    /* --socket; default /run/draftd/draftd.sock */
	uint32_t socket_mode; /* 0660 */
	char *socket_group;   /* NULL: as the file is made */
	char *model_path;     /* --model; required unless --help, --version */
	enum markov_backend backend;
	char *devices;            /* --devices LIST; NULL: the first */
	uint32_t tensor_parallel; /* devices of a replica */
	uint32_t replicas;        /* groups of so many in the list */
	uint32_t threads;         /* CPU backend, of a replica; 0: its share of the usable cores */
	struct markov_cuda_options cuda;
	uint64_t engine_spin_us, loop_spin_us; /* how long the threads look before they sleep */
	bool has_multiplier, has_soft_cap;
	float multiplier, soft_cap;

	/* limits; ranges and defaults in limits.h */
	uint32_t max_rows, max_steps;
	uint32_t max_connections;
	uint32_t max_user_connections;
	uint32_t max_inflight;      /* a connection */
	uint32_t max_user_inflight; /* all connections of a user */
	uint32_t max_queue;         /* requests waiting, of all connections */
	uint32_t max_regions;       /* a connection */
	uint64_t max_region_bytes;  /* one region */
	uint64_t max_memory_bytes;  /* all host regions of all connections */
	uint64_t max_user_memory_bytes;
	uint64_t max_device_bytes; /* all device regions of all connections; 0: none */
	uint64_t max_user_device_bytes;
	uint32_t max_user_events;
	uint32_t max_frame_bytes;
	uint64_t max_user_inline_bytes; /* inline data, unread replies, unfinished frames */
	uint64_t max_output_bytes; /* unread replies of a connection, then it is disconnected */
	uint64_t hello_timeout_us;
	uint64_t frame_timeout_us;
	uint64_t event_timeout_us; /* from a draft's arrival to its event */
	uint64_t drain_timeout_us;

	/* how much to say */
	int log_level; /* syslog level: 3 error … 7 debug */

	/* actions */
	bool check_config;
};

/* Reads the command line, and the file that --config names, into `*ret`. Returns 0; 1 when --help
 * or --version was answered on stdout and there is nothing to do; -errno with `refusal` placed
 * ("FILE:12: …", "--max-rows is …"). */
int config_parse(int argc, char **argv, struct config *ret, struct refusal *refusal);

/* The same command line and file again, for a reload. */
int config_reparse(const struct config *running, int argc, char **argv, struct config *ret,
	struct refusal *refusal);

/* The most bytes of inline data, unread replies and unfinished frames that may be held: for all,
 * and for one connection's requests. */
uint64_t config_held_max(const struct config *config);
uint64_t config_held_max_connection(const struct config *config);

/* Where a setting's value is from; see `origins`. `setting` is a SETTING() with a row in the table.
 */
uint32_t config_origin(const struct config *config, size_t setting);

/* A setting as its reader knows it. */
struct setting_name {
	char at[64];
};

/* As it was given: "[socket] path" where it is from the file, else "--socket". */
struct setting_name config_name(const struct config *config, size_t setting);

/* Names the settings that were given and that only GPUs use, as they were given: "--devices, [cuda]
 * form"; "": none. */
void config_list_of_gpu(const struct config *config, char *text, size_t text_bytes);

void config_done(struct config *config); /* frees the strings; of a zeroed one: nothing */

#endif
