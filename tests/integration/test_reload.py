"""Reloads and restarts under load: not one request lost or wrong."""

import contextlib
import os
import signal
import socket
import threading

import pytest

import golden
from conftest import PATIENCE_S, SANITIZED, WRAPPER
from wire_codec import ErrorReply

CASE = golden.case("sampled")  # greedy and sampled rows of several steps
RELOADS = 50
PIPELINE = 4


def other_model(path):
    """The same shapes, with w2's rows in reverse order: other tokens win."""
    data = bytearray(CASE.path.read_bytes())
    weights = CASE.bytes["markov_head.markov_w2.weight"]
    at, size = data.find(weights), len(weights) // CASE.vocab
    data[at : at + len(weights)] = b"".join(weights[r * size : (r + 1) * size] for r in reversed(range(CASE.vocab)))
    path.write_bytes(data)
    return path


@pytest.fixture
def models(folder, start):
    """Both models, and the tokens of each: the recorded ones, and those of a daemon that serves nothing else."""
    other = other_model(folder / "other.safetensors")
    with start(model=other).connect() as client:
        tokens = client.call("draft", CASE.params())[0]["tokens"]
    assert tokens != CASE.tokens
    return [CASE.path, other], [CASE.tokens, tokens]


class Client(threading.Thread):
    """Drafts on and on, some requests at a time, until told to stop, and keeps whatever goes wrong. `kind`: "inline" or "region"."""

    def __init__(self, connect, check, kind):
        super().__init__()
        self.connect, self.check, self.kind = connect, check, kind
        self.stopping = threading.Event()
        self.fault = None
        self.answered = self.refused = self.again = self.broken = self.connections = 0

    def run(self):
        try:
            while not self.stopping.is_set():
                self.session()
        except BaseException as fault:
            self.fault = fault

    def params(self, client):
        if self.kind == "inline":
            return CASE.params()
        base = CASE.params()["base"]
        result, (fd,) = client.call("region_open", {"bytes": len(base), "memory": "host"})
        os.pwrite(fd, base, 0)
        os.close(fd)
        place = {"region": result["region"], "offset": 0, "row_stride": CASE.block, "step_stride": CASE.cell}
        return CASE.params(base=place)

    def session(self):
        """One connection, from its beginning to the daemon's end or the test's."""
        out = set()
        try:
            client = self.connect()
        except (ConnectionResetError, BrokenPipeError, EOFError):
            return  # accepted at the last moment, and ended before hello: the next one answers
        with client:
            self.connections += 1
            going = full = False
            try:
                try:
                    params = self.params(client)
                except ErrorReply as error:
                    assert error.name == "DRAINING", error
                    return
                last = 0
                going = bool(client.notifications)
                while True:
                    while not (going or full or self.stopping.is_set()) and len(out) < PIPELINE:
                        try:
                            out.add(client.submit("draft", params))
                        except BrokenPipeError:
                            full = True  # what the daemon said at last is still to be read
                    if not out and not going and not full:
                        return
                    got = client.receive()
                    if got is None:
                        break
                    message, _ = got
                    if message[0] == 2:
                        going = True
                        continue
                    out.remove(message[1])  # each is answered once
                    if message[2] is None:
                        result = message[3]
                        assert result["generation"] >= last
                        last = result["generation"]
                        self.check(result)
                        self.answered += 1
                    else:
                        assert message[2]["name"] == "DRAINING", message[2]
                        self.refused += 1
            except (ConnectionResetError, BrokenPipeError, EOFError):
                going = going or bool(client.notifications)
            # What was on its way when the daemon had its last look at the socket has no answer, and the end of the stream says so.
            self.again += len(out)
            self.broken += not going  # the daemon was killed


@contextlib.contextmanager
def load(connect, check):
    clients = [Client(connect, check, kind) for kind in ("inline", "region") * 2]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(PATIENCE_S)
    for client in clients:
        assert not client.is_alive()
        if client.fault:
            raise client.fault


