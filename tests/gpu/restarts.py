#!/usr/bin/env python3
"""draftd on two GPUs, started and stopped 100 times: each start must say what it does, become ready and draft right tokens, each stop
end with exit code 0 and leave no file; after all of them both GPUs must have the memory that they had before.

Usage: restarts.py [--cycles N] [--at-once N] [DRAFTD_OPTION...], from the unpacked archive or the sources (built with CUDA): so many
cycles (100), so many of them at a time (2); options of draftd instead of "--devices 0,1", such as --devices 0,1 --cuda-form step.
Prints what the slowest start took. Ends with "N passed, N failed, N waived"; exit code 1 if anything failed.
"""

import argparse
import os
import subprocess
import threading
import time

from daemon import GOLDEN, PAIR, Daemon, need_gpus
from golden_case import Case
from tally import check, end

CASE = Case(GOLDEN / "greedy_small.safetensors")
SMALL = "--max-rows", "4", "--max-steps", "4"  # fewer launches to capture
PHASES = "reading the model", "opening the GPUs", "loading the tables", "capturing graphs", "testing the model"
FOLDERS = "/tmp", "/dev/shm"
TOLERANCE_MIB = 4  # of a GPU: the driver's own


def used_mib():
    """Of each GPU."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return list(map(int, subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()))


def files():
    return {os.path.join(folder, name) for folder in FOLDERS for name in os.listdir(folder)}


def cycle(name, options):
    """What its start and its stop took, in seconds; or None."""
    begin = time.monotonic()
    daemon = Daemon(CASE.path, *SMALL, *options)
    ready = daemon.is_ready()
    if not check(f"{name}: ready, after each phase was logged", ready and all(map(daemon.log().count, PHASES)), daemon.log()):
        daemon.stop()
        return None
    started = time.monotonic()
    try:
        with daemon.connect() as d:
            tokens, _ = d.draft(base=CASE.base, **CASE.columns)
        check(f"{name}: tokens", tokens.tolist() == CASE.tokens, tokens.tolist())
    except Exception as error:
        check(f"{name}: tokens", False, f"{type(error).__name__}: {error}")
    stopping = time.monotonic()
    code = daemon.stop()
    stopped = time.monotonic()
    check(f"{name}: exit code 0", code == 0, f"{code}\n{daemon.log()}")
    left = os.listdir(daemon.folder.name)
    check(f"{name}: no file is left", not left, left)
    daemon.folder.cleanup()
    return started - begin, stopped - stopping


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=2)
    o, options = parser.parse_known_args()
    options = options or PAIR
    need_gpus(2)
    cycle("the first", options)  # what the driver keeps from now on is not ours
    before, files_before, begin = used_mib(), files(), time.monotonic()
    numbers, took, lock = iter(range(o.cycles)), [], threading.Lock()

    def work():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            times = cycle(f"cycle {number}", options)
            if not times:
                with lock:
                    list(numbers)  # one that doesn't start is enough
                return
            took.append(times)
            if number % 10 == 9:
                print(f"{time.monotonic() - begin:.0f} s: {number + 1} cycles", flush=True)

    workers = [threading.Thread(target=work) for _ in range(o.at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    after, left = used_mib(), files() - files_before
    check("the GPUs' memory is as before", all(b - a <= TOLERANCE_MIB for a, b in zip(before, after)), f"MiB: {before}, then {after}")
    check("no file is left", not left, left)
    if not took:
        end()
    starts, stops = (sorted(times) for times in zip(*took))
    print(
        f"{len(took)} cycles, {o.at_once} at once, in {time.monotonic() - begin:.0f} s: a start took {starts[len(starts) // 2]:.2f} s, the"
        f" slowest {starts[-1]:.2f}, a stop {stops[len(stops) // 2]:.2f}, the slowest {stops[-1]:.2f}; the GPUs' memory in MiB: {before},"
        f" then {after}"
    )
    end()


if __name__ == "__main__":
    main()
