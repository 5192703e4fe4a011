"""The countdown of tests/preload/fault.c: a file that the programs under test and the test share, by which one call fails."""

import collections
import itertools
import os
import pathlib
import random
import struct
import time
import traceback

from conftest import BUILD, SANITIZED

COUNTDOWN = struct.Struct("=qQi28s")  # left, where, error, call
# Of so many calls one is let fail: 1 is all of them (make check-faults), more a sample.
STRIDE = int(os.environ.get("FAULT_STRIDE", 7 if SANITIZED else 1))
OF = "draftd:draftctl:libdraft:libjansson:libmsgpack:libinih:libsystemd"


class Faults:
    """Of the programs that run with `environment`."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "faults"
        self.path.write_bytes(COUNTDOWN.pack(0, 0, 0, b""))
        self.environment = {"LD_PRELOAD": str(BUILD / "tests/fault.so"), "FAULT_FILE": str(self.path), "FAULT_OF": OF}
        if SANITIZED:  # it stands before the tool's own allocator, on purpose
            more = "verify_asan_link_order=0:detect_leaks=1"
            self.environment["ASAN_OPTIONS"] = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), more)))
        self.last = None  # what failed last

    def write(self, left, error):
        with open(self.path, "r+b") as file:
            file.write(COUNTDOWN.pack(left, 0, error, b""))

    def arm(self, left, error=0):
        """Lets the call after `left` - 1 others fail; with `error`, only those count that a signal may interrupt."""
        self.write(left, error)
        self.last = None

    def disarm(self):
        """What has failed since: "malloc at 0x1234", an address within its program; None if the calls ended before it."""
        left, where, _, call = COUNTDOWN.unpack(self.path.read_bytes())
        self.write(0, 0)
        self.last = f"{call.rstrip(bytes(1)).decode()} at {where:#x}" if call.strip(bytes(1)) else None
        return self.last

    def sweep(self, attempt, error=0):
        """attempt(arm) for every call, or for a sample of them, until one ends with calls left over. It returns what disarm() did,
        and raises what it finds wrong."""
        dice = random.Random(STRIDE)
        begin, failed_calls, findings = time.monotonic(), collections.Counter(), []
        for first in itertools.count(1, STRIDE):
            left = first + dice.randrange(STRIDE)
            try:
                failed = attempt(lambda: self.arm(left, error))
            except Exception:
                failed = self.last or self.disarm()
                findings.append(f"call {left}, {failed}:\n{traceback.format_exc()}")
            if not failed:
                break
            failed_calls[failed.split()[0]] += 1
            if time.monotonic() - begin > 10:
                begin = time.monotonic()
                print(f"{first} calls …", flush=True)
        kinds = ", ".join(f"{count} {call}" for call, count in sorted(failed_calls.items()))
        print(f"\n{sum(failed_calls.values())} of {left - 1} calls have failed: {kinds}")
        assert not findings, f"{len(findings)} findings\n" + "\n".join(findings)
        assert failed_calls
