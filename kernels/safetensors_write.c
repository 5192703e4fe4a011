/* Writing a .safetensors file: check the tensors, make the header, replace the file by all of it.
 */
#include "kernels/dtype.h"
#include "kernels/replacement.h"
#include "kernels/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define METADATA_KEY "__metadata__"

static int add_tensor(json_t *header, const struct tensor_source *source, uint64_t *offset,
	struct error_text *error)
{
	enum tensor_dtype dtype;
	unsigned bits = dtype_bits(source->dtype_name, &dtype);
	uint64_t needed, end;
	json_t *shape;

	if (bits == 0 || source->dimension_count > SAFETENSORS_DIMENSIONS_MAX ||
		!dtype_shape_bytes(source->shape, source->dimension_count, bits, &needed) ||
		needed != source->byte_count ||
		__builtin_add_overflow(*offset, source->byte_count, &end) || end > INT64_MAX)
		return error_text_set(error, EINVAL,
			"tensor '%.*s': its dtype and shape don't match its %llu byte%s",
			CUT(100, source->name), (unsigned long long)source->byte_count,
			sentence_s(source->byte_count));
	if (json_object_get(header, source->name))
		return error_text_set(
			error, EINVAL, "tensor '%.*s' is given twice", CUT(100, source->name));
	shape = json_array();
	for (unsigned i = 0; i < source->dimension_count; i++)
		json_array_append_new(shape, json_integer((json_int_t)source->shape[i]));
	if (json_object_set_new(header, source->name,
		    json_pack("{s:s, s:o, s:[I, I]}", "dtype", source->dtype_name, "shape", shape,
			    "data_offsets", (json_int_t)*offset, (json_int_t)end)) < 0)
		return error_text_set(error, EINVAL,
			"tensor '%.*s': its name must be UTF-8 and memory must suffice",
			CUT(100, source->name));
	*offset = end;
	return 0;
}

static int build_header(const struct tensor_source *tensors, size_t tensor_count,
	const struct metadata_pair *metadata, size_t metadata_count, char **ret_text,
	struct error_text *error)
{
	json_t *header = json_object();
	uint64_t offset = 0;
	char *text = NULL;
	int result = 0;

	if (metadata_count > 0) {
		json_t *strings = json_object();

		for (size_t i = 0; i < metadata_count; i++)
			if (json_object_set_new(
				    strings, metadata[i].key, json_string(metadata[i].value)) < 0)
				result = error_text_set(error, EINVAL,
					"metadata '%.*s' must be UTF-8", CUT(100, metadata[i].key));
		json_object_set_new(header, METADATA_KEY, strings);
	}
	for (size_t i = 0; result == 0 && i < tensor_count; i++)
		result = add_tensor(header, &tensors[i], &offset, error);
	if (result == 0) {
		text = json_dumps(header, JSON_COMPACT);
		if (!text)
			result = error_text_set(error, ENOMEM, "no memory for the header");
		else if (strlen(text) > SAFETENSORS_HEADER_BYTES_MAX - LENGTH_BYTES)
			result = error_text_set(error, E2BIG,
				"the header is over the limit of %u bytes",
				SAFETENSORS_HEADER_BYTES_MAX);
	}
	json_decref(header);
	if (result < 0)
		free(text);
	else
		*ret_text = text;
	return result;
}

/* The data starts on a multiple of 8, as the format asks: the header is filled up with spaces. */
static int write_file(struct replacement *file, const char *header,
	const struct tensor_source *tensors, size_t count)
{
	size_t text_bytes = strlen(header);
	size_t padding = (8 - text_bytes % 8) % 8;
	unsigned char length[LENGTH_BYTES];
	int result;

	for (int i = 0; i < LENGTH_BYTES; i++)
		length[i] = (unsigned char)((uint64_t)(text_bytes + padding) >> (8 * i));
	result = replacement_write(file, length, sizeof(length));
	if (result == 0)
		result = replacement_write(file, header, text_bytes);
	if (result == 0)
		result = replacement_write(file, "        ", padding);
	for (size_t i = 0; result == 0 && i < count; i++)
		result = replacement_write(file, tensors[i].data, tensors[i].byte_count);
	return result;
}

int safetensors_write(const char *path, const struct tensor_source *tensors, size_t tensor_count,
	const struct metadata_pair *metadata, size_t metadata_count, struct error_text *error)
{
	struct replacement file;
	char *header = NULL;
	int result;

	result = build_header(tensors, tensor_count, metadata, metadata_count, &header, error);
	if (result < 0)
		return result;
	result = replacement_begin(path, &file, error);
	if (result == 0) {
		result = write_file(&file, header, tensors, tensor_count);
		result = replacement_end(&file, result, true, error);
	}
	free(header);
	return result;
}
