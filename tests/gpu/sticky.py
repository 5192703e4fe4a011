#!/usr/bin/env python3
"""A GPU that fails under a real draftd: a library that is loaded into the daemon makes a sticky error in its CUDA context (a kernel that
traps), while clients wait, while they draft, and while nobody does. Every request that waits must get DEVICE_LOST, the daemon must exit
with 1 within a second, with one line about it in the log, without a signal or a core; the next daemon on the same socket must serve the
clients that come back by libdraft's own reconnecting, and replay golden cases.

Usage: sticky.py [SETUP...], from the unpacked archive or the sources (built with CUDA). A SETUP is one: a GPU alone; block, step: the
second of two that share the vocabulary, in that form (step: through NCCL); replicas: that of the second of two replicas, the first of
which may answer until the daemon ends. Without any: those that this machine has the GPUs for. Ends with "N passed, N failed, N waived";
exit code 1 if anything failed.
"""

import fcntl
import os
import pathlib
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

from daemon import GOLDEN, PAIR, PRELOADED, REPLICAS, START_S, Daemon, gpus, has_nccl, need_gpus
from golden_case import Case
from tally import check, end

import draft

CASE = Case(GOLDEN / "many_rows.safetensors")
REQUEST = CASE.columns | {"base": CASE.base}
# What draftd is started with, and the number of the GPU that fails.
SETUPS = {"one": ((), 0), "block": ((*PAIR, "--cuda-form", "block"), 1), "step": ((*PAIR, "--cuda-form", "step"), 1), "replicas": (REPLICAS, 1)}
HOLD_S = 1  # of the kernel that traps, while requests wait behind it
TIMEOUT_S = 3  # --cuda-timeout: the other GPU of two may notice only then
EXIT_S = 1  # from the first DEVICE_LOST to the end of the process
CLIENTS, WAITING, PIPELINE, AFTER, ROUNDS = 8, 16, 4, 50, 100
RECONNECT_US = START_S * 1_000_000
AT_THE_END = draft.DeviceLost, draft.Draining, draft.ConnectionLost


class Unit:
    """What draftd.socket and draftd.service do: keeps the listening socket, and starts a daemon on it."""

    def __init__(self, folder, setup):
        self.setup, self.socket = setup, f"{folder}/draftd.sock"
        self.options, self.gpu = SETUPS[setup]
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket)
        self.listener.listen(1024)
        self.daemon = None

    def start(self):
        self.word, theirs = socket.socketpair()
        above = fcntl.fcntl(theirs, fcntl.F_DUPFD, 10)  # not the 3 of the listening socket
        listener = fcntl.fcntl(self.listener, fcntl.F_DUPFD, 10)
        script = f'exec 3<&{listener} {listener}<&-; LISTEN_PID=$$ LISTEN_FDS=1 LD_PRELOAD="$0" STICKY_FD={above} exec "$@"'
        self.daemon = Daemon(
            CASE.path, "--cuda-timeout", f"{TIMEOUT_S}s", *self.options, socket=self.socket,
            before=["bash", "-c", script, PRELOADED / "sticky.so"], pass_fds=(above, listener),
        )  # fmt: skip
        for fd in above, listener:
            os.close(fd)
        theirs.close()
        self.control = self.word.makefile("r")
        if not self.daemon.is_ready():
            raise RuntimeError(f"draftd did not start: {self.daemon.log()}")

    def break_device(self, hold_s):
        """The kernel that will trap is on the GPU, or next to be, when this returns."""
        self.word.sendall(struct.pack("=QQ", int(hold_s * 1e9), self.gpu))
        said = self.control.readline()
        check(f"{self.setup}: the kernel that traps is launched", said == "launched\n", said)

    def device_is_broken(self):
        """For a daemon that drafts nothing, and so does not know yet."""
        said = self.control.readline()
        check(f"{self.setup}: the kernel ends in an error", said.startswith("ended: CUDA_ERROR_"), said)

    def end(self, name, expected, since=None):
        """The daemon has gone by itself."""
        code = self.daemon.wait(20)
        log = self.daemon.log()
        check(f"{name}: exit code {expected}", code == expected, f"{code}\n{log}")
        if since and code is not None:
            took = self.daemon.gone_at - since
            print(f"{name}: the process was gone {took * 1000:.0f} ms after the first DEVICE_LOST", flush=True)
            check(f"{name}: gone within {EXIT_S} s", took < EXIT_S, f"{took} s\n{log}")
        lines = [line for line in self.daemon.lines if "the device is lost:" in line]
        check(f"{name}: one line says why", len(lines) == bool(expected), log)
        for line in lines:
            print(f"{name}: the log: {line.strip()}", flush=True)
        check(f"{name}: no core", not list(pathlib.Path(self.daemon.folder.name).glob("core*")))

    def replay(self, name):
        for base in "inline", "host":
            done = self.daemon.ctl("replay", "--base", base, CASE.path)
            check(f"{name}: draftctl replay --base {base}", done.returncode == 0, done.stdout + done.stderr)

    def stop(self, name):
        self.daemon.process.send_signal(signal.SIGTERM)
        self.end(f"{name}, stop", 0)

    def connect(self):
        return self.daemon.connect(timeout_us=30_000_000)


