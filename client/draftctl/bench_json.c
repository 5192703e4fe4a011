#include "bench_report.h"

static json_t *latency_json(const struct histogram *histogram)
{
	json_t *latency = json_object();

	for (size_t i = 0; i < BENCH_PERCENTILES; i++)
		json_object_set_new(latency, bench_percentiles[i].key,
			json_real((double)histogram_at(histogram, bench_percentiles[i].fraction) /
				  1e3));
	json_object_set_new(latency, "mean", json_real(histogram_mean(histogram) / 1e3));
	json_object_set_new(latency, "min", json_real((double)histogram->min / 1e3));
	return latency;
}

static json_t *errors_json(const struct load_result *result)
{
	json_t *errors = json_object();

	for (unsigned i = 0; i < result->error_kinds; i++)
		json_object_set_new(errors, draft_error_name(result->errors[i].code),
			json_integer((json_int_t)result->errors[i].count));
	return errors;
}

static const char *arrival_name(const struct load_options *options)
{
	if (options->schedule.count > 0)
		return "schedule";
	if (options->rate == 0)
		return "closed";
	return options->arrival == ARRIVAL_POISSON ? "poisson" : "constant";
}

static json_t *load_json(const struct load_options *options)
{
	json_t *load = json_pack("{s:s, s:I, s:I, s:I, s:s, s:b, s:f, s:I, s:I}", "arrival",
		arrival_name(options), "concurrency", (json_int_t)options->concurrency,
		"connections", (json_int_t)options->connections, "threads",
		(json_int_t)options->threads, "base", bench_base_names[options->base], "logits",
		options->logits, "warmup_seconds", options->warmup_s, "spin_us",
		(json_int_t)options->spin_us, "seed", (json_int_t)options->seed);

	if (options->rate > 0)
		json_object_set_new(load, "rate", json_real(options->rate));
	return load;
}

static json_t *mix_json(const struct load_options *options, const struct load_result *result)
{
	json_t *kinds = json_array();

	for (unsigned k = 0; k < options->mix.count; k++) {
		const struct mix_kind *kind = &options->mix.kinds[k];

		json_array_append_new(
			kinds, json_pack("{s:f, s:I, s:I, s:f, s:I, s:I, s:I, s:o}", "share",
				       kind->share, "rows", (json_int_t)kind->rows, "steps",
				       (json_int_t)kind->steps, "temperature", kind->temperature,
				       "priority", (json_int_t)kind->priority, "deadline_us",
				       (json_int_t)kind->deadline_us, "requests",
				       (json_int_t)result->kinds[k].count, "seen_us",
				       latency_json(&result->kinds[k])));
	}
	return kinds;
}

static json_t *environment_json(const struct environment *environment)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:s}", "date", environment->date, "tool",
		"draftctl/" DRAFTD_VERSION, "processor", environment->processor, "processors",
		(json_int_t)environment->processors, "kernel", environment->kernel, "devices",
		environment->devices, "driver", environment->driver);
}

static json_t *ramp_json(const struct ramp *ramp)
{
	json_t *steps = json_array();

	for (unsigned i = 0; i < ramp->count; i++) {
		const struct ramp_step *step = &ramp->steps[i];

		json_array_append_new(
			steps, json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:b}", "rate", step->rate,
				       "requests_per_second", step->achieved, "p50_us",
				       (double)step->p50_ns / 1e3, "p99_us",
				       (double)step->p99_ns / 1e3, "late", (json_int_t)step->late,
				       "unsent", (json_int_t)step->unsent, "kept", step->kept));
	}
	return json_pack("{s:f, s:f, s:o}", "p99_bound_us", ramp->bound_ns / 1e3, "rate",
		ramp->kept, "steps", steps);
}

json_t *bench_report_json(const struct bench_report *report)
{
	const struct load_options *options = report->options;
	const struct draft_model *model = report->model;
	const struct load_result *result = report->result;
	const struct bench_verdict *verdict = &report->verdict;
	double seconds = result->seconds > 0 ? result->seconds : 1;
	json_t *root;

	root = json_pack("{s:s, s:{s:s, s:s, s:s, s:I, s:I, s:I}}", "schema", "draftctl-bench-2",
		"server", "version", model->server, "backend", model->backend, "model", model->name,
		"vocab", (json_int_t)model->vocab, "rank", (json_int_t)model->rank, "generation",
		(json_int_t)model->generation);
	json_object_set_new(root, "environment", environment_json(report->environment));
	json_object_set_new(root, "load", load_json(options));
	json_object_set_new(root, "mix", mix_json(options, result));
	json_object_set_new(root, "seconds", json_real(result->seconds));
	json_object_set_new(root, "own_cpu",
		json_pack("{s:f, s:f, s:f}", "user_seconds", result->user_s, "system_seconds",
			result->system_s, "wall_seconds", result->wall_s));
	json_object_set_new(root, "interrupted", json_boolean(result->interrupted));
	json_object_set_new(root, "totals",
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests",
			(json_int_t)result->requests, "rows", (json_int_t)result->rows, "tokens",
			(json_int_t)result->tokens, "nan_rows", (json_int_t)result->nan_rows,
			"late", (json_int_t)result->late, "unsent", (json_int_t)result->unsent,
			"deadlines_missed", (json_int_t)result->missed));
	json_object_set_new(root, "per_second",
		json_pack("{s:f, s:f, s:f}", "requests", (double)result->requests / seconds, "rows",
			(double)result->rows / seconds, "tokens",
			(double)result->tokens / seconds));
	json_object_set_new(root, "latency_us",
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "seen",
			latency_json(&result->total), "late", latency_json(&result->waited),
			"total", latency_json(&result->served), "queue",
			latency_json(&result->queue), "device", latency_json(&result->device),
			"seen_less_total", latency_json(&result->wire), "seen_less_device",
			latency_json(&result->around)));
	json_object_set_new(root, "errors", errors_json(result));
	if (report->ramp != NULL)
		json_object_set_new(root, "ramp", ramp_json(report->ramp));
	if (verdict->verified)
		json_object_set_new(root, "verified",
			json_pack("{s:I, s:I, s:s}", "checked", (json_int_t)verdict->checked,
				"different", (json_int_t)verdict->different, "first_difference",
				verdict->first));
	return root;
}
