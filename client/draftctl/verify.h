/* Checks a sample of replies against the CPU backend inside the tool: tokens, flags and draft
 * logits, bit for bit.
 *
 * The sample is drawn while a load runs (each exchange is as likely to be in it as any other) and
 * computed afterwards, so that the load is not slowed. Exchanges may come from several threads; the
 * rest is one thread's. The exchanges' base logits must still be there. */
#ifndef DRAFTCTL_VERIFY_H
#define DRAFTCTL_VERIFY_H

#include "kernels/error_text.h"
#include "load.h"

struct verify;

/* Opens the model's file, which must be what draftd serves, for the exchanges of such a load.
 * Returns 0, or -errno with `error`. */
int verify_open(const char *model_path, const struct draft_model *served,
	const struct load_options *load, struct verify **ret, struct error_text *error);
void verify_close(struct verify *verify); /* NULL is fine */

/* A load_observer; `user` is the struct verify. */
void verify_observe(void *user, const struct load_exchange *exchange);

/* Recomputes the sample. `ret_checked` replies were compared, `ret_different` of them differ;
 * `text` tells the first difference. Returns 0, or -errno with `error`. */
int verify_run(struct verify *verify, unsigned *ret_checked, unsigned *ret_different, char *text,
	size_t text_bytes, struct error_text *error);

#endif
