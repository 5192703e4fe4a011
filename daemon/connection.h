/* One client: its socket, what it sent, what it has in flight, what it has still to read.
 *
 * Loop thread. The happy path: accepted, hello, requests and replies, end of the client's stream,
 * last replies, closed. When the daemon drains, the streams end the other way round: the daemon's
 * first, then the client's. What else ends it: no hello in time, a frame that breaks the rules or
 * does not become whole (last words, then closed), replies that nobody reads, a socket that breaks.
 * However it ends, queued drafts are taken back, running ones are discarded when they come back,
 * and regions and events go after their last use. The struct is freed by libuv's last close
 * callback. */
#ifndef DAEMON_CONNECTION_H
#define DAEMON_CONNECTION_H

#include "list.h"
#include "log.h"
#include "outbox.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "request.h"
#include "scheduler.h"
#include "user.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#define CONNECTION_ID_SLOTS 64

struct server;

enum connection_state {
	CONNECTION_GREETING, /* waits for hello */
	CONNECTION_OPEN,
	CONNECTION_FINISHING, /* nothing more is read; what is in flight is answered, then it closes
			       */
	CONNECTION_CLOSING,   /* nothing more is read or answered; the last words go out, then it
				 closes */
	CONNECTION_LINGERING, /* all is answered and the stream to the client has ended; what still
				 comes is thrown away until the client ends its own */
	CONNECTION_CLOSED,    /* waits for libuv's close callbacks */
};

struct connection {
	struct link link;  /* the server's connections */
	struct link ready; /* the server's list of those that wait for another turn */
	struct link dirty; /* the server's list of those to settle */
	struct server *server;
	uint64_t number; /* for the log */
	pid_t pid;
	struct user *user; /* held until it is closed */
	int fd;
	enum connection_state state;

	uv_poll_t poll;
	uv_timer_t timer; /* of the state: hello, an unfinished frame, last words, … */
	int poll_events;
	bool client_ended; /* its end of stream has come */
	unsigned handles;

	struct frame_reader reader;
	uint64_t reader_bytes; /* as charged to the server */
	bool turn_over;        /* what was asked for has taken a whole turn */
	bool greedy;           /* the last turn was not enough: the others' come first */
	struct outbox outbox;
	uint64_t bulk_bytes;                /* of the outbox: logits */
	uint64_t outbox_bytes, outbox_peak; /* as charged to the server: now, at most */
	struct drain_look {
		uint64_t sent; /* of the outbox, then */
		int unread;    /* what the socket held for the client, as the kernel counts it */
		unsigned idle; /* looks in a row without a change although replies waited */
	} drain_look;          /* the last one, while the daemon drains */

	struct request *by_id[CONNECTION_ID_SLOTS]; /* calls that are not answered */
	uint32_t pending;                           /* how many */
	uint32_t inflight;                          /* these, and answers that are not written */
	uint64_t held_bytes;                        /* of its requests and their bulk replies */
	struct scheduler_flow flow;                 /* the engine's: its share of the device */

	struct link regions;   /* open */
	uint32_t region_count; /* open, opening and closing */
	uint32_t next_region;

	struct link events;   /* open */
	uint32_t event_count; /* open, opening and closing */
	uint32_t next_event;
};

/* Takes over an accepted socket of process `pid` of `user`, whom it holds. Returns 0 or -errno,
 * then `fd` is closed. */
int connection_start(struct server *server, int fd, pid_t pid, struct user *user);

/* Receives and handles frames, those that are left in the reader first: at most a turn's worth.
 * Whether there were any. */
bool connection_take_turn(struct connection *connection);

/* Sends what there is to send, and decides what is next: read, wait for the socket, close. */
void connection_settle(struct connection *connection);

/* Keeps the server's and the user's books about what is held. */
void connection_charge(struct connection *connection, uint64_t more, uint64_t less);

/* Whether so much more may be held, of this user and of all. 0, or -1 with `fault`. */
int connection_check_held(
	const struct connection *connection, uint64_t more, struct message_fault *fault);

/* Ends it now, whatever is left. `reason` is for the log. */
void connection_close(struct connection *connection, int priority, const char *reason);

/* The daemon drains: says so. What the client has sent and still sends is answered for at most
 * LIMIT_DRAIN_READ_US; the connection ends when nothing is in flight, or when the client reads
 * nothing for LIMIT_DRAIN_UNREAD_US although replies wait. */
void connection_drain(struct connection *connection, const char *reason);

/* ---- for the methods (gateway) ---- */

/* Puts a frame that an encoder wrote; a NULL parcel, or one whose buffer failed, closes the
 * connection. */
void connection_send(struct connection *connection, struct parcel *parcel);

/* An error reply, counted and logged. Codes that end the connection end it. */
void connection_refuse(struct connection *connection, bool has_id, uint32_t id,
	enum error_code code, const char *text);

/* So many requests in flight more, or less: of the connection, its user, and the server. */
void connection_count_inflight(struct connection *connection, int change);

/* Calls that are answered later: found by id, charged for `request->held_bytes`. */
struct request *connection_find(const struct connection *connection, uint32_t id);
void connection_add(struct connection *connection, struct request *request);
/* A call that was added, for a message; or NULL, and the client is refused for want of memory. */
struct request *connection_begin(struct connection *connection, const struct message *message);

/* The call is answered by `parcel` (as connection_send()), `{}` or an error; the request is freed.
 * Its client may be gone. */
void connection_answer(struct server *server, struct request *request, struct parcel *parcel);
void connection_answer_empty(struct server *server, struct request *request);
void connection_answer_error(
	struct server *server, struct request *request, enum error_code code, const char *text);

struct log_context connection_context(const struct connection *connection);

/* ---- between connection.c, connection_calls.c, connection_drain.c and connection_receive.c ----
 */

bool connection_reads(const struct connection *connection);

/* The socket is readable: it is the client's turn, now or after those who want less. */
void connection_receive(struct connection *connection);

/* Lingering, and the socket is readable: throws away a turn's worth. */
void connection_discard(struct connection *connection);

/* While the daemon drains: whether all that the client has sent is handled and answered. */
bool connection_has_caught_up(const struct connection *connection);

/* Has connection_settle() called at the end of the callback. */
void connection_touch(struct connection *connection);

/* Nothing more is read, and only what is in the outbox goes out, for at most
 * LIMIT_CLOSE_TIMEOUT_US. */
void connection_begin_closing(struct connection *connection);

/* Nobody waits for the calls any more. A queued draft is taken back, one that runs comes back
 * without a connection. */
void connection_abandon_calls(struct connection *connection);

void connection_note_error(
	struct connection *connection, uint32_t id, enum error_code code, const char *text);
struct parcel *connection_error_parcel(
	bool has_id, uint32_t id, enum error_code code, const char *text);

#endif
