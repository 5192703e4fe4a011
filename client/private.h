/* What the files of libdraft share; nothing here is exported.
 *
 * A handle holds one connection: the socket, bytes that still have to be sent, the reader of
 * received frames, the calls that wait for a reply, and results that wait for draft_poll().
 * Everything belongs to the thread that uses the handle, and everything is freed by handle_free().
 *
 * The road of a call: call_start() takes a place in the table, an encoder writes the request into
 * `head`, transport_send() sends it; transport_receive() takes frames out of the socket and gives
 * each to call_reply(), which finds the call by its id and lets its `take` function read the
 * result.
 *
 * Returns are as in draft.h: 0, -errno, or -DRAFT_E_…. Who decides on a failure writes the sentence
 * (handle_fail, or handle_break when the connection cannot be used any longer); everyone above only
 * passes the code on. */
#ifndef CLIENT_PRIVATE_H
#define CLIENT_PRIVATE_H

#include "client/draft.h"
#include "client/driver.h"
#include "proto/message.h"
#include "proto/sentence.h"

#include <sys/un.h>

#define ERROR_TEXT_BYTES   320 /* draftd's message and what this side adds */
#define NAME_BYTES         128 /* strings of `hello`; longer ones are cut */
#define CLIENT_NAME_MAX    100
#define SOCKET_PATH_MAX    (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
#define TIMEOUT_DEFAULT_US 10000000
#define CALL_INDEX_BITS    16
#define CALLS_MAX          (1u << CALL_INDEX_BITS) /* in flight, whatever draftd allows */
#define FRAME_BYTES_MAX    (1u << 30) /* the largest max_frame_bytes this side accepts */
#define TYPED_ERROR_BASE   1000       /* DRAFT_E_x is this plus the code on the wire */
#define DEADLINE_NEVER     INT64_MAX
#define SPIN_MAX_US        1000000
#define TOGETHER_BYTES_MAX 65536 /* of requests that are sent together */

/* A caller that blocks until its reply is there; on its stack. */
struct waiter {
	bool done;
	int code; /* 0, or -DRAFT_E_… with `error` */
	char error[ERROR_TEXT_BYTES];
	void *into; /* where the call's `take` puts what it read */
};

struct call;

/* Reads the result of a success; `call` is a copy, so that it may start others. It may take
 * descriptors out of `frame` by setting them to -1; others are closed. Returns 0, or -EBADMSG with
 * `fault`, or a code with the connection broken. */
typedef int call_take(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);

/* One request that draftd has not answered yet. Its id on the wire is the low half of its ticket,
 * and the lowest CALL_INDEX_BITS of that are its place in the table: found without a search, unique
 * while in flight, and a late duplicate does not match the next user of the place. */
struct call {
	uint64_t ticket; /* 0: the place is free */
	uint32_t next_free;
	unsigned reply_fds;    /* descriptors that ride on a success */
	struct waiter *waiter; /* NULL: nobody waits (pipelined, or given up) */
	struct result *result; /* of a draft: owned until it is queued, handed over, or dropped */
	bool abandoned;        /* the reply is for nobody; what it grants is given back */
	bool cancelled;
	uint8_t *logits; /* inline draft logits go here; NULL: not wanted */
	uint64_t logits_bytes;
	call_take *take;
};

/* A result with its memory, reused from request to request. */
struct result {
	struct draft_result view; /* first, so that the caller's pointer is this one */
	struct draft *draft;
	struct result *next;     /* in the queue or among the spare ones */
	struct result *next_all; /* every result of the handle, for handle_free() */
	uint32_t *block;         /* tokens [rows*K], then room for flags as uint32 [rows] */
	size_t block_words;
	char error[ERROR_TEXT_BYTES];
};

struct draft_region {
	struct draft *draft;
	struct draft_region *next;
	uint64_t epoch; /* of the connection that it belongs to */
	uint32_t id;
	uint64_t bytes;
	enum draft_memory memory;
	void *data;                      /* NULL: the caller's own mapping serves */
	struct driver_mapping mapping;   /* of device memory */
	char device[MESSAGE_UUID_BYTES]; /* "": host memory, or the import's own */
};

