#include "load.h"

#include "kernels/clock.h"
#include "limits.h"
#include "log.h"
#include "notify.h"

#include <stdio.h>
#include <string.h>

void load_begin(struct load *load, const char *doing, const struct config *config)
{
	*load = (struct load){
		.doing = doing,
		.aloud = config->backend == MARKOV_CUDA,
		.begun_us = clock_us(),
	};
}

void load_tell(void *user, const char *what, double done)
{
	struct load *load = user;
	const int percent = (int)(done * 100);
	const uint64_t now_us = clock_us();
	const bool same = strcmp(load->what, what) == 0;

	if (!same) {
		snprintf(load->what, sizeof(load->what), "%s", what);
		load->logged = false;
	}
	if (!load->logged && (load->aloud || now_us - load->begun_us >= LIMIT_LOAD_QUIET_US)) {
		log_info("%s: %s", load->doing, what);
		load->logged = true;
	}
	if (same && load->percent == percent && now_us - load->said_us < LIMIT_LOAD_SAYS_US)
		return;
	load->percent = percent;
	load->said_us = now_us;
	notify_load(load->doing, what, percent);
}

void load_warn_unused(const struct config *config, const struct markov_facts *facts)
{
	char names[384];

	if (config->backend != MARKOV_AUTO || strcmp(facts->backend, "cpu") != 0)
		return;
	config_list_of_gpu(config, names, sizeof(names));
	if (names[0])
		log_warning("backend auto took the CPU, which makes no use of %s", names);
}
