#!/usr/bin/env python3
"""draftctl bench beside h2load (Debian's nghttp2-client), a public load tool that knows Unix sockets: the same echo, socket, number of
connections and requests in flight, one thread each, taking turns; at once, and with a delay that both must see. Of each the turn with the
highest rate, from which other work on the machine took least; percentiles are of all its requests, h2load's from its log of each request, in whole microseconds.

Usage: compare.py [BUILD] (default build). A table in Markdown.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
VOCAB, STEPS = 64, 1
SECONDS, TURNS = 1, 4
LOADS = [(delay, connections, each) for delay in (0, 1000) for connections, each in ((1, 1), (1, 16), (2, 16))]


def draftctl(socket, connections, each):
    options = ["-n", connections * each, "-c", connections, "-k", STEPS, "-t", 1, "-d", SECONDS, "-w", 0.2, "--json", "-"]
    command = [BUILD / "draftctl", "bench", "--socket", socket, *options]
    report = json.loads(subprocess.check_output(list(map(str, command))))
    seen = report["latency_us"]["seen"]
    return report["per_second"]["requests"], seen["p50"], seen["p99"], seen["p99_9"]


def h2load(socket, connections, each):
    with tempfile.NamedTemporaryFile("r") as log:
        options = ["--h1", "-t", 1, "-c", connections, "-m", each, "-D", SECONDS, "--warm-up-time", 1, "--log-file", log.name]
        subprocess.run(list(map(str, ["h2load", *options, "-B", f"unix:{socket}", "http://echo/"])), check=True, capture_output=True)
        us = sorted(int(line.split("\t")[2]) for line in log)
    return len(us) / SECONDS, *(us[min(int(len(us) * share), len(us) - 1)] for share in (0.5, 0.99, 0.999))


def main():
    print("| delay us | connections | in flight on each | tool | requests a second | p50 us | p99 us | p99.9 us |")
    print("| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for delay, connections, each in LOADS:
        with tempfile.TemporaryDirectory(prefix="draftd-") as folder:
            socket = f"{folder}/echo.sock"
            echo = subprocess.Popen([BUILD / "tests/draft_echo", socket, str(VOCAB), "1", str(STEPS), str(delay)], stdout=subprocess.PIPE)
            try:
                echo.stdout.readline()
                turns = {tool: [] for tool in (h2load, draftctl)}
                for _ in range(TURNS):
                    for tool in turns:
                        turns[tool].append(tool(socket, connections, each))
            finally:
                echo.kill()
                echo.wait()
        for tool in turns:
            rate, p50, p99, p999 = max(turns[tool])
            print(f"| {delay:,} | {connections} | {each} | {tool.__name__} | {rate:,.0f} | {p50:,.0f} | {p99:,.0f} | {p999:,.0f} |", flush=True)


main()
