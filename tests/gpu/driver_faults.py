#!/usr/bin/env python3
"""Every call that draftd makes of NVIDIA's driver, from its start over one draft each from a frame, a host and a device region to its
stop, returns an error once. Whatever fails, draftd refuses to start in one sentence with exit code 1; or starts, and answers rightly,
with a typed error, or with DEVICE_LOST and then exit code 1: no crash, no hang, no wrong token.

The calls are found in a run without a fault, by their place: function and call stack (tests/gpu/preload/driver_fault.c). The first call
at each place fails first, then the last, then some between, until the time is up. A finding names the stack by addresses within
draftd, the innermost first, for addr2line.

Usage: driver_faults.py [--seconds S] [--from N] [--at-once N] [DRAFTD_OPTION...], from the unpacked archive or the sources (built with
CUDA): for S seconds (90), beginning with fault N (0) of the list, N daemons at a time (8), with these options, such as --devices 0,1.
Ends with "N passed, N failed, N waived"; exit code 1 if anything failed.
"""

import argparse
import collections
import os
import struct
import tempfile
import threading
import time

from daemon import GOLDEN, PRELOADED, Daemon, need_gpus
from golden_case import Case
from tally import check, end

import draft
from cuda_driver import Driver

HEAD, PLACE, PLACES_MAX = struct.Struct("=5Q"), struct.Struct("=14Q48s"), 4096  # struct faults and struct place
OUT_OF_MEMORY, UNKNOWN = 2, 999  # CUDA_ERROR_...
GIVES_MEMORY = "Alloc", "MemCreate", "Reserve", "Register"
LOOKUP = "cuGetProcAddress"
BOUND_S, TIMEOUT = 20, "2s"
CASE = Case(GOLDEN / "greedy_small.safetensors")
SMALL = "--max-rows", "4", "--max-steps", "4", "--cuda-timeout", TIMEOUT
Fault = collections.namedtuple("Fault", "place call function stack")


def wrong(what):
    raise AssertionError(what)


def ask(daemon):
    """All that a client asks: "served", "an error" (one, typed), or "lost"; raises what is wrong."""
    failed, lost = [], False

    def step(call, *arguments):
        nonlocal lost
        try:
            call(*arguments)
        except (draft.DeviceLost, draft.Draining, draft.ConnectionLost):
            lost = True
        except draft.DraftError as error:
            failed.append(f"{call.__name__}: {error}")

    with daemon.connect(timeout_us=BOUND_S * 1_000_000) as d:

        def is_right(base):
            tokens, _ = d.draft(base=base, **CASE.columns)
            if tokens.tolist() != CASE.tokens:
                wrong(f"the tokens {tokens.tolist()}")

        def over_host_memory():
            region = d.region_open(2 * len(CASE.base))
            region.data[: 2 * len(CASE.base)] = memoryview(CASE.base).cast("B")
            is_right(region.tensor(CASE.shape))

        def over_device_memory():  # zeros, whose tokens are not known here
            region = d.region_open(2 * len(CASE.base), memory="device")
            d.draft(base=region.tensor(CASE.shape), **CASE.columns)

        for call in (is_right, CASE.base), (over_host_memory,), (over_device_memory,), (is_right, CASE.base):
            if not lost:
                step(*call)
    if len(failed) > (0 if lost else 1):
        wrong(f"one fault, and {failed}")
    return "lost" if lost else "an error" if failed else "served"


def judge(daemon):
    """What one run came to, in a word; raises what is wrong."""
    if not daemon.is_ready(BOUND_S):
        code = daemon.wait(0.5) if daemon.process.poll() is None else daemon.wait()
        errors = [line for line in daemon.lines if "error:" in line]
        if code != 1 or len(errors) != 1:
            wrong(f"it neither starts nor refuses to: exit code {code}")
        return "refused"
    outcome = ask(daemon)
    code, expected = (daemon.wait(BOUND_S), 1) if outcome == "lost" else (daemon.stop(), 0)
    if code != expected:
        wrong(f"{outcome}, and then exit code {code}, not {expected}")
    return outcome


def run(folder, options, fault=None):
    """(what it came to, whether the fault happened, the places with their calls)"""
    error = 0
    if fault:
        error = OUT_OF_MEMORY if any(part in fault.function for part in GIVES_MEMORY) else UNKNOWN
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(HEAD.pack(fault.place if fault else 0, fault.call if fault else 0, error, 0, 0) + bytes(PLACE.size * PLACES_MAX))
        file.flush()
        environment = os.environ | {"LD_PRELOAD": str(PRELOADED / "driver_fault.so"), "DRIVER_FAULT_FILE": file.name}
        daemon = Daemon(CASE.path, *SMALL, *options, env=environment)
        try:
            outcome = judge(daemon)
        except (AssertionError, draft.DraftError) as error:
            daemon.process.kill()
            daemon.wait()
            raise AssertionError(f"{type(error).__name__}: {error}\n{daemon.log()}") from None
        finally:
            daemon.folder.cleanup()
        file.seek(0)
        data = file.read()
    _, _, _, failed, count = HEAD.unpack_from(data)
    places = []
    for at in range(count):
        place, calls, *stack, name = PLACE.unpack_from(data, HEAD.size + PLACE.size * at)
        places.append(Fault(place, calls, name.rstrip(b"\0").decode(), " ".join(f"{address:#x}" for address in stack)))
    return outcome, failed, places


def faults_of(places):
    """Which calls fail, in order: of what matters most first. Looking a function up is what an older driver fails at, for each of
    hundreds; so these come behind the rest."""
    calls, lookups = ([each for each in places if (each.function == LOOKUP) == is_lookup] for is_lookup in (False, True))
    faults = [each._replace(call=1) for each in calls] + [each for each in calls if each.call > 1]
    for part in 2, 4, 8:
        faults += [each._replace(call=each.call // part) for each in calls if each.call // part > 1]
    faults += [each._replace(call=1) for each in lookups]
    return list(dict.fromkeys(faults))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--at-once", type=int, default=8)
    o, options = parser.parse_known_args()
    need_gpus(1)
    held = Driver()  # or libdraft would make a context for every region
    begin, lock, outcomes = time.monotonic(), threading.Lock(), collections.Counter()
    with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as folder:
        outcome, _, places = run(folder, options)
        if not check("without a fault", outcome == "served" and len(places) < PLACES_MAX, f"{outcome}, {len(places)} places"):
            end()
        faults = faults_of(places)
        print(f"{sum(each.call for each in places)} calls of {len(places)} places in {time.monotonic() - begin:.1f} s", flush=True)
        queue = iter(list(enumerate(faults))[o.first :])

        def work():
            while time.monotonic() - begin < o.seconds:
                with lock:
                    number, fault = next(queue, (None, None))
                if fault is None:
                    return
                try:
                    outcome, failed, _ = run(folder, options, fault)
                except Exception as error:
                    outcome, failed = "wrong", True
                    check(f"fault {number}, call {fault.call} of {fault.function}, from {fault.stack}", False, error)
                else:
                    check(f"fault {number}", True)
                with lock:
                    outcomes[outcome if failed else "not reached"] += 1

        workers = [threading.Thread(target=work) for _ in range(o.at_once)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    del held
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"faults {o.first} to {o.first + sum(outcomes.values()) - 1} of {len(faults)} in {time.monotonic() - begin:.0f} s: {ended}")
    end()


if __name__ == "__main__":
    main()
