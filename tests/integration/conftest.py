"""The real draftd, started for a test, watched, and stopped.

A daemon is ready when it says so on its NOTIFY_SOCKET; nothing here sleeps. When a test ends, each daemon must still be alive,
must have as many descriptors and threads as before its first client, and must exit 0 on SIGTERM, leaving no socket file.

Environment: BUILD, the build folder; DRAFTD_WRAPPER, a command that draftd is started under (valgrind); PART, 2/4 for the second of
four parts of the tests, which run side by side.
"""

import ctypes
import os
import pathlib
import random
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import wire_codec

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
WRAPPER = shlex.split(os.environ.get("DRAFTD_WRAPPER", ""))
MODEL = ROOT / "tests/golden/greedy_small.safetensors"
SANITIZED = BUILD.name in ("asan", "ubsan", "tsan")
PATIENCE_S = 120 if WRAPPER else 60  # the end of a wait for something that has gone wrong

# A shell's background and nohup ignore these, and so would the programs that the tests start.
for _number in signal.SIGHUP, signal.SIGQUIT, signal.SIGINT:
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_configure(config):
    config.addinivalue_line("markers", "valgrind: also run with the daemon under valgrind")
    config.addinivalue_line("markers", "alone: measures time, and so runs with no other test beside it")


def pytest_collection_modifyitems(config, items):
    part, parts = map(int, os.environ.get("PART", "1/1").split("/"))
    mine = items[part - 1 :: parts]
    config.hook.pytest_deselected(items=[item for item in items if item not in mine])
    items[:] = mine


