#include "field.h"
#include "pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

#define TEXT_BYTES_MAX 255 /* of the names that a server states about itself */

/* ---- request ---- */

#define ROW(key, read, member, ...) FIELD(key, key, read, struct hello_request, member, __VA_ARGS__)
static const struct field request_fields[] = {
	ROW("protocol", field_read_u32, protocol, .max = UINT32_MAX),
	ROW("client", field_read_text, client, .min = 1, .max = HELLO_CLIENT_BYTES_MAX),
};
#undef ROW
static const struct field_table request_table = {"params", request_fields, 2};

void hello_request_encode(
	struct wire_buffer *buffer, uint32_t id, const struct hello_request *request)
{
	size_t frame_at = request_begin(buffer, id, METHOD_HELLO);

	wire_pack_map(buffer, 2);
	pack_key_uint(buffer, "protocol", request->protocol);
	pack_key_text(buffer, "client", request->client);
	frame_end(buffer, frame_at, 0, 0);
}

int hello_request_decode(
	struct wire_cursor params, struct hello_request *ret, struct message_fault *fault)
{
	struct hello_request request = {0};
	int rc = field_read_map(&params, &request_table, &request, fault);

	if (rc)
		return rc;
	*ret = request;
	return 0;
}

/* ---- reply ---- */

#define ROW(key, read, member, ...)                                                                \
	FIELD(key, "devices." key, read, struct hello_device, member, __VA_ARGS__)
static const struct field device_fields[] = {
	ROW("uuid", field_read_text, uuid, .min = 1, .max = MESSAGE_UUID_BYTES - 1),
	ROW("name", field_read_text, name, .max = TEXT_BYTES_MAX),
	ROW("memory_bytes", field_read_u64, memory_bytes, .max = UINT64_MAX),
};
#undef ROW
static const struct field_table device_table = {"devices", device_fields, 3};

/* nil says that there is no soft cap. */
static int read_soft_cap(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct hello_reply *reply = member;
	struct wire_cursor ahead = *cursor;
	struct wire_value value;

	if (wire_next(&ahead, &value) && value.type == WIRE_NIL) {
		*cursor = ahead;
		return 0;
	}
	reply->model.has_soft_cap = true;
	return field_read_f32(cursor, field, &reply->model.soft_cap, fault);
}

static int read_devices(struct wire_cursor *cursor, const struct field *field, void *member,
	struct message_fault *fault)
{
	struct hello_reply *reply = member;
	struct wire_value array;

	if (!wire_next(cursor, &array) || array.type != WIRE_ARRAY ||
		array.count > MESSAGE_DEVICES_MAX)
		return message_refuse(fault, ERROR_BAD_REQUEST,
			"%s must be an array of at most %d elements", field->name,
			MESSAGE_DEVICES_MAX);
	for (uint32_t i = 0; i < array.count; i++)
		if (field_read_map(cursor, &device_table, &reply->backend.devices[i], fault))
			return -EBADMSG;
	reply->backend.device_count = array.count;
	return 0;
}

/* Every table below fills the same struct, so that a reader may reach more than one member. */
#define ROW(key, read, member, ...)                                                                \
	FIELD(key, "model." key, read, struct hello_reply, model.member, __VA_ARGS__)
static const struct field model_fields[] = {
	ROW("name", field_read_text, name, .max = TEXT_BYTES_MAX),
	ROW("vocab", field_read_u32, vocab, .min = 1, .max = UINT32_MAX),
	ROW("rank", field_read_u32, rank, .min = 1, .max = UINT32_MAX),
	ROW("target_vocab", field_read_u32, target_vocab, .min = 1, .max = UINT32_MAX),
	ROW("multiplier", field_read_f32, multiplier),
	FIELD_WHOLE("soft_cap", "model.soft_cap", read_soft_cap),
	ROW("dtype", field_read_text, dtype, .min = 1, .max = TEXT_BYTES_MAX),
};
#undef ROW
static const struct field_table model_table = {"model", model_fields, 7};

#define ROW(key, read, member, ...)                                                                \
	FIELD(key, "backend." key, read, struct hello_reply, backend.member, __VA_ARGS__)
static const struct field backend_fields[] = {
	ROW("name", field_read_text, name, .min = 1, .max = TEXT_BYTES_MAX),
	ROW("bias_order", field_read_text, bias_order, .min = 1, .max = TEXT_BYTES_MAX),
	ROW("tensor_parallel", field_read_u32, tensor_parallel, .min = 1, .max = UINT32_MAX),
	FIELD_WHOLE("devices", "backend.devices", read_devices),
};
#undef ROW
static const struct field_table backend_table = {"backend", backend_fields, 4};

#define ROW(key, read, member, ...)                                                                \
	FIELD(key, "limits." key, read, struct hello_reply, limits.member, __VA_ARGS__)