struct draft_event {
	struct draft *draft;
	struct draft_event *next;
	uint64_t epoch; /* of the connection that it belongs to */
	uint32_t id;
};

struct draft {
	/* as asked for */
	char socket_path[SOCKET_PATH_MAX + 1];
	const char *socket_origin; /* for messages: "" or " (DRAFTD_SOCKET)" */
	char client_name[NAME_BYTES];
	int64_t timeout_us;
	int64_t spin_us;

	/* the connection */
	int fd;      /* -1: none, or broken */
	bool broken; /* until a reconnect */
	char broken_why[ERROR_TEXT_BYTES];
	uint64_t epoch; /* counts connections */
	struct frame_reader reader;
	uint64_t frames_received;
	struct wire_buffer head; /* the request being encoded and sent, without its bulk */
	struct wire_buffer
		unsent;   /* whole frames, or the rest of one, that the socket had no room for */
	size_t unsent_at; /* the first byte of it that is not sent */
	bool going_away;
	char goaway_reason[NAME_BYTES];

	/* calls */
	struct call *calls;
	uint32_t call_capacity;
	uint32_t call_free; /* first free place; CALLS_MAX: none */
	uint64_t call_serial;
	uint32_t
		tickets_out; /* drafts unanswered, and results that draft_poll() has not returned */

	/* results */
	struct result *results; /* all */
	struct result *spare;
	struct result *queue_first;
	struct result **queue_end;

	struct draft_region *regions;
	struct draft_event *events;
	struct driver *driver; /* NULL until device memory is mapped */

	/* what draftd said of itself */
	struct draft_model model;
	struct {
		char server[NAME_BYTES], name[NAME_BYTES], backend[NAME_BYTES],
			bias_order[NAME_BYTES];
	} model_text;
	struct {
		char uuid[MESSAGE_UUID_BYTES], name[NAME_BYTES];
		uint64_t memory_bytes;
	} devices[MESSAGE_DEVICES_MAX];

	char error[ERROR_TEXT_BYTES];
};

/* ---- handle (connection.c, error.c) ---- */

/* A handle without a connection, or NULL without memory. */
struct draft *handle_new(void);
void handle_free(struct draft *draft); /* NULL is fine */

/* Connects and says hello, in place of the connection before. 0, or why not, with the handle
 * broken.
 */
int handle_open(struct draft *draft);

/* Forgets every call, queued result and byte of the connection, and closes its socket. */
void handle_reset(struct draft *draft);

