/* Happy path: decide between file and folder, read config.json, open the file or the two shards
 * that hold the tables, find the one head, check its shapes, settle multiplier and soft cap. Any
 * failure closes what was opened. */
#include "kernels/checkpoint.h"

#include "kernels/checkpoint_json.h"
#include "kernels/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JSON_FILE_BYTES_MAX (64u << 20) /* config.json, model.safetensors.index.json */
#define RANK_MAX            65536u
#define VOCAB_MAX           INT32_MAX

struct files {
	struct safetensors *w1, *w2; /* the same one unless they are in two shards */
	const struct tensor *w1_tensor, *w2_tensor;
	void *w1_copy, *w2_copy; /* NULL before checkpoint_load() */
};

/* Reads a whole small file. The text is the caller's to free. */
static int read_text(const char *path, char **ret_text, size_t *ret_bytes, struct error_text *error)
{
	struct stat status;
	char *text = NULL;
	size_t done = 0;
	int result = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return error_text_set(error, errno, "%.*s: can't be opened: %s%s", CUT(200, path),
			strerror(errno), error_text_remedy(errno));
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
		result = error_text_set(error, EINVAL, "%.*s: is no regular file", CUT(200, path));
		goto out;
	}
	if (status.st_size > JSON_FILE_BYTES_MAX) {
		result = error_text_set(error, EFBIG, "%.*s: is over the limit of %u bytes",
			CUT(200, path), JSON_FILE_BYTES_MAX);
		goto out;
	}
	text = malloc((size_t)status.st_size + 1);
	if (!text) {
		result = error_text_set(error, ENOMEM, "%.*s: no memory", CUT(200, path));
		goto out;
	}
	while (done < (size_t)status.st_size) {
		ssize_t got = read(fd, text + done, (size_t)status.st_size - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			result = error_text_set(error, errno, "%.*s: can't be read: %s",
				CUT(200, path), strerror(errno));
			goto out;
		}
		if (got == 0)
			break;
		done += (size_t)got;
	}
out:
	close(fd);
	if (result < 0) {
		free(text);
	} else {
		*ret_text = text;
		*ret_bytes = done;
	}
	return result;
}

/* Fills `ret` with folder/name, or says that it is too long. */
static int join_path(
	const char *folder, const char *name, char ret[PATH_MAX], struct error_text *error)
{
	int length = snprintf(ret, PATH_MAX, "%s/%s", folder, name);

	if (length < 0 || length >= PATH_MAX)
		return error_text_set(error, ENAMETOOLONG,
			"%.*s: the path of its %.*s is over the limit of %d bytes",
			CUT(200, folder), CUT(100, name), PATH_MAX - 1);
	return 0;
}

static int read_config(const char *folder, struct config_json *ret, struct error_text *error)
{
	char path[PATH_MAX];
	struct error_text reason;
	char *text = NULL;
	size_t byte_count;
	int result = join_path(folder, "config.json", path, error);

	if (result < 0)
		return result;
	result = read_text(path, &text, &byte_count, error);
	if (result == -ENOENT)
		return error_text_set(error, ENOENT,
			"%.*s: holds no config.json: name a checkpoint folder or a .safetensors "
			"file",
			CUT(200, folder));
	if (result < 0)
		return result;
	result = config_json_parse(text, byte_count, ret, &reason);
	free(text);
	return result < 0 ? error_text_set(error, -result, "%.*s: %s", CUT(200, path), reason.text)
			  : 0;
}

static int open_shards(
	const char *folder, const char *index_path, struct files *files, struct error_text *error)
{
	char path[PATH_MAX];
	struct index_json index;
	struct error_text reason;
	char *text = NULL;
	size_t byte_count;
	int result = read_text(index_path, &text, &byte_count, error);

	if (result < 0)
		return result;
	result = index_json_parse(text, byte_count, &index, &reason);
	free(text);
	if (result < 0)
		return error_text_set(
			error, -result, "%.*s: %s", CUT(200, index_path), reason.text);
	result = join_path(folder, index.w1_file, path, error);
	if (result == 0)
		result = safetensors_open(path, &files->w1, error);
	if (result < 0)
		return result;
	if (strcmp(index.w1_file, index.w2_file) == 0) {
		files->w2 = files->w1;
		return 0;
	}
	result = join_path(folder, index.w2_file, path, error);
	if (result == 0)
		result = safetensors_open(path, &files->w2, error);
	return result;
}

static int open_folder(const char *folder, struct files *files, struct error_text *error)
{
	char single[PATH_MAX], index[PATH_MAX];
	int result = join_path(folder, "model.safetensors", single, error);

	if (result == 0)
		result = join_path(folder, "model.safetensors.index.json", index, error);
	if (result < 0)
		return result;
	if (access(single, F_OK) == 0) {
		result = safetensors_open(single, &files->w1, error);
		files->w2 = files->w1;
	} else if (access(index, F_OK) == 0) {
		result = open_shards(folder, index, files, error);
	} else {
		result = error_text_set(error, ENOENT,
			"%.*s: holds neither model.safetensors nor model.safetensors.index.json: "
			"name a "
			"checkpoint folder or a .safetensors file",
			CUT(200, folder));
	}
	return result;
}

