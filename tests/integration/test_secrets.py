"""What a client may not learn or reach: other clients' regions, their memory, and, in error texts, anything but its own words and limits."""

import fcntl
import os
import random
import re
import socket
import types

import golden
import pytest
import random_broken
import wire_codec
from conftest import ROOT
from random_draft import Draft
from random_world import NO_TEXT, Settings
from reference import Head
from wire_codec import ErrorReply, frame, pack

CASE = golden.case("greedy_small")
SECRET = b"another client's logits "


def refusal(client, method, params, fds=()):
    with pytest.raises(ErrorReply) as refused:
        client.call(method, params, fds)
    return refused.value


def opened(client, size):
    result, (fd,) = client.call("region_open", {"bytes": size, "memory": "host"})
    return result["region"], fd


# ---- memory ----


def test_no_id_reaches_the_region_of_another(daemon):
    size = 4096
    with daemon.connect() as owner, daemon.connect() as other:
        regions = [opened(owner, size) for _ in range(5)]
        for _, fd in regions:
            os.pwrite(fd, SECRET * 100, 0)
        ids = [*range(300), *(1 << bit for bit in range(9, 32)), *((1 << bit) - 1 for bit in range(9, 33))]
        for id in ids:
            place = {"region": id, "offset": 0, "step_stride": 0}
            for method, params in (
                ("draft", CASE.params(base=place | {"row_stride": 0})),
                ("draft", CASE.params(logits=place | {"slot_stride": 0})),
                ("region_close", {"region": id}),
            ):
                assert refusal(other, method, params).name == "NOT_FOUND"
        # with a region of its own that has the same number, that is the one that is meant
        own, own_fd = opened(other, size)
        assert own in [id for id, _ in regions], "ids are counted by connection"
        other.call("draft", CASE.params(logits={"region": own, "offset": 0, "slot_stride": 0, "step_stride": 0}))
        assert os.pread(own_fd, CASE.cell, 0) == CASE.logits_of(0)
        other.call("region_close", {"region": own})
        for id, fd in regions:
            assert os.pread(fd, size, 0) == (SECRET * 100).ljust(size, b"\0")
            owner.call("region_close", {"region": id})
            os.close(fd)
        os.close(own_fd)


