/* libdraft: draft tokens from a draftd on this host.
 *
 * Threads. A `struct draft` (one connection) belongs to one thread at a time; different connections are independent. No call uses
 * signals, threads of its own or global state; SIGPIPE is never raised.
 *
 * Errors. A call that can fail returns 0 or a negative number: -errno when this side or the socket failed, or
 * -DRAFT_E_… (below -1000) when draftd answered with an error. draft_error() then has one sentence. Each comment says whether the
 * connection lives on. A broken connection stays broken (every call returns -ENOTCONN) until draft_reconnect().
 *
 * Blocking. Calls that talk to draftd block up to the connection's timeout unless their comment says otherwise.
 *
 * Data. Base logits and draft logits are BF16, little-endian, as `uint16_t`. V, K and the limits are in draft_model(). */
#ifndef DRAFT_H
#define DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DRAFT_VERSION_MAJOR 1
#define DRAFT_VERSION_MINOR 0
#define DRAFT_SOCKET_DEFAULT "/run/draftd/draftd.sock"

/* draftd's typed errors (PROTOCOL.md, "Errors"); returned negative. */
enum {
	DRAFT_E_BAD_FRAME = 1001,
	DRAFT_E_VERSION_MISMATCH = 1002,
	DRAFT_E_BAD_REQUEST = 1003,
	DRAFT_E_UNKNOWN_METHOD = 1004,
	DRAFT_E_NOT_FOUND = 1005,
	DRAFT_E_OUT_OF_RANGE = 1006,
	DRAFT_E_TOO_LARGE = 1007,
	DRAFT_E_RESOURCE_EXHAUSTED = 1008, /* retryable */
	DRAFT_E_DEADLINE_EXCEEDED = 1009,
	DRAFT_E_CANCELLED = 1010,
	DRAFT_E_DRAINING = 1011, /* retryable, on a new connection */
	DRAFT_E_PERMISSION_DENIED = 1012,
	DRAFT_E_DEVICE_LOST = 1013, /* retryable, on a new connection */
	DRAFT_E_INTERNAL = 1014,
};

struct draft;	     /* a connection */
struct draft_region; /* shared memory of a connection */

/* Set `size` to sizeof(struct draft_options); zero means the default of every other field. */
struct draft_options {
	size_t size;
	const char *socket_path; /* NULL: DRAFT_SOCKET_DEFAULT */
	const char *client_name; /* NULL: "libdraft"; shown in draftd's log; 1 to 100 printable characters */
	int64_t timeout_us;	 /* for connecting and for every blocking call; 0: 10 s, negative: none */
};

/* What draftd serves. Strings live as long as the connection, until a reconnect. */
struct draft_model {
	const char *server;	/* "draftd/1.0.0" */
	const char *name;	/* of the model */
	const char *backend;	/* "cpu", "cuda" */
	const char *bias_order;
	uint64_t generation;	/* when connected; every result has the current one */
	uint32_t vocab;		/* V */
	uint32_t rank;		/* R */
	uint32_t target_vocab;
	float multiplier;
	float soft_cap;		/* 0: none */
	uint32_t tensor_parallel;
	uint32_t device_count;
	uint32_t max_rows, max_steps, max_frame_bytes, max_inflight, max_regions;
	uint64_t max_region_bytes;
};

struct draft_device {
	const char *uuid;
	const char *name;
	uint64_t memory_bytes;
};

/* Connects and exchanges `hello`. On success `*ret` is owned by the caller: draft_close(). On failure `*ret` is NULL, and
 * `error` (or NULL), of `error_bytes`, has the sentence. */
int draft_connect(const struct draft_options *options, struct draft **ret, char *error, size_t error_bytes);

/* The same socket and options again. All regions, requests and results of the old connection are gone: outstanding tickets
 * are forgotten, and regions are invalid (draft_region_close() only frees them). On failure the handle stays, broken. */
int draft_reconnect(struct draft *draft);

/* Closes the connection and frees everything that belongs to it, its regions and results too. NULL is fine. Never blocks. */
void draft_close(struct draft *draft);

/* The sentence of the last failed call on this handle, "" if none. Valid until the next call. */
const char *draft_error(const struct draft *draft);

/* The name of a code as returned: "RESOURCE_EXHAUSTED" for -DRAFT_E_RESOURCE_EXHAUSTED, strerror's text for -errno. */
const char *draft_error_name(int code);

/* True when the same request may succeed later, unchanged. */
bool draft_error_retryable(int code);

const struct draft_model *draft_model(const struct draft *draft);

/* Device `index` of 0 to device_count - 1, or false. */
bool draft_device_at(const struct draft *draft, uint32_t index, struct draft_device *ret);

/* ---- regions ---- */

enum draft_memory {
	DRAFT_HOST,
	DRAFT_DEVICE, /* GPU memory; refused by draftd's CPU backend */
};

/* Shared memory that draftd owns, mapped here; zeroed. Lives until draft_region_close(), draft_close() or a reconnect. */
int draft_region_open(
	struct draft *draft, uint64_t bytes, enum draft_memory memory, struct draft_region **ret);

