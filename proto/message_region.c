#include "field.h"
#include "pack.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static const char *const memory_names[] = {
	[REGION_HOST] = "host",
	[REGION_DEVICE] = "device",
};

static int read_memory(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct wire_value value;

	if (wire_next(cursor, &value) && value.type == WIRE_STR)
		for (int i = REGION_HOST; i <= REGION_DEVICE; i++)
			if (value.data.bytes == strlen(memory_names[i]) &&
				!memcmp(value.data.at, memory_names[i], value.data.bytes)) {
				*(enum region_memory *)member = (enum region_memory)i;
				return 0;
			}
	return message_refuse(
		fault, ERROR_BAD_REQUEST, "%s must be \"host\" or \"device\"", field->name);
}

/* ---- region_open, region_import: request ---- */

#define ROW(key, read, member, ...)                                                                \
	FIELD(key, key, read, struct region_request, member, __VA_ARGS__)
static const struct field request_fields[] = {
	ROW("bytes", field_read_u64, bytes, .min = 1, .max = UINT64_MAX),
	ROW("memory", read_memory, memory),
	ROW("device", field_read_text, device, .min = 1, .max = MESSAGE_UUID_BYTES - 1,
		.optional = true, .has_offset = offsetof(struct region_request, has_device)),
};
#undef ROW
static const struct field_table request_table = {"params", request_fields, 3};

void region_request_encode(struct wire_buffer *buffer, uint32_t id, enum method method,
	const struct region_request *request)
{
	size_t frame_at = request_begin(buffer, id, method);

	wire_pack_map(buffer, 2u + request->has_device);
	pack_key_uint(buffer, "bytes", request->bytes);
	pack_str(buffer, "memory");
	pack_str(buffer, memory_names[request->memory]);
	if (request->has_device)
		pack_key_text(buffer, "device", request->device);
	frame_end(buffer, frame_at, method_fd_count(method), 0);
}

int region_request_decode(
	struct wire_cursor params, struct region_request *ret, struct message_fault *fault)
{
	struct region_request request = {0};
	int rc = field_read_map(&params, &request_table, &request, fault);

	if (rc)
		return rc;
	*ret = request;
	return 0;
}

/* ---- region_open, region_import: reply ---- */

/* Which of the keys of region_open's reply were there: all or none. */
struct reply_keys {
	struct region_reply reply;
	bool has_bytes, has_memory, has_device;
};

#define ROW(key, read, member, ...)                                                                \
	FIELD(key, key, read, struct reply_keys, reply.member, __VA_ARGS__)
#define OPTIONAL(member) .optional = true, .has_offset = offsetof(struct reply_keys, member)
static const struct field reply_fields[] = {
	ROW("region", field_read_u32, region, .max = UINT32_MAX),
	ROW("bytes", field_read_u64, bytes, .min = 1, .max = UINT64_MAX, OPTIONAL(has_bytes)),
	ROW("memory", read_memory, memory, OPTIONAL(has_memory)),
	ROW("device", field_read_text, device, .max = MESSAGE_UUID_BYTES - 1, OPTIONAL(has_device)),
};
#undef OPTIONAL
#undef ROW
static const struct field_table reply_table = {"result", reply_fields, 4};

void region_reply_encode(struct wire_buffer *buffer, uint32_t id, const struct region_reply *reply)
{
	size_t frame_at = reply_begin(buffer, id);

	wire_pack_map(buffer, reply->has_memory ? 4 : 1);
	pack_key_uint(buffer, "region", reply->region);
	if (reply->has_memory) {
		pack_key_uint(buffer, "bytes", reply->bytes);
		pack_str(buffer, "memory");
		pack_str(buffer, memory_names[reply->memory]);
		pack_key_text(buffer, "device", reply->device);
	}
	frame_end(buffer, frame_at, reply->has_memory, 0);
}

int region_reply_decode(
	struct wire_cursor result, struct region_reply *ret, struct message_fault *fault)
{
	struct reply_keys keys = {0};
	int rc = field_read_map(&result, &reply_table, &keys, fault);

	if (rc)
		return rc;
	if (keys.has_bytes != keys.has_memory || keys.has_bytes != keys.has_device)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"bytes, memory and device must stand together or be absent together");
	keys.reply.has_memory = keys.has_memory;
	*ret = keys.reply;
	return 0;
}

/* ---- region_close ---- */

static const struct field close_fields[] = {
	FIELD_WHOLE("region", "region", field_read_u32, .max = UINT32_MAX),
};
static const struct field_table close_table = {"params", close_fields, 1};

void region_close_encode(struct wire_buffer *buffer, uint32_t id, uint32_t region)
{
	size_t frame_at = request_begin(buffer, id, METHOD_REGION_CLOSE);

	wire_pack_map(buffer, 1);
	pack_key_uint(buffer, "region", region);
	frame_end(buffer, frame_at, 0, 0);
}

int region_close_decode(
	struct wire_cursor params, uint32_t *ret_region, struct message_fault *fault)
{
	uint32_t region;
	int rc = field_read_map(&params, &close_table, &region, fault);

	if (rc)
		return rc;
	*ret_region = region;
	return 0;
}
