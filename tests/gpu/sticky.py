#!/usr/bin/env python3
"""A GPU that fails under a real draftd: a library that is loaded into the daemon makes a sticky error in its CUDA context (a kernel that
traps), while clients wait, while they draft, and while nobody does. Every request that waits must get DEVICE_LOST, the daemon must exit
with 1 within a second, with one line about it in the log, without a signal or a core; the next daemon on the same socket must serve the
clients that come back by libdraft's own reconnecting, and replay golden cases.

Usage: sticky.py, from the unpacked archive or the sources (built with CUDA). Ends with "N passed, N failed, N waived"; exit code 1 if
anything failed.
"""

import array
import fcntl
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve()
if (HERE.parents[3] / "bin/draftd").exists():
    TOP = HERE.parents[3]
    PROGRAMS, PACKAGES, GOLDEN = TOP / "bin", TOP / "lib/python3/dist-packages", TOP / "share/draftd/golden"
    STICKY = HERE.with_name("sticky.so")
else:
    TOP = HERE.parents[2]
    PROGRAMS = pathlib.Path(os.environ.get("BUILD", TOP / "build")).resolve()
    PACKAGES, GOLDEN, STICKY = TOP / "client/python", TOP / "tests/golden", PROGRAMS / "tests/sticky.so"
sys.path.insert(0, str(PACKAGES))

CASE = GOLDEN / "many_rows.safetensors"
START_S = 120  # a first start may compile and load for long
EXIT_S = 1  # from the first DEVICE_LOST to the end of the process
CLIENTS, WAITING, PIPELINE, AFTER = 8, 16, 4, 50
COLUMNS = "anchors", "positions", "seeds", "temperatures", "slots"
RECONNECT_US = START_S * 1_000_000

passed = failed = 0
lock = threading.Lock()


def check(name, right, why=""):
    global passed, failed
    with lock:
        passed, failed = passed + bool(right), failed + (not right)
    if not right:
        print(f"FAILED: {name}\n{why}", flush=True)
    return right


class Case:
    """A golden case: what a request needs, and the tokens that must come."""

    def __init__(self, path):
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8:start])

        def column(name):
            begin, end = tensors[name]["data_offsets"]
            codes = {"BF16": "H", "I32": "i", "I64": "q", "F32": "f"}
            return array.array(codes[tensors[name]["dtype"]], data[start + begin : start + end])

        rows, steps, _ = tensors["base_logits"]["shape"]
        tokens = column("tokens").tolist()
        self.tokens = [tokens[row * steps : (row + 1) * steps] for row in range(rows)]
        self.request = {name: column(name) for name in COLUMNS}
        self.request |= {"base": column("base_logits"), "steps": steps}


