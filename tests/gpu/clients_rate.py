#!/usr/bin/env python3
"""Rows a second of many clients of one row, beside what the same daemon's launches reach when each is full and the next follows at once:
64 clients where a launch has 32 rows, 128 where it has 64, in eight processes, daemon and clients spinning, base logits in device
memory, each process with its own, no draft logits, 7 steps. At least nine tenths are wanted for 64 clients.

For each shape (V, R) and number of rows it prints what clients got (rows/s); of the daemon's own figures over the same seconds: rows a
launch, as a share of --max-rows (full), the share of the time in which a launch ran (busy), what one took (launch us), and the loop
thread's processor time, its own and the kernel's, for a request (loop us); then what launches of whole requests of --max-rows rows took
in the same daemon, by its clock (full us), how many rows a second they make, and the clients' share of these. At the end of each line the
same clients draft once more, for a moment, and have some of the tokens recomputed by the CPU.

Usage: clients_rate.py [--seconds S] [--temperature T] [--perf FOLDER] [SHAPE...], from the unpacked archive or the sources (built); a SHAPE
is muse, qwen3 or dsv4 (all). Takes 16 processors. With --perf, and where perf is, FOLDER gets a profile of the loop's thread for each
line. Ends with "N passed, N failed, N waived"; exit code 1 if anything failed.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from daemon import SHAPES, Daemon, make_model, need_gpus, report_of
from tally import check, end, waive

PROCESSES, STEPS = 8, 7
LOADS = (32, 64, 0.9), (64, 128, 0)  # --max-rows, requests in flight, the share that is wanted
SPIN_US = 5000  # of a client: longer than any answer takes
WARMUP_S, VERIFIED_S = 0.5, 0.5
START_S = 3  # until all clients draft, at most
COLUMNS = "shape", "max_rows", "clients", "rows/s", "full %", "busy %", "launch us", "loop us", "of it sys", "full us", "full rows/s", "share %"


def bench(daemon, o, rows, clients, seconds, *more, seed=0):
    return daemon.start_bench(
        "--base", "device", "--spin", SPIN_US, "--rows", rows, "--steps", STEPS, "--temperature", o.temperature, "-c", clients, "-n", clients,
        "--warmup", WARMUP_S, "--duration", seconds, "--seed", seed, *more,
    )  # fmt: skip


def start_clients(daemon, o, clients, seconds, *more):
    """Each process with data of its own: rows that are alike have their candidates in the same places."""
    return [bench(daemon, o, 1, clients // PROCESSES, seconds, *more, seed=seed) for seed in range(PROCESSES)]


class Sample:
    """What the daemon has counted so far."""

    def __init__(self, connection, pid):
        lines = (line.rsplit(" ", 1) for line in connection.metrics().splitlines() if not line.startswith("#"))
        values = {name.removeprefix("draftd_"): float(value) for name, value in lines}
        self.at = time.monotonic()
        self.rows, self.launched = values["rows_total"], values["launched_rows_total"]
        self.busy = values["device_busy_seconds_total"]
        self.launches = values['replica_launches_total{replica="0"}']
        self.requests, self.inflight = values["drafts_total"], values["inflight_requests"]
        words = pathlib.Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        self.user, self.system = (int(word) / os.sysconf("SC_CLK_TCK") for word in words[11:13])


def profile(o, name, pid, seconds):
    """Of the loop's thread, which is the first one."""
    if not o.perf:
        return contextlib.nullcontext()
    data = o.perf / f"{name}.data"
    return subprocess.Popen(["perf", "record", "-q", "-g", "-F", "4999", "-t", str(pid), "-o", data, "--", "sleep", str(seconds)])


def report_profile(o, name):
    text = subprocess.run(
        ["perf", "report", "--stdio", "--no-children", "-g", "none", "--sort", "dso,sym", "-i", o.perf / f"{name}.data"],
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    (o.perf / f"{name}.txt").write_text(text)
    for line in [line for line in text.splitlines() if line and not line.startswith("#")][:15]:
        print(f"    {line.strip()}")


def measure(o, model, shape, max_rows, clients, wanted):
    name = f"{shape}-{max_rows}"
    with Daemon(model, "--max-rows", max_rows, "--engine-spin", "20ms", "--loop-spin", "20ms") as daemon, daemon.connect() as connection:
        pid = daemon.process.pid
        benches = start_clients(daemon, o, clients, o.seconds + START_S)
        deadline = time.monotonic() + START_S
        while Sample(connection, pid).inflight < 0.75 * clients:  # some are always between two drafts
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name}: the clients have not all begun after {START_S} s")
            time.sleep(0.05)
        time.sleep(WARMUP_S)
        before = Sample(connection, pid)
        with profile(o, name, pid, 0.8 * o.seconds):
            time.sleep(o.seconds)
        after = Sample(connection, pid)
        seen = sum(report_of(process)["per_second"]["rows"] for process in benches)
        full = report_of(bench(daemon, o, max_rows, 2, 1))["latency_us"]["device"]["p50"]
        again = start_clients(daemon, o, clients, VERIFIED_S, "--verify", "--model", model)
        verified = [report_of(process)["verified"] for process in again]
    seconds, launches = after.at - before.at, max(1, after.launches - before.launches)
    requests = max(1, after.requests - before.requests)
    rows = (after.rows - before.rows) / seconds
    best = max_rows / full * 1e6
    user, system = ((b - a) / requests * 1e6 for a, b in ((before.user, after.user), (before.system, after.system)))
    row = (
        shape, max_rows, clients, f"{rows:.0f}", f"{100 * (after.launched - before.launched) / launches / max_rows:.1f}",
        f"{100 * (after.busy - before.busy) / seconds:.1f}", f"{(after.busy - before.busy) / launches * 1e6:.1f}", f"{user + system:.2f}",
        f"{system:.2f}", f"{full:.1f}", f"{best:.0f}", f"{100 * rows / best:.1f}",
    )  # fmt: skip
    print("".join(f"{value:>12}" for value in row), flush=True)
    if o.perf:
        report_profile(o, name)
    if wanted:
        check(f"{name}: at least {wanted:.0%} of full launches", rows >= wanted * best, f"{rows:.0f} rows a second of {best:.0f}")
    checked, different = (sum(each[key] for each in verified) for key in ("checked", "different"))
    check(f"{name}: the tokens are the CPU's", checked and not different, f"{different} of {checked} differ")
    check(f"{name}: the clients' count is the daemon's", abs(seen / rows - 1) < 0.1, f"{seen:.0f} rows a second beside {rows:.0f}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=list(SHAPES))
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--temperature", type=float, default=1)
    parser.add_argument("--perf", type=pathlib.Path)
    o = parser.parse_args()
    if not set(o.shapes) <= set(SHAPES):
        parser.error(f"a SHAPE is one of {', '.join(SHAPES)}")
    need_gpus(1)
    if o.perf and not shutil.which("perf"):
        waive("perf is not here")
        o.perf = None
    elif o.perf:
        o.perf.mkdir(parents=True, exist_ok=True)
    print(f"{len(os.sched_getaffinity(0))} processors, temperature {o.temperature:g}")
    print("".join(f"{column:>12}" for column in COLUMNS))
    for shape in o.shapes:
        with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as folder:
            model = make_model(pathlib.Path(folder) / "model.safetensors", *SHAPES[shape])
            for load in LOADS:
                measure(o, model, shape, *load)
    end()


if __name__ == "__main__":
    main()