def outcome_of(result):
    if result.error is not None:
        return type(result.error).__name__
    return "tokens" if result.tokens.tolist() == CASE.tokens else "wrong tokens"


def counts_of(outcomes):
    return {each: outcomes.count(each) for each in outcomes}


def waiting(unit):
    """Requests that wait behind the kernel that will trap: each is told; and a connection that has none is not kept hanging."""
    name = f"{unit.setup}, waiting"
    unit.start()
    idle, clients = unit.connect(), [unit.connect() for _ in range(CLIENTS)]
    before = clients[0].draft(**REQUEST)
    check(f"{name}: right tokens before", before.tokens.tolist() == CASE.tokens)
    unit.break_device(HOLD_S)
    broken = time.monotonic()
    sent = {client: {client.submit(**REQUEST) for _ in range(WAITING)} for client in clients}
    outcomes, first = [], None
    for client in clients:
        while sent[client]:
            result = client.poll(timeout_us=10_000_000)
            if result is None:
                break
            sent[client].discard(result.ticket)
            outcomes.append(outcome_of(result))
            if not first and outcomes[-1] == "DeviceLost":
                first = time.monotonic()
    counts = counts_of(outcomes)
    print(f"{name}: {CLIENTS * WAITING} requests: {counts}", flush=True)
    told = counts.get("DeviceLost", 0)
    answered = counts.get("tokens", 0) if unit.setup == "replicas" else 0
    check(f"{name}: every request has DEVICE_LOST", told and told + answered == CLIENTS * WAITING, counts)
    if first:
        check(f"{name}: within --cuda-timeout", first - broken < HOLD_S + TIMEOUT_S, f"{first - broken} s")
    try:
        idle.draft(**REQUEST)
        check(f"{name}: a late request is refused", False)
    except AT_THE_END as error:
        check(f"{name}: a late request may be sent again", error.retryable, error)
    unit.end(name, 1, first)
    unit.start()
    for client in [idle, *clients]:
        client.reconnect(RECONNECT_US)
        check(f"{name}: right tokens from the next daemon", client.draft(**REQUEST).tokens.tolist() == CASE.tokens)
        client.close()
    unit.replay(name)
    unit.stop(name)


