/* What a frame asks for: reads the envelope, finds the method, does it or starts it (PROTOCOL.md,
 * "Methods").
 *
 * Loop thread. The connection carries bytes and knows no method; the gateway knows methods and no
 * socket. */
#ifndef DAEMON_GATEWAY_H
#define DAEMON_GATEWAY_H

#include "connection.h"
#include "proto/frame.h"
#include "proto/message.h"

/* Answers the frame, or starts what will. Takes its descriptors. The connection may be closed
 * afterwards. */
void gateway_handle(struct connection *connection, const struct frame *frame);

/* gateway_draft.c. May detach the reader's buffer, in which the message lies: it must be the last
 * that looks at it. */
void gateway_draft(struct connection *connection, const struct message *message);

/* A draft is back from the engine: answers it and frees it. */
void gateway_draft_done(struct server *server, struct request *request);

/* gateway_region.c. `fd` of an import is taken over. */
void gateway_region_open(struct connection *connection, const struct message *message, int fd);
void gateway_region_close(struct connection *connection, const struct message *message);

/* gateway_event.c */
void gateway_event_import(struct connection *connection, const struct message *message);
void gateway_event_close(struct connection *connection, const struct message *message);
struct event *gateway_event_find(const struct connection *connection, uint32_t id);

/* The client will not learn of this region, which it did not close itself: closes it. */
void gateway_region_withdraw(struct connection *connection, uint32_t id);

/* The open region of this connection, or NULL. */
struct region *gateway_region_find(const struct connection *connection, uint32_t id);

#endif
