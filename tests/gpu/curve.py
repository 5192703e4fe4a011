#!/usr/bin/env python3
"""Throughput against latency of draftd on this machine, by `draftctl bench`: closed loads of 1 to 64 clients, a connection each, and
Poisson arrivals at shares of the best of their rates, from 64 connections. From an unpacked archive, or from a build folder.

Usage: curve.py BIN [--backend cuda|cpu] [--base inline|host|device] [--vocab V] [--rank R] [--rows N] [--steps K] [--seconds S]
                [--csv FILE]
       curve.py --draw FILE.csv PICTURE.png     (needs gnuplot)

BIN is the folder of draftd and draftctl. Prints a table, and writes it to FILE with the environment as a comment."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

CLIENTS = 1, 2, 4, 8, 16, 32, 64
SHARES = 0.25, 0.5, 0.7, 0.8, 0.9, 0.95
COLUMNS = "load", "clients", "planned", "requests/s", "tokens/s", "p50_us", "p99_us", "p99.9_us", "device_us", "late", "unsent", "own_cpu"
START_S = 120

DRAW = """
set terminal pngcairo noenhanced size 1100,650
set datafile separator ','
set logscale y
set xlabel 'requests a second'
set ylabel 'microseconds'
set grid
set key outside below
set title title
plot data using (strcol(1) eq 'closed' ? $4 : NaN):6 with linespoints lw 2 title 'closed, 1 to 64 clients: p50', \\
     data using (strcol(1) eq 'closed' ? $4 : NaN):7 with linespoints lw 2 title 'closed: p99', \\
     data using (strcol(1) eq 'poisson' ? $4 : NaN):6 with linespoints lw 2 title 'poisson: p50', \\
     data using (strcol(1) eq 'poisson' ? $4 : NaN):7 with linespoints lw 2 title 'poisson: p99'
"""


def draw(table, picture):
    title = pathlib.Path(table).read_text().splitlines()[0].lstrip("# ").replace("'", "")
    quoted = str(table).replace("'", "''")
    server, _, load = title.partition("; ")  # on a line each, or they are cut off
    script = f"title = '{server}' . \"\\n\" . '{load}'\ndata = '{quoted}'\n{DRAW}"
    with open(picture, "wb") as out:
        subprocess.run(["gnuplot", "-"], input=script.encode(), stdout=out, check=True)


def row_of(name, clients, report):
    seen, own = report["latency_us"]["seen"], report["own_cpu"]
    return (
        name, clients, round(report["load"].get("rate", 0)), round(report["per_second"]["requests"]),
        round(report["per_second"]["tokens"]), seen["p50"], seen["p99"], seen["p99_9"], report["latency_us"]["device"]["p50"],
        report["totals"]["late"], report["totals"]["unsent"],
        round((own["user_seconds"] + own["system_seconds"]) / own["wall_seconds"], 2),
    )


def measure(o, folder):
    path = folder / "draftd.sock"
    model = folder / "model.safetensors"
    draftctl = [o.bin / "draftctl", "--socket", path]
    subprocess.run(
        [*draftctl, "model", "make", "--vocab", str(o.vocab), "--rank", str(o.rank), "--seed", "1", model], check=True,
        stdout=subprocess.DEVNULL,
    )
    command = [o.bin / "draftd", "--backend", o.backend, "--model", model, "--socket", path, "--log-level", "error"]
    daemon = subprocess.Popen(command)
    lines = []
    try:
        end = time.monotonic() + START_S
        while subprocess.run([*draftctl, "ping", "--count", "1", "--quiet"], capture_output=True).returncode:
            if daemon.poll() is not None or time.monotonic() > end:
                sys.exit("draftd did not start")
            time.sleep(0.1)

        def bench(name, clients, *options):
            threads = min(clients, max(1, len(os.sched_getaffinity(0)) // 4))
            done = subprocess.run(
                [
                    *draftctl, "bench", "--json", "-", "--warmup", "0.5", "--duration", str(o.seconds), "--base", o.base,
                    "--rows", str(o.rows), "--steps", str(o.steps), "-c", str(clients), "-t", str(threads), *map(str, options),
                ],
                stdout=subprocess.PIPE, check=True,
            )
            report = json.loads(done.stdout)
            if not lines:
                e = report["environment"]
                driver = f" (driver {e['driver']})" if e["driver"] else ""
                lines.append(
                    f"# {report['server']['version']} on {e['devices']}{driver}, {e['processor']} x {e['processors']}, {e['date']};"
                    f" V={o.vocab} R={o.rank} K={o.steps}, {o.rows} rows, base {o.base}"
                )
                lines.append(",".join(COLUMNS))
                print(lines[0][2:])
                print("".join(f"{column:>12}" for column in COLUMNS))
            row = row_of(name, clients, report)
            lines.append(",".join(map(str, row)))
            print("".join(f"{value:>12}" for value in row), flush=True)
            return report["per_second"]["requests"]

        best = max(bench("closed", clients, "-n", clients) for clients in CLIENTS)
        for share in SHARES:
            bench("poisson", CLIENTS[-1], "--arrival", "poisson", "--rate", best * share)
    finally:
        daemon.terminate()
        daemon.wait()
    return lines


def main():
    if sys.argv[1:2] == ["--draw"] and len(sys.argv) == 4:
        return draw(*sys.argv[2:])
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--base", default="device")
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--csv", type=pathlib.Path)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as folder:
        lines = measure(o, pathlib.Path(folder))
    if o.csv:
        o.csv.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