def loaded(unit):
    """Clients that draft all the while come back by themselves, and lose nothing."""
    name = f"{unit.setup}, under load"
    unit.start()
    drafting, outcomes, first = threading.Barrier(CLIENTS + 1), [], []

    def run():
        client = unit.connect()
        tickets = {client.submit(**REQUEST) for _ in range(PIPELINE)}
        done, lost = 0, False
        while done < AFTER or not lost:
            try:
                result = client.poll(timeout_us=30_000_000)
                if result is None:
                    raise TimeoutError(f"{len(tickets)} requests have no outcome")
                tickets.remove(result.ticket)
                if result.error is None:
                    outcomes.append(outcome_of(result))
                    done += 1
                    if done == AFTER and not lost:
                        drafting.wait(60)
                    tickets.add(client.submit(**REQUEST))
                    continue
                error = result.error
            except draft.ConnectionLost as caught:
                error = caught
                tickets.clear()  # what was on its way when the device was lost has no answer, but the end of the stream
            first.append(time.monotonic())
            outcomes.append(type(error).__name__)
            check(f"{name}: what failed may be sent again", error.retryable, error)
            if not tickets:
                done, lost = 0, True
                client.reconnect(RECONNECT_US)
                tickets = {client.submit(**REQUEST) for _ in range(PIPELINE)}
        client.close()

    def guarded(index):
        try:
            run()
            check(f"{name}: client {index}", True)
        except BaseException as error:
            check(f"{name}: client {index}", False, f"{type(error).__name__}: {error}")
            drafting.abort()

    threads = [threading.Thread(target=guarded, args=(index,), daemon=True) for index in range(CLIENTS)]
    for thread in threads:
        thread.start()
    drafting.wait(60)
    unit.break_device(0)
    unit.daemon.wait(20)
    unit.end(name, 1, min(first, default=None))
    unit.start()
    for thread in threads:
        thread.join(60)
    counts = counts_of(outcomes)
    print(f"{name}: {counts}", flush=True)
    check(f"{name}: all clients have come back", not any(thread.is_alive() for thread in threads))
    ends = {each.__name__ for each in AT_THE_END}
    check(f"{name}: DEVICE_LOST, or too late for an answer", counts.get("DeviceLost") and counts.keys() <= {"tokens"} | ends, counts)
    unit.replay(name)
    unit.stop(name)


def idle(unit):
    """Nobody drafts: the first who comes is told, whatever they ask of the device; and a stop is a stop. Another GPU than the lost one
    may still give a region, and another replica drafts, until the lost one's turn comes."""

    def draft_until_lost():
        with unit.connect() as client:
            for _ in range(ROUNDS if unit.setup == "replicas" else 1):
                tickets = {client.submit(**REQUEST) for _ in range(WAITING if unit.setup == "replicas" else 1)}
                for _ in tickets:
                    result = client.poll(timeout_us=10_000_000)
                    if result is None or result.error is not None:
                        return "no answer" if result is None else type(result.error).__name__
                    if outcome_of(result) != "tokens":
                        return "wrong tokens"
        return "tokens"

    def region():
        with unit.connect() as client:
            try:
                client.region_open(1 << 20, memory="device").close()
            except draft.DraftError as error:
                return type(error).__name__
        return draft_until_lost() if unit.gpu else "a region"

    for what, call in ("a draft", draft_until_lost), ("a region", region):
        name = f"{unit.setup}, idle, then {what}"
        unit.start()
        unit.break_device(0)
        unit.device_is_broken()
        got = call()
        check(f"{name}: DEVICE_LOST", got == "DeviceLost", got)
        unit.end(name, 1, time.monotonic())
    unit.start()
    unit.break_device(0)
    unit.device_is_broken()
    unit.daemon.process.send_signal(signal.SIGTERM)
    unit.end(f"{unit.setup}, idle, then SIGTERM", 0)


def run(setup):
    for test in waiting, loaded, idle:
        with tempfile.TemporaryDirectory(prefix="draftd-") as folder:
            unit = Unit(folder, setup)
            try:
                test(unit)
            except Exception as error:
                check(f"{setup}, {test.__name__}", False, f"{type(error).__name__}: {error}")
            finally:
                if unit.daemon and unit.daemon.process.poll() is None:
                    unit.daemon.process.kill()


def main():
    asked = sys.argv[1:] or (list(SETUPS) if len(gpus()) > 1 else ["one"])
    if not set(asked) <= set(SETUPS):
        sys.exit(__doc__)
    need_gpus(1 if asked == ["one"] else 2)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    for setup in asked:
        if setup != "step" or has_nccl():
            run(setup)
    end()


if __name__ == "__main__":
    main()
