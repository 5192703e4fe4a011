"""The recorded frames of tests/wire and the examples of proto/PROTOCOL.md against the independent codec."""

import math
import os
import re
import socket
import struct
from pathlib import Path

import pytest

import wire_codec as wire

ROOT = Path(__file__).resolve().parents[2]
WIRE = ROOT / "tests" / "wire"
PAGE = ROOT / "proto" / "PROTOCOL.md"

NAN = math.nan
INF = math.inf

HELLO_REPLY = {
    "protocol": 1,
    "server": "draftd/1.0.0",
    "generation": 1,
    "model": {
        "name": "tiny", "vocab": 4, "rank": 16, "target_vocab": 5, "multiplier": 1.0,
        "soft_cap": None, "dtype": "bf16",
    },
    "backend": {
        "name": "cpu", "bias_order": "mma16", "tensor_parallel": 1,
        "devices": [{"uuid": "CPU", "name": "x86-64", "memory_bytes": 68719476736}],
    },
    "limits": {
        "max_rows": 64, "max_steps": 8, "max_frame_bytes": 67108864, "max_inflight": 64,
        "max_regions": 16, "max_region_bytes": 1073741824,
    },
}
HELLO_REPLY_CUDA = {
    **HELLO_REPLY,
    "generation": 2**64 - 1,
    "model": {
        "name": "Größe-7B", "vocab": 151936, "rank": 256, "target_vocab": 151936, "multiplier": 0.5,
        "soft_cap": 30.0, "dtype": "bf16",
    },
    "backend": {
        "name": "cuda", "bias_order": "mma16", "tensor_parallel": 2,
        "devices": [
            {"uuid": "GPU-00000000-1111-2222-3333-444444444444", "name": "one", "memory_bytes": 150754820096},
            {"uuid": "GPU-00000000-1111-2222-3333-555555555555", "name": "two", "memory_bytes": 2**64 - 1},
        ],
    },
}
DRAFT_INLINE = {
    "steps": 1, "anchors": [3, 4], "positions": [10, 11], "seeds": [7, -7], "temperatures": [0.0, 0.5],
    "base": bytes.fromhex("803f0040 40408040 00bf80bf 000080ff".replace(" ", "")),
}
DRAFT_REGION = {
    "steps": 2, "anchors": [3, 4, 0], "positions": [10, 11, 0], "seeds": [7, -7, 0],
    "temperatures": [1.0, 0.5, 0.0], "slots": [0, 5, -1],
    "logits": {"region": 1, "offset": 1024, "slot_stride": 16, "step_stride": 8},
    "deadline_us": 50000, "priority": 1,
    "base": {"region": 1, "offset": 0, "row_stride": 16, "step_stride": 8},
}
DRAFT_EXTREMES = {
    "steps": 2**32 - 1,
    "anchors": [0, 2**32 - 1, 65536, 65535, 256, 255, 128, 127],
    "positions": [-(2**63), 2**63 - 1, -(2**31), -(2**31) - 1, -32769, -129, -33, -32],
    "seeds": [-(2**63), 2**63 - 1, 2**32, 2**32 - 1, -1, -128, -32768, 0],
    "temperatures": [NAN, INF, -INF, -0.0, 1.401298464324817e-45, 3.4028234663852886e38, 1.0, -2.5],
    "slots": [-(2**63), 2**63 - 1, -1, 0, 1, 2, 3, 4],
    "logits": True,
    "deadline_us": 3600000000,
    "base": {"region": 2**32 - 1, "offset": 2**64 - 2, "row_stride": 2**64 - 2, "step_stride": 2**63},
}
DRAFT_REPLY = {
    "tokens": [2, 3], "flags": [0, 1], "generation": 1,
    "times_us": {"queue": 12, "device": 345, "total": 400},
}
DRAFT_EVENT = {
    "steps": 1, "anchors": [3], "positions": [10], "seeds": [7], "temperatures": [0.0], "event": 1,
    "base": {"region": 1, "offset": 0, "row_stride": 8, "step_stride": 8},
}
HANDLE = bytes(range(64))
STATS = {"server": "draftd/1.0.0", "generation": 1, "drafts": 0}

