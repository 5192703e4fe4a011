/* libdraft: draft tokens from a draftd on this host.
 *
 * Threads. A connection (`struct draft`) and everything that came from it (regions, results,
 * strings) belong to one thread at a time: the caller may hand them from thread to thread, or put a
 * lock around them, but no two calls on one connection may run at once. Different connections are
 * independent. No call uses signals, threads of its own or global state, but for the environment's
 * DRAFTD_SOCKET, which draft_connect() may read; SIGPIPE is never raised, and every descriptor is
 * close-on-exec. After fork(2) only one of the two processes may use a connection.
 *
 * Errors. A call that can fail returns 0 or a negative number: -errno when this side or the socket
 * failed, or -DRAFT_E_… (below -1000) when draftd answered with an error, or would have and this
 * side said so without asking. draft_error() then has one sentence. Out-parameters are written on
 * success only, but for the handle of draft_connect(), which else is NULL.
 *
 * After an error the connection lives on, unless it broke: the call that notices returns
 * -ECONNRESET (draftd closed it), -EPROTO (draftd broke the protocol), -ENOMEM (no memory for what
 * draftd sent, or what is half sent), -DRAFT_E_BAD_FRAME or -DRAFT_E_VERSION_MISMATCH. A broken
 * connection stays broken (every call that needs draftd returns -ENOTCONN, and draft_fd() is -1)
 * until draft_reconnect(), or draft_reconnect_within(), which tries again and again.
 *
 * Blocking. Calls that talk to draftd block up to the connection's timeout unless their comment
 * says otherwise. A call that gives up returns -ETIMEDOUT; its late reply is dropped (a region or
 * event that it grants is given back), and the connection lives on. Interrupting signals do not end
 * a wait.
 *
 * Data. Base logits and draft logits are BF16, little-endian, as `uint16_t`. V, K and the limits
 * are in draft_model(). */
#ifndef DRAFT_H
#define DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define DRAFT_VERSION_MAJOR  1
#define DRAFT_VERSION_MINOR  0
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

struct draft;        /* a connection */
struct draft_region; /* shared memory of a connection */
struct draft_event;  /* a CUDA event that draftd looks at */

/* Set `size` to sizeof(struct draft_options); zero means the default of every other field. (A
 * program that was built with an older header has a smaller size: fields that it does not know are
 * zero.) Strings are copied. */
struct draft_options {
	size_t size;
	const char *socket_path; /* NULL: draft_socket_default() */
	const char *client_name; /* NULL: "libdraft"; shown in draftd's log; 1 to 100 printable
				  * ASCII characters, "name" or "name/version" */
	int64_t timeout_us;      /* to connect, and of a blocking call; 0: 10 s, negative: none */
	int64_t spin_us;         /* for so long a wait for a reply looks at the socket again and
				  * again before it sleeps, up to 1 s: saves the time of waking up,
				  * and costs a core meanwhile; 0: sleep at once */
};

/* What draftd serves, as it said when we connected. The struct and its strings live as long as the
 * connection; a reconnect rewrites them in place. When a reload brings a model of another shape,
 * reconnect. */