class Unit:
    """What draftd.socket and draftd.service do: keeps the listening socket, and starts a daemon on it."""

    def __init__(self, folder):
        self.folder, self.socket = folder, f"{folder}/draftd.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.socket)
        self.listener.listen(1024)
        self.started = 0

    def start(self):
        ours, theirs = socket.socketpair()
        above = fcntl.fcntl(theirs, fcntl.F_DUPFD, 10)  # not the 3 of the listening socket
        listener = fcntl.fcntl(self.listener, fcntl.F_DUPFD, 10)
        script = f'exec 3<&{listener} {listener}<&-; LISTEN_PID=$$ LISTEN_FDS=1 LD_PRELOAD="$0" STICKY_FD={above} exec "$@"'
        command = ["bash", "-c", script, STICKY, PROGRAMS / "draftd", "--backend", BACKEND, "--model", CASE]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=self.folder, pass_fds=(above, listener))
        for fd in above, listener:
            os.close(fd)
        theirs.close()
        self.control, self.log, ready = ours.makefile("r"), [], threading.Event()
        self.word = ours

        def read():
            for line in self.process.stderr:
                self.log.append(line)
                if "ready on" in line:
                    ready.set()
            ready.set()

        def watch():
            self.process.wait()
            self.gone_at = time.monotonic()

        self.threads = [threading.Thread(target=target, daemon=True) for target in (read, watch)]
        for thread in self.threads:
            thread.start()
        if not ready.wait(START_S) or not any("ready on" in line for line in self.log):
            self.process.kill()
            raise RuntimeError("draftd did not start: " + "".join(self.log))
        self.started += 1

    def break_device(self, hold_s):
        """The kernel that will trap is on the GPU, or next to be, when this returns."""
        self.word.sendall(struct.pack("=Q", int(hold_s * 1e9)))
        said = self.control.readline()
        check("the kernel that traps is launched", said == "launched\n", said)

    def device_is_broken(self):
        """For a daemon that drafts nothing, and so does not know yet."""
        said = self.control.readline()
        check("the kernel ends in an error", said.startswith("ended: CUDA_ERROR_"), said)

    def end(self, name, expected, since=None):
        """The daemon has gone by itself."""
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            check(f"{name}: the daemon exits", False, "".join(self.log))
            return
        for thread in self.threads:
            thread.join()
        log = "".join(self.log)
        check(f"{name}: exit code {expected}", code == expected, f"{code}\n{log}")
        if since:
            took = self.gone_at - since
            print(f"{name}: the process was gone {took * 1000:.0f} ms after the first DEVICE_LOST", flush=True)
            check(f"{name}: gone within {EXIT_S} s", took < EXIT_S, f"{took} s\n{log}")
        lines = [line for line in self.log if "the device is lost:" in line]
        check(f"{name}: one line says why", len(lines) == bool(expected), log)
        for line in lines:
            print(f"{name}: the log: {line.strip()}", flush=True)
        check(f"{name}: no core", not list(pathlib.Path(self.folder).glob("core*")))

    def replay(self, name):
        for base in "inline", "host":
            done = subprocess.run(
                [PROGRAMS / "draftctl", "--socket", self.socket, "replay", "--base", base, CASE], capture_output=True, text=True, timeout=60
            )
            check(f"{name}: draftctl replay --base {base}", done.returncode == 0, done.stdout + done.stderr)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.end("stop", 0)


def connect(unit):
    return draft.connect(unit.socket, client_name="sticky", timeout_us=30_000_000)


def right(case, result):
    return result.error is None and result.tokens.tolist() == case.tokens


def waiting(unit, case):
    """Requests that wait behind the kernel that will trap: each is told; and a connection that has none is not kept hanging."""
    name = "waiting"
    unit.start()
    idle, clients = connect(unit), [connect(unit) for _ in range(CLIENTS)]
    before = clients[0].draft(**case.request)
    check(f"{name}: right tokens before", before.tokens.tolist() == case.tokens)
    unit.break_device(1.0)
    sent = {client: {client.submit(**case.request) for _ in range(WAITING)} for client in clients}
    outcomes, first = [], None
    for client in clients:
        while sent[client]:
            result = client.poll(timeout_us=10_000_000)
            if result is None:
                break
            first = first or time.monotonic()
            sent[client].discard(result.ticket)
            outcomes.append(type(result.error).__name__ if result.error else "tokens")
    counts = {each: outcomes.count(each) for each in outcomes}
    print(f"{name}: {CLIENTS * WAITING} requests: {counts}", flush=True)
    check(f"{name}: every request has DEVICE_LOST", counts == {"DeviceLost": CLIENTS * WAITING}, counts)
    try:
        idle.draft(**case.request)
        check(f"{name}: a late request is refused", False)
    except (draft.DeviceLost, draft.Draining, draft.ConnectionLost) as error:
        check(f"{name}: a late request may be sent again", error.retryable, error)
    unit.end(name, 1, first)
    unit.start()
    for client in [idle, *clients]:
        client.reconnect(RECONNECT_US)
        check(f"{name}: right tokens from the next daemon", client.draft(**case.request).tokens.tolist() == case.tokens)
        client.close()
    unit.replay(name)
    unit.stop()


