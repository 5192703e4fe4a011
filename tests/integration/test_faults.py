"""Every call of draftd, libdraft and draftctl that the system may refuse fails once: memory, mappings, sockets, files, threads.

Whatever fails, nobody crashes, hangs or leaks; a daemon says in one sentence why it does not start, a client gets one typed error
or loses its connection, and the next request is served.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import subprocess

import pytest

import golden
from conftest import BUILD, MODEL, PATIENCE_S, WRAPPER
from fault import Faults
from wire_codec import ErrorReply, request

pytestmark = pytest.mark.skipif(bool(WRAPPER), reason="the tool's allocator stands before")
CASE = golden.case("greedy_small")
HELLO = request(1, "hello", {"protocol": 1, "client": "faults/1"})
ROWS = 64  # of a draft whose base stays in its frame and whose reply is sent in pieces
errors = pytest.mark.parametrize("error", [0, errno.EINTR], ids=["usual", "interrupted"])


@pytest.fixture
def faults(folder):
    return Faults(folder)


@pytest.fixture
def config(folder):
    """A configuration file."""
    path = folder / "draftd.conf"
    path.write_text(f"[model]\npath = {MODEL}\n[limits]\nmax_connections = 6\n")
    return path


# ---- the daemon begins and ends ----


@pytest.fixture(params=["own", "inherited"])
def listening(request, folder):
    """How a daemon comes to its socket, as options of start(): by its path, or from a service manager."""
    if request.param == "own":
        yield {}
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        fd = listener.fileno()
        command = ["bash", "-c", f'exec 3<&{fd}; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=draftd.socket exec "$@"', "bash"]
        yield {"socket": folder / "s", "command": command, "pass_fds": (fd,)}


@errors
def test_start(start, faults, config, listening, error):
    """It serves, or exits 1 with a sentence, and leaves nothing behind."""

    def attempt(arm):
        arm()
        daemon = start("--config", config, wait=False, model=None, env=faults.environment, **listening)
        served = daemon.told("READY=1")
        failed = faults.disarm()
        if served:
            with daemon.connect() as client:
                assert client.call("draft", CASE.params())[0]["tokens"] == CASE.tokens
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.wait() == 0, daemon.log
        else:
            assert daemon.wait() == 1, daemon.log
            (line,) = [line for line in daemon.log.splitlines() if not line.startswith("draftd: info: starting: ")]
            assert line.startswith("draftd: error: "), line
        left = set(os.listdir(daemon.folder)) - {"log", "notify"}
        # Before the lock is taken the file may be another daemon's.
        assert not left or failed.startswith(("unlink", "flock", "fstat")) and left == {"draftd.sock.lock"}, (left, daemon.log)
        return failed

    faults.sweep(attempt, error)


def test_stop(start, faults, config):
    """With work under way: every answer comes, or the connection ends; the exit code is 0, or 1 with a sentence."""

    def attempt(arm):
        daemon = start("--config", config, wait=False, model=None, env=faults.environment).ready()
        with daemon.connect() as client:
            ids = [client.submit("draft", big()) for _ in range(3)]
            arm()
            daemon.process.send_signal(signal.SIGTERM)
            try:
                for id in ids:
                    assert client.wait(id)[0]["tokens"] == CASE.tokens * ROWS
            except ErrorReply as refused:
                assert refused.name in ("DRAINING", "RESOURCE_EXHAUSTED"), refused
            except (EOFError, ConnectionError):
                pass
        assert daemon.wait() == 0, daemon.log
        failed = faults.disarm()
        assert not daemon.socket.exists() or failed.startswith(("unlink", "lstat"))  # whose file is it?
        return failed

    faults.sweep(attempt)


# ---- the daemon serves ----


def big():
    return CASE.params([0] * ROWS, slots=list(range(ROWS)), logits=True)


class Session:
    """All that a client may ask for, a step at a time; a step whose connection is gone begins with another one. `failed` are the
    steps that were not answered as they should: of one fault, one at most."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.client = None
        self.failed = []

    def run(self):
        try:
            self.steps()
        finally:
            self.end()

    def steps(self):
        for step in (
            self.ping, self.draft, self.draft_big, self.own_region, self.handed_region, self.event, self.stats, self.cancel,
            self.crowd, self.nonsense, self.die_within_a_frame, self.reload, self.ping,
        ):
            try:
                if not self.client:
                    self.client = self.daemon.connect()
                step(self.client)
            except ErrorReply as refused:
                assert refused.name in ("RESOURCE_EXHAUSTED", "INTERNAL"), f"{step.__name__}: {refused}"
                self.failed.append((step.__name__, str(refused)))
            except (EOFError, ConnectionError) as lost:
                self.failed.append((step.__name__, repr(lost)))
                self.end()

    def end(self):
        if self.client:
            self.client.close()
        self.client = None

    def ping(self, client):
        client.call("ping")

    def draft(self, client):
        CASE.check(client.call("draft", CASE.params(logits=True))[0])

    def draft_big(self, client):
        result, _ = client.call("draft", big())
        assert result["tokens"] == CASE.tokens * ROWS
        assert result["logits"] == CASE.logits_of(0) * ROWS

    def draft_in(self, client, region, fd):
        os.pwrite(fd, CASE.bytes["base_logits"], 0)
        base = {"region": region, "offset": 0, "row_stride": CASE.block, "step_stride": CASE.cell}
        logits = {"region": region, "offset": CASE.block, "slot_stride": CASE.block, "step_stride": CASE.cell}
        assert client.call("draft", CASE.params(base=base, logits=logits))[0]["tokens"] == CASE.tokens
        assert os.pread(fd, CASE.block, CASE.block) == CASE.logits_of(0)
        client.call("region_close", {"region": region})

    def own_region(self, client):
        result, (fd,) = client.call("region_open", {"bytes": 2 * CASE.block, "memory": "host"})
        try:
            self.draft_in(client, result["region"], fd)
        finally:
            os.close(fd)

    def handed_region(self, client):
        fd = os.memfd_create("handed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, 2 * CASE.block)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            result, _ = client.call("region_import", {"bytes": 2 * CASE.block, "memory": "host"}, [fd])
            self.draft_in(client, result["region"], fd)
        finally:
            os.close(fd)

    def event(self, client):
        with pytest.raises(ErrorReply) as refused:
            client.call("event_import", {"handle": bytes(64)})
        if refused.value.name != "BAD_REQUEST":
            raise refused.value

    def stats(self, client):
        assert client.call("stats")[0]["connections"] >= 1
        assert "draftd_connections" in client.call("metrics")[0]["text"]

    def cancel(self, client):
        ids = [client.submit("draft", big()) for _ in range(3)]
        client.notify("cancel", {"id": ids[-1]})
        for id in ids:
            try:
                assert client.wait(id)[0]["tokens"] == CASE.tokens * ROWS
            except ErrorReply as refused:
                if refused.name != "CANCELLED" or id != ids[-1]:
                    raise

    def crowd(self, client):
        """One connection more than there may be."""
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(self.daemon.raw()) for _ in range(5)]
            ready, _, _ = select.select(socks, [], [], PATIENCE_S)
            for sock in ready:
                sock.recv(4096)
        while client.call("stats")[0]["connections"] > 2:
            pass

    def nonsense(self, client):
        with self.daemon.raw() as sock:
            sock.sendall(b"XX")
            while sock.recv(4096):
                pass

    def die_within_a_frame(self, client):
        with self.daemon.raw() as sock:
            sock.sendall(HELLO + request(2, "draft", big())[:-7])

    def reload(self, client):
        client.call("reload")


