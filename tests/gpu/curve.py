#!/usr/bin/env python3
"""Throughput against latency of draftd on this machine, by `draftctl bench`: closed loads of 1 to 64 clients, a connection each, and
Poisson arrivals at shares of the best of their rates, from 64 connections.

Usage: curve.py [--backend cuda|cpu] [--base inline|host|device] [--vocab V] [--rank R] [--rows N] [--steps K] [--seconds S]
                [--csv FILE], from the unpacked archive or the sources (built)
       curve.py --draw FILE.csv PICTURE.png     (needs gnuplot)

Prints a table, and writes it to FILE with the environment as a comment."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from daemon import Daemon, make_model, report_of

CLIENTS = 1, 2, 4, 8, 16, 32, 64
SHARES = 0.25, 0.5, 0.7, 0.8, 0.9, 0.95
COLUMNS = "load", "clients", "planned", "requests/s", "tokens/s", "p50_us", "p99_us", "p99.9_us", "device_us", "late", "unsent", "own_cpu"

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


def measure(o, daemon):
    lines = []

    def bench(name, clients, *options):
        threads = min(clients, max(1, len(os.sched_getaffinity(0)) // 4))
        report = report_of(
            daemon.start_bench(
                "--warmup", 0.5, "--duration", o.seconds, "--base", o.base, "--rows", o.rows, "--steps", o.steps, "-c", clients, "-t", threads,
                *options,
            )
        )  # fmt: skip
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
    return lines


def main():
    if sys.argv[1:2] == ["--draw"] and len(sys.argv) == 4:
        return draw(*sys.argv[2:])
    parser = argparse.ArgumentParser(usage=__doc__)
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
        model = make_model(pathlib.Path(folder) / "model.safetensors", o.vocab, o.rank)
        with Daemon(model, "--log-level", "notice", backend=o.backend) as daemon:
            lines = measure(o, daemon)
    if o.csv:
        o.csv.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