def loaded(unit, case):
    """Clients that draft all the while come back by themselves, and lose nothing."""
    name = "under load"
    unit.start()
    drafting, totals, outcomes, first = threading.Barrier(CLIENTS + 1), [0, 0], [], []

    def run(index):
        client = connect(unit)
        tickets = {client.submit(**case.request) for _ in range(PIPELINE)}
        done, lost = 0, False
        while done < AFTER or not lost:
            try:
                result = client.poll(timeout_us=30_000_000)
                if result is None:
                    raise TimeoutError(f"{len(tickets)} requests have no outcome")
                tickets.remove(result.ticket)
                if result.error is None:
                    with lock:
                        totals[0] += 1
                        totals[1] += not right(case, result)
                    done += 1
                    if done == AFTER and not lost:
                        drafting.wait(60)
                    tickets.add(client.submit(**case.request))
                    continue
                error = result.error
            except draft.ConnectionLost as caught:
                error = caught
                tickets.clear()  # what was on its way when the device was lost has no answer, but the end of the stream
            with lock:
                first.append(time.monotonic())
                outcomes.append(type(error).__name__)
            check(f"{name}: what failed may be sent again", error.retryable, error)
            if not tickets:
                done, lost = 0, True
                client.reconnect(RECONNECT_US)
                tickets = {client.submit(**case.request) for _ in range(PIPELINE)}
        client.close()

    def guarded(index):
        try:
            run(index)
            check(f"{name}: client {index}", True)
        except BaseException as error:
            check(f"{name}: client {index}", False, f"{type(error).__name__}: {error}")
            drafting.abort()

    threads = [threading.Thread(target=guarded, args=(index,), daemon=True) for index in range(CLIENTS)]
    for thread in threads:
        thread.start()
    drafting.wait(60)
    unit.break_device(0)
    unit.threads[1].join(20)  # end() says so if it is not gone
    unit.end(name, 1, min(first, default=None))
    unit.start()
    for thread in threads:
        thread.join(60)
    counts = {each: outcomes.count(each) for each in outcomes}
    print(f"{name}: {totals[0]} replies, {totals[1]} of them wrong; {counts}", flush=True)
    check(f"{name}: all clients have come back", not any(thread.is_alive() for thread in threads))
    check(f"{name}: no wrong tokens", totals[1] == 0)
    check(f"{name}: DEVICE_LOST, or too late for an answer", counts.get("DeviceLost") and counts.keys() <= {"DeviceLost", "Draining", "ConnectionLost"}, counts)
    unit.replay(name)
    unit.stop()


def idle(unit, case):
    """Nobody drafts: the first who comes is told, whatever they ask of the device; and a stop is a stop."""

    def first_draft():
        connect(unit).draft(**case.request)

    def first_region():
        connect(unit).region_open(1 << 20, memory="device")

    for what, call in ("a draft", first_draft), ("a region", first_region):
        name = f"idle, then {what}"
        unit.start()
        unit.break_device(0)
        unit.device_is_broken()
        try:
            call()
            check(f"{name}: DEVICE_LOST", False, "it succeeded")
        except draft.DeviceLost:
            check(f"{name}: DEVICE_LOST", True)
        except draft.DraftError as error:
            check(f"{name}: DEVICE_LOST", False, f"{type(error).__name__}: {error}")
        unit.end(name, 1, time.monotonic())
    unit.start()
    unit.break_device(0)
    unit.device_is_broken()
    unit.process.send_signal(signal.SIGTERM)
    unit.end("idle, then SIGTERM", 0)


def main():
    global draft
    if not os.path.exists("/dev/nvidiactl"):
        print("waived: this machine has no NVIDIA driver\n0 passed, 0 failed, 1 waived")
        return 0
    import draft

    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    case = Case(CASE)
    for test in waiting, loaded, idle:
        with tempfile.TemporaryDirectory(prefix="draftd-") as folder:
            unit = Unit(folder)
            try:
                test(unit, case)
            except Exception as error:
                check(test.__name__, False, f"{type(error).__name__}: {error}")
            finally:
                if unit.process.poll() is None:
                    unit.process.kill()
    print(f"{passed} passed, {failed} failed, 0 waived")
    return int(failed > 0)


BACKEND = "cuda"

if __name__ == "__main__":
    sys.exit(main())
