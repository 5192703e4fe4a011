"""Anchors and temperatures out of the ordinary: what proto/PROTOCOL.md says of them, and the reference's tokens and logits."""

import struct

import msgpack
import numpy as np
import pytest

import wire_codec
from reference import F32, Head, narrow, widen

ROWS, STEPS, VOCAB, TARGET_VOCAB = 6, 3, 301, 37
INF, NAN = float("inf"), float("nan")
TINY = struct.unpack("<f", struct.pack("<I", 1))[0]  # the smallest above 0


@pytest.fixture(scope="module")
def head():
    dice = np.random.default_rng(5)
    return Head(*(narrow(dice.integers(-8, 9, (ids, 16)).astype(F32) / F32(8)) for ids in (TARGET_VOCAB, VOCAB)), 0.4375)


@pytest.fixture
def client(head, start, folder):
    head.write(folder / "model.safetensors")
    with start(model=folder / "model.safetensors").connect() as client:
        yield client


class Request:
    """The same random draft each time, but for what is given."""

    def __init__(self, **columns):
        dice = np.random.default_rng(1)
        self.base = narrow(dice.normal(0, 4, (ROWS, STEPS, VOCAB)).astype(F32))
        self.columns = {
            "anchors": dice.integers(0, TARGET_VOCAB, ROWS).tolist(), "positions": dice.integers(0, 1000, ROWS).tolist(),
            "seeds": dice.integers(-(2**62), 2**62, ROWS).tolist(), "temperatures": [0.0] * ROWS,
        } | columns

    def sent(self, client, single=True):
        """Through the independent codec; tokens, flags and logits. `single`: numbers travel as FP32, else as FP64."""
        params = self.columns | {"steps": STEPS, "base": self.base.tobytes(), "logits": True}
        client.last_id += 1
        client.methods[client.last_id] = "draft"
        client.send(wire_codec.frame(msgpack.packb([0, client.last_id, "draft", params], use_single_float=single)))
        result, _ = client.wait(client.last_id)
        logits = np.frombuffer(result["logits"], np.uint16).reshape(self.base.shape)
        return np.array(result["tokens"]).reshape(ROWS, STEPS), np.array(result["flags"]), logits

    def expected(self, head):
        columns = self.columns | {"temperatures": [F32(t) for t in self.columns["temperatures"]]}
        return head.draft(self.base, *columns.values(), np.zeros(ROWS, bool))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other))


def test_an_anchor_beyond_the_vocabulary_counts_as_its_last(client, head):
    last = Request(anchors=[TARGET_VOCAB - 1] * ROWS)
    tokens = last.sent(client)
    assert same(tokens, last.expected(head))
    for anchor in TARGET_VOCAB, VOCAB - 1, VOCAB, 2**31, 2**32 - 1:
        assert same(Request(anchors=[anchor] * ROWS).sent(client), tokens)
    assert not same(Request(anchors=[TARGET_VOCAB - 2] * ROWS).sent(client), tokens)


@pytest.mark.parametrize(
    "temperature", [0.0, -0.0, 1.0, -1.0, -0.5, 2.0**-126, 2.0**-127, -(2.0**-130), TINY, -TINY, 2.0**126, 2.0**127, INF, -INF, NAN],
    ids=str,
)
def test_every_temperature_is_served(client, head, temperature):
    request = Request(temperatures=[temperature] * ROWS)
    tokens, flags, logits = request.sent(client)
    assert same((tokens, flags, logits), request.expected(head))
    stored = widen(logits)
    greedy = Request().sent(client)
    assert same([logits[:, 0]], [greedy[2][:, 0]])  # what is stored does not depend on it, but by the tokens of the steps before
    if temperature == 0:
        assert same(greedy, (tokens, flags, logits))
    if temperature != temperature:
        assert not tokens.any() and (flags == 1).all()
    if abs(temperature) == INF:
        other = Request(temperatures=[-temperature] * ROWS)
        other.base = narrow(np.full(other.base.shape, -3, F32))  # other logits, the same noise
        assert same([tokens], [other.sent(client)[0]])
    if abs(temperature) < 2**-126 and temperature != 0:
        beyond = stored.astype(np.float64) / temperature >= 2.0**128
        assert beyond.any(axis=2).all() and same([tokens], [np.argmax(beyond, axis=2)])


def test_negative_temperatures_prefer_small_logits(client):
    """A temperature so near to 0 that noise decides nothing, but whose quotients are finite."""
    request = Request(temperatures=[-(2.0**-20)] * ROWS)
    tokens, _, logits = request.sent(client)
    assert same([tokens], [np.argmin(widen(logits), axis=2)])


@pytest.mark.parametrize("number, nearest", [(1e-46, 0.0), (-1e-60, 0.0), (1e-45, TINY), (1e39, INF), (-1e300, -INF)])
def test_numbers_beyond_fp32(client, number, nearest):
    """The nearest float32 counts: what is too small is 0, and greedy."""
    column = Request(temperatures=[number] * ROWS)
    assert same(column.sent(client, single=False), Request(temperatures=[nearest] * ROWS).sent(client))
