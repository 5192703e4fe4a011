"""Clients that are broken, malicious, slow or dead. For each: one typed error, nothing left behind (the fixture counts
descriptors and threads), and another client that does not notice."""

import contextlib
import ctypes
import fcntl
import itertools
import os
import random
import resource
import signal
import socket
import threading
import time

import pytest

import golden
import wire_codec
from conftest import PATIENCE_S, ROOT, SANITIZED, WRAPPER, draftctl
from wire_codec import CODES, ErrorReply, frame, pack, request

LATENCY_S = 10 if WRAPPER else 1  # for one small request beside a hostile client; a launch here takes milliseconds
HELLO = request(1, "hello", {"protocol": 1, "client": "hostile/1"})


def small(**more):
    """Params of the golden case that conftest's model comes from."""
    return golden.case("greedy_small").params(**more)


def replies_of(sock):
    """Every message until the daemon closes the connection."""
    reader, messages = wire_codec.Reader(1 << 30), []
    with contextlib.suppress(ConnectionResetError):
        while data := wire_codec.receive(sock)[0]:
            reader.feed(data)
    while whole := reader.next():
        messages.append(wire_codec.decode(whole[0]))
    return messages


def wait_closed(sock):
    """Reads until the daemon closes the connection, whatever it still sends."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(1 << 20):
            pass


@contextlib.contextmanager
def unharmed(daemon):
    """Another client drafts all the while; each of its requests must be right and quick."""
    case, stop, slowest = golden.case("greedy_small"), threading.Event(), [0.0, 0]

    def draft():
        with daemon.connect() as client:
            while not stop.is_set() or slowest[1] == 0:
                begin = time.monotonic()
                case.check(client.call("draft", case.params(logits=True))[0])
                slowest[:] = max(slowest[0], time.monotonic() - begin), slowest[1] + 1

    failures = []

    def guarded():
        try:
            draft()
        except BaseException as failure:  # handed to the test's thread
            failures.append(failure)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert not failures, failures
    assert slowest[0] < LATENCY_S, f"the slowest of {slowest[1]} requests took {slowest[0]:.3f} s"


# ---- broken frames and bodies ----

RECORDED_FRAMES = sorted((ROOT / "tests/wire").glob("bad-frame-*.bin"))
RECORDED_BODIES = sorted(
    path
    for kind in ("scan", "envelope", "draft-request", "hello-request", "ping-request", "region-*-request")
    for path in (ROOT / "tests/wire").glob(f"bad-{kind}-*.bin")
)


@pytest.mark.valgrind
@pytest.mark.parametrize("greeted", [False, True], ids=["before-hello", "after-hello"])
def test_broken_frames_are_answered_and_end_the_connection(daemon, greeted):
    for path in RECORDED_FRAMES:
        data = path.read_bytes()
        if greeted and b"too-long-4097" in os.fsencode(path):
            continue  # well within the limit of an open connection
        with daemon.raw() as sock:
            if greeted:
                sock.sendall(HELLO)
                wire_codec.receive(sock)
            sock.sendall(data)
            (last,) = replies_of(sock)
        code = CODES["VERSION_MISMATCH" if "version" in path.name else "BAD_FRAME"]
        assert (last[:2], last[2]["code"]) == ([1, None], code), path.name


@pytest.mark.valgrind
def test_bad_bodies_cost_only_their_request(daemon):
    """PROTOCOL, Frames: a bad body on a good frame costs only that request."""
    fd = memfd()
    with daemon.connect() as client:
        for path in RECORDED_BODIES:
            data = path.read_bytes()
            client.send(data, [fd] * data[3])
            message, _ = client.receive()
            assert message[0] == 1 and message[2]["code"] == CODES["BAD_REQUEST"], (path.name, message)
            assert client.call("ping") == ({}, []), path.name
    os.close(fd)


def test_response_or_notification_from_a_client(daemon):
    with daemon.connect() as client:
        client.send(wire_codec.reply(7))
        message, _ = client.receive()
        assert message[2]["code"] == CODES["BAD_REQUEST"]
        client.notify("cancel", {"id": 4711})  # of no request: nothing comes, nothing breaks
        client.notify("goaway", {"reason": "wrong way round"})
        client.notify("no_such_notification", {})
        client.call("ping")


def test_unknown_method(daemon):
    with daemon.connect() as client:
        with pytest.raises(ErrorReply) as refused:
            client.call("conjure")
        assert refused.value.name == "UNKNOWN_METHOD"
        client.call("ping")


def test_hello_comes_first_and_once(daemon):
    for method, params in ("ping", {}), ("draft", small()), ("stats", {}):
        with daemon.connect(hello=False) as client:
            with pytest.raises(ErrorReply) as refused:
                client.call(method, params)
            assert refused.value.name == "BAD_REQUEST"
    with daemon.connect() as client:
        with pytest.raises(ErrorReply) as refused:
            client.call("hello", {"protocol": 1, "client": "again/1"})
        assert refused.value.name == "BAD_REQUEST"
        client.call("ping")
    with daemon.connect(hello=False) as client:
        with pytest.raises(ErrorReply) as refused:
            client.call("hello", {"protocol": 2, "client": "future/2"})
        assert refused.value.name == "VERSION_MISMATCH"
        wait_closed(client.sock)


def test_two_requests_with_one_id(slow_model):
    daemon = slow_model.start()
    with daemon.connect() as client:
        slow_model.draft(client)
        data = request(900, "draft", slow_model.params(client))
        client.methods[900] = "draft"
        client.send(data + data)
        message, _ = client.receive()
        while message[1] != 900:
            message, _ = client.receive()
        assert message[2] and message[2]["code"] == CODES["BAD_REQUEST"]
        message, _ = client.receive()
        assert message[1] == 900 and message[2] is None


# ---- streams cut anywhere ----

STREAM = HELLO + request(2, "ping") + request(3, "draft", small(logits=True)) + request(4, "region_close", {"region": 1})


@pytest.mark.alone
@pytest.mark.valgrind
def test_byte_by_byte(daemon):
    """A stream that dribbles in is served like any other."""
    with unharmed(daemon), daemon.raw() as sock:
        for at in range(len(STREAM)):
            sock.sendall(STREAM[at : at + 1])
        sock.shutdown(socket.SHUT_WR)
        messages = replies_of(sock)
    assert sorted(message[1] for message in messages) == [1, 2, 3, 4]
    for message in messages:
        assert (message[2] is None) == (message[1] != 4)


@pytest.mark.alone
def test_cut_at_every_byte(daemon):
    """The client stops anywhere: what was whole is answered, half a frame is BAD_FRAME."""
    ends = list(itertools.accumulate(len(f) for f in (HELLO, request(2, "ping"), request(3, "draft", small(logits=True)))))
    ends.append(len(STREAM))
    with unharmed(daemon):
        for cut in range(len(STREAM) + 1):
            with daemon.raw() as sock:
                sock.sendall(STREAM[:cut])
                sock.shutdown(socket.SHUT_WR)
                messages = replies_of(sock)
            whole = sum(end <= cut for end in ends)
            assert [m[1] for m in messages if m[1]] == list(range(1, whole + 1)) or whole == 4
            if cut not in (0, *ends):
                assert [m[2]["name"] for m in messages if m[1] is None] == ["BAD_FRAME"], cut


@pytest.mark.alone
def test_killed_at_every_byte(daemon):
    """The same, but the client vanishes without reading anything."""
    with unharmed(daemon):
        for cut in range(len(STREAM) + 1):
            with daemon.raw() as sock:
                sock.sendall(STREAM[:cut])


def test_a_killed_process(slow_model):
    """kill -9 of real clients while they draft: descriptors, threads and regions return."""
    daemon = slow_model.start()
    for _ in range(8):
        child = os.fork()
        if child == 0:
            with daemon.connect() as client:
                while True:
                    slow_model.draft(client)
        daemon.probe.call("ping")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with daemon.connect() as client:
        slow_model.draft(client)


@pytest.mark.alone
def test_32_mib_then_ping(daemon):
    with unharmed(daemon), daemon.connect() as client:
        begin = time.monotonic()
        client.call("ping", {"ignored": bytes(32 << 20)})
        client.call("ping")
        assert time.monotonic() - begin < PATIENCE_S / 2


# ---- memory ----


@pytest.mark.skipif(bool(WRAPPER) or SANITIZED, reason="the tool's own memory is counted too")
def test_declared_lengths_reserve_nothing(daemon):
    """Headers that announce much, and bodies that announce more: memory follows what has arrived."""
    clients = [daemon.connect() for _ in range(50)]
    before = daemon.status_kib("VmRSS"), daemon.status_kib("VmSize")
    for client in clients:
        client.send(frame(b"x" * 100, length=60 << 20))
    for path in RECORDED_BODIES:
        if "huge" in path.name or "8gib" in path.name or "nested" in path.name:
            with daemon.connect() as client:
                client.send(path.read_bytes())
                client.receive()
    daemon.probe.call("ping")
    grown = daemon.status_kib("VmRSS") - before[0], daemon.status_kib("VmSize") - before[1]
    assert grown[0] < 8 << 10 and grown[1] < 64 << 10, f"KiB: {grown}"
    for client in clients:
        client.close()


@pytest.mark.skipif(bool(WRAPPER) or SANITIZED, reason="the tool's own memory grows")
def test_cycles_leave_memory_flat(daemon):
    """Open, draft, close, 10,000 times from two clients (server 7688, 7586 of Triton's tracker)."""
    case = golden.case("greedy_small")

    def cycles(count):
        with daemon.connect() as one, daemon.connect() as two:
            for at in range(count):
                client = (one, two)[at % 2]
                result, (fd,) = client.call("region_open", {"bytes": 1 << 20, "memory": "host"})
                os.pwrite(fd, case.bytes["base_logits"], 0)
                os.close(fd)
                base = {"region": result["region"], "offset": 0, "row_stride": 0, "step_stride": 0}
                assert client.call("draft", case.params(base=base))[0]["tokens"] == case.tokens
                client.call("region_close", {"region": result["region"]})

    cycles(500)
    daemon.settle()
    before = daemon.status_kib("VmRSS"), daemon.status_kib("VmSize")
    cycles(10000)
    daemon.settle()
    grown = daemon.status_kib("VmRSS") - before[0], daemon.status_kib("VmSize") - before[1]
    assert grown[0] < 2 << 10 and grown[1] < 16 << 10, f"KiB: {grown}"


# ---- clients that say nothing, read nothing, or never stop ----


@pytest.mark.alone
def test_never_hello(start):
    daemon = start("--hello-timeout", "200ms")
    with unharmed(daemon), daemon.raw() as silent, daemon.raw() as half:
        half.sendall(HELLO[:-1])
        wait_closed(silent)
        wait_closed(half)
    daemon.probe.call("ping")  # said hello: no timeout any more


@pytest.mark.alone
@pytest.mark.valgrind
def test_never_reads(start):
    """Disconnected when its output queue is full."""
    daemon = start("--max-frame-bytes", "64K", "--max-output-bytes", "256K")
    with unharmed(daemon), daemon.raw() as sock:
        sock.sendall(HELLO)
        data = request(2, "ping") * 1000
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                sock.sendall(data)


@pytest.mark.skipif(bool(WRAPPER) or SANITIZED, reason="the tool's own memory is counted too")
def test_unread_replies_cost_what_is_counted(start):
    """The smallest replies, never read: memory grows as far as max_output_bytes, and returns."""
    daemon = start("--max-output-bytes", "64M")
    before = daemon.status_kib("VmRSS")
    with daemon.raw() as sock:
        sock.sendall(HELLO)
        data = request(2, "ping") * 1000
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                sock.sendall(data)
    assert daemon.status_kib("VmHWM") - before < 80 << 10
    daemon.probe.call("ping")
    assert daemon.status_kib("VmRSS") - before < 8 << 10


def test_costly_replies_take_a_turn_each(daemon):
    """Between two requests of one client, each other client has got few of its many."""
    floods = [daemon.connect() for _ in range(10)]
    with daemon.connect() as client:
        count = lambda: client.call("stats")[0]["requests"]["metrics"]
        for flood in floods:
            flood.send(b"".join(request(id, "metrics") for id in range(2, 2002)))
        counts = [count() for _ in range(30)]
    steps = [after - before for before, after in itertools.pairwise(counts) if after > before]
    assert steps and min(steps) < 8 * len(floods), steps
    for flood in floods:
        flood.close()


@pytest.mark.alone
def test_flood(daemon):
    """A client that sends and reads as fast as it can has its turn, and no more."""
    stop = threading.Event()

    def flood():
        with daemon.raw() as sock:
            sock.sendall(HELLO)
            reader = threading.Thread(target=wait_closed, args=(sock,))
            reader.start()
            data = request(2, "ping") * 500
            while not stop.is_set():
                sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            reader.join(PATIENCE_S)

    threads = [threading.Thread(target=flood) for _ in range(2)]
    with unharmed(daemon):
        for thread in threads:
            thread.start()
        with daemon.connect() as client:
            for _ in range(200):
                client.call("draft", small())
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


# ---- descriptors where they do not belong ----


def memfd(size=4096, sealed=True):
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return fd


@pytest.mark.valgrind
def test_descriptors_missing_surplus_or_on_another_method(daemon):
    fd = memfd()
    cases = {
        "surplus": (request(2, "ping", fds=0), 1),
        "missing": (request(2, "region_import", {"bytes": 4096, "memory": "host"}, fds=1), 0),
        "two for one": (request(2, "region_import", {"bytes": 4096, "memory": "host"}, fds=1), 2),
        "none declared, none sent": (request(2, "region_import", {"bytes": 4096, "memory": "host"}, fds=0), 0),
        "on ping": (request(2, "ping", fds=1), 1),
        "on draft": (request(2, "draft", small(), fds=1), 1),
        "on an unknown method": (request(2, "conjure", fds=2), 2),
        "on a notification": (frame(pack([2, "cancel", {"id": 1}]), fds=1), 1),
        "more than a frame may have": (request(2, "ping", fds=4), 9),
        "as many as the kernel passes": (request(2, "ping", fds=4), 253),
    }
    for name, (data, count) in cases.items():
        with daemon.raw() as sock:
            sock.sendall(HELLO)
            wire_codec.receive(sock)
            wire_codec.send(sock, data, [fd] * count)
            messages = replies_of(sock)
            assert [m[2] and m[2]["name"] for m in messages] == ["BAD_FRAME"], name
        daemon.settle()
    # with a bad body, which costs only its request: the descriptor is closed all the same
    with daemon.connect() as client:
        client.send(frame(b"\xc1", fds=1), [fd])
        assert client.receive()[0][2]["name"] == "BAD_REQUEST"
        client.call("ping")
    daemon.settle()
    # before hello, and on half a frame of a client that goes away
    for data in HELLO, HELLO[:4]:
        with daemon.raw() as sock:
            wire_codec.send(sock, data, [fd] * 3)
        daemon.settle()
    os.close(fd)


@pytest.mark.alone  # other tests have descriptors of the same user on their way
def test_descriptors_on_their_way(start):
    """The kernel counts what a user has sent and nobody has received. Past that, the reply to region_open is an error."""

    def few_descriptors():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        for capability in 21, 24:  # CAP_SYS_ADMIN and CAP_SYS_RESOURCE lift the limit
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP

    daemon = start("--max-regions", "1024", preexec=few_descriptors)
    opened = {"bytes": 1, "memory": "host"}
    with daemon.connect() as hoarder, daemon.connect() as client:
        for _ in range(200):
            hoarder.submit("region_open", opened)
            try:
                _, (fd,) = client.call("region_open", opened)
            except ErrorReply as refused:
                assert refused.name == "RESOURCE_EXHAUSTED" and "on their way" in refused.message, refused
                break
            os.close(fd)
        else:
            raise AssertionError("the kernel passes any number of descriptors")
        client.call("ping")
        before = client.call("stats")[0]["regions"]
        for _ in range(10):  # what could not be passed on is closed again
            with pytest.raises(ErrorReply):
                client.call("region_open", opened)
        assert client.call("stats")[0]["regions"] <= before + 1
        hoarder.close()
        _, (fd,) = client.call("region_open", opened)
        os.close(fd)


def test_a_daemon_out_of_descriptors(start):
    """The client whose descriptor can't be received has done nothing wrong, and is told to come again."""
    daemon = start(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    fd = memfd()
    with daemon.connect() as client, contextlib.ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(daemon.raw())
        with pytest.raises(ErrorReply) as refused:
            while True:
                result, (opened,) = client.call("region_open", {"bytes": 1, "memory": "host"})
                os.close(opened)
                client.call("region_close", {"region": result["region"]})
        assert refused.value.name == "RESOURCE_EXHAUSTED"
        client.submit("region_import", {"bytes": 4096, "memory": "host"}, [fd])
        message, _ = client.receive()
        assert message[1] is None and message[2]["name"] == "RESOURCE_EXHAUSTED", message
        assert client.receive() is None
    os.close(fd)


def test_imports_that_are_no_good(daemon):
    """region_import: a memfd, sealed against shrinking, at least as long as declared."""
    file = os.open("/dev/null", os.O_RDWR)
    ends = os.pipe()
    good, loose, short = memfd(), memfd(sealed=False), memfd(100)
    with daemon.connect() as client:
        for fd, size in (loose, 4096), (short, 4096), (file, 1), (ends[0], 1), (good, 4097), (good, 2**63), (good, 2**64 - 1):
            with pytest.raises(ErrorReply) as refused:
                client.call("region_import", {"bytes": size, "memory": "host"}, [fd])
            assert refused.value.name in ("BAD_REQUEST", "OUT_OF_RANGE", "TOO_LARGE")
        for method, fds in ("region_open", []), ("region_import", [good]):
            for params in {"memory": "device"}, {"memory": "device", "device": "GPU-none"}:
                with pytest.raises(ErrorReply) as refused:
                    client.call(method, {"bytes": 4096, **params}, fds)
                assert refused.value.name == "BAD_REQUEST" and 'works on "host" memory only' in str(refused.value)
            with pytest.raises(ErrorReply) as refused:
                client.call(method, {"bytes": 4096, "memory": "host", "device": "CPU"}, fds)
            assert refused.value.name == "BAD_REQUEST"
        assert client.call("region_import", {"bytes": 4096, "memory": "host"}, [good])[0]["region"] >= 0
    for fd in good, loose, short, file, *ends:
        os.close(fd)


def test_events_where_there_are_none(daemon):
    """The CPU backend has no events: event_import is refused in words, whatever the handle; no id is one of an event's."""
    with daemon.connect() as client:
        for params in {"handle": bytes(64)}, {"handle": os.urandom(64), "device": "CPU"}:
            with pytest.raises(ErrorReply) as refused:
                client.call("event_import", params)
            assert refused.value.name == "BAD_REQUEST" and "the cpu backend knows no CUDA events" in str(refused.value)
        for params in {"handle": bytes(63)}, {"handle": "x" * 64}, {"device": "CPU"}:
            with pytest.raises(ErrorReply) as refused:
                client.call("event_import", params)
            assert refused.value.name == "BAD_REQUEST" and "handle" in str(refused.value)
        for id in 0, 1, 2**32 - 1:
            with pytest.raises(ErrorReply) as refused:
                client.call("event_close", {"event": id})
            assert refused.value.name == "NOT_FOUND" and f"event is {id}" in str(refused.value)
            with pytest.raises(ErrorReply) as refused:
                client.call("draft", small(event=id))
            assert refused.value.name == "NOT_FOUND" and f"event is {id}" in str(refused.value)
        client.call("draft", small())


# ---- regions ----


@pytest.mark.valgrind
def test_places_outside_a_region(daemon):
    """Offsets, strides and sizes are checked without overflow; what does not fit is OUT_OF_RANGE, and nothing is written."""
    case = golden.case("greedy_small")
    size = 4096
    top = 2**64 - 2
    bad = [
        {"offset": size - case.cell + 2},
        {"offset": size},
        {"offset": size + 2},
        {"offset": top},
        {"offset": top - case.cell + 2},
        {"offset": 2**63},
    ]
    with daemon.connect() as client:
        result, (fd,) = client.call("region_open", {"bytes": size, "memory": "host"})
        region = {"region": result["region"], "step_stride": 0}
        for place in bad:
            for wrong in (
                {"base": {"row_stride": 0} | region | place},
                {"logits": {"slot_stride": 0} | region | place},
            ):
                with pytest.raises(ErrorReply) as refused:
                    client.call("draft", case.params(**wrong))
                assert refused.value.name == "OUT_OF_RANGE", wrong
        # strides that overflow, alone or with the offset
        rows = {"anchors": [1, 1], "positions": [0, 0], "seeds": [0, 0], "temperatures": [0, 0], "slots": [0, 1]}
        for stride in top, 2**63, size - case.cell + 2:
            with pytest.raises(ErrorReply) as refused:
                client.call("draft", case.params() | rows | {"base": {"row_stride": stride, "offset": 0} | region})
            assert refused.value.name == "OUT_OF_RANGE"
            with pytest.raises(ErrorReply) as refused:
                client.call(
                    "draft",
                    case.params() | rows | {
                        "base": bytes(2 * case.cell), "logits": {"slot_stride": stride, "offset": 0} | region,
                    },
                )
            assert refused.value.name == "OUT_OF_RANGE"
        for slot in 2**63 - 1, size // case.cell + 1:
            with pytest.raises(ErrorReply) as refused:
                logits = {"slot_stride": case.cell, "offset": 0} | region
                client.call("draft", case.params(slots=[slot], logits=logits))
            assert refused.value.name == "OUT_OF_RANGE"
        assert os.pread(fd, size, 0) == bytes(size)
        # the last place that fits
        os.pwrite(fd, case.bytes["base_logits"], size - case.cell)
        place = {"offset": size - case.cell, "row_stride": top} | region
        assert client.call("draft", case.params(base=place))[0]["tokens"] == case.tokens
        os.close(fd)


def test_a_kept_descriptor_keeps_no_memory(start):
    """max_memory_bytes holds for clients that keep the descriptors of closed regions, or never receive them."""
    daemon = start("--max-region-bytes", "8M", "--max-memory-bytes", "8M")
    kept = []
    with daemon.connect() as client:
        for _ in range(4):
            result, (fd,) = client.call("region_open", {"bytes": 8 << 20, "memory": "host"})
            assert os.fstat(fd).st_blocks * 512 >= 8 << 20
            client.call("region_close", {"region": result["region"]})
            assert os.fstat(fd).st_blocks == 0
            kept.append(fd)
        kept += client.call("region_open", {"bytes": 8 << 20, "memory": "host"})[1]
    daemon.settle()  # the connection's end closes the last one
    end = time.monotonic() + PATIENCE_S
    while os.fstat(kept[-1]).st_blocks:
        daemon.probe.call("ping")
        assert time.monotonic() < end
    for fd in kept:
        os.close(fd)


def test_a_region_belongs_to_its_connection(daemon):
    case = golden.case("greedy_small")
    with daemon.connect() as owner, daemon.connect() as other:
        result, (fd,) = owner.call("region_open", {"bytes": 4096, "memory": "host"})
        os.close(fd)
        for method, params in (
            ("draft", case.params(base={"region": result["region"], "offset": 0, "row_stride": 0, "step_stride": 0})),
            ("region_close", {"region": result["region"]}),
        ):
            with pytest.raises(ErrorReply) as refused:
                other.call(method, params)
            assert refused.value.name == "NOT_FOUND"
        owner.call("region_close", {"region": result["region"]})
        with pytest.raises(ErrorReply) as refused:
            owner.call("region_close", {"region": result["region"]})
        assert refused.value.name == "NOT_FOUND"


def test_region_closed_between_submit_and_reply(slow_model):
    """The request ends well: memory stays mapped until then. The close is answered after it."""
    daemon = slow_model.start()
    with daemon.connect() as client:
        slow_model.draft(client)
        expected = slow_model.draft(client)
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(3)]
        close = client.submit("region_close", {"region": slow_model.region(client)})
        with pytest.raises(ErrorReply) as refused:
            slow_model.draft(client)
        assert refused.value.name == "NOT_FOUND"
        for id in ids:
            assert client.wait(id)[0]["tokens"] == expected["tokens"]
        assert client.wait(close) == ({}, [])


def test_client_gone_between_submit_and_reply(slow_model):
    """Queued work is dropped and not run: one that comes later does not wait for it."""
    daemon = slow_model.start()
    with daemon.connect() as client:
        one = min(slow_model.seconds(client) for _ in range(3))
        for _ in range(4):
            with daemon.connect() as dying:
                slow_model.draft(dying)
                for _ in range(16):
                    dying.submit("draft", slow_model.params(dying))
        took = slow_model.seconds(client)
        assert took < 8 * one + 0.5, f"{took:.3f} s, alone {one:.3f} s, the dropped work {64 * one:.3f} s"


def test_cancel_at_each_stage(slow_model):
    daemon = slow_model.start()
    with daemon.connect() as client:
        slow_model.draft(client)
        ids = [client.submit("draft", slow_model.params(client)) for _ in range(8)]
        for id in reversed(ids):
            client.notify("cancel", {"id": id})
        ends = []
        for id in ids:
            try:
                client.wait(id)
                ends.append("done")
            except ErrorReply as refused:
                ends.append(refused.name)
        # every one has exactly one end; at least the last one can't have been launched
        assert set(ends) <= {"done", "CANCELLED"} and ends[-1] == "CANCELLED", ends
        client.notify("cancel", {"id": ids[0]})  # answered already
        slow_model.draft(client)


# ---- values ----


def test_seeds(start):
    """0, 2^64-1 and negative seeds are deterministic; an absent one is refused."""
    case = golden.case("sampled")
    daemon = start(model=case.path)
    with daemon.connect() as client:
        seen = {}
        for seed in 0, 1, 2**64 - 1, -1, -(2**63), 2**63:
            results = [client.call("draft", case.params([1], seeds=[seed], temperatures=[2.0]))[0] for _ in range(2)]
            assert results[0]["tokens"] == results[1]["tokens"]
            seen[seed] = results[0]["tokens"]
        # the same 64 bits are the same seed
        assert seen[-1] == seen[2**64 - 1] and seen[-(2**63)] == seen[2**63]
        assert seen[0] != seen[1]
        params = case.params()
        del params["seeds"]
        with pytest.raises(ErrorReply) as refused:
            client.call("draft", params)
        assert refused.value.name == "BAD_REQUEST" and "seeds" in refused.value.message


def test_inline_base_of_another_size(daemon):
    case = golden.case("greedy_small")
    with daemon.connect() as client:
        for base in b"", case.bytes["base_logits"][:-2], case.bytes["base_logits"] + b"\0\0", b"x":
            with pytest.raises(ErrorReply) as refused:
                client.call("draft", case.params(base=base))
            assert refused.value.name in ("BAD_REQUEST", "OUT_OF_RANGE") and "base" in refused.value.message


@pytest.mark.alone
@pytest.mark.valgrind
def test_mutated_streams(daemon):
    """Recorded frames with a few bytes changed: whatever they mean now, the daemon goes on."""
    dice = random.Random(7)
    recorded = [path.read_bytes() for path in sorted((ROOT / "tests/wire").glob("good-*request*.bin"))]
    # `drain` would end the daemon, as it should
    recorded = [data for data in recorded if b"drain" not in data and b"reload" not in data]
    with unharmed(daemon):
        for _ in range(60 if WRAPPER else 600):
            data = bytearray(dice.choice(recorded))
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(8, len(data))] = dice.randrange(256)
            with daemon.raw() as sock:
                sock.sendall(HELLO + data)
                sock.shutdown(socket.SHUT_WR)
                wait_closed(sock)


def test_permission(daemon):
    """drain and reload are for root and the daemon's own user."""
    if os.getuid() != 0:
        pytest.skip("another user can only be tried by root")
    daemon.socket.chmod(0o666)
    for parent in daemon.socket.parents[:2]:
        parent.chmod(0o755)
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            os.setgid(65534)
            os.setuid(65534)
            with daemon.connect() as client:
                names = []
                for method in "drain", "reload":
                    try:
                        client.call(method)
                    except ErrorReply as refused:
                        names.append(refused.name)
                client.call("ping")
                code = 0 if names == ["PERMISSION_DENIED"] * 2 else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_draftctl_is_a_client_too(daemon):
    assert draftctl("ping", socket=daemon.socket).returncode == 0
