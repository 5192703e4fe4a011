/* Serving another model, and other settings, without a restart. One at a time.
 *
 * Loop thread; a worker of libuv's loads. The server keeps the reload that is under way. */
#ifndef DAEMON_RELOAD_H
#define DAEMON_RELOAD_H

struct request;
struct server;

/* Loads configuration and model beside the old and swaps. `request` (or NULL: a signal asks) is
 * answered when it is done, or why not. */
void reload_begin(struct server *server, struct request *request);

void reload_swapped(struct server *server);   /* the engine serves from the new heads */
void reload_drained(struct server *server);   /* nobody needs to wait for it */
void reload_abandoned(struct server *server); /* the engine is gone with it */

#endif
