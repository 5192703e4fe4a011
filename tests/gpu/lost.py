#!/usr/bin/env python3
"""A CUDA error that sticks: a kernel in the daemon's context stores to an address that is none, while it is idle, while drafts are in
flight, and before device memory is asked for. Whoever waits is told DEVICE_LOST, and the daemon exits with 1 within a second of
the first call that finds it; the next daemon serves on the same GPU. And graphs that take more memory than they may: the start is
refused in words.

Usage: lost.py, from the unpacked archive or the sources (built with CUDA). Ends with "N passed, N failed, N waived"; exit code 1 if
anything failed.
"""

import array
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
if (HERE.parents[3] / "bin/draftd").exists():
    TOP = HERE.parents[3]
    PROGRAMS, PACKAGES, FAULT = TOP / "bin", TOP / "lib/python3/dist-packages", HERE.with_name("fault.so")
else:
    TOP = HERE.parents[2]
    PROGRAMS = pathlib.Path(os.environ.get("BUILD", TOP / "build"))
    PACKAGES, FAULT = TOP / "client/python", PROGRAMS / "tests/fault.so"
sys.path.insert(0, str(PACKAGES))

import draft

VOCAB, ROWS, STEPS = 32000, 8, 8
BASE = memoryview(array.array("H", [0]) * (ROWS * STEPS * VOCAB)).cast("B").cast("H", [ROWS, STEPS, VOCAB])
COLUMNS = {"anchors": [1] * ROWS, "positions": list(range(ROWS)), "steps": STEPS, "seeds": 7, "temperatures": 1.0}
END_S = 1.0  # from the reply that tells it to the end of the process


class NotStarted(Exception):
    pass


class Daemon:
    def __init__(self, folder, *options):
        self.socket, self.fifo = folder / "s", folder / "fault"
        self.fifo.unlink(missing_ok=True)
        os.mkfifo(self.fifo)
        command = [PROGRAMS / "draftd", "--backend", "cuda", "--model", folder / "model.safetensors", "--socket", self.socket, *options]
        environment = os.environ | {"LD_PRELOAD": str(FAULT), "DRAFTD_FAULT": str(self.fifo)}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if "ready on" in line:
                break
        else:
            self.process.wait()
            self.process.stderr.close()
            raise NotStarted("".join(self.log))
        self.trigger = os.open(self.fifo, os.O_RDWR)  # does not wait for the other end

    def fault(self):
        os.write(self.trigger, b"!")

    def must_end(self, since):
        """With 1, at most END_S after `since`."""
        self.process.wait(30)
        took = time.monotonic() - since
        rest = self.process.stderr.read()
        assert self.process.returncode == 1, f"exit status {self.process.returncode}: {rest}"
        assert took < END_S, f"it took {took:.2f} s"
        assert "the device is lost" in rest, rest
        assert not self.socket.exists()

    def dismiss(self):
        os.close(self.trigger)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()


def check_budget(folder):
    """One graph a length and bucket, 16 * 11 of them, each of many kernels."""
    options = "--cuda-form", "plain", "--max-rows", "1024", "--max-steps", "16", "--cuda-graph-bytes", "1M"
    try:
        daemon = Daemon(folder, *options)
    except NotStarted as refused:
        assert "the graphs took" in str(refused) and "lower max_steps or max_rows" in str(refused), refused
        return
    daemon.dismiss()
    raise AssertionError("draftd started")


def check_lost(folder, lose):
    daemon = Daemon(folder)
    try:
        with draft.connect(str(daemon.socket)) as connection:
            before = drafts(connection)  # of a daemon that comes after a lost one, too
            assert before == expected.setdefault("tokens", before)
            daemon.must_end(lose(daemon, connection))
    finally:
        daemon.dismiss()


expected = {}


def drafts(connection):
    return connection.draft(base=BASE, **COLUMNS)[0].tolist()


def idle(daemon, connection):
    """Nobody looks at the device until the next draft, and soon each fails: the fault takes a moment to happen."""
    daemon.fault()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            drafts(connection)
        except draft.DeviceLost:
            return time.monotonic()
    raise AssertionError("drafts are answered for 10 s")


def in_flight(daemon, connection):
    """Each of many gets its one answer: tokens or DEVICE_LOST, and after the first DEVICE_LOST no tokens."""
    tickets, ends, first = set(), [], None
    for at in range(40):
        tickets.add(connection.submit(base=BASE, **COLUMNS))
        if at == 4:
            daemon.fault()
    while tickets and not first:
        result = connection.poll()
        tickets.remove(result.ticket)
        if isinstance(result.error, draft.DeviceLost):
            first = time.monotonic()
        elif result.error:
            raise AssertionError(f"a draft ended with {result.error!r}")
        elif len(ends) < 10_000:  # until the fault has happened
            tickets.add(connection.submit(base=BASE, **COLUMNS))
        ends.append(result.error)
    while tickets:
        result = connection.poll()
        tickets.remove(result.ticket)
        assert isinstance(result.error, (draft.DeviceLost, draft.Draining, draft.ConnectionLost)), repr(result.error)
    assert first, "no draft was told"
    return first


def region(daemon, connection):
    daemon.fault()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            connection.region_open(1 << 20, memory="device").close()
        except draft.DeviceLost:
            return time.monotonic()
        except draft.NotSupported as error:
            raise AssertionError(f"no device regions here: {error}") from None
    raise AssertionError("regions are opened for 10 s")


def main():
    if not os.path.exists("/dev/nvidiactl"):
        print("waived: this machine has no NVIDIA driver\n0 passed, 0 failed, 1 waived")
        return 0
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        model = [PROGRAMS / "draftctl", "model", "make", "--vocab", str(VOCAB), "--rank", "128", "--seed", "1", folder / "model.safetensors"]
        subprocess.run(model, check=True, stdout=subprocess.DEVNULL)
        for name, check in (
            ("idle", lambda: check_lost(folder, idle)),
            ("in flight", lambda: check_lost(folder, in_flight)),
            ("region", lambda: check_lost(folder, region)),
            ("budget", lambda: check_budget(folder)),
        ):
            try:
                check()
                passed += 1
            except Exception as error:
                failed += 1
                print(f"FAILED: {name}: {error!r}")
    print(f"{passed} passed, {failed} failed, 0 waived")
    return int(failed > 0)


sys.exit(main())
