/* Messages: the shapes of MessagePack-RPC and the params and results of every method (PROTOCOL.md,
 * "Methods").
 *
 * Sans-I/O, no globals. Decoded structs point into the body they were read from and live as long as
 * it does; decoding allocates nothing. Encoders append a whole frame (header and body) to a
 * wire_buffer; a failed allocation shows in `buffer->failed`. Where bulk bytes end a frame (inline
 * base or draft logits), the encoder writes everything before them, the header counts them, and the
 * caller sends them right behind: they are never copied. */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include "error.h"
#include "frame.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PROTOCOL_VERSION 1

#define MESSAGE_FAULT_BYTES 192
#define MESSAGE_DEVICES_MAX 32
#define MESSAGE_UUID_BYTES  64 /* "GPU-…" with its NUL, with room */

#define EVENT_HANDLE_BYTES 64 /* a cudaIpcEventHandle_t */

/* Keys of one map, known or not, and bytes of a key: they bound the search for duplicates. */
#define MESSAGE_KEYS_MAX      64
#define MESSAGE_KEY_BYTES_MAX 255

#define HELLO_CLIENT_BYTES_MAX 128
#define DRAFT_PRIORITY_MAX     1
#define DRAFT_DEADLINE_US_MAX  UINT64_C(3600000000) /* an hour */

/* Why a message was refused: what goes into the error reply. */
struct message_fault {
	enum error_code code;
	char text[MESSAGE_FAULT_BYTES]; /* names field and limit; no path or other client */
};