class Daemon:
    """A draftd process. `options` go to its command line; without `socket`, the socket lies in `folder`."""

    def __init__(
        self, folder, *options, program=BUILD / "draftd", model=MODEL, socket=None, command=(), env={}, preexec=None,
        pass_fds=(),
    ):
        self.folder = pathlib.Path(folder)
        self.socket = pathlib.Path(socket or self.folder / "draftd.sock")
        self.log_path = self.folder / "log"
        self.manager = self.notify_socket()
        arguments = [*command, *WRAPPER, program, "--backend", "cpu", "--threads", "1"]
        if model:
            arguments += ["--model", model]
        if not command:
            arguments += ["--socket", self.socket]
        environment = {k: v for k, v in os.environ.items() if k not in ("INVOCATION_ID", "JOURNAL_STREAM")}
        environment |= {"NOTIFY_SOCKET": str(self.folder / "notify")} | env
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*arguments, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                preexec_fn=preexec, pass_fds=pass_fds,
            )
        self.pid = self.process.pid
        self.pidfd = os.pidfd_open(self.pid)
        self.base = None

    def notify_socket(self):
        path = self.folder / "notify"
        path.unlink(missing_ok=True)
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(str(path))
        return manager

    def told(self, wanted):
        """Reads what the daemon tells its manager until it says `wanted`; False if it exits first."""
        poll = select.poll()
        poll.register(self.manager, select.POLLIN)
        poll.register(self.pidfd, select.POLLIN)
        while events := dict(poll.poll(PATIENCE_S * 1000)):
            if self.manager.fileno() not in events:
                return False
            if wanted in self.manager.recv(4096).decode().split("\n"):
                return True
        raise TimeoutError(f"draftd did not say {wanted}\n{self.log}")

    def ready(self):
        assert self.told("READY=1"), f"draftd did not start:\n{self.log}"
        return self

    def watch(self):
        """Remembers how many descriptors and threads there are with one connection, for settle()."""
        self.probe = self.connect()
        # the first region starts the daemon's worker threads, which stay
        result, (fd,) = self.probe.call("region_open", {"bytes": 1, "memory": "host"})
        os.close(fd)
        self.probe.call("region_close", {"region": result["region"]})
        # clients that waited for the daemon may be here already, each with a descriptor
        while self.base is None:
            others = self.connections() - 1
            descriptors, threads = self.counts()
            if others == self.connections() - 1:
                self.base = descriptors - others, threads
        return self

    def connections(self):
        return self.probe.call("stats")[0]["connections"]

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def connect(self, **options):
        return wire_codec.Connection(self.socket, **options)

    def raw(self):
        """A connected socket, without hello."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE_S)
        sock.connect(str(self.socket))
        return sock

    def raw_when_possible(self):
        """The same, of a daemon that may not listen yet."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.raw()
            except (ConnectionRefusedError, FileNotFoundError):
                assert self.alive() and time.monotonic() < end, self.log

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.pid}/{name}")

    def counts(self):
        return len(os.listdir(self.proc("fd"))), len(os.listdir(self.proc("task")))

    def status_kib(self, field):
        for line in self.proc("status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise KeyError(field)

    def settle(self):
        """Waits until what clients left behind is gone: each look comes after one more turn of the daemon's loop."""
        end = time.monotonic() + PATIENCE_S
        while (counts := (*self.counts(), self.probe.call("stats")[0]["regions"])) != (*self.base, 0):
            assert time.monotonic() < end, f"(descriptors, threads, regions) are {counts}, were {self.base} and 0"

    def alive(self):
        return self.process.poll() is None

    def wait(self):
        """The exit code, of a daemon that is about to end."""
        return self.process.wait(PATIENCE_S)

    def stop(self):
        """An orderly end: exit 0, and the socket file is gone. (A client that stayed would be lingered for.)"""
        if self.base:
            self.probe.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.wait() == 0, self.log
        assert not self.socket.exists()

    def dismiss(self):
        """Frees what this object holds; kills a daemon that a failed test left."""
        if self.alive():
            self.process.kill()
            self.process.wait()
        if self.base:
            self.probe.close()
        os.close(self.pidfd)
        self.manager.close()


class Tracer:
    """Stops single threads, as a debugger does."""

    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        self.libc.ptrace.restype = ctypes.c_long

    def ptrace(self, request, thread):
        if self.libc.ptrace(request, thread, None, None) < 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def stop(self, thread):
        self.ptrace(self.SEIZE, thread)
        self.ptrace(self.INTERRUPT, thread)
        os.waitpid(thread, self.WALL)

    def go_on(self, thread):
        try:
            self.ptrace(self.DETACH, thread)
        except ProcessLookupError:  # it was killed: nobody else can reap its process before
            os.waitpid(thread, self.WALL)


@pytest.fixture
def folder():
    """A temporary folder with a path short enough for sockets."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="draftd-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(folder):
    """Starts daemons and waits until they are ready. At the end they are checked, unless the test has ended them."""
    daemons = []

    def start(*options, wait=True, **keywords):
        place = folder / str(len(daemons))
        place.mkdir()
        daemon = Daemon(place, *options, **keywords)
        daemons.append(daemon)
        return daemon.ready().watch() if wait else daemon

    yield start
    try:
        for daemon in daemons:
            if daemon.base and daemon.process.returncode is None:
                assert daemon.alive(), daemon.log
                daemon.settle()
                daemon.stop()
    finally:
        for daemon in daemons:
            daemon.dismiss()


@pytest.fixture
def daemon(start):
    return start()


def draftctl(*arguments, socket=None, **options):
    """Runs draftctl to its end."""
    command = [BUILD / "draftctl", *(["--socket", socket] if socket else []), *arguments]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, **options
    )


class SlowModel:
    """A model whose launches take long enough to do something meanwhile. A request fills a launch, so that none share one; its base
    logits lie in a region, the same for every row and step. The slower the tool, the fewer rows: a launch of a second would show
    nothing that one of a tenth does not, but 60 of them outlast a drain timeout."""

    VOCAB, STEPS = 60000, 8
    ROWS = {"asan": 8, "ubsan": 16, "tsan": 2}.get(BUILD.name, 16 if WRAPPER else 64)

    def __init__(self, path, start):
        self.path = path
        self.start = lambda *options, **more: start("--max-rows", str(self.ROWS), *options, model=path, **more)
        self.regions = {}  # of connections

    def region(self, client):
        if client not in self.regions:
            result, (fd,) = client.call("region_open", {"bytes": self.VOCAB * 2, "memory": "host"})
            os.pwrite(fd, random.Random(1).randbytes(self.VOCAB) * 2, 0)
            os.close(fd)
            self.regions[client] = result["region"]
        return self.regions[client]

    def params(self, client, rows=ROWS, **more):
        return {
            "steps": self.STEPS,
            "anchors": list(range(rows)),
            "positions": [7] * rows,
            "seeds": list(range(rows)),
            "temperatures": [1.0] * rows,
            "base": {"region": self.region(client), "offset": 0, "row_stride": 0, "step_stride": 0},
        } | more

    def draft(self, client, **more):
        return client.call("draft", self.params(client, **more))[0]

    def seconds(self, client):
        begin = time.monotonic()
        self.draft(client)
        return time.monotonic() - begin


@pytest.fixture(scope="session")
def slow_file():
    with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as place:
        path = pathlib.Path(place) / "slow.safetensors"
        done = draftctl("model", "make", "--vocab", str(SlowModel.VOCAB), "--rank", "64", "--seed", "1", path)
        assert done.returncode == 0, done.stderr
        yield path


@pytest.fixture
def slow_model(slow_file, start):
    return SlowModel(slow_file, start)
