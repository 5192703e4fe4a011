"""Each limit at N and at N + 1: N is served; one more gets the typed error that names the field and the limit."""

import contextlib
import os
import signal
import socket
import time

import pytest

import golden
import wire_codec
from conftest import PATIENCE_S, draftctl
from wire_codec import ErrorReply, frame, pack, request

CASE = golden.case("greedy_small")


@contextlib.contextmanager
def refused(name, *words):
    with pytest.raises(ErrorReply) as error:
        yield
    assert error.value.name == name, error.value
    for word in words:
        assert str(word) in error.value.message, error.value


def rows(count, steps=1):
    one = CASE.params()
    columns = {key: one[key] * count for key in ("anchors", "positions", "seeds", "temperatures")}
    return columns | {"steps": steps, "base": CASE.bytes["base_logits"] * (count * steps)}


@pytest.mark.valgrind
def test_rows_and_steps(start):
    daemon = start("--max-rows", "5", "--max-steps", "3")
    with daemon.connect() as client:
        assert client.server["limits"]["max_rows"] == 5 and client.server["limits"]["max_steps"] == 3
        assert len(client.call("draft", rows(5, 3))[0]["tokens"]) == 15
        with refused("TOO_LARGE", "rows is 6", "5"):
            client.call("draft", rows(6, 3))
        with refused("TOO_LARGE", "steps is 4", "3"):
            client.call("draft", rows(5, 4))
        with refused("TOO_LARGE", "steps"):
            client.call("draft", rows(1, 1) | {"steps": 2**32 - 1})


def test_one_row_of_one_step_is_enough(start):
    """For the self-test at the start, too."""
    daemon = start("--max-rows", "1", "--max-steps", "1")
    assert len(daemon.probe.call("draft", rows(1))[0]["tokens"]) == 1
    with refused("TOO_LARGE", "rows is 2", "1"):
        daemon.probe.call("draft", rows(2))


def test_one_is_no_plural(start):
    """In the log, in refusals, in what draftctl prints."""
    daemon = start(
        "--max-rows", "1", "--max-steps", "1", "--max-connections", "2", "--max-inflight", "1", "--max-regions", "1",
    )
    assert "up to 1 row of 1 step, " in daemon.log
    info = draftctl("info", socket=daemon.socket).stdout
    assert "1 row a request, 1 step a block, 1 request in flight\n" in info and ", 1 region up to " in info
    with refused("BAD_REQUEST", "base has 1 byte, "):
        daemon.probe.call("draft", rows(1) | {"base": b"x"})
    with refused("BAD_REQUEST", "positions has 1 element and anchors has 2"):
        daemon.probe.call("draft", rows(1) | {"anchors": [1, 1]})
    result, (fd,) = daemon.probe.call("region_open", {"bytes": 1, "memory": "host"})
    os.close(fd)
    with refused("RESOURCE_EXHAUSTED", "this connection has 1 region, the most is 1 "):
        daemon.probe.call("region_open", {"bytes": 1, "memory": "host"})
    daemon.probe.call("region_close", {"region": result["region"]})
    with daemon.connect():
        assert "2 connections are in use, all that max_connections allows" in draftctl("ping", socket=daemon.socket).stderr


def test_steps_above_the_most_write_nothing(start):
    daemon = start("--max-steps", "2")
    with daemon.connect() as client:
        result, (fd,) = client.call("region_open", {"bytes": 4096, "memory": "host"})
        logits = {"region": result["region"], "offset": 0, "slot_stride": 0, "step_stride": CASE.cell}
        with refused("TOO_LARGE"):
            client.call("draft", rows(1, 3) | {"logits": logits})
        assert os.pread(fd, 4096, 0) == bytes(4096)
        client.call("draft", rows(1, 2) | {"logits": logits})
        assert os.pread(fd, CASE.cell, 0) == CASE.logits_of(0)
        os.close(fd)


def test_connections(start):
    daemon = start("--max-connections", "4")
    clients = [daemon.connect() for _ in range(3)]  # and the fixture's own
    with daemon.raw() as surplus:
        surplus.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            surplus.sendall(request(1, "hello", {"protocol": 1, "client": "fifth/1"}))
        reader = wire_codec.Reader()
        with contextlib.suppress(ConnectionResetError):
            while data := surplus.recv(4096):
                reader.feed(data)
        body, _ = reader.next()
        assert wire_codec.decode(body)[2]["name"] == "RESOURCE_EXHAUSTED"
    for client in clients:
        client.call("ping")
    clients.pop().close()
    daemon.probe.call("ping")
    with daemon.connect() as client:
        client.call("ping")
    for client in clients:
        client.close()