/* Fills `fault`; returns -EBADMSG, so that a decoder can `return message_refuse(…)`. */
int message_refuse(struct message_fault *fault, enum error_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Bytes in the body, not NUL-terminated. */
struct wire_text {
	const char *at;
	uint32_t bytes;
};

/* To initialize one with a literal. */
#define WIRE_TEXT(literal)                                                                         \
	{                                                                                          \
		(literal), sizeof(literal) - 1                                                     \
	}

static inline bool wire_text_equal(struct wire_text a, struct wire_text b)
{
	return a.bytes == b.bytes && !memcmp(a.at, b.at, a.bytes);
}

/* Copies at most `size - 1` bytes and terminates, never cutting a character in two. Control
 * characters and bytes that are not UTF-8 become '?'. */
void wire_text_copy(struct wire_text text, char *to, size_t size);

enum method {
	METHOD_UNKNOWN,
	METHOD_HELLO,
	METHOD_PING,
	METHOD_DRAFT,
	METHOD_REGION_OPEN,
	METHOD_REGION_IMPORT,
	METHOD_REGION_CLOSE,
	METHOD_EVENT_IMPORT,
	METHOD_EVENT_CLOSE,
	METHOD_STATS,
	METHOD_METRICS,
	METHOD_DRAIN,
	METHOD_RELOAD,
	METHOD_CANCEL, /* notification, client to server */
	METHOD_GOAWAY, /* notification, server to client */
	METHOD_END,
};

const char *method_name(enum method method);

/* How many descriptors a request of this method carries: 1 for region_import, else 0. A frame with
 * another number is BAD_FRAME. (A reply carries 1 if it is region_open's and no error, else 0.) */
unsigned method_fd_count(enum method method);

/* ---- the envelope ---- */

enum message_kind {
	MESSAGE_REQUEST = 0,
	MESSAGE_RESPONSE = 1,
	MESSAGE_NOTIFICATION = 2,
};

struct message_error {
	int code; /* as sent; error_lookup() may not know it */
	struct wire_text name;
	struct wire_text text; /* the key "message" */
	bool retryable;
};

struct message {
	enum message_kind kind;
	bool has_id; /* a response may carry nil: to a request whose id could not be read */
	uint32_t id;
	enum method method;           /* request, notification */
	struct wire_text method_text; /* as sent, for the text of UNKNOWN_METHOD */
	bool failed;                  /* response: `error` holds */
	struct message_error error;
	struct wire_cursor params; /* of a request or notification, or the result of a response */
};

/* Scans `body` and reads the envelope. On failure (-EBADMSG) `fault` says why, and `ret->has_id`,
 * `ret->id` and `ret->kind` hold as far as they could be read, so that the refusal can name the
 * request. An unknown method is no failure here: METHOD_UNKNOWN; so is a notification's name in a
 * request and the reverse. */
int message_decode(
	const uint8_t *body, size_t body_bytes, struct message *ret, struct message_fault *fault);

/* Error replies. `has_id` false writes nil. */
void message_encode_error(struct wire_buffer *buffer, bool has_id, uint32_t id,
	enum error_code code, const char *text);

/* A request or reply with an empty map: ping, stats, metrics, drain, reload; and the replies {}. */
void message_encode_request(struct wire_buffer *buffer, uint32_t id, enum method method);
void message_encode_empty_reply(struct wire_buffer *buffer, uint32_t id);

/* For results that a caller packs itself (stats): begin, pack exactly one map through msgpack, end.
 * The offset that begin returns goes to end, which fills in the header. */
size_t message_begin_reply(struct wire_buffer *buffer, uint32_t id);
void message_end_reply(struct wire_buffer *buffer, size_t frame_at, unsigned fd_count);

/* Params that must be a map, of which no key is known: ping, stats, metrics, drain, reload. */
int empty_params_decode(struct wire_cursor params, struct message_fault *fault);

/* ---- hello ---- */

struct hello_request {
	uint32_t protocol;
	struct wire_text client; /* "name/version", 1 to 128 bytes */
};

struct hello_device {
	struct wire_text uuid;
	struct wire_text name;
	uint64_t memory_bytes;
};

struct hello_reply {
	uint32_t protocol;
	struct wire_text server; /* "draftd/1.0.0" */
	uint64_t generation;
	struct {
		struct wire_text name;
		uint32_t vocab;        /* V */
		uint32_t rank;         /* R */
		uint32_t target_vocab; /* V_target, rows of w1 */
		float multiplier;
		bool has_soft_cap;
		float soft_cap;
		struct wire_text dtype; /* "bf16" */
	} model;
	struct {
		struct wire_text name;       /* "cpu", "cuda" */
		struct wire_text bias_order; /* "mma16": NUMERICS section 3 */
		uint32_t tensor_parallel;    /* ranks that share the vocabulary; 1 on the CPU */
		uint32_t device_count;
		struct hello_device devices[MESSAGE_DEVICES_MAX];
	} backend;
	struct {
		uint32_t max_rows;
		uint32_t max_steps;
		uint32_t max_frame_bytes;
		uint32_t max_inflight;
		uint32_t max_regions;
		uint64_t max_region_bytes;
	} limits;
};

void hello_request_encode(
	struct wire_buffer *buffer, uint32_t id, const struct hello_request *request);
int hello_request_decode(
	struct wire_cursor params, struct hello_request *ret, struct message_fault *fault);
void hello_reply_encode(struct wire_buffer *buffer, uint32_t id, const struct hello_reply *reply);
int hello_reply_decode(
	struct wire_cursor result, struct hello_reply *ret, struct message_fault *fault);

/* ---- draft ---- */

/* A column of integers or floats, checked when the request was decoded, read out once rows is known
 * to fit. */
struct wire_column {
	struct wire_cursor values;
	uint32_t count;
};

void wire_column_u32(const struct wire_column *column, uint32_t *out);
void wire_column_i64(const struct wire_column *column, int64_t *out); /* uint64 keeps its bits */
void wire_column_f32(const struct wire_column *column, float *out);

enum bulk_kind {
	BULK_ABSENT, /* logits only: not wanted */
	BULK_INLINE, /* base: `bytes` in the frame; logits: a bin in the reply */
	BULK_REGION,
};

/* Where BF16 logits lie. Offsets and strides are in bytes, even; not yet checked against the
 * region. */
struct bulk {
	enum bulk_kind kind;
	const uint8_t *bytes; /* inline base, in the body; any alignment */
	uint64_t byte_count;
	uint32_t region;
	uint64_t offset;
	uint64_t row_stride; /* base: between rows; logits: between slots */
	uint64_t step_stride;
};

/* A request that arrived. draft_params is written, draft_call is read; draft_answer is written,
 * draft_reply is read. */
struct draft_call {
	uint32_t steps; /* K >= 1; not yet checked against max_steps */
	uint32_t rows;  /* >= 1, the length of every column */
	struct wire_column anchors, positions, seeds, temperatures;
	bool has_slots;
	struct wire_column slots; /* absent: 0, 1, … rows-1 */
	struct bulk base;
	struct bulk logits;
	bool has_deadline;
	uint64_t deadline_us; /* from arrival */
	uint32_t priority;    /* 0 or 1 */
	bool has_event;
	uint32_t event; /* that must have fired before the launch */
};

/* What an encoder needs; arrays of `rows`. With inline base, the caller sends `base.byte_count`
 * bytes behind. */
struct draft_params {
	uint32_t steps, rows;
	const uint32_t *anchors;
	const int64_t *positions;
	const int64_t *seeds;
	const float *temperatures;
	const int64_t *slots; /* or NULL */
	struct bulk base;
	struct bulk logits;
	bool has_deadline;
	uint64_t deadline_us;
	uint32_t priority;
	bool has_event;
	uint32_t event;
};

struct draft_reply {
	uint32_t token_count; /* rows*K */
	uint32_t row_count;
	struct wire_column tokens; /* uint32, [rows*K] row-major */
	struct wire_column flags;  /* uint32, [rows]; bit 0: a NaN won somewhere in the row */
	uint64_t generation;
	struct {
		uint64_t queue, device, total;
	} times_us;
	bool has_logits;
	const uint8_t *logits; /* [rows,K,V] BF16 in the body */
	uint64_t logits_bytes;
};

struct draft_answer {
	uint32_t rows, steps;
	const uint32_t *tokens; /* [rows*K] */
	const uint8_t *flags;   /* [rows] */
	uint64_t generation;
	uint64_t queue_us, device_us, total_us;
	bool has_logits;
	uint32_t logits_bytes; /* the caller sends them behind the frame's head */
};

void draft_request_encode(
	struct wire_buffer *buffer, uint32_t id, const struct draft_params *params);
int draft_request_decode(
	struct wire_cursor params, struct draft_call *ret, struct message_fault *fault);
void draft_reply_encode(struct wire_buffer *buffer, uint32_t id, const struct draft_answer *result);
int draft_reply_decode(
	struct wire_cursor result, struct draft_reply *ret, struct message_fault *fault);

/* ---- regions ---- */

enum region_memory {
	REGION_HOST,
	REGION_DEVICE,
};

struct region_request { /* region_open and region_import */
	uint64_t bytes; /* >= 1 */
	enum region_memory memory;
	bool has_device;
	struct wire_text device; /* UUID */
};

struct region_reply { /* region_import sends only the region */
	uint32_t region;
	bool has_memory; /* the fields below, of region_open */
	uint64_t bytes;
	enum region_memory memory;
	struct wire_text device; /* "" for host memory */
};

void region_request_encode(struct wire_buffer *buffer, uint32_t id, enum method method,
	const struct region_request *request);
int region_request_decode(
	struct wire_cursor params, struct region_request *ret, struct message_fault *fault);
void region_reply_encode(struct wire_buffer *buffer, uint32_t id, const struct region_reply *reply);
int region_reply_decode(
	struct wire_cursor result, struct region_reply *ret, struct message_fault *fault);

void region_close_encode(struct wire_buffer *buffer, uint32_t id, uint32_t region);
int region_close_decode(
	struct wire_cursor params, uint32_t *ret_region, struct message_fault *fault);

/* ---- events ---- */

struct event_request {         /* event_import */
	const uint8_t *handle; /* EVENT_HANDLE_BYTES, in the body */
	bool has_device;
	struct wire_text device; /* UUID */
};

void event_request_encode(
	struct wire_buffer *buffer, uint32_t id, const struct event_request *request);
int event_request_decode(
	struct wire_cursor params, struct event_request *ret, struct message_fault *fault);
void event_reply_encode(struct wire_buffer *buffer, uint32_t id, uint32_t event);
int event_reply_decode(struct wire_cursor result, uint32_t *ret_event, struct message_fault *fault);

void event_close_encode(struct wire_buffer *buffer, uint32_t id, uint32_t event);
int event_close_decode(struct wire_cursor params, uint32_t *ret_event, struct message_fault *fault);

/* ---- metrics ---- */

void metrics_reply_encode(
	struct wire_buffer *buffer, uint32_t id, const char *text, size_t text_bytes);
int metrics_reply_decode(
	struct wire_cursor result, struct wire_text *ret_text, struct message_fault *fault);

/* ---- notifications ---- */

void cancel_encode(struct wire_buffer *buffer, uint32_t id);
int cancel_decode(struct wire_cursor params, uint32_t *ret_id, struct message_fault *fault);
void goaway_encode(struct wire_buffer *buffer, const char *reason);
int goaway_decode(
	struct wire_cursor params, struct wire_text *ret_reason, struct message_fault *fault);

#endif
