"""Hours of production in minutes: mixed load, clients killed at random, reloads good and bad, full queues; then nothing is wrong,
nothing is left, and memory is what it was. `make soak SECONDS=1800`; in `make check` a few seconds of the same."""

import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

import golden
from conftest import BUILD, PATIENCE_S, SANITIZED, WRAPPER
from wire_codec import ErrorReply

SECONDS = float(os.environ.get("SOAK_SECONDS", 8))
PAUSES = 8  # at which nobody is connected, and what is left is counted
CASE = golden.case("sampled")
# What memory may have grown by at the end, along the line through the pauses after the first minute, by which all is there that is
# kept for later: the allocator's dice, and the same for minutes and for hours.
WARM_S, GROWTH_KIB = 60, 2048
REFUSED = "INTERNAL: refused, the old model serves on"

# A full queue takes ten seconds, draftctl's patience, where a sanitizer shares the processors with other work.
PATIENT = ["--timeout", str(PATIENCE_S)] if SANITIZED else []
BENCH = [BUILD / "draftctl", *PATIENT, "bench", "--json", "-", "--verify", "--model", CASE.path, "--steps", str(CASE.steps)]
KINDS = {  # of clients, one process of each at a time; the last one fills the queue
    "regions": [*BENCH, "--connections", "8", "--concurrency", "16", "--base", "host", "--requests", "800"],
    "inline": [*BENCH, "--connections", "4", "--concurrency", "8", "--logits", "--rows", "4", "--requests", "400"],
    "sampled": [*BENCH, "--connections", "16", "--rate", "400", "--arrival", "poisson", "--temperature", "0.8", "--duration", "1"],
    "session": [BUILD / "tests/session"],
    "hostile": [sys.executable, pathlib.Path(__file__).with_name("hostile_crowd.py")],
    "crowded": [*BENCH, "--connections", "4", "--concurrency", "256", "--rows", "8", "--requests", "800", "--seed", "2"],
}


class Load:
    """Processes, of which each kind's next one begins when the last one has ended, by itself or killed."""

    def __init__(self, daemon, dice):
        self.daemon, self.dice = daemon, dice
        self.running = {}  # kind: (process, when it is killed)
        self.did = collections.Counter()

    def begin(self, kind):
        place = {"session": [self.daemon.socket], "hostile": [self.daemon.socket, "8"]}.get(kind, ["--socket", self.daemon.socket])
        process = subprocess.Popen(
            [*KINDS[kind], *place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        # half of them end by themselves, the hostile never
        after = self.dice.choice([self.dice.uniform(0, 1), PATIENCE_S]) if kind != "hostile" else self.dice.uniform(1, 3)
        self.running[kind] = process, time.monotonic() + after

    def look(self):
        for kind in KINDS:
            if kind not in self.running:
                self.begin(kind)
            process, end = self.running[kind]
            if process.poll() is not None:
                self.ended(kind, process)
            elif time.monotonic() >= end:
                self.kill(kind)

    def ended(self, kind, process):
        del self.running[kind]
        out, err = process.communicate()
        self.did["processes"] += 1
        if kind == "session":
            assert process.returncode == 0 or err.startswith(("RESOURCE_EXHAUSTED ", "INTERNAL (reload)")), err
            return
        assert process.returncode in (0, 1) and out, f"{kind} {process.returncode}: {err}"
        report = json.loads(out)
        assert set(report["errors"]) <= {"RESOURCE_EXHAUSTED"}, report["errors"]
        assert report["verified"]["different"] == 0, report["verified"]
        self.did["compared"] += report["verified"]["checked"]
        self.did["refused: the queue is full"] += report["errors"].get("RESOURCE_EXHAUSTED", 0)

    def kill(self, kind):
        process, _ = self.running.pop(kind)
        process.kill()
        process.communicate()
        self.did["killed"] += 1

    def end(self):
        for kind in list(self.running):
            self.kill(kind)


class Model:
    """The daemon's file: the same model again, or now and then something else."""

    def __init__(self, path):
        self.path, self.staged = path, path.with_suffix(".staged")
        self.put(CASE.path.read_bytes())

    def put(self, data):
        self.staged.write_bytes(data)
        os.replace(self.staged, self.path)

    def reload(self, client, good, did):
        self.put(CASE.path.read_bytes() if good else b"no model")
        try:
            client.call("reload")
            assert good
        except ErrorReply as refused:
            if refused.name == "RESOURCE_EXHAUSTED":
                return  # a session's reload is under way
            assert not good and str(refused).startswith(REFUSED), refused
        did["reloads" if good else "refused reloads"] += 1


def mapped(daemon):
    """Shared memory in the daemon's address space."""
    return sum("memfd:" in line for line in daemon.proc("maps").read_text().splitlines())


def slope(points):
    """Of the line of least squares through (x, y)."""
    n = len(points)
    mean_x, mean_y = (sum(values) / n for values in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


@pytest.mark.skipif(bool(WRAPPER), reason="the tool is too slow")
def test_soak(start, folder):
    dice = random.Random(int(os.environ.get("SOAK_SEED", 1)))
    model = Model(folder / "model.safetensors")
    daemon = start("--max-queue", "128", "--log-level", "warning", model=model.path)
    load, memory = Load(daemon, dice), []
    did = load.did
    begin = reload_at = time.monotonic()
    try:
        for pause in range(1, PAUSES + 1):
            with daemon.connect() as client:
                while time.monotonic() < begin + SECONDS * pause / PAUSES:
                    load.look()
                    for _ in range(20):
                        CASE.check(client.call("draft", CASE.params(logits=True))[0])
                        did["compared"] += 1
                    if time.monotonic() >= reload_at:
                        reload_at = time.monotonic() + dice.uniform(0, 2)
                        model.reload(client, dice.random() < 0.8, did)
            load.end()
            daemon.settle()  # descriptors, threads, regions
            assert mapped(daemon) == 0
            memory.append((time.monotonic() - begin, daemon.status_kib("VmRSS")))
            print(f"\n{memory[-1][0]:.0f} s, {memory[-1][1]} KiB, {dict(did)}", end="", flush=True)
    finally:
        load.end()
    drafts = daemon.probe.call("stats")[0]["drafts"]
    print(f"\n{drafts} drafts, {did['compared']} compared")
    assert did["compared"] > drafts / 100
    if SECONDS > WARM_S:  # by then the dice have had everything
        assert all(did[what] for what in ("killed", "processes", "reloads", "refused reloads", "refused: the queue is full")), did
    warm = [point for point in memory if point[0] > WARM_S]
    if len(warm) > 2 and not SANITIZED:  # whose tools keep freed memory, and remember all that there was
        growth = slope(warm) * SECONDS
        print(f"memory grows by {growth:.0f} KiB in {SECONDS:.0f} s")
        assert growth < GROWTH_KIB, memory
