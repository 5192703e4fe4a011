#include "load_private.h"

#include <stdio.h>

#define UNSENT_SHARE 0.01 /* of what was planned, that is no cause to worry */

void load_result_count(struct load_result *result, int code, uint64_t count, const char *text)
{
	struct load_error *error = result->errors;

	while (error < result->errors + result->error_kinds && error->code != code)
		error++;
	if (error == result->errors + LOAD_ERROR_KINDS)
		error--; /* more kinds than the protocol has: the last one stands for the rest */
	if (error == result->errors + result->error_kinds) {
		result->error_kinds++;
		error->code = code;
		snprintf(error->text, sizeof(error->text), "%.*s",
			CUT(sizeof(error->text) - 1, text));
	}
	error->count += count;
}

void load_result_merge(struct load_result *into, const struct load_result *from)
{
	into->requests += from->requests;
	into->rows += from->rows;
	into->tokens += from->tokens;
	into->nan_rows += from->nan_rows;
	into->late += from->late;
	into->unsent += from->unsent;
	into->missed += from->missed;
	into->interrupted |= from->interrupted;
	if (from->seconds > into->seconds)
		into->seconds = from->seconds;
	histogram_merge(&into->total, &from->total);
	histogram_merge(&into->waited, &from->waited);
	histogram_merge(&into->served, &from->served);
	histogram_merge(&into->queue, &from->queue);
	histogram_merge(&into->device, &from->device);
	histogram_merge(&into->wire, &from->wire);
	histogram_merge(&into->around, &from->around);
	for (unsigned k = 0; k < MIX_KINDS_MAX; k++)
		histogram_merge(&into->kinds[k], &from->kinds[k]);
	for (unsigned i = 0; i < from->error_kinds; i++)
		load_result_count(
			into, from->errors[i].code, from->errors[i].count, from->errors[i].text);
}

uint64_t load_error_count(const struct load_result *result)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < result->error_kinds; i++)
		count += result->errors[i].count;
	return count - result->missed;
}

uint64_t load_planned_count(const struct load_result *result)
{
	return result->requests + result->unsent + result->missed + load_error_count(result);
}

bool load_kept_its_plan(const struct load_result *result)
{
	return (double)result->unsent <= UNSENT_SHARE * (double)load_planned_count(result);
}
