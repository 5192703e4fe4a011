#!/usr/bin/env python3
"""draftd on several GPUs of this machine. Golden cases on two that share the vocabulary (in the block form, and by step through NCCL)
and on two replicas, with the rows inline, in host memory and in memory of the first GPU; two daemons on the same GPUs at once; what two
replicas draft a second under load, beside one.

Usage: several.py [--all], from the unpacked archive or the sources (built). Through NCCL only where libnccl.so.2 is found. Ends with
"N passed, N failed, N waived"; exit code 1 if anything failed.
"""

import contextlib
import pathlib
import sys
import tempfile

from daemon import GOLDEN, PAIR, REPLICAS, SHAPES, Daemon, has_nccl, make_model, need_gpus, report_of
from tally import check, end

ALL, SOME = sorted(GOLDEN.glob("*.safetensors")), ("greedy_small", "sampled_odd_vocab", "nan_logits", "many_rows")
GAIN = 1.9  # of two replicas over one


def golden(label, cases, *options):
    for case in cases:
        with Daemon(case, *options) as daemon:
            for base in "inline", "host", "device":
                done = daemon.ctl("replay", "--base", base, case)
                check(f"{label}: {case.stem}, {base}", done.returncode == 0, done.stdout + done.stderr)
    print(f"{label}: {len(cases)} golden cases", flush=True)


def start_load(daemon, model, concurrency):
    return daemon.start_bench(
        "--base", "device", "--rows", 4, "--steps", 7, "--temperature", 1, "-c", 16, "-t", 8, "-n", concurrency, "--warmup", 0.5,
        "--duration", 4, "--verify", "--model", model,
    )  # fmt: skip


def rows_a_second(name, bench):
    report = report_of(bench)
    check(f"{name}: load", report["verified"]["checked"] > 0 and report["verified"]["different"] == 0, report["verified"])
    rows = report["per_second"]["rows"]
    print(f"{name}: {rows:.0f} rows/s, p50 {report['latency_us']['seen']['p50']} us", flush=True)
    return rows


def load(name, model, concurrency, *options):
    with Daemon(model, "--max-rows", "16", *options) as daemon:
        rows = rows_a_second(name, start_load(daemon, model, concurrency))
        return rows, daemon.ctl("stats").stdout


def side_by_side(model):
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(model, "--devices", devices)) for devices in ("0,1", "1,0")]
        benches = [start_load(daemon, model, 16) for daemon in daemons]
        for name, bench in zip(("one", "the other"), benches):
            rows_a_second(f"two daemons on the same GPUs, {name}", bench)


def main():
    need_gpus(2)
    some = [case for case in ALL if case.stem in SOME]
    golden("two GPUs, one launch a block", ALL if "--all" in sys.argv else some, *PAIR)
    if has_nccl():
        golden("two GPUs, a launch a step through NCCL", some[:2], *PAIR, "--cuda-form", "step")
    golden("two replicas", some[:2], *REPLICAS)
    with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as folder:
        model = make_model(pathlib.Path(folder) / "model.safetensors", *SHAPES["muse"])
        side_by_side(model)
        one, _ = load("one GPU", model, 16)
        group, _ = load("two GPUs together", model, 16, *PAIR)
        two, stats = load("two replicas", model, 32, *REPLICAS)
    print(f"beside one GPU: together {group / one:.2f} times the rows a second, replicas {two / one:.2f}")
    check("two replicas", two >= GAIN * one, f"{two / one:.2f} times one's rows a second, not {GAIN}\n{stats}")
    end()


if __name__ == "__main__":
    main()
