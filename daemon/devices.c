#include "devices.h"

#include "config.h"
#include "limits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#define UUID_BYTES_MAX (sizeof(((struct markov_device *)0)->uuid) - 1)

_Static_assert(LIMIT_DEVICES_MAX <= MARKOV_DEVICES_MAX, "all devices fit into the facts");

/* One name of a list. */
struct name {
	const char *at;
	size_t bytes;
};

static bool is(struct name name, const char *text)
{
	return name.bytes == strlen(text) && memcmp(name.at, text, name.bytes) == 0;
}

static bool is_number(struct name name)
{
	return strspn(name.at, "0123456789") == name.bytes;
}

static bool is_same(struct name a, struct name b)
{
	return a.bytes == b.bytes && memcmp(a.at, b.at, a.bytes) == 0;
}

/* As much of a name as a message shows. */
static int shown(struct name name)
{
	return sentence_cut(name.at, name.bytes > UUID_BYTES_MAX ? UUID_BYTES_MAX : name.bytes);
}

static int check_name(struct name name, enum markov_backend backend, struct refusal *refusal)
{
	if (name.bytes == 0)
		return error_text_set(refusal_about(refusal, SETTING(devices), 0), EINVAL,
			"devices has an empty place; write numbers or UUIDs with one comma between "
			"two");
	if (memchr(name.at, ' ', name.bytes) || memchr(name.at, '\t', name.bytes))
		return error_text_set(refusal_about(refusal, SETTING(devices), 0), EINVAL,
			"devices has \"%.*s\"; write numbers or UUIDs with commas and no blanks",
			shown(name), name.at);
	if (name.bytes > UUID_BYTES_MAX)
		return error_text_set(refusal_about(refusal, SETTING(devices), 0), EINVAL,
			"devices has a name of %zu bytes, the most is %zu; write numbers or UUIDs, "
			"as nvidia-smi -L prints them",
			name.bytes, UUID_BYTES_MAX);
	if (is_number(name) && name.bytes > 1 && name.at[0] == '0')
		return error_text_set(refusal_about(refusal, SETTING(devices), 0), EINVAL,
			"devices has \"%.*s\"; write a number without zeros before it", shown(name),
			name.at);
	if (name.bytes == 3 && strncasecmp(name.at, "CPU", 3) == 0 && backend != MARKOV_CPU)
		return error_text_set(refusal_about(refusal, SETTING(devices), SETTING(backend)),
			EINVAL, "devices names the CPU, but backend is %s; name GPUs or use cpu",
			backend == MARKOV_CUDA ? "cuda" : "auto");
	if (!is(name, "CPU") && backend == MARKOV_CPU)
		return error_text_set(refusal_about(refusal, SETTING(devices), SETTING(backend)),
			EINVAL,
			"devices has \"%.*s\", but backend is cpu; write CPU for each replica, "
			"leave devices out, or use cuda",
			shown(name), name.at);
	return 0;
}

static int check_list(
	const char *list, enum markov_backend backend, uint32_t *ret_count, struct refusal *refusal)
{
	struct name names[LIMIT_DEVICES_MAX];
	uint32_t count = 0;
	int r;

	for (const char *at = list; at; at = strchr(at, ',')) {
		struct name name;

		at += count > 0; /* the comma */
		name = (struct name){at, strcspn(at, ",")};
		r = check_name(name, backend, refusal);
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < count && i < LIMIT_DEVICES_MAX; i++)
			if (is_same(names[i], name) && !is(name, "CPU"))
				return error_text_set(refusal_about(refusal, SETTING(devices), 0),
					EINVAL, "devices has %.*s twice; name each GPU once",
					shown(name), name.at);
		if (count < LIMIT_DEVICES_MAX)
			names[count] = name;
		count++;
	}
	if (count > LIMIT_DEVICES_MAX)
		return error_text_set(refusal_about(refusal, SETTING(devices), 0), EINVAL,
			"devices lists %" PRIu32 ", the most is %d; list fewer", count,
			LIMIT_DEVICES_MAX);
	*ret_count = count;
	return 0;
}

int devices_check(const char *list, enum markov_backend backend, uint32_t tensor_parallel,
	uint32_t *ret_tensor_parallel, uint32_t *ret_replicas, struct refusal *refusal)
{
	const bool given = tensor_parallel > 0;
	uint32_t count = 1;
	int r;

	if (list) {
		r = check_list(list, backend, &count, refusal);
		if (r < 0)
			return r;
	}
	if (!given)
		tensor_parallel = backend == MARKOV_CPU ? 1 : count;
	if (backend == MARKOV_CPU && tensor_parallel > 1)
		return error_text_set(
			refusal_about(refusal, SETTING(tensor_parallel), SETTING(backend)), EINVAL,
			"tensor_parallel is %" PRIu32 ", but backend is cpu, which shares no "
			"vocabulary; leave it out",
			tensor_parallel);
	if (!given && (tensor_parallel & (tensor_parallel - 1)))
		return error_text_set(
			refusal_about(refusal, SETTING(devices), SETTING(tensor_parallel)), EINVAL,
			"devices lists %" PRIu32
			" GPUs, and a group must have a power of two; list so many, or set "
			"tensor_parallel (1: each is a replica)",
			count);
	if (tensor_parallel & (tensor_parallel - 1))
		return error_text_set(refusal_about(refusal, SETTING(tensor_parallel), 0), EINVAL,
			"tensor_parallel is %" PRIu32 "; it must be a power of two up to %d",
			tensor_parallel, LIMIT_DEVICES_MAX);
	if (!list && tensor_parallel > 1)
		return error_text_set(
			refusal_about(refusal, SETTING(tensor_parallel), SETTING(devices)), EINVAL,
			"tensor_parallel is %" PRIu32 ", and devices lists no GPU; list %" PRIu32
			" or a multiple",
			tensor_parallel, tensor_parallel);
	if (count % tensor_parallel)
		return error_text_set(
			refusal_about(refusal, SETTING(tensor_parallel), SETTING(devices)), EINVAL,
			"tensor_parallel is %" PRIu32 ", and devices lists %" PRIu32
			" GPU%s; list a multiple of it",
			tensor_parallel, count, sentence_s(count));
	*ret_tensor_parallel = tensor_parallel;
	*ret_replicas = count / tensor_parallel;
	return 0;
}

bool devices_of(
	const char *list, uint32_t tensor_parallel, uint32_t replica, char *text, size_t text_bytes)
{
	const char *begin = list, *end;

	for (uint32_t i = 0; i < replica * tensor_parallel; i++)
		begin = strchr(begin, ',') + 1;
	end = begin + strcspn(begin, ",");
	for (uint32_t i = 1; i < tensor_parallel; i++)
		end += 1 + strcspn(end + 1, ",");
	if ((size_t)(end - begin) >= text_bytes)
		return false;
	memcpy(text, begin, (size_t)(end - begin));
	text[end - begin] = '\0';
	return true;
}
