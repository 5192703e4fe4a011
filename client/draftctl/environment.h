/* What a report stands for: the machine, its devices and the date. Plain text, printable ASCII.
 *
 * A plain value; reading it is one thread's. */
#ifndef DRAFTCTL_ENVIRONMENT_H
#define DRAFTCTL_ENVIRONMENT_H

#include "client/draft.h"

struct environment {
	char date[32];       /* "2026-11-30T12:00:00Z" */
	char processor[128]; /* "AMD EPYC 9654"; "unknown" */
	unsigned processors; /* that this process may use */
	char kernel[96];     /* "Linux 6.1.0" */
	char devices[256];   /* draftd's, as it told: "NVIDIA H200"; "" for none */
	char driver[64];     /* of NVIDIA's GPUs; "" if unknown */
};

void environment_read(const struct draft *draft, struct environment *ret);

#endif