def test_memory_of_one_client_is_never_shown_to_the_next(daemon):
    """New regions and inline logits of padding rows are zeros, whatever was there before."""
    size = 1 << 20
    for _ in range(4):
        with daemon.connect() as first:
            _, fd = opened(first, size)
            os.pwrite(fd, SECRET * (size // len(SECRET)), 0)
            os.close(fd)
            first.call("ping", {"ignored": SECRET * 40000})
            base = (SECRET * CASE.cell)[: CASE.cell]
            first.call("draft", CASE.params(base=base, logits=True))
        with daemon.connect() as second:
            _, fd = opened(second, size)
            assert not os.pread(fd, size, 0).strip(b"\0")
            os.close(fd)
            result, _ = second.call("draft", CASE.params(slots=[-1], logits=True))
            assert result["logits"] == bytes(CASE.block)


# ---- what errors say ----


def provoke(client, methods):
    """The text of each request that is refused."""
    for method, params in methods:
        yield refusal(client, method, params).message


def nil_message(data, daemon, fds=()):
    """Of a frame that ends the connection."""
    with daemon.connect() as client:
        client.send(data, fds)
        while (message := client.receive()[0])[2] is None:
            pass
        return message[2]["message"]


def texts_of_frames(daemon):
    for path in sorted((ROOT / "tests/wire").glob("bad-frame-*.bin")):
        if b"too-long-4097" not in os.fsencode(path):
            yield nil_message(path.read_bytes(), daemon)
    ping, import_frame = pack([0, 2, "ping", {}]), pack([0, 2, "region_import", {"bytes": 1, "memory": "host"}])
    null = os.open(os.devnull, os.O_RDWR)
    for data, count in (frame(ping), 1), (frame(ping, 1), 1), (frame(ping, 2), 1), (frame(import_frame), 0), (frame(import_frame, 2), 2):
        yield nil_message(data, daemon, [null] * count)
    os.close(null)
    with daemon.connect() as client:
        client.send(frame(ping)[:-1])
        client.sock.shutdown(socket.SHUT_WR)
        yield client.receive()[0][2]["message"]


def texts_of_bodies(client, fd):
    for path in sorted((ROOT / "tests/wire").glob("bad-*.bin")):
        kind = path.stem.split("-")
        if kind[1] == "frame" or "reply" in kind or "goaway" in kind:
            continue
        data = path.read_bytes()
        if len(data) > 60 << 10:
            continue  # more than a frame has here
        client.send(data, [fd] * data[3])
        yield client.receive()[0][2]["message"]
    client.send(wire_codec.reply(7))
    yield client.receive()[0][2]["message"]


def texts_of_drafts(daemon, settings):
    """All that random_broken breaks of a draft."""
    client = daemon.connect()
    id, fd = opened(client, 8192)
    region = types.SimpleNamespace(size=8192)
    peer = types.SimpleNamespace(world=types.SimpleNamespace(settings=settings))
    draft = Draft(peer, random.Random(1), plain=True, rows=2, steps=2)
    changes = [*random_broken.broken_values(draft), *random_broken.broken_places(draft, id, region, 77)]
    yield from provoke(client, (("draft", draft.params | change) for change, _ in changes))
    yield refusal(client, "draft", draft.params | {"deadline_us": 0}).message
    for pairs in random_broken.broken_maps(draft):
        raw = wire_codec.msgpack.Packer(use_bin_type=True, use_single_float=True).pack_map_pairs(pairs)
        client.send(frame(b"\x94\0\7\xa5draft" + raw))
        yield client.receive()[0][2]["message"]
    data = b"".join(wire_codec.request(id, "draft", draft.params) for id in range(100, 200))
    client.send(data)  # more than may be in flight or in the queue
    for _ in range(100):
        if error := client.receive()[0][2]:
            yield error["message"]
    client.send(wire_codec.request(200, "draft", draft.params) * 2 + wire_codec.notification("cancel", {"id": 200}))
    for _ in range(2):
        if error := client.receive()[0][2]:
            yield error["message"]
    os.close(fd)
    client.close()


def memfd(size, seals):
    fd = os.memfd_create("secret-name", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def texts_of_regions(daemon, settings, client):
    most = settings.region_bytes
    yield from provoke(
        client,
        [
            *(("region_open", {"bytes": size, "memory": "host"}) for size in (0, most + 1, 2**64 - 1)),
            *(("region_open", {"bytes": 1, "memory": "device"} | more) for more in ({}, {"device": "GPU-none"}, {"device": 1})),
            ("region_open", {"bytes": 1, "memory": "host", "device": "CPU"}), ("region_close", {"region": 7}),
            ("event_import", {"handle": bytes(64)}), ("event_close", {"event": 7}),
            ("conjure", {}), ("", {}), ("a/b", 1), ("\x1b[2J\n", {}), ("x" * 1000, {}), ("hello", {"protocol": 1, "client": "x"}),
        ],
    )
    for size, seals in (100, fcntl.F_SEAL_SHRINK), (4096, 0), (4096, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE):
        fd = memfd(size, seals)
        yield refusal(client, "region_import", {"bytes": 4096, "memory": "host"}, [fd]).message
        os.close(fd)
    for path in os.devnull, "/etc/passwd":
        fd = os.open(path, os.O_RDONLY)
        yield refusal(client, "region_import", {"bytes": 1, "memory": "host"}, [fd]).message
        os.close(fd)
    others = [daemon.connect() for _ in range(3)]
    with pytest.raises(ErrorReply) as refused:  # of all memory
        for other in others:
            for _ in range(settings.REGIONS):
                os.close(opened(other, most)[1])
    yield refused.value.message
    for other in others:
        other.close()
    daemon.probe.call("ping")  # their ends came before it
    with pytest.raises(ErrorReply) as refused:
        while True:
            os.close(opened(client, 1)[1])
    yield refused.value.message


def texts_of_the_daemon(daemon, settings, client, model, config):
    data = model.read_bytes()
    model.write_bytes(data[:-1])
    yield refusal(client, "reload", {}).message
    config.write_text("[model]\nno_such_key = 1\n")
    yield refusal(client, "reload", {}).message
    others = [daemon.connect() for _ in range(settings.PEERS - 2)]
    with daemon.raw() as surplus:
        reader = wire_codec.Reader()
        while got := surplus.recv(4096):
            reader.feed(got)
    yield wire_codec.decode(reader.next()[0])[2]["message"]
    for other in others:
        other.close()
    client.send(wire_codec.request(300, "drain") + wire_codec.request(301, "region_open", {"bytes": 1, "memory": "host"}))
    while message := client.receive():
        if message[0][0] == 1 and message[0][2]:
            yield message[0][2]["message"]


def test_error_texts_tell_nothing(start, folder):
    """Every text that can be provoked: no path, no pointer, nothing of another client or of the daemon's surroundings."""
    settings, model, config = Settings("small"), folder / "secret.safetensors", folder / "secret.conf"
    Head.random(1, settings.vocab, settings.rank).write(model)
    config.write_text(f"[model]\npath = {model}\n")
    daemon = start(*settings.options(), "--config", config, model=None)
    with daemon.connect(client="secret-client/1") as secret, daemon.connect() as client:
        os.close(opened(secret, 12345)[1])
        fd = memfd(4096, fcntl.F_SEAL_SHRINK)
        texts = {
            *texts_of_frames(daemon), *texts_of_bodies(client, fd), *texts_of_drafts(daemon, settings),
            *texts_of_regions(daemon, settings, client), *texts_of_the_daemon(daemon, settings, client, model, config),
        }
        os.close(fd)
    assert daemon.wait() == 0
    own = 'there is no method "'  # and then the client's own word
    foreign = "secret", str(folder), "draftd.sock", "safetensors", "12345", "passwd"
    pids = {str(daemon.pid), str(os.getpid())}
    for text in texts:
        assert text.startswith(own) and text.isprintable() or not NO_TEXT.search(text), text
        assert 0 < len(text) < 256 and not any(word in text for word in foreign), text
        assert not pids & set(re.findall(r"\d+", text)), text  # whole numbers: a limit's digits may have those of a short one
    assert len(texts) > 150, len(texts)
