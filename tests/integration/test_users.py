"""What one user of the host may take of the daemon, and what only some may ask for. SO_PEERCRED has who connected, so each client
here connects as another user; that needs root."""

import contextlib
import os
import socket

import pytest
from conftest import draftctl
from test_limits import CASE, outcomes, refused
from wire_codec import Reader, decode, frame, request

ONE, TWO = 54321, 54322

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")


@contextlib.contextmanager
def as_user(uid):
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_start(start, folder):
    """Starts daemons whose socket every user may connect to."""

    def open_start(*options, starter=start, **more):
        daemon = starter("--socket-mode", "666", *options, **more)
        for place in folder, daemon.folder:
            place.chmod(0o755)
        return daemon

    return open_start


def connect(daemon, uid):
    with as_user(uid):
        return daemon.connect()


def refusal(daemon, uid):
    """What a client is told that is not let in."""
    with as_user(uid):
        sock = daemon.raw()
    reader = Reader()
    with sock:
        while data := sock.recv(4096):
            reader.feed(data)
    body, _ = reader.next()
    return decode(body)[2]


def test_connections_of_a_user(open_start):
    daemon = open_start("--max-user-connections", "2")
    clients = [connect(daemon, ONE) for _ in range(2)]
    told = refusal(daemon, ONE)
    assert told["name"] == "RESOURCE_EXHAUSTED" and told["retryable"]
    assert "max_user_connections is 2" in told["message"]
    others = [connect(daemon, TWO), *[connect(daemon, 0) for _ in range(3)]]  # root is not limited
    for client in clients + others:
        client.call("ping")
    assert daemon.probe.call("stats")[0]["connections_refused"] == 1
    clients.pop().close()
    daemon.probe.call("ping")
    clients.append(connect(daemon, ONE))
    for client in clients + others:
        client.close()


def test_a_quarter_is_left_for_others(open_start):
    daemon = open_start("--max-connections", "8")
    clients = [connect(daemon, ONE) for _ in range(6)]
    assert "max_user_connections is 6" in refusal(daemon, ONE)["message"]
    clients.append(connect(daemon, TWO))
    assert "max_connections" in refusal(daemon, TWO)["message"]  # the fixture's own is the eighth
    for client in clients:
        client.close()


def test_requests_in_flight_of_a_user(open_start, slow_model):
    daemon = open_start("--max-user-inflight", "3", starter=slow_model.start)
    one, same, other, root = (connect(daemon, uid) for uid in (ONE, ONE, TWO, 0))
    for client in one, same, other, root:
        slow_model.draft(client)
    first = [one.submit("draft", slow_model.params(one)) for _ in range(2)]
    one.call("ping")  # they have arrived
    second = [same.submit("draft", slow_model.params(same)) for _ in range(2)]
    same.call("ping")
    theirs = [client.submit("draft", slow_model.params(client)) for client in (other, root)]
    with refused("RESOURCE_EXHAUSTED", "max_user_inflight is 3"):
        same.wait(second[1])
    assert outcomes(one, first) == ["done"] * 2 and outcomes(same, second[:1]) == ["done"]
    assert [outcomes(client, [id]) for client, id in zip((other, root), theirs)] == [["done"]] * 2
    ids = [root.submit("draft", slow_model.params(root)) for _ in range(5)]
    assert outcomes(root, ids) == ["done"] * 5
    assert outcomes(same, [same.submit("draft", slow_model.params(same)) for _ in range(3)]) == ["done"] * 3
    # requests whose client is gone do not count for ever
    for _ in range(3):
        one.submit("draft", slow_model.params(one))
    one.call("ping")
    one.close()
    assert outcomes(same, [same.submit("draft", slow_model.params(same)) for _ in range(3)]) == ["done"] * 3
    for client in same, other, root:
        client.close()


def opened(client, size):
    result, (fd,) = client.call("region_open", {"bytes": size, "memory": "host"})
    os.close(fd)
    return result["region"]


def test_region_bytes_of_a_user(open_start):
    daemon = open_start("--max-user-memory-bytes", "1M")
    one, same, other = (connect(daemon, uid) for uid in (ONE, ONE, TWO))
    region = opened(one, 1 << 19)
    opened(same, 1 << 19)
    with refused("RESOURCE_EXHAUSTED", "bytes is 1, ", "this user's host regions have 1048576 of at most 1048576 (max_user_memory_bytes)"):
        opened(same, 1)
    opened(other, 1 << 20)
    daemon.probe.call("region_close", {"region": opened(daemon.probe, 2 << 20)})
    one.call("region_close", {"region": region})
    opened(same, 1 << 19)
    same.close()
    daemon.probe.call("ping")
    for client in one, other:
        client.close()
    daemon.settle()
    with connect(daemon, ONE) as again:  # what a connection had goes back with it
        opened(again, 1 << 20)


def held(daemon):
    return daemon.probe.call("stats")[0]["held_bytes"]


