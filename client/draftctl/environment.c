#include "environment.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

static void make_plain(char *text)
{
	for (; *text != '\0'; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

static void read_processor(struct environment *environment)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(environment->processor, sizeof(environment->processor), "unknown");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "model name : %127[^\n]", environment->processor) == 1)
			break;
	if (file != NULL)
		fclose(file);
	make_plain(environment->processor);
}

static void read_devices(const struct draft *draft, struct environment *environment)
{
	struct draft_device device;
	size_t used = 0;
	FILE *file;

	for (uint32_t i = 0;
		draft_device_at(draft, i, &device) && used < sizeof(environment->devices); i++)
		used += (size_t)snprintf(environment->devices + used,
			sizeof(environment->devices) - used, "%s%s", i > 0 ? ", " : "",
			device.name);
	make_plain(environment->devices);
	if (strcmp(draft_model(draft)->backend, "cpu") == 0)
		return;
	file = fopen("/sys/module/nvidia/version", "re");
	if (file == NULL)
		return;
	if (fscanf(file, "%63s", environment->driver) != 1)
		environment->driver[0] = '\0';
	fclose(file);
	make_plain(environment->driver);
}

void environment_read(const struct draft *draft, struct environment *ret)
{
	time_t now = time(NULL);
	struct utsname system;
	struct tm utc;
	cpu_set_t usable;

	*ret = (struct environment){0};
	strftime(ret->date, sizeof(ret->date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	read_processor(ret);
	if (sched_getaffinity(0, sizeof(usable), &usable) == 0)
		ret->processors = (unsigned)CPU_COUNT(&usable);
	if (uname(&system) == 0)
		snprintf(ret->kernel, sizeof(ret->kernel), "%.15s %.70s", system.sysname,
			system.release);
	read_devices(draft, ret);
}