static const struct field limits_fields[] = {
	ROW("max_rows", field_read_u32, max_rows, .min = 1, .max = UINT32_MAX),
	ROW("max_steps", field_read_u32, max_steps, .min = 1, .max = UINT32_MAX),
	ROW("max_frame_bytes", field_read_u32, max_frame_bytes, .min = 1, .max = UINT32_MAX),
	ROW("max_inflight", field_read_u32, max_inflight, .min = 1, .max = UINT32_MAX),
	ROW("max_regions", field_read_u32, max_regions, .max = UINT32_MAX),
	ROW("max_region_bytes", field_read_u64, max_region_bytes, .max = UINT64_MAX),
};
#undef ROW
static const struct field_table limits_table = {"limits", limits_fields, 6};

#define ROW(key, read, member, ...) FIELD(key, key, read, struct hello_reply, member, __VA_ARGS__)
static const struct field reply_fields[] = {
	ROW("protocol", field_read_u32, protocol, .max = UINT32_MAX),
	ROW("server", field_read_text, server, .min = 1, .max = TEXT_BYTES_MAX),
	ROW("generation", field_read_u64, generation, .max = UINT64_MAX),
	FIELD_WHOLE("model", "model", field_read_table, .table = &model_table),
	FIELD_WHOLE("backend", "backend", field_read_table, .table = &backend_table),
	FIELD_WHOLE("limits", "limits", field_read_table, .table = &limits_table),
};
#undef ROW
static const struct field_table reply_table = {"result", reply_fields, 6};

static void pack_model(struct wire_buffer *buffer, const struct hello_reply *reply)
{
	pack_str(buffer, "model");
	wire_pack_map(buffer, 7);
	pack_key_text(buffer, "name", reply->model.name);
	pack_key_uint(buffer, "vocab", reply->model.vocab);
	pack_key_uint(buffer, "rank", reply->model.rank);
	pack_key_uint(buffer, "target_vocab", reply->model.target_vocab);
	pack_str(buffer, "multiplier");
	wire_pack_float(buffer, reply->model.multiplier);
	pack_str(buffer, "soft_cap");
	if (reply->model.has_soft_cap)
		wire_pack_float(buffer, reply->model.soft_cap);
	else
		wire_pack_nil(buffer);
	pack_key_text(buffer, "dtype", reply->model.dtype);
}

static void pack_backend(struct wire_buffer *buffer, const struct hello_reply *reply)
{
	pack_str(buffer, "backend");
	wire_pack_map(buffer, 4);
	pack_key_text(buffer, "name", reply->backend.name);
	pack_key_text(buffer, "bias_order", reply->backend.bias_order);
	pack_key_uint(buffer, "tensor_parallel", reply->backend.tensor_parallel);
	pack_str(buffer, "devices");
	wire_pack_array(buffer, reply->backend.device_count);
	for (uint32_t i = 0; i < reply->backend.device_count; i++) {
		const struct hello_device *device = &reply->backend.devices[i];

		wire_pack_map(buffer, 3);
		pack_key_text(buffer, "uuid", device->uuid);
		pack_key_text(buffer, "name", device->name);
		pack_key_uint(buffer, "memory_bytes", device->memory_bytes);
	}
}

static void pack_limits(struct wire_buffer *buffer, const struct hello_reply *reply)
{
	pack_str(buffer, "limits");
	wire_pack_map(buffer, 6);
	pack_key_uint(buffer, "max_rows", reply->limits.max_rows);
	pack_key_uint(buffer, "max_steps", reply->limits.max_steps);
	pack_key_uint(buffer, "max_frame_bytes", reply->limits.max_frame_bytes);
	pack_key_uint(buffer, "max_inflight", reply->limits.max_inflight);
	pack_key_uint(buffer, "max_regions", reply->limits.max_regions);
	pack_key_uint(buffer, "max_region_bytes", reply->limits.max_region_bytes);
}

void hello_reply_encode(struct wire_buffer *buffer, uint32_t id, const struct hello_reply *reply)
{
	size_t frame_at = reply_begin(buffer, id);

	wire_pack_map(buffer, 6);
	pack_key_uint(buffer, "protocol", reply->protocol);
	pack_key_text(buffer, "server", reply->server);
	pack_key_uint(buffer, "generation", reply->generation);
	pack_model(buffer, reply);
	pack_backend(buffer, reply);
	pack_limits(buffer, reply);
	frame_end(buffer, frame_at, 0, 0);
}

int hello_reply_decode(
	struct wire_cursor result, struct hello_reply *ret, struct message_fault *fault)
{
	struct hello_reply reply = {0};
	int rc = field_read_map(&result, &reply_table, &reply, fault);

	if (rc)
		return rc;
	*ret = reply;
	return 0;
}
