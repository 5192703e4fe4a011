#include "devices.h"

#include "text.h"

#include <inttypes.h>
#include <string.h>

/* "device 1" where the connection knows it, else the UUID. */
static void print_device(FILE *to, const struct draft *draft, const char *uuid)
{
	struct draft_device device;

	for (uint32_t i = 0; draft_device_at(draft, i, &device); i++) {
		if (strcmp(device.uuid, uuid) != 0)
			continue;
		fprintf(to, "device %" PRIu32, i);
		return;
	}
	text_put_plain(to, uuid);
}

static void print_replica(
	FILE *to, const struct draft *draft, json_t *replica, size_t number, int width)
{
	json_t *uuid;
	size_t i;

	fprintf(to, "replica %-*zu ", width - 8, number);
	json_array_foreach(json_object_get(replica, "devices"), i, uuid)
	{
		fputs(i > 0 ? ", " : "", to);
		print_device(to, draft, json_is_string(uuid) ? json_string_value(uuid) : "");
	}
	fputc('\n', to);
}

void devices_print(FILE *to, const struct draft *draft, json_t *stats, int width)
{
	json_t *replicas = json_object_get(stats, "replicas");
	struct draft_device device;
	json_t *replica;
	size_t n;

	for (uint32_t i = 0; draft_device_at(draft, i, &device); i++) {
		fprintf(to, "device %-*" PRIu32 " ", width - 7, i);
		text_put_plain(to, device.name);
		fprintf(to, ", %s (", text_bytes(device.memory_bytes).at);
		text_put_plain(to, device.uuid);
		fputs(")\n", to);
	}
	if (json_array_size(replicas) < 2)
		return;
	json_array_foreach(replicas, n, replica)
	{
		print_replica(to, draft, replica, n, width);
	}
}