def outcomes(client, ids):
    """How each request ended: "done", or the error's name."""
    ends = []
    for id in ids:
        try:
            client.wait(id)
            ends.append("done")
        except ErrorReply as error:
            ends.append(error.name)
    return ends


def test_inflight(slow_model):
    daemon = slow_model.start("--max-inflight", "3")
    with daemon.connect() as client:
        assert client.server["limits"]["max_inflight"] == 3
        slow_model.draft(client)
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(4)]
        assert outcomes(client, ids[:3]) == ["done"] * 3
        with refused("RESOURCE_EXHAUSTED", "3 requests are in flight, the most is 3 (max_inflight); wait for replies"):
            client.wait(ids[3])
        assert outcomes(client, [client.submit("draft", slow_model.params(client)) for _ in range(3)]) == ["done"] * 3


def test_inline_data_of_a_connection(slow_model):
    """Logits in replies, of as many requests as there is room for; the sentence says what the room follows from."""
    one = slow_model.STEPS * slow_model.VOCAB * 2
    most = (4 << 20) + (1 << 20)
    daemon = slow_model.start("--max-frame-bytes", "1M")
    with daemon.connect() as client:
        slow_model.region(client)
        # The first one keeps the others waiting.
        ids = [client.submit("draft", slow_model.params(client))]
        ids += [client.submit("draft", slow_model.params(client, rows=1, logits=True)) for _ in range(most // one + 1)]
        assert outcomes(client, ids[:-1]) == ["done"] * (len(ids) - 1)
        limit = f"the most is {most} (4 times max_frame_bytes, and 1 MiB); wait for replies, or use regions"
        with refused("RESOURCE_EXHAUSTED", "this connection's inline data in flight would be ", limit):
            client.wait(ids[-1])


def test_queue(slow_model):
    """One runs, three wait, the fifth is refused at once; whole batches, so that none share a launch."""
    daemon = slow_model.start("--max-queue", "3")
    clients = [daemon.connect() for _ in range(5)]
    for client in clients:
        slow_model.draft(client)
    params = [slow_model.params(client) for client in clients]
    with daemon.connect() as client:
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(12)]
        ends = outcomes(client, ids)
    assert ends[:3] == ["done"] * 3 and ends[-1] == "RESOURCE_EXHAUSTED" and set(ends) == {"done", "RESOURCE_EXHAUSTED"}
    assert ends.count("done") <= 6, ends
    for client, each in zip(clients, params):
        client.call("draft", each)
        client.close()


@pytest.mark.valgrind
def test_regions(start):
    daemon = start("--max-regions", "3", "--max-region-bytes", "1M", "--max-memory-bytes", "2M")

    def opened(client, size):
        result, (fd,) = client.call("region_open", {"bytes": size, "memory": "host"})
        os.close(fd)
        return result["region"]

    with daemon.connect() as one, daemon.connect() as two:
        regions = [opened(one, 1), opened(one, 4096), opened(one, 1)]
        with refused("RESOURCE_EXHAUSTED", "3"):
            opened(one, 1)
        one.call("region_close", {"region": regions[1]})
        regions[1] = opened(one, 1)
        with refused("TOO_LARGE", "bytes is 1048577", 1048576):
            opened(two, (1 << 20) + 1)
        with refused("TOO_LARGE"):
            opened(two, 2**64 - 1)
        for region in regions:
            one.call("region_close", {"region": region})
        region = opened(one, 1 << 20)
        opened(two, 1 << 20)
        with refused("RESOURCE_EXHAUSTED", "bytes is 1, all host regions have 2097152 of at most 2097152 (max_memory_bytes)"):
            opened(two, 1)
        one.call("region_close", {"region": region})
        opened(two, 1 << 20)
        with refused("RESOURCE_EXHAUSTED"):
            opened(one, 1)
    # a connection that ends gives back what it had
    daemon.settle()
    with daemon.connect() as client:
        opened(client, 1 << 20)
        opened(client, 1 << 20)


def test_frame_bytes(start):
    daemon = start("--max-frame-bytes", "64K")
    most = 64 << 10

    def ping_of(bytes_wanted):
        head = len(pack([0, 1, "ping", {"pad": bytes(bytes_wanted - 100)}])) - (bytes_wanted - 100)
        body = pack([0, 1, "ping", {"pad": bytes(bytes_wanted - head)}])
        assert len(body) == bytes_wanted
        return frame(body)

    with daemon.connect() as client:
        assert client.server["limits"]["max_frame_bytes"] == most
        client.methods[1] = "ping"
        client.send(ping_of(most))
        assert client.receive()[0] == [1, 1, None, {}]
        client.send(ping_of(most + 1)[:8])  # the header alone says it
        message, _ = client.receive()
        assert message[2]["name"] == "BAD_FRAME" and str(most) in message[2]["message"]
        assert client.receive() is None
    # a reply may not be longer either
    count = most // CASE.cell
    with daemon.connect() as client:
        result, (fd,) = client.call("region_open", {"bytes": CASE.cell, "memory": "host"})
        os.close(fd)
        place = {"region": result["region"], "offset": 0, "row_stride": 0, "step_stride": 0}
        one = rows(1) | {"base": place}
        fits = {key: value * 60 if isinstance(value, list) else value for key, value in one.items()}
        client.call("draft", fits | {"logits": True})
        with refused("TOO_LARGE", "logits"):
            client.call("draft", fits | {"steps": 2, "logits": True})
        assert count > 60


def test_4_kib_before_hello(daemon):
    def hello_of(body_bytes):
        head = len(pack([0, 1, "hello", {"protocol": 1, "client": "x/1", "pad": bytes(3000)}])) - 3000
        return frame(pack([0, 1, "hello", {"protocol": 1, "client": "x/1", "pad": bytes(body_bytes - head)}]))

    with daemon.connect(hello=False) as client:
        client.methods[1] = "hello"
        client.send(hello_of(4096))
        assert client.receive()[0][3]["protocol"] == 1
    with daemon.connect(hello=False) as client:
        client.send(hello_of(4097))
        assert client.receive()[0][2]["name"] == "BAD_FRAME"


def test_client_name(daemon):
    for name in "x", "x" * 128:
        daemon.connect(client=name).close()
    for name in "", "x" * 129:
        with refused("BAD_REQUEST", "client"):
            daemon.connect(client=name)


@pytest.mark.valgrind
def test_depth(daemon):
    def nested(levels):
        value = []
        for _ in range(levels - 1):
            value = [value]
        return value

    with daemon.connect() as client:  # the envelope is one level, params the next
        client.call("ping", {"ignored": nested(6)})
        with refused("BAD_REQUEST"):
            client.call("ping", {"ignored": nested(7)})


def test_values(daemon):
    """Values of a body, all of them: the envelope has 4, params, a key and the array 3."""
    with daemon.connect() as client:
        client.call("ping", {"ignored": [0] * (65536 - 7)})
        with refused("BAD_REQUEST", "65536"):
            client.call("ping", {"ignored": [0] * (65537 - 7)})
        with refused("BAD_REQUEST", "65536"):  # counted before any column is looked at
            client.call("draft", rows(1) | {"anchors": [1] * (60 << 16)})


def test_output_bytes(start):
    """Replies that nobody reads: up to the limit they wait, beyond it the client is disconnected."""
    daemon = start("--max-frame-bytes", "64K", "--max-output-bytes", "64K")
    before = daemon.status_kib("VmHWM")
    with daemon.raw() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(request(1, "hello", {"protocol": 1, "client": "mute/1"}))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for id in range(2, 1 << 20):
                sock.sendall(request(id, "stats"))
    assert daemon.status_kib("VmHWM") - before < 32 << 10
    with daemon.connect() as client:  # one that reads late, but below the limit, gets everything
        ids = [client.submit("ping") for _ in range(500)]
        for id in ids:
            client.wait(id)


def test_hello_timeout(start):
    daemon = start("--hello-timeout", "300ms")
    with daemon.raw() as sock:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
        assert 0.25 < time.monotonic() - begin < 10


@pytest.mark.valgrind
def test_frame_timeout(start):
    """A frame has to be whole in time, however it comes; a connection without one may be silent for ever."""
    daemon = start("--frame-timeout", "300ms")
    half = request(2, "ping")[:-1]
    for pieces in [half[:1]], [half], [request(3, "ping") + half], [half[:3], half[3:9], half[9:]]:
        with daemon.connect() as client:
            begin = time.monotonic()
            for piece in pieces:
                client.send(piece)
                time.sleep(0.08)
            message, _ = client.receive()
            while message[1] is not None:
                message, _ = client.receive()
            assert message[2]["name"] == "BAD_FRAME" and "frame_timeout" in message[2]["message"]
            assert client.receive() is None
            assert 0.25 < time.monotonic() - begin < 10
    daemon.probe.call("ping")


def test_a_daemon_that_stood_still_blames_nobody(start):
    """SIGSTOP, a frozen group of processes, a debugger: what a client sent meanwhile was in time."""
    daemon = start("--hello-timeout", "1s", "--frame-timeout", "1s")
    whole = request(2, "ping")
    with daemon.raw() as greeting, daemon.connect() as client, daemon.connect() as late:
        for started in client, late:
            started.send(whole[:-1])
        daemon.probe.call("ping")
        daemon.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
        greeting.sendall(request(1, "hello", {"protocol": 1, "client": "test"}))
        client.send(whole[-1:])
        time.sleep(1.2)  # longer than both may take
        daemon.process.send_signal(signal.SIGCONT)
        assert greeting.recv(4096)[8:11] == b"\x94\x01\x01"  # the reply
        assert client.receive()[0][:3] == [1, 2, None]
        assert late.receive()[0][2]["name"] == "BAD_FRAME"  # that one sent nothing


def test_deadline(slow_model):
    daemon = slow_model.start()
    with daemon.connect() as client:
        assert slow_model.draft(client, deadline_us=3600_000_000)
        with refused("BAD_REQUEST", "deadline_us", 3600000000):
            slow_model.draft(client, deadline_us=3600_000_001)
        # behind others, a deadline of a microsecond is always over before the launch: nothing is computed
        result, (fd,) = client.call("region_open", {"bytes": slow_model.VOCAB * 2, "memory": "host"})
        logits = {"region": result["region"], "offset": 0, "slot_stride": 0, "step_stride": 0}
        first = [client.submit("draft", slow_model.params(client)) for _ in range(2)]
        late = client.submit("draft", slow_model.params(client, rows=1, steps=1, deadline_us=1, logits=logits))
        assert outcomes(client, first + [late]) == ["done", "done", "DEADLINE_EXCEEDED"]
        assert os.pread(fd, 4096, 0) == bytes(4096)
        os.close(fd)


def test_priority(slow_model):
    """priority 1 goes first; 2 is no priority."""
    daemon = slow_model.start()
    with daemon.connect() as client:
        with refused("BAD_REQUEST", "priority"):
            slow_model.draft(client, priority=2)
        slow_model.draft(client)
        low = [client.submit("draft", slow_model.params(client)) for _ in range(4)]
        high = client.submit("draft", slow_model.params(client, priority=1))
        order = []
        while len(order) < 5:
            message, _ = client.receive()
            assert message[2] is None
            order.append(message[1])
        assert order.index(high) < order.index(low[-1]) and order.index(high) <= 2, (order, high)


@pytest.mark.alone
def test_descriptors_of_the_process(start):
    """RLIMIT_NOFILE=64 and 200 clients: accepting pauses without spinning, and goes on when there is room."""
    import resource

    daemon = start(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    socks = [daemon.raw() for _ in range(200)]
    for sock in socks:
        sock.setblocking(False)
        sock.sendall(request(1, "hello", {"protocol": 1, "client": "many/1"}))
    for _ in range(200):  # the daemon still serves those it has
        daemon.probe.call("ping")
    before = cpu_ticks(daemon)
    begin = time.monotonic()
    while time.monotonic() - begin < 1:  # an interval to measure in, not to wait for something
        daemon.probe.sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            daemon.probe.sock.recv(1, socket.MSG_PEEK)
    assert cpu_ticks(daemon) - before < os.sysconf("SC_CLK_TCK") / 4
    daemon.probe.sock.settimeout(PATIENCE_S)
    for sock in socks:
        sock.close()
    with daemon.connect() as client:
        client.call("draft", CASE.params())


def test_file_size_of_the_process(start):
    """RLIMIT_FSIZE: a region above it is refused, and a log above it has no more lines; neither ends the daemon."""
    import resource

    size = 4096
    daemon = start("--log-level", "debug", preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    with daemon.connect() as client:
        result, (fd,) = client.call("region_open", {"bytes": size, "memory": "host"})
        os.close(fd)
        with refused("RESOURCE_EXHAUSTED", "bytes", "RLIMIT_FSIZE"):
            client.call("region_open", {"bytes": size + 1, "memory": "host"})
        client.call("region_close", {"region": result["region"]})
    while daemon.log_path.stat().st_size < size:
        daemon.connect().close()
    for _ in range(3):  # and each of these is a line
        with daemon.connect() as client:
            client.call("draft", CASE.params())


def cpu_ticks(daemon):
    fields = daemon.proc("stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