struct draft_model {
	const char *server;  /* "draftd/1.0.0" */
	const char *name;    /* of the model */
	const char *backend; /* "cpu", "cuda" */
	const char *bias_order;
	uint64_t generation; /* when connected; every result has the current one */
	uint32_t vocab;      /* V */
	uint32_t rank;       /* R */
	uint32_t target_vocab;
	float multiplier;
	float soft_cap; /* 0: none */
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

/* Where draftd is looked for when nobody says: the environment's DRAFTD_SOCKET, unless that is
 * empty or the program runs with more rights than its caller (secure_getenv(3)), else
 * DRAFT_SOCKET_DEFAULT. Valid until the environment changes. */
const char *draft_socket_default(void);

/* Connects and exchanges `hello`; NULL options are all defaults. On success `*ret` is owned by the
 * caller: draft_close(). On failure `*ret` is NULL, and `error` (or NULL), of `error_bytes`, has
 * the sentence. -ENOENT or -ECONNREFUSED: no draftd is there; -EISDIR, -ENOTSOCK, -ENOTDIR: the
 * path is a folder's, a file's, or below a file; -EACCES: the socket's mode and group keep this
 * user out; -ETIMEDOUT: its backlog stayed full, or it did not answer; -ENAMETOOLONG, -EINVAL: the
 * options. */
int draft_connect(
	const struct draft_options *options, struct draft **ret, char *error, size_t error_bytes);

/* The same socket and options again; a connection that still lives is closed first. All regions,
 * events and requests of the old connection are gone: outstanding tickets are forgotten, also those
 * whose result draft_poll() has not returned; regions and events are invalid (a region's memory
 * stays mapped until draft_region_close(); closing either only frees it). Results that draft_poll()
 * did return stay valid. On failure the handle stays, broken. */
int draft_reconnect(struct draft *draft);

/* The same, tried until it succeeds or `timeout_us` are over (negative: no limit): for a draftd
 * that restarts. The first try comes at once, the second after 10 ms, and each pause is twice the
 * one before, up to 1 s; each is cut by up to a half at random, so that many clients do not all
 * come at the same moment. Sleeps and blocks meanwhile. Only what may pass is waited out: errors
 * that draft_error_retryable() is true of, and -ENOENT (there is no socket, yet). Other errors, and
 * the last try's when time is over, are returned. */
int draft_reconnect_within(struct draft *draft, int64_t timeout_us);

/* Closes the connection and frees everything that belongs to it, its regions, events and all
 * results too: none may be used or freed after. NULL is fine. Never blocks. */
void draft_close(struct draft *draft);

/* The sentence of the last failed call on this handle, "" if none. Valid until the next call on it.
 */
const char *draft_error(const struct draft *draft);

/* The name of a code as returned: "RESOURCE_EXHAUSTED" for -DRAFT_E_RESOURCE_EXHAUSTED, strerror's
 * English text for -errno. A constant; never NULL. */
const char *draft_error_name(int code);

/* True when the same request may succeed later, unchanged: RESOURCE_EXHAUSTED, -ETIMEDOUT; on a new
 * connection DRAINING, DEVICE_LOST, -ECONNREFUSED, -ECONNRESET, -ENOTCONN. */
bool draft_error_retryable(int code);

/* Never NULL. After a failed reconnect it still has what the old connection said. */
const struct draft_model *draft_model(const struct draft *draft);

/* Device `index` of 0 to device_count - 1, or false. Strings as in draft_model(). */
bool draft_device_at(const struct draft *draft, uint32_t index, struct draft_device *ret);

/* ---- regions ---- */

enum draft_memory {
	DRAFT_HOST,
	DRAFT_DEVICE, /* GPU memory, used in place; refused by draftd's CPU backend */
};

/* Shared memory of at least `bytes` that draftd owns, mapped here; zeroed. Lives until
 * draft_region_close() or draft_close(). No process can shrink it, so that reading it never faults;
 * but once the connection is lost draftd takes the pages of host memory back, and it reads as
 * zeros. -DRAFT_E_TOO_LARGE, -DRAFT_E_RESOURCE_EXHAUSTED: draftd's limits.
 *
 * DRAFT_DEVICE is memory of draftd's first GPU. It is mapped for that GPU through libcuda.so.1,
 * which is looked for when it is first needed; the mapping holds the GPU's primary context
 * (cuDevicePrimaryCtxRetain), the one that the CUDA runtime, PyTorch and others work in. Base
 * logits must be complete when a request is sent: synchronize the stream that wrote them, or name
 * an event (below). -ENOTSUP:
 * there is no libcuda.so.1, or it is older than CUDA 11.4; -ENODEV: this process does not see the
 * GPU. */
int draft_region_open(
	struct draft *draft, uint64_t bytes, enum draft_memory memory, struct draft_region **ret);

/* The same on the GPU of that UUID (NULL: draftd's first). -DRAFT_E_NOT_FOUND: the host has no such
 * GPU; -DRAFT_E_BAD_REQUEST: draftd's can't reach its memory. */
int draft_region_open_device(
	struct draft *draft, uint64_t bytes, const char *device, struct draft_region **ret);

/* Shares a memfd of the caller's (sealed with F_SEAL_SHRINK, writable, of at least `bytes`: else
 * -EINVAL), mapped here once more; `fd` stays the caller's, who may close it at once. */
int draft_region_import(struct draft *draft, int fd, uint64_t bytes, struct draft_region **ret);

/* Shares device memory of the caller's: an allocation of cuMemCreate(), exported as a POSIX file
 * descriptor. `bytes` is its size, or at least within its last 2 MiB. `device` is the UUID of its
 * GPU, or NULL. `fd` stays the caller's, who may close it at once, and who has it mapped already:
 * nothing is mapped here, libcuda is not needed, and draft_region_data() is NULL. draftd holds the
 * memory until the region is closed and unused, whatever the caller does meanwhile.
 * -DRAFT_E_BAD_REQUEST: the descriptor is no such allocation, or not of `device`, or out of reach
 * for draftd's GPU; -DRAFT_E_OUT_OF_RANGE: it has another size. */
int draft_region_import_device(
	struct draft *draft, int fd, uint64_t bytes, const char *device, struct draft_region **ret);

/* Unmaps and gives back; waits until no request uses it. Frees the region whatever it returns. NULL
 * is fine, and so is a region whose connection broke or was replaced: it is freed, 0. */
int draft_region_close(struct draft_region *region);

/* This process's mapping: for device memory an address of its GPU. NULL after
 * draft_region_import_device(). */
void *draft_region_data(const struct draft_region *region);
/* The UUID of the GPU that it lies on; "" for host memory, and if an import did not name it. Lives
 * as long as the region. */
const char *draft_region_device(const struct draft_region *region);
uint64_t draft_region_bytes(const struct draft_region *region);

/* ---- events ---- */

#define DRAFT_EVENT_HANDLE_BYTES 64

/* Shares a CUDA event of the caller's, so that no stream has to be synchronized before a request:
 * `handle` is what cudaIpcGetEventHandle() (or cuIpcGetEventHandle()) wrote, 64 bytes, of an event
 * made with cudaEventInterprocess and cudaEventDisableTiming on the GPU `device` (its UUID; NULL:
 * draftd's first). Nothing of CUDA is called here.
 *
 * Record it (cudaEventRecord) behind the work that writes the base logits, and behind whatever
 * still reads the memory that the draft logits go to; then send the request that names it; record
 * it again only after the reply: a pipeline needs an event for each request under way, at most 4 a
 * connection. draftd launches when the event has fired, and no other client waits for it. It must
 * fire within draftd's event_timeout (1 s by default) of the request's arrival, else
 * -DRAFT_E_DEADLINE_EXCEEDED. An event that has not been recorded when the request is sent counts
 * as fired: then draftd reads whatever is in the memory.
 *
 * The event itself must live until draft_event_close() has returned, or draft_close().
 * -DRAFT_E_BAD_REQUEST: the handle is no event of a living process on that GPU, or draftd has no
 * GPU; -DRAFT_E_NOT_FOUND: the host has no such GPU; -DRAFT_E_RESOURCE_EXHAUSTED: the connection
 * has 4 events. (PROTOCOL.md, "event_import".) */
int draft_event_import(struct draft *draft, const void *handle, size_t bytes, const char *device,
	struct draft_event **ret);

/* Waits until no request waits for it and draftd has let it go. Frees it whatever it returns. NULL
 * is fine, and so is an event whose connection broke or was replaced: it is freed, 0. */
int draft_event_close(struct draft_event *event);

/* ---- drafting ---- */

/* Where BF16 logits lie: in memory of the caller's (`data`), or in a region of the same connection.
 *
 * In `data` they are [rows,K,V], contiguous, in the order of the rows; offset and strides do not
 * count. Base logits are sent from there, draft logits are copied there: row r at row r whatever
 * its slot is, and zeros for padding rows. In a region the offset and the strides (in bytes, even)
 * say where; draft logits of row r go to slot slots[r], and a padding row touches nothing. */
struct draft_place {
	void *data;                  /* base: read; logits: written */
	struct draft_region *region; /* if set, `data` is ignored */
	uint64_t offset;             /* of row 0 (base) or slot 0 (logits), step 0 */
	uint64_t row_stride;         /* between rows (base) or slots (logits); 0: K*V*2 */
	uint64_t step_stride;        /* 0: V*2 */
};

/* One draft block for each of `rows` rows. Set `size` to sizeof(struct draft_request), what is not
 * wanted to zero. */
struct draft_request {
	size_t size;
	uint32_t rows;            /* 1 to max_rows */
	uint32_t steps;           /* K, 1 to max_steps */
	const uint32_t *anchors;  /* [rows] token before the block; beyond target_vocab: its last */
	const int64_t *positions; /* [rows] position of the first predicted token */
	const int64_t *seeds;     /* [rows] */
	const float *temperatures; /* [rows], 0 = greedy; any is served, see PROTOCOL.md */
	const int64_t *slots;      /* [rows], or NULL for 0, 1, …; negative = padding row */
	struct draft_place base;   /* required */
	struct draft_place logits; /* neither data nor region: not wanted */
	uint64_t deadline_us; /* from arrival at draftd to the launch, up to an hour; 0: none */
	uint32_t priority;    /* 0, or 1 which goes first */
	struct draft_event *event; /* of the same connection; what it stands for must be done before
				      the launch. NULL: all is done already */
	uint32_t more; /* 1: another request follows at once, so draft_submit() may keep this one
			  to send them together; draft_flush() ends that. 0: it goes out now */
};

/* What came back. The caller's until draft_result_free() or draft_close(); arrays and strings live
 * as long. Except `ticket`, `code`, `error`, `rows` and `steps`, nothing is set when `code` is not
 * 0. */
struct draft_result {
	uint64_t ticket;
	int code;          /* 0, or -DRAFT_E_…, and `error` has the sentence */
	const char *error; /* "" on success */
	uint32_t rows, steps;
	const uint32_t *tokens; /* [rows*K], row-major */
	const uint8_t *flags;   /* [rows], bit 0: a NaN won somewhere in the row */
	uint64_t generation;
	uint64_t queue_us, device_us, total_us; /* as draftd measured */
};

/* Drafts and waits. `tokens` [rows*K] and, unless NULL, `flags` [rows] are written on success only;
 * inline logits are in request->logits.data when it returns 0. Results of other tickets that arrive
 * meanwhile are kept for draft_poll().
 *
 * -EINVAL: a field of the request is missing or wrong. -DRAFT_E_TOO_LARGE: more rows, steps or
 * bytes than draft_model() allows. -DRAFT_E_RESOURCE_EXHAUSTED: max_inflight tickets are out. Other
 * typed errors are draftd's. The connection lives on after all of these, and after -ETIMEDOUT: then
 * the request was cancelled, nothing of the caller's is read or written any longer, except that
 * draftd may use its regions for a moment more. */
int draft_draft(
	struct draft *draft, const struct draft_request *request, uint32_t *tokens, uint8_t *flags);

/* Sends a request without waiting for its reply and gives its ticket: never 0, and never used again
 * by this handle. The columns may be reused when this returns, base data in the caller's memory too
 * (it is sent); regions not before the result. `logits.data` must stay until draft_poll() has
 * returned the result, or the connection is closed or reconnected: any call on this connection may
 * write it. Blocks only while the socket is full, up to the timeout; replies are taken in
 * meanwhile. Errors as in draft_draft(), of which -DRAFT_E_RESOURCE_EXHAUSTED comes when
 * max_inflight tickets are out: sent, and not yet returned by draft_poll(). */
int draft_submit(struct draft *draft, const struct draft_request *request, uint64_t *ret_ticket);

/* Sends what draft_submit() has kept of requests with `more`, as far as the socket takes it; the
 * rest goes out when draft_events() says that there is room. Any other call that talks to draftd
 * does so too; draft_poll() does not while it has results that came before. Never blocks. */
int draft_flush(struct draft *draft);

/* The next result in order of arrival, which is not the order of sending. Waits up to `timeout_us`
 * (0: not at all; negative: no limit; the connection's timeout does not count), but returns 0 at
 * once when no ticket is out. Returns 1 and a result, 0 when none came in time, or an error of the
 * connection. Results that arrived before a connection broke are returned first; the tickets whose
 * results did not are lost. */
int draft_poll(struct draft *draft, int64_t timeout_us, struct draft_result **ret);

void draft_result_free(struct draft_result *result); /* NULL is fine */

/* Asks draftd to drop a ticket. Its result still comes: CANCELLED, or the tokens if it was too
 * late. Never blocks. -ENOENT: no such ticket is out. */
int draft_cancel(struct draft *draft, uint64_t ticket);

/* For the caller's event loop: wait for draft_events() (poll(2) bits) on draft_fd(), then call
 * draft_poll() with 0 until it returns 0 (which makes edge-triggered loops work too). Other calls
 * may take in results that then raise no event: after any of them, and before waiting, call
 * draft_poll() with 0 as well, and ask for draft_events() again. The descriptor is the
 * connection's: never read, write or close it. -1 and no events when broken: it is closed, and a
 * reconnect gives another. */
int draft_fd(const struct draft *draft);
short draft_events(const struct draft *draft);

/* True once draftd said that it will stop. Everything goes on working until it closes the
 * connection, but new requests are answered with DRAINING: take the results that are out, soon,
 * for draftd closes a connection with many that is not read for 10 s, then reconnect elsewhere or
 * later. The reason is "" before, and valid until the next call. Noticed by whatever call receives
 * it; draft_poll() with 0 is enough. */
bool draft_going_away(const struct draft *draft);
const char *draft_goaway_reason(const struct draft *draft);

/* ---- the service ---- */

/* One round trip to draftd's loop. */
int draft_ping(struct draft *draft);

/* Statistics as JSON text (one object, one line), or Prometheus text: malloc'd, free() it. */
int draft_stats(struct draft *draft, char **ret_json);
int draft_metrics(struct draft *draft, char **ret_text);

/* For root and draftd's own user, else -DRAFT_E_PERMISSION_DENIED. Drain returns when draftd has
 * begun to. Reload returns when the new model serves, or fails with the reason and the old one
 * serves on; loading takes longer than 10 s for a large model, so connect with a timeout to match.
 */
int draft_drain(struct draft *draft);
int draft_reload(struct draft *draft);

/* The library's version: "1.0.0". */
const char *draft_version(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