# File: (fds, the body's value). Written from the protocol's text; msgpack packs it in the shortest widths.
CANONICAL = {
    "good-hello-request.bin": (0, [0, 1, "hello", {"protocol": 1, "client": "example/1.0"}]),
    "good-hello-reply.bin": (0, [1, 1, None, HELLO_REPLY]),
    "good-hello-reply-cuda.bin": (0, [1, 1, None, HELLO_REPLY_CUDA]),
    "good-ping-request.bin": (0, [0, 2, "ping", {}]),
    "good-ping-reply.bin": (0, [1, 2, None, {}]),
    "good-draft-request-inline.bin": (0, [0, 3, "draft", DRAFT_INLINE]),
    "good-draft-request-region.bin": (0, [0, 4, "draft", DRAFT_REGION]),
    "good-draft-request-event.bin": (0, [0, 14, "draft", DRAFT_EVENT]),
    "good-draft-request-extremes.bin": (0, [0, 2**32 - 1, "draft", DRAFT_EXTREMES]),
    "good-draft-reply.bin": (0, [1, 4, None, DRAFT_REPLY]),
    "good-draft-reply-logits.bin": (0, [1, 3, None, {**DRAFT_REPLY, "logits": DRAFT_INLINE["base"]}]),
    "good-region-open-request.bin": (0, [0, 5, "region_open", {"bytes": 1048576, "memory": "host"}]),
    "good-region-open-request-device.bin": (
        0,
        [0, 5, "region_open",
         {"bytes": 1048576, "memory": "device", "device": "GPU-00000000-1111-2222-3333-444444444444"}],
    ),
    "good-region-open-reply.bin": (
        1, [1, 5, None, {"region": 1, "bytes": 1048576, "memory": "host", "device": ""}],
    ),
    "good-region-import-request.bin": (1, [0, 6, "region_import", {"bytes": 4096, "memory": "host"}]),
    "good-region-import-reply.bin": (0, [1, 6, None, {"region": 2}]),
    "good-region-close-request.bin": (0, [0, 7, "region_close", {"region": 2}]),
    "good-region-close-reply.bin": (0, [1, 7, None, {}]),
    "good-event-import-request.bin": (0, [0, 12, "event_import", {"handle": HANDLE}]),
    "good-event-import-request-device.bin": (
        0, [0, 12, "event_import", {"handle": HANDLE, "device": "GPU-00000000-1111-2222-3333-444444444444"}],
    ),
    "good-event-import-reply.bin": (0, [1, 12, None, {"event": 1}]),
    "good-event-close-request.bin": (0, [0, 13, "event_close", {"event": 1}]),
    "good-event-close-reply.bin": (0, [1, 13, None, {}]),
    "good-stats-request.bin": (0, [0, 8, "stats", {}]),
    "good-stats-reply.bin": (0, [1, 8, None, STATS]),
    "good-metrics-request.bin": (0, [0, 9, "metrics", {}]),
    "good-metrics-reply.bin": (0, [1, 9, None, {"text": "draftd_connections 1\n"}]),
    "good-drain-request.bin": (0, [0, 10, "drain", {}]),
    "good-drain-reply.bin": (0, [1, 10, None, {}]),
    "good-reload-request.bin": (0, [0, 11, "reload", {}]),
    "good-reload-reply.bin": (0, [1, 11, None, {}]),
    "good-cancel-notification.bin": (0, [2, "cancel", {"id": 3}]),
    "good-goaway-notification.bin": (0, [2, "goaway", {"reason": "draining"}]),
    "good-error-reply.bin": (
        0,
        [1, 3, {"code": 7, "name": "TOO_LARGE", "message": "steps is 12, the most is 8", "retryable": False}, None],
    ),
    "good-error-reply-no-id.bin": (
        0,
        [1, None,
         {"code": 1, "name": "BAD_FRAME", "message": "descriptors arrived that no frame declares",
          "retryable": False},
         None],
    ),
}

# What the frames that are not in the shortest widths must mean all the same.
MEANS = {
    "good-draft-request-wide-noncanonical.bin": [0, 3, "draft", DRAFT_INLINE],
    "good-draft-request-float64-noncanonical.bin": [
        0, 3, "draft", {**DRAFT_INLINE, "temperatures": [0.1, -3, ]},
    ],
    "good-draft-request-seeds-uint64-noncanonical.bin": [
        0, 3, "draft", {**DRAFT_INLINE, "seeds": [2**64 - 1, 2**63]},
    ],
    "good-draft-request-logits-false-noncanonical.bin": [0, 3, "draft", {**DRAFT_INLINE, "logits": False}],
    "good-ping-request-unknown-keys-noncanonical.bin": [
        0, 2, "ping", {"later": [1, {"a": 1}], "": None, "x": b"\x00"},
    ],
}


def names(prefix):
    found = sorted(path.name for path in WIRE.glob(prefix + "*.bin"))
    assert found, f"no {prefix} in {WIRE}"
    return found


def same(a, b):
    """Equality that takes NaN for NaN and tells -0.0 from 0.0."""
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def method_of(name):
    match = re.match(r"(?:good|bad)-([a-z]+(?:-(?:open|import|close))?)-(?:request|reply|notification)", name)
    return match.group(1).replace("-", "_") if match else None


