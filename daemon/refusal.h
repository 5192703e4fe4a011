/* Why settings are refused: one sentence, and which settings it is about.
 *
 * The check that refuses knows both and says both. Whoever has the settings then adds where the
 * first of them that is from the file stands there, and which option of the command line it does
 * not fit; nobody looks into the sentence for either.
 * A value, zeroed before its use; any thread. */
#ifndef DAEMON_REFUSAL_H
#define DAEMON_REFUSAL_H

#include "kernels/error_text.h"

#include <stddef.h>

struct config;

/* How a refusal calls a setting: by where it lies in struct config. None lies at 0. */
#define SETTING(member) offsetof(struct config, member)

struct refusal {
	struct error_text sentence; /* "FILE:12: what is wrong; what would be right" */
	size_t file_bytes;          /* FILE's, when the sentence begins with it; else 0 */
	size_t about[2];            /* SETTING()s, the first one first; 0: no more */
};

/* Notes which settings the sentence is about: `first` (or 0), which does not fit `second` (or 0).
 * Returns the sentence, to be said. */
struct error_text *refusal_about(struct refusal *refusal, size_t first, size_t second);

/* Puts "FILE:LINE: " before a sentence about settings of `config`, if one of them is from its file,
 * and "FILE:LINE and --OPTION: " if the other one is from the command line. Once: where it has been
 * put already, nothing happens. */
void refusal_place(struct refusal *refusal, const struct config *config);

/* The same for a sentence about line `line` of the file `path`, or with 0 about all of it. */
void refusal_place_at(struct refusal *refusal, const char *path, unsigned line);

#endif