def test_inline_bytes_of_a_user(open_start, slow_model):
    """A draft's logits in its reply count from its arrival on, with whatever else the user has."""
    daemon = open_start(starter=slow_model.start)
    held(daemon)
    before = held(daemon)
    one = connect(daemon, ONE)
    params = slow_model.params(one, rows=1, logits=True)
    one.call("ping")
    idle, reply = held(daemon) - before, 8 * slow_model.VOCAB * 2
    one.close()
    for most in idle + reply, idle + reply - 1:
        daemon = open_start("--max-user-inline-bytes", str(most), starter=slow_model.start)
        one, other, root = (connect(daemon, uid) for uid in (ONE, TWO, 0))
        for client in one, other, root:
            slow_model.region(client)
        if most < idle + reply:
            with refused("RESOURCE_EXHAUSTED", f"would be {idle + reply} bytes, max_user_inline_bytes is {most}"):
                one.call("draft", slow_model.params(one, rows=1, logits=True))
            with refused("RESOURCE_EXHAUSTED", "max_user_inline_bytes"):
                other.call("draft", slow_model.params(other, rows=1, logits=True))
        else:
            for _ in range(3):  # what has been read counts no more
                one.call("draft", slow_model.params(one, rows=1, logits=True))
            with connect(daemon, ONE):  # its frames, too, are this user's
                with refused("RESOURCE_EXHAUSTED", "max_user_inline_bytes"):
                    one.call("draft", slow_model.params(one, rows=1, logits=True))
            daemon.probe.call("ping")
            one.call("draft", slow_model.params(one, rows=1, logits=True))
            # nor what a client took with it that is gone
            one.submit("draft", slow_model.params(one, rows=1, logits=True))
            one.call("ping")
            one.close()
            one = connect(daemon, ONE)
            one.call("draft", slow_model.params(one, rows=1, logits=True))
        ids = [root.submit("draft", slow_model.params(root, rows=1, logits=True)) for _ in range(3)]
        assert outcomes(root, ids) == ["done"] * 3
        for client in one, other, root:
            client.close()


def until_held(daemon, wanted):
    while (now := held(daemon)) != wanted:
        assert now < wanted, f"{now} bytes are held, not {wanted}"


def test_unfinished_frames_of_a_user(open_start):
    """Halves of frames count on all connections of a user; the one that has no room is told, and closed."""
    half = frame(bytes(1 << 20))[: 700 << 10]
    daemon = open_start("--max-frame-bytes", "1M")
    held(daemon)
    before = held(daemon)
    with connect(daemon, ONE) as client:
        client.send(half)
        while held(daemon) - before < len(half):
            pass
        one = held(daemon) - before
    for most in 2 * one, 2 * one - 1:
        daemon = open_start("--max-frame-bytes", "1M", "--max-user-inline-bytes", str(most))
        held(daemon)
        before = held(daemon)
        first, second, other, root, also = clients = [connect(daemon, uid) for uid in (ONE, ONE, TWO, 0, 0)]
        idle = (held(daemon) - before) // len(clients)
        for client in first, other, root, also:
            client.send(half)
        until_held(daemon, before + 4 * one + idle)
        with contextlib.suppress(*[BrokenPipeError, ConnectionResetError] if most < 2 * one else []):  # closed before all is sent
            second.send(half)
        if most == 2 * one:
            until_held(daemon, before + 5 * one)
        else:
            message, _ = second.receive()
            assert message[1] is None and message[2]["name"] == "RESOURCE_EXHAUSTED"
            assert f"would be {2 * one} bytes, max_user_inline_bytes is {most}" in message[2]["message"]
            with contextlib.suppress(ConnectionResetError):  # the rest of the half was not read
                assert second.receive() is None
            until_held(daemon, before + 4 * one)
        for client in clients:
            client.close()


def test_unread_replies_of_a_user(open_start):
    """Replies that one user does not read cost the user connections, and nobody else."""
    daemon = open_start("--max-user-inline-bytes", "1M")
    with connect(daemon, TWO) as other, connect(daemon, 0) as root:
        with as_user(ONE):
            mute = daemon.raw()
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.sendall(request(1, "hello", {"protocol": 1, "client": "mute/1"}))
        with mute, pytest.raises((BrokenPipeError, ConnectionResetError)):
            for id in range(2, 1 << 16):
                mute.sendall(request(id, "stats"))
        ids = [root.submit("stats") for _ in range(2000)]  # some MiB
        other.call("ping")
        for id in ids:
            root.wait(id)
    assert "does not read its replies" in daemon.log


def test_drain_and_reload_are_for_operators(open_start):
    daemon = open_start()
    with connect(daemon, ONE) as client:
        for method in "drain", "reload":
            with refused("PERMISSION_DENIED", "root"):
                client.call(method)
        assert client.call("draft", CASE.params())[0]["generation"] == 1
    assert draftctl("reload", socket=daemon.socket).returncode == 0


def test_the_group_may_connect_and_others_may_not(start, folder):
    daemon = start("--socket-group", str(TWO))
    assert (daemon.socket.stat().st_gid, daemon.socket.stat().st_mode & 0o777) == (TWO, 0o660)
    for place in folder, daemon.folder:
        place.chmod(0o755)
    with as_user(ONE), pytest.raises(PermissionError):
        daemon.raw()
    os.setegid(TWO)
    try:
        client = connect(daemon, ONE)
    finally:
        os.setegid(0)
    client.call("ping")
    client.close()


def test_a_group_that_is_not_there(start):
    for check in [], ["--check-config"]:
        daemon = start("--socket-group", "no-such-group", *check, wait=False)
        assert not daemon.told("READY=1")
        assert daemon.wait() == 1
        assert ": --socket-group is no-such-group; there is no such group here" in daemon.log