def read_frame(name):
    """Feeds the file to a reader, with as many open descriptors as a good file declares."""
    data = (WIRE / name).read_bytes()
    fds = []
    if not name.startswith("bad-frame-") and len(data) > 3:
        fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(min(data[3], wire.FDS_MAX))]
    reader = wire.Reader() if name.startswith("bad-frame-") else wire.Reader(1 << 20)
    reader.feed(data, fds)
    try:
        body, claimed = reader.next()
        assert claimed == fds
        assert not reader.bytes
        return body
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("name", names("good-"))
def test_good(name):
    method = method_of(name)
    got = wire.decode(read_frame(name), None if method == "error" else method)
    fds = (WIRE / name).read_bytes()[3]
    if name in CANONICAL:
        wanted_fds, wanted = CANONICAL[name]
        assert fds == wanted_fds
        assert wire.frame(wire.pack(wanted), fds) == (WIRE / name).read_bytes()
    else:
        wanted = MEANS[name]
    assert same(got, wanted)


def test_every_table_row_has_its_file():
    assert sorted([*CANONICAL, *MEANS]) == names("good-")


@pytest.mark.parametrize("name", names("bad-frame-"))
def test_bad_frame(name):
    with pytest.raises(wire.FrameError) as fault:
        read_frame(name)
    assert name.removeprefix("bad-frame-").startswith(fault.value.kind)


@pytest.mark.parametrize("name", names("bad-scan-"))
def test_bad_scan(name):
    with pytest.raises(wire.BodyError) as fault:
        wire.decode(read_frame(name))
    assert fault.value.kind == "scan"


@pytest.mark.parametrize("name", names("bad-envelope-"))
def test_bad_envelope(name):
    with pytest.raises(wire.BodyError) as fault:
        wire.decode(read_frame(name))
    assert fault.value.kind == "envelope"


@pytest.mark.parametrize(
    "name", [n for n in names("bad-") if not re.match("bad-(frame|scan|envelope)-", n)]
)
def test_bad_fields(name):
    with pytest.raises(wire.BodyError) as fault:
        wire.decode(read_frame(name), method_of(name))
    assert fault.value.kind == "fields"


def test_readme_lists_every_file():
    listed = re.findall(r"^\| `([^`]+\.bin)` \|", (WIRE / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(listed := list(dict.fromkeys(listed)))
    assert sorted(listed) == names("")


# ---- the page ----


def page_examples():
    """Blocks that open with ```hex NAME.bin; what follows # in a line is a comment."""
    blocks = re.findall(r"^```hex (\S+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return {
        name: bytes.fromhex("".join(line.split("#")[0] for line in text.splitlines()))
        for name, text in blocks
    }


def test_page_examples_are_the_recorded_frames():
    examples = page_examples()
    for name, data in examples.items():
        assert (WIRE / name).read_bytes() == data, name


def test_page_has_an_example_of_every_message():
    shown = set(page_examples())
    for method in wire.REQUESTS:
        for side in ("request", "reply"):
            prefix = f"good-{method.replace('_', '-')}-{side}"
            assert any(name.startswith(prefix) for name in shown), prefix
    for method in wire.NOTIFICATIONS:
        assert f"good-{method}-notification.bin" in shown
    assert "good-error-reply.bin" in shown


def test_page_names_every_error():
    text = PAGE.read_text(encoding="utf-8")
    for code, (name, retryable, closes) in wire.ERRORS.items():
        row = f"| {code} | {name} | {'yes' if retryable else 'no'} | {'no' if closes else 'yes'} |"
        assert row in text, row


# ---- the codec itself ----


def test_reader_is_indifferent_to_cuts():
    data = wire.request(1, "ping") + wire.request(2, "stats")
    for step in range(1, len(data) + 1):
        reader, bodies = wire.Reader(), []
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
            while (whole := reader.next()) is not None:
                bodies.append(whole[0])
        assert [wire.decode(body)[1] for body in bodies] == [1, 2]


def test_descriptors_cross_a_socket():
    left, right = socket.socketpair()
    with left, right, open(os.devnull, "rb") as null:
        wire.send(left, wire.request(6, "region_import", {"bytes": 1, "memory": "host"}, fds=1), [null.fileno()])
        reader = wire.Reader()
        reader.feed(*wire.receive(right))
        body, fds = reader.next()
        assert wire.decode(body)[2] == "region_import"
        assert os.fstat(fds[0]).st_rdev == os.fstat(null.fileno()).st_rdev
        os.close(fds[0])