static int find_table(const struct safetensors *file, const char *wanted, const struct tensor **ret,
	size_t *ret_prefix_bytes, struct error_text *error)
{
	const struct tensor *found = NULL;
	size_t prefix_bytes;

	for (size_t i = 0; i < safetensors_count(file); i++) {
		const struct tensor *tensor = safetensors_at(file, i);

		if (!head_name_matches(tensor->name, wanted, &prefix_bytes))
			continue;
		if (found)
			return error_text_set(error, EINVAL,
				"holds several heads ('%.*s' and '%.*s'): one checkpoint must "
				"hold one",
				CUT(100, found->name), CUT(100, tensor->name));
		found = tensor;
		*ret_prefix_bytes = prefix_bytes;
	}
	if (!found)
		return error_text_set(error, ENOENT,
			"holds no tensor '%s', alone or after a prefix and a dot: no Markov head",
			wanted);
	*ret = found;
	return 0;
}

static int check_table(const struct tensor *table, uint64_t rows_max, const char *rows_name,
	struct error_text *error)
{
	if (table->dtype != DTYPE_BF16)
		return error_text_set(error, EINVAL, "tensor '%.*s' is %.*s: BF16 was expected",
			CUT(100, table->name), CUT(20, table->dtype_name));
	if (table->dimension_count != 2)
		return error_text_set(error, EINVAL,
			"tensor '%.*s' has %u dimension%s: 2, [%s, rank], were expected",
			CUT(100, table->name), table->dimension_count,
			sentence_s(table->dimension_count), rows_name);
	if (table->shape[0] < 1 || table->shape[0] > rows_max)
		return error_text_set(error, EINVAL,
			"tensor '%.*s' has %llu rows: 1 to %llu were expected",
			CUT(100, table->name), (unsigned long long)table->shape[0],
			(unsigned long long)rows_max);
	if (table->shape[1] < 1 || table->shape[1] > RANK_MAX)
		return error_text_set(error, EINVAL,
			"tensor '%.*s' has rank %llu: 1 to %u was expected", CUT(100, table->name),
			(unsigned long long)table->shape[1], RANK_MAX);
	return 0;
}

static int find_head(struct files *files, struct checkpoint *checkpoint, struct error_text *error)
{
	const struct tensor *w1, *w2;
	size_t w1_prefix, w2_prefix;
	int result = find_table(files->w1, HEAD_W1_NAME, &w1, &w1_prefix, error);

	if (result == 0)
		result = find_table(files->w2, HEAD_W2_NAME, &w2, &w2_prefix, error);
	if (result < 0)
		return result;
	if (w1_prefix != w2_prefix || memcmp(w1->name, w2->name, w1_prefix) != 0)
		return error_text_set(error, EINVAL,
			"'%.*s' and '%.*s' belong to different heads: the same prefix was "
			"expected",
			CUT(100, w1->name), CUT(100, w2->name));
	result = check_table(w1, UINT32_MAX, "target vocabulary", error);
	if (result == 0)
		result = check_table(w2, VOCAB_MAX, "vocabulary", error);
	if (result < 0)
		return result;
	if (w1->shape[1] != w2->shape[1])
		return error_text_set(error, EINVAL,
			"tensor '%.*s' has rank %llu but '%.*s' has %llu: the same was "
			"expected",
			CUT(100, w1->name), (unsigned long long)w1->shape[1], CUT(100, w2->name),
			(unsigned long long)w2->shape[1]);
	files->w1_tensor = w1;
	files->w2_tensor = w2;
	checkpoint->w1 = w1->data;
	checkpoint->w2 = w2->data;
	checkpoint->target_vocab = (uint32_t)w1->shape[0];
	checkpoint->vocab = (uint32_t)w2->shape[0];
	checkpoint->rank = (uint32_t)w2->shape[1];
	return 0;
}

/* Options stand above config.json, config.json above the metadata, the metadata above 1 and none.
 */
static int settle_numbers(const struct checkpoint_options *options,
	const struct config_json *config, const struct safetensors *file,
	struct checkpoint *checkpoint, struct error_text *error)
{
	struct stated multiplier = {0}, soft_cap = {0};
	int result = stated_parse("output_multiplier",
		safetensors_metadata(file, "output_multiplier"), false, &multiplier, error);

	if (result == 0)
		result = stated_parse("final_logit_softcapping",
			safetensors_metadata(file, "final_logit_softcapping"), true, &soft_cap,
			error);
	if (result < 0)
		return result;
	if (config->multiplier.present)
		multiplier = config->multiplier;
	if (config->soft_cap.present)
		soft_cap = config->soft_cap;
	if (options && options->has_multiplier &&
		stated_check("the multiplier option", (double)options->multiplier, false,
			&multiplier, error) < 0)
		return -EDOM;
	if (options && options->has_soft_cap &&
		stated_check("the soft cap option", (double)options->soft_cap, true, &soft_cap,
			error) < 0)
		return -EDOM;
	checkpoint->multiplier = multiplier.present ? multiplier.value : 1.0f;
	checkpoint->soft_cap = soft_cap.present ? soft_cap.value : 0.0f;
	return 0;
}