def wait_for(condition, daemon):
    """Until it is so; each look comes after a turn of the daemon's loop."""
    while not condition():
        daemon.probe.call("ping")


@pytest.mark.parametrize("devices", ["CPU", "CPU,CPU"], ids=["one replica", "two replicas"])
def test_reloads_under_load(start, folder, models, devices):
    """Fifty reloads, from one model to the other and back: each reply has the tokens of the model that its generation names, and
    generations never go back, whichever replica launched."""
    files, tokens = models
    model, staged = folder / "model.safetensors", folder / "staged"

    def put(index):
        staged.write_bytes(files[index].read_bytes())
        os.replace(staged, model)

    put(0)
    daemon = start("--devices", devices, model=model)

    def check(result):
        assert result["tokens"] == tokens[(result["generation"] - 1) % 2], result["generation"]

    reloads = 10 if SANITIZED or WRAPPER else RELOADS
    with load(daemon.connect, check) as clients:
        for turn in range(1, reloads + 1):
            put(turn % 2)
            before = [client.answered for client in clients]
            daemon.probe.call("reload")
            assert daemon.probe.call("draft", CASE.params())[0]["generation"] == turn + 1
            if turn == reloads // 2:  # one that is no good, in the middle of it
                staged.write_bytes(b"no model")
                os.replace(staged, model)
                with pytest.raises(ErrorReply):
                    daemon.probe.call("reload")
            # all clients go on with the new one
            wait_for(lambda: all(c.answered > b + PIPELINE for c, b in zip(clients, before)) or any(c.fault for c in clients), daemon)
    stats = daemon.probe.call("stats")[0]
    assert (stats["generation"], stats["reloads"], stats["reloads_failed"]) == (reloads + 1, reloads, 1)
    assert stats["drafts"] == sum(client.answered for client in clients) + reloads
    assert all(client.refused == client.again == client.broken == 0 and client.connections == 1 for client in clients)
    assert sum(stats["errors"].values()) == 1
    assert len(stats["replicas"]) == devices.count("CPU") and all(one["launches"] > 0 for one in stats["replicas"])


class Manager:
    """Holds the listening socket, as systemd does for draftd.socket, and starts daemons on it."""

    def __init__(self, start, path):
        self.start, self.path = start, path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(64)

    def begin(self):
        fd = self.listener.fileno()
        command = ["bash", "-c", f'exec 3<&{fd}; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=draftd.socket exec "$@"', "bash"]
        self.daemon = self.start(model=CASE.path, socket=self.path, command=command, pass_fds=(fd,))
        return self.daemon

    def close(self):
        self.listener.close()
        if self.daemon.alive():  # a test has failed
            self.daemon.process.kill()
            self.daemon.wait()


@pytest.fixture
def manager(start, folder):
    manager = Manager(start, folder / "s")
    yield manager
    manager.close()


@pytest.mark.skipif(bool(WRAPPER), reason="valgrind closes what bash passes on")
def test_restarts_under_load(manager):
    """With the socket kept by a manager nobody is refused a connection: who comes meanwhile waits. What a daemon that is told to
    stop has accepted it answers; of one that is killed the client learns by its connection."""

    def check(result):
        assert result["tokens"] == CASE.tokens

    daemon = manager.begin()
    with load(daemon.connect, check) as clients:
        for end in signal.SIGTERM, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM:
            before = [(client.answered, client.connections) for client in clients]
            daemon.probe.close()
            daemon.process.send_signal(end)
            assert daemon.wait() == (0 if end == signal.SIGTERM else -signal.SIGKILL), daemon.log
            daemon = manager.begin()
            wait_for(
                lambda: all(c.connections > n and c.answered > a + PIPELINE for c, (a, n) in zip(clients, before))
                or any(c.fault for c in clients),
                daemon,
            )
    assert all(client.broken <= 1 for client in clients)
    assert manager.path.exists()  # an inherited socket is the manager's
    daemon.probe.close()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert manager.path.exists()