/* Shares a memfd of the caller's (sealed with F_SEAL_SHRINK, of at least `bytes`); `fd` stays the caller's. */
int draft_region_import(struct draft *draft, int fd, uint64_t bytes, struct draft_region **ret);

/* Unmaps and gives back; waits until no request uses it. Frees the region whatever it returns. NULL is fine. */
int draft_region_close(struct draft_region *region);

void *draft_region_data(const struct draft_region *region); /* this process's mapping */
uint64_t draft_region_bytes(const struct draft_region *region);

/* ---- drafting ---- */

/* Where BF16 logits lie: in memory of the caller's (`data`), or in a region. */
struct draft_place {
	void *data;		     /* base: read; logits: written; [rows,K,V], contiguous */
	struct draft_region *region; /* if set, `data` is ignored, and the bytes below count */
	uint64_t offset;	     /* of row 0 (base) or slot 0 (logits), step 0; even */
	uint64_t row_stride;	     /* between rows or slots; 0: K*V*2 */
	uint64_t step_stride;	     /* 0: V*2 */
};

/* One draft block for each of `rows` rows. Set `size` to sizeof(struct draft_request). */
struct draft_request {
	size_t size;
	uint32_t rows;	/* 1 to max_rows */
	uint32_t steps; /* K, 1 to max_steps */
	const uint32_t *anchors;    /* [rows] token before the block */
	const int64_t *positions;   /* [rows] position of the first predicted token */
	const int64_t *seeds;	    /* [rows] */
	const float *temperatures;  /* [rows], 0 = greedy */
	const int64_t *slots;	    /* [rows], or NULL for 0, 1, …; negative = padding row */
	struct draft_place base;    /* required */
	struct draft_place logits;  /* neither data nor region: not wanted */
	uint64_t deadline_us;	    /* 0: none */
	uint32_t priority;	    /* 0 or 1 */
};

/* What came back. Owned by the connection: draft_result_free(). */
struct draft_result {
	uint64_t ticket;
	int code;		/* 0, or -DRAFT_E_…, and `error` has the sentence */
	const char *error;	/* "" on success */
	uint32_t rows, steps;
	const uint32_t *tokens; /* [rows*K], row-major */
	const uint8_t *flags;	/* [rows], bit 0: a NaN won somewhere in the row */
	uint64_t generation;
	uint64_t queue_us, device_us, total_us; /* as draftd measured */
};

/* Drafts and waits. `tokens` [rows*K] and, unless NULL, `flags` [rows] are written on success only; inline logits go to
 * request->logits.data. Results of other tickets that arrive meanwhile are kept for draft_poll(). The connection lives on
 * after a typed error; after -ETIMEDOUT the request was cancelled and the connection lives on. */
int draft_draft(struct draft *draft, const struct draft_request *request, uint32_t *tokens, uint8_t *flags);

/* Sends a request without waiting for its reply and gives its ticket. The columns may be reused when this returns; base data in the
 * caller's memory too (it is sent), regions not before the result. `logits.data` must stay until the result is there. Blocks only
 * while the socket is full, up to the timeout. -DRAFT_E_RESOURCE_EXHAUSTED when max_inflight tickets are out. */
int draft_submit(struct draft *draft, const struct draft_request *request, uint64_t *ret_ticket);

/* The next result in order of arrival. Waits up to `timeout_us` (0: not at all; negative: no limit). Returns 1 and a result, 0 when
 * none came in time, or an error of the connection. */
int draft_poll(struct draft *draft, int64_t timeout_us, struct draft_result **ret);

void draft_result_free(struct draft_result *result); /* NULL is fine */

/* Asks draftd to drop a ticket. Its result still comes: CANCELLED, or the tokens if it was too late. */
int draft_cancel(struct draft *draft, uint64_t ticket);

/* For the caller's event loop: wait for draft_events() (poll(2) bits) on draft_fd(), then call draft_poll() with 0 until it
 * returns 0. The descriptor is the connection's: never read, write or close it. -1 when broken. */
int draft_fd(const struct draft *draft);
short draft_events(const struct draft *draft);

/* True once draftd said that it will stop: finish, then reconnect elsewhere or later. `draft_goaway_reason` is "" before. */
bool draft_going_away(const struct draft *draft);
const char *draft_goaway_reason(const struct draft *draft);

/* ---- the service ---- */

int draft_ping(struct draft *draft);

/* Statistics as JSON text, or Prometheus text: malloc'd, free() it. */
int draft_stats(struct draft *draft, char **ret_json);
int draft_metrics(struct draft *draft, char **ret_text);

/* For root and draftd's own user. Reload returns when the new model serves, or fails and the old one serves on. */
int draft_drain(struct draft *draft);
int draft_reload(struct draft *draft);

/* The library's version: "1.0.0". */
const char *draft_version(void);

#ifdef __cplusplus
}
#endif

#endif