/* The base name as given, not what a symbolic link leads to: caches keep blobs under names that say
 * nothing. Only "." and the like are resolved. A file loses its ending; a folder keeps its dots
 * ("Qwen3-0.6B"). */
static void name_model(const char *path, bool is_folder, char *ret, size_t ret_bytes)
{
	char *resolved = NULL;
	const char *base;
	size_t end = strlen(path), length;

	while (end > 1 && path[end - 1] == '/')
		end--;
	base = memrchr(path, '/', end);
	base = base && base < path + end - 1 ? base + 1 : path;
	length = (size_t)(path + end - base);
	if ((length == 1 && *base == '.') || (length == 2 && memcmp(base, "..", 2) == 0)) {
		resolved = realpath(path, NULL);
		if (resolved) {
			base = strrchr(resolved, '/') + 1;
			length = strlen(base);
		}
	}
	if (!is_folder) {
		const char *dot = memrchr(base, '.', length);

		if (dot && dot != base)
			length = (size_t)(dot - base);
	}
	if (length > ret_bytes - 1) {
		length = ret_bytes - 1;
		while (length > 0 && ((unsigned char)base[length] & 0xc0) == 0x80)
			length--; /* not in the middle of a UTF-8 character */
	}
	memcpy(ret, base, length);
	ret[length] = '\0';
	free(resolved);
}

int checkpoint_open(const char *path, const struct checkpoint_options *options,
	struct checkpoint *ret, struct error_text *error)
{
	struct checkpoint checkpoint = {0};
	struct config_json config = {0};
	struct error_text reason;
	struct files *files;
	struct stat status;
	int result;

	if (stat(path, &status) < 0)
		return error_text_set(error, errno, "%.*s: can't be opened: %s%s", CUT(200, path),
			strerror(errno), error_text_remedy(errno));
	files = calloc(1, sizeof(*files));
	if (!files)
		return error_text_set(error, ENOMEM, "%.*s: no memory", CUT(200, path));
	checkpoint.files = files;
	name_model(path, S_ISDIR(status.st_mode), checkpoint.name, sizeof(checkpoint.name));
	if (S_ISDIR(status.st_mode)) {
		result = read_config(path, &config, error);
		if (result == 0)
			result = open_folder(path, files, error);
	} else {
		result = safetensors_open(path, &files->w1, error);
		files->w2 = files->w1;
	}
	if (result < 0)
		goto out;
	result = find_head(files, &checkpoint, &reason);
	if (result == 0)
		result = settle_numbers(options, &config, files->w1, &checkpoint, &reason);
	if (result < 0)
		error_text_set(error, -result, "%.*s: %s", CUT(200, path), reason.text);
out:
	if (result < 0)
		checkpoint_close(&checkpoint);
	else
		*ret = checkpoint;
	return result;
}

struct loading {
	void (*progress)(void *user, const char *what, double done);
	void *user;
	uint64_t done, bytes; /* of both tables */
};

static void table_read(void *user, uint64_t bytes)
{
	struct loading *loading = user;

	loading->done += bytes;
	if (loading->progress)
		loading->progress(loading->user, "reading the model",
			(double)loading->done / (double)loading->bytes);
}

static int load_table(const struct safetensors *file, const struct tensor *tensor, void **copy,
	const uint16_t **ret, struct loading *loading, struct error_text *error)
{
	int result;

	*copy = malloc(tensor->byte_count);
	if (!*copy)
		return error_text_set(error, ENOMEM, "tensor '%.*s': no memory for %llu bytes",
			CUT(100, tensor->name), (unsigned long long)tensor->byte_count);
	result = safetensors_read(file, tensor, *copy, table_read, loading, error);
	if (result == 0)
		*ret = *copy;
	return result;
}

int checkpoint_load(struct checkpoint *checkpoint,
	void (*progress)(void *user, const char *what, double done), void *user,
	struct error_text *error)
{
	struct files *files = checkpoint->files;
	struct loading loading = {
		.progress = progress,
		.user = user,
		.bytes = files->w1_tensor->byte_count + files->w2_tensor->byte_count,
	};
	int result = 0;

	if (!files->w1_copy)
		result = load_table(files->w1, files->w1_tensor, &files->w1_copy, &checkpoint->w1,
			&loading, error);
	if (result == 0 && !files->w2_copy)
		result = load_table(files->w2, files->w2_tensor, &files->w2_copy, &checkpoint->w2,
			&loading, error);
	return result;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
	struct files *files = checkpoint->files;

	if (files) {
		free(files->w1_copy);
		free(files->w2_copy);
		if (files->w2 != files->w1)
			safetensors_close(files->w2);
		safetensors_close(files->w1);
		free(files);
	}
	*checkpoint = (struct checkpoint){0};
}