@errors
def test_requests(start, faults, config, error):
    daemon = start("--config", config, model=None, env=faults.environment)

    def attempt(arm):
        session = Session(daemon)
        arm()
        session.run()
        failed = faults.disarm()
        assert len(session.failed) <= (1 if failed and not error else 0), (session.failed, daemon.log)
        daemon.settle()
        assert daemon.probe.call("stats")[0]["inflight"] == 0
        after = Session(daemon)
        after.run()
        assert not after.failed, (failed, after.failed)
        return failed

    faults.sweep(attempt, error)


# ---- clients ----


COMMANDS = {
    "session": [BUILD / "tests/session"],
    "example": [BUILD / "examples/draft"],
    "ping": [BUILD / "draftctl", "ping", "--count", "2"],
    "info": [BUILD / "draftctl", "info"],
    "stats": [BUILD / "draftctl", "stats"],
    "metrics": [BUILD / "draftctl", "metrics"],
    "reload": [BUILD / "draftctl", "reload"],
    "draft": [BUILD / "draftctl", "draft", "--rows", "3"],
    "replay": [BUILD / "draftctl", "replay", "--base", "host", CASE.path],
    "bench": [BUILD / "draftctl", "bench", "--requests", "20", "--base", "host", "--verify", "--model", MODEL],
}


@errors
@pytest.mark.parametrize("command", COMMANDS)
def test_clients(daemon, faults, command, error):
    """They do what they are for, or exit 1 with a sentence; a signal hinders them in nothing."""
    program, *arguments = COMMANDS[command]
    place = [daemon.socket] if "draftctl" not in program.name else []
    environment = os.environ | faults.environment | {"DRAFTD_SOCKET": str(daemon.socket)}

    def attempt(arm):
        arm()
        done = subprocess.run(
            [program, *arguments, *place], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
            env=environment,
        )
        failed = faults.disarm()
        assert done.returncode in (0, 1), done
        if done.returncode:
            assert failed and not error, done
            (line,) = done.stderr.splitlines()
        else:
            assert not done.stderr, done
        return failed

    faults.sweep(attempt, error)
