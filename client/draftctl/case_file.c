#include "case_file.h"

#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *dtype_label(enum tensor_dtype dtype)
{
	switch (dtype) {
	case DTYPE_BF16:
		return "BF16";
	case DTYPE_F32:
		return "F32";
	case DTYPE_I32:
		return "I32";
	case DTYPE_I64:
		return "I64";
	case DTYPE_OTHER:
		break;
	}
	return "another type";
}

const struct tensor *case_file_tensor(const struct safetensors *file, const char *path,
	const char *name, enum tensor_dtype dtype, unsigned dimension_count,
	struct error_text *error)
{
	const struct tensor *tensor = safetensors_find(file, name);

	if (tensor == NULL) {
		error_text_set(error, EINVAL, "%s has no tensor \"%s\"", path, name);
		return NULL;
	}
	if (tensor->dtype != dtype) {
		error_text_set(error, EINVAL, "%s: \"%s\" is %s; it must be %s", path, name,
			tensor->dtype_name, dtype_label(dtype));
		return NULL;
	}
	if (tensor->dimension_count != dimension_count || tensor->byte_count == 0) {
		error_text_set(error, EINVAL,
			"%s: \"%s\" has %u dimension%s and %" PRIu64
			" byte%s; it must have %u dimension%s, none of them 0",
			path, name, tensor->dimension_count, sentence_s(tensor->dimension_count),
			tensor->byte_count, sentence_s(tensor->byte_count), dimension_count,
			sentence_s(dimension_count));
		return NULL;
	}
	return tensor;
}

/* Finds a tensor whose shape begins as `like`'s does. */
static const struct tensor *find_like(const struct case_file *c, const char *path, const char *name,
	enum tensor_dtype dtype, unsigned dimension_count, struct error_text *error)
{
	const uint64_t shape[] = {c->rows, c->steps, c->vocab};
	const struct tensor *tensor;

	tensor = case_file_tensor(c->file, path, name, dtype, dimension_count, error);
	for (unsigned i = 0; tensor != NULL && i < dimension_count; i++) {
		if (tensor->shape[i] == shape[i])
			continue;
		error_text_set(error, EINVAL,
			"%s: dimension %u of \"%s\" is %" PRIu64
			"; \"base_logits\" makes it %" PRIu64,
			path, i, name, tensor->shape[i], shape[i]);
		return NULL;
	}
	return tensor;
}

/* A malloc'd copy of a column, since a tensor may lie at any address; NULL with `error` set. */
static void *copy_column(const struct case_file *c, const char *path, const char *name,
	enum tensor_dtype dtype, unsigned dimension_count, struct error_text *error)
{
	const struct tensor *tensor = find_like(c, path, name, dtype, dimension_count, error);
	void *copy;

	if (tensor == NULL)
		return NULL;
	copy = malloc(tensor->byte_count);
	if (copy == NULL)
		error_text_set(error, ENOMEM, "out of memory");
	else
		memcpy(copy, tensor->data, tensor->byte_count);
	return copy;
}

static int check_slots(struct case_file *c, const char *path, struct error_text *error)
{
	for (uint32_t r = 0; r < c->rows; r++) {
		if (c->slots[r] > CASE_SLOT_MAX)
			return error_text_set(error, EINVAL,
				"%s: slot %" PRId64 " of row %u; the most is %d", path, c->slots[r],
				r, CASE_SLOT_MAX);
		if (c->slots[r] >= c->slot_end)
			c->slot_end = (uint32_t)c->slots[r] + 1;
		for (uint32_t other = 0; other < r && c->slots[r] >= 0; other++)
			if (c->slots[other] == c->slots[r])
				return error_text_set(error, EINVAL,
					"%s: rows %u and %u both have slot %" PRId64, path, other,
					r, c->slots[r]);
	}
	return 0;
}

static int read_columns(struct case_file *c, const char *path, struct error_text *error)
{
	const struct tensor *tensor;

	tensor = find_like(c, path, "draft_logits", DTYPE_BF16, 3, error);
	if (tensor == NULL)
		return -EINVAL;
	c->draft_logits = tensor->data;
	/* A token id is unsigned; the file format has no unsigned type, so its bits stand in an
	 * I32. */
	if ((c->anchors = copy_column(c, path, "anchors", DTYPE_I32, 1, error)) == NULL ||
		(c->positions = copy_column(c, path, "positions", DTYPE_I64, 1, error)) == NULL ||
		(c->seeds = copy_column(c, path, "seeds", DTYPE_I64, 1, error)) == NULL ||
		(c->temperatures = copy_column(c, path, "temperatures", DTYPE_F32, 1, error)) ==
			NULL ||
		(c->slots = copy_column(c, path, "slots", DTYPE_I64, 1, error)) == NULL ||
		(c->tokens = copy_column(c, path, "tokens", DTYPE_I64, 2, error)) == NULL)
		return -EINVAL;
	return check_slots(c, path, error);
}

int case_file_open(const char *path, struct case_file *ret, struct error_text *error)
{
	struct case_file c = {0};
	const struct tensor *base;
	int r;

	r = safetensors_open(path, &c.file, error);
	if (r < 0)
		return r;
	base = case_file_tensor(c.file, path, "base_logits", DTYPE_BF16, 3, error);
	if (base == NULL) {
		r = -EINVAL;
		goto out;
	}
	if (base->shape[0] > REQUEST_ROWS_MAX || base->shape[1] > REQUEST_STEPS_MAX ||
		base->shape[2] > UINT32_MAX) {
		r = error_text_set(error, EINVAL,
			"%s: \"base_logits\" is [%" PRIu64 ", %" PRIu64 ", %" PRIu64
			"]; the most is [%d, %d, %u]",
			path, base->shape[0], base->shape[1], base->shape[2], REQUEST_ROWS_MAX,
			REQUEST_STEPS_MAX, UINT32_MAX);
		goto out;
	}
	c.rows = (uint32_t)base->shape[0];
	c.steps = (uint32_t)base->shape[1];
	c.vocab = (uint32_t)base->shape[2];
	c.base = base->data;
	r = read_columns(&c, path, error);
out:
	if (r < 0)
		case_file_close(&c);
	else
		*ret = c;
	return r;
}

void case_file_close(struct case_file *file)
{
	free(file->anchors);
	free(file->positions);
	free(file->seeds);
	free(file->temperatures);
	free(file->slots);
	free(file->tokens);
	safetensors_close(file->file);
	*file = (struct case_file){0};
}