/* Writes the sentence and returns `code`. */
int handle_fail(struct draft *draft, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same, and the connection is at its end: its socket is closed. Results that are queued stay.
 */
int handle_break(struct draft *draft, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* 0, or -ENOTCONN with the reason if the connection is broken. */
int handle_check(struct draft *draft);

/* Copies a struct of the caller's, who may be older (a smaller `size`: the rest is zero) or newer
 * (a larger one, if what this library does not know is zero). */
int handle_copy_struct(
	struct draft *draft, const char *name, const void *from, void *to, size_t to_bytes);

/* The code that a call returns for `code` of the wire, INTERNAL if it is unknown. */
int error_from_wire(int code);

/* ---- transport (transport.c) ---- */

/* A point of CLOCK_MONOTONIC in microseconds, `timeout_us` from now; DEADLINE_NEVER if that is
 * negative. */
int64_t deadline_after(int64_t timeout_us);

int transport_connect(struct draft *draft, int64_t deadline_us);

/* Sends the frame in `head`, with `bulk` behind it and `fd` (or -1) on it. Replies that arrive
 * while the socket is full are taken in. 0; -ETIMEDOUT if nothing was sent; -EINPROGRESS if the
 * time was over in the middle (the rest is kept and sent later, so that the connection lives on);
 * or the connection is broken. */
int transport_send(
	struct draft *draft, const void *bulk, size_t bulk_bytes, int fd, int64_t deadline_us);

/* Keeps the frame in `head` and its bulk, if they are small, to be sent with what follows them;
 * else like transport_send(). */
int transport_keep(struct draft *draft, const void *bulk, size_t bulk_bytes, int64_t deadline_us);

/* Sends what `unsent` holds as far as the socket takes it now. */
int transport_flush(struct draft *draft);

/* One recvmsg(2), and all whole frames handled. 1, 0 if nothing was there, or the connection is
 * broken. Never blocks. */
int transport_receive(struct draft *draft);

/* Waits until the socket has something to do with, as transport_wait() does but looking without
 * sleep for the first spin_us, and receives once. 1 (maybe nothing came), 0 when the time is over,
 * or the connection is broken. */
int transport_await(struct draft *draft, int64_t deadline_us);

/* Waits until the socket can do one of `events`. 1, 0 when the time is over, or the connection is
 * broken. */
int transport_wait(struct draft *draft, short events, int64_t deadline_us);

/* ---- calls (call.c) ---- */

/* Takes a place for a call whose reply `take` reads. `*ret` is valid until the next call_start() or
 * received frame. */
int call_start(struct draft *draft, call_take *take, struct waiter *waiter, struct call **ret);

/* The call of a ticket, or NULL. */
struct call *call_find(struct draft *draft, uint64_t ticket);

/* Its request was not sent: gives the place back. */
void call_drop(struct draft *draft, uint64_t ticket);

/* Nobody waits for it any longer. Cancels a draft. */
void call_abandon(struct draft *draft, uint64_t ticket);

/* Tells draftd to drop a draft; queued if the socket is full. */
int call_cancel(struct draft *draft, struct call *call);

/* Waits until `waiter` is done, also when the connection broke right behind the reply; abandons the
 * call when the time is over. Returns the waiter's code. */
int call_wait(struct draft *draft, uint64_t ticket, struct waiter *waiter, int64_t deadline_us);

/* The two halves of a call that somebody waits for. Between them the request is encoded into
 * `head`, which the first one clears; the second sends it, with `fd` (or -1) on it, and waits. */
int call_begin(struct draft *draft, call_take *take, struct waiter *waiter, struct call **ret);
int call_run(struct draft *draft, const struct call *call, int fd, int64_t deadline_us);

/* The encoders of region_close and event_close. */
typedef void call_close_encode(struct wire_buffer *buffer, uint32_t id, uint32_t what);

/* Has draftd close `what`, and waits. */
int call_close(struct draft *draft, call_close_encode *encode, uint32_t what);
/* Has it close what nobody wants, without waiting. */
int call_close_later(struct draft *draft, call_close_encode *encode, uint32_t what);

/* Handles one received frame and closes the descriptors that nobody took. */
int call_reply(struct draft *draft, struct frame *frame);

/* The `take` of a call whose result is `{}`. Those of other results stand with their files; only
 * the fuzz target needs their names. */
int call_take_empty(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);

/* ---- hello (hello.c) ---- */

int hello_exchange(struct draft *draft, int64_t deadline_us);
int hello_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);

/* ---- results (result.c) ---- */

/* A spare result with room for the tokens of `rows` rows of `steps`, or NULL. */
struct result *result_take(struct draft *draft, uint32_t rows, uint32_t steps);
void result_give_back(struct result *result); /* NULL is fine */
void result_queue(struct result *result);
void result_forget_queue(struct draft *draft);
void result_free_all(struct draft *draft);

/* Fills a result with a draft's reply, and the caller's memory with inline logits. */
int result_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);

/* ---- regions (region.c) ---- */

/* What a reply to region_open or region_import grants: the waiter's `into`. */
struct region_grant {
	enum region_memory memory; /* as asked for */
	uint64_t bytes;            /* asked for, then granted */
	uint32_t region;
	char device[MESSAGE_UUID_BYTES]; /* asked for, or "", then granted */
	int fd;                          /* -1, or the waiter's to close */
};

int region_read_open(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);
int region_read_import(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);

void region_free_all(struct draft *draft);

/* ---- events (event.c) ---- */

/* Into a `uint32_t`: the id. */
int event_read_import(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);

void event_free_all(struct draft *draft);

/* ---- statistics (service.c, json.c) ---- */

/* Into a `char *`: malloc'd. */
int stats_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);
int metrics_read(struct draft *draft, const struct call *call, struct message *message,
	struct frame *frame, struct message_fault *fault);

/* The JSON text (malloc'd) of a scanned MessagePack value: -EBADMSG if JSON has no such thing, or
 * -ENOMEM. */
int json_from_wire(struct wire_cursor *cursor, char **ret_text);

#endif
