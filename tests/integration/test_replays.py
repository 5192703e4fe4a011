"""How services of this kind broke for others, and how draftd must not: what the other files here don't try anyway."""

import json
import os
import random

import numpy as np
import pytest
import wire_codec
from reference import Head, narrow, noise
from test_lifecycle import refuses

NEVER = 0xFF80  # -inf


def bf16(values):
    return narrow(np.array(values, np.float32))


def successor_model(vocab=48):
    """After token t comes 5 * t + 1, whatever the base says as long as it is below 1: the bias is one-hot."""
    w1, w2 = np.zeros((vocab, vocab), np.float32), np.zeros((vocab, vocab), np.float32)
    for token in range(vocab):
        w1[token, token] = w2[(5 * token + 1) % vocab, token] = 1
    return Head(narrow(w1), narrow(w2), 1.0)


@pytest.fixture
def serve(start, folder):
    """A daemon that serves a Head."""

    def serve(head, *options):
        path = folder / "model.safetensors"
        head.write(path)
        return start(*options, model=path)

    return serve


def params(values, **more):
    rows, steps, _ = values.shape
    return {
        "steps": steps, "anchors": [0] * rows, "positions": [0] * rows, "seeds": [0] * rows, "temperatures": [0.0] * rows,
        "base": values.tobytes(),
    } | more


def test_a_step_conditions_on_the_step_before(serve):
    """Not on the anchor, in any row of a block (vllm 51009)."""
    head, steps = successor_model(), 8
    with serve(head).connect() as client:
        result, _ = client.call("draft", params(np.zeros((5, steps, head.vocab), np.uint16), anchors=[0, 1, 7, 20, 47]))
    for row, token in enumerate([0, 1, 7, 20, 47]):
        for step in range(steps):
            token = (5 * token + 1) % head.vocab
            assert result["tokens"][row * steps + step] == token


@pytest.mark.parametrize("vocab", [1, 2, 15, 17, 31, 61, 129, 1031])
def test_padding_never_wins(serve, vocab):
    """Vocabularies that are no multiple of any tile; scores so low that a zero beside them would win (vllm 45060, 44744)."""
    head = Head.random(vocab * 3, vocab, 20)
    low = np.full((1, 2, vocab), bf16(-1000.0))
    tail = low.copy()
    tail[0, :, vocab // 2 + 1 :] = NEVER
    last = np.full_like(low, NEVER)
    last[0, :, -1] = bf16(-1000.0)
    never = np.full_like(low, NEVER)
    base = np.concatenate([low, tail, last, never, low, tail, last])
    padding = [False] * 7
    more = {"temperatures": [0.0] * 4 + [1.0] * 3, "seeds": list(range(7))}
    expected, _, logits = head.draft(base, [0] * 7, [0] * 7, more["seeds"], more["temperatures"], padding)
    assert (expected < vocab).all() and (expected[2] == vocab - 1).all() and (expected[3] == 0).all() and (expected[6] == vocab - 1).all()
    with serve(head).connect() as client:
        result, _ = client.call("draft", params(base, logits=True, **more))
    assert result["tokens"] == expected.ravel().tolist() and result["logits"] == logits.tobytes()


def test_noise_is_not_the_verifiers(serve):
    """A verifier that samples with the same seed and position must not meet the same noise: draftd's is salted (NUMERICS, section 4;
    vllm 54282, 47386)."""
    head, rows = successor_model(16), 64
    head.w1[:] = 0
    seeds, positions = [77] * rows, list(range(rows))
    with serve(head).connect() as client:
        base = np.zeros((rows, 1, 16), np.uint16)
        result, _ = client.call("draft", params(base, seeds=seeds, positions=positions, temperatures=[1.0] * rows))
    salted = np.argmax(-noise(seeds, positions, 0, 16), axis=1).tolist()
    unsalted = np.argmax(-noise(seeds, [position - 2**30 for position in positions], 0, 16), axis=1).tolist()
    assert result["tokens"] == salted
    assert sum(a == b for a, b in zip(salted, unsalted)) < rows / 4  # 1 in 16 by chance


def test_greedy_beside_sampled(serve):
    """No noise on greedy rows, whatever their seed and their neighbours (rtp-llm 1318)."""
    head, dice = Head.random(1, 61, 16), np.random.default_rng(1)
    one = narrow(dice.normal(0, 2, (1, 3, 61)).astype(np.float32))
    alone, _, _ = head.draft(one, [0], [0], [0], [0.0], [False])
    rows = 32
    temperatures = [(0.0, 1.0, -0.0, 8.0)[row % 4] for row in range(rows)]
    more = {"seeds": list(range(rows)), "temperatures": temperatures}
    with serve(head).connect() as client:
        result, _ = client.call("draft", params(np.repeat(one, rows, axis=0), **more))
    tokens = np.array(result["tokens"]).reshape(rows, 3)
    assert (tokens[0::4] == alone).all() and (tokens[2::4] == alone).all()
    assert len({tuple(row) for row in tokens[1::2].tolist()}) > 1


def test_nothing_is_stale(serve):
    """Requests of one shape through one region, each with other values written right behind the reply to the last; the logits are
    read at once (pegainfer 591, ik_llama.cpp 2303)."""
    head, dice = successor_model(16), random.Random(2)
    cell = 32
    with serve(head).connect() as client:
        result, (fd,) = client.call("region_open", {"bytes": 4 * cell, "memory": "host"})
        place = {"region": result["region"], "step_stride": 0}
        for _ in range(500):
            winners, base = dice.sample(range(16), 2), np.zeros((2, 1, 16), np.uint16)
            base[0, 0, winners[0]] = base[1, 0, winners[1]] = bf16(4.0)
            os.pwrite(fd, base.tobytes(), 0)
            result, _ = client.call(
                "draft",
                params(base, base=place | {"offset": 0, "row_stride": cell}, logits=place | {"offset": 2 * cell, "slot_stride": cell}),
            )
            logits = os.pread(fd, 2 * cell, 2 * cell)
            assert result["tokens"] == winners
            assert logits == head.draft(base, [0, 0], [0, 0], [0, 0], [0, 0], [False] * 2)[2].tobytes()
        os.close(fd)


def test_padding_rows_are_inert(serve):
    """Beside real rows and alone: no place is written, inline logits are zeros, no neighbour changes (vllm-ascend 15495)."""
    head = Head.random(3, 61, 16)
    base = np.random.default_rng(3).integers(0, 0x7F80, (6, 2, 61), np.uint16)
    for slots in [0, -1, 1, -5, -(2**63), 2], [-1] * 6:
        padding = [slot < 0 for slot in slots]
        tokens, flags, logits = head.draft(base, [0] * 6, [0] * 6, [9] * 6, [1.0] * 6, padding)
        logits[padding] = 0
        more = {"slots": slots, "seeds": [9] * 6, "temperatures": [1.0] * 6}
        with serve(head).connect() as client:
            result, _ = client.call("draft", params(base, logits=True, **more))
            assert (result["tokens"], result["flags"]) == (tokens.ravel().tolist(), flags.astype(int).tolist())
            assert result["logits"] == logits.tobytes()
            opened, (fd,) = client.call("region_open", {"bytes": 4 * 244, "memory": "host"})
            place = {"region": opened["region"], "offset": 0, "slot_stride": 244, "step_stride": 122}
            client.call("draft", params(base, logits=place, **more))
            real = b"".join(logits[row].tobytes() for row in range(6) if not padding[row])
            assert os.pread(fd, 4 * 244, 0) == real.ljust(4 * 244, b"\0")
            os.close(fd)


CHECKPOINTS = {
    "dtype": (lambda h: h["markov_head.markov_w2.weight"].update(dtype="F16"), ("markov_w2", "F16", "BF16")),
    "shape": (lambda h: h["markov_head.markov_w2.weight"].update(shape=[488, 2]), ("markov_w2", "2", "16")),
    "name": (lambda h: h.update({"markov_head.markov_w3.weight": h.pop("markov_head.markov_w2.weight")}), ("markov_w2",)),
}


@pytest.mark.parametrize("what", CHECKPOINTS)
def test_other_checkpoints_are_refused(start, folder, what):
    """By name, with what was expected; never a daemon that drafts nothing (antirez/ds4 468, vllm 52315)."""
    change, words = CHECKPOINTS[what]
    path = folder / "model.safetensors"
    Head.random(1, 61, 16).write(path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    refuses(start(model=path, wait=False), *words)


@pytest.mark.valgrind
def test_killed_at_half_a_reply(serve):
    """A client that dies while the daemon is still writing to it (server 6576, 8982): the fixture counts what is left."""
    head = Head.random(1, 8191, 16)
    base = np.zeros((16, 8, head.vocab), np.uint16)
    daemon = serve(head)
    for bytes_read in 1, 8, 100, 1 << 20, 5 << 20:
        client = daemon.connect()
        opened, (fd,) = client.call("region_open", {"bytes": head.vocab * 2, "memory": "host"})
        os.close(fd)
        place = {"region": opened["region"], "offset": 0, "row_stride": 0, "step_stride": 0}
        for _ in range(3):  # 2 MiB each, far more than a socket's buffer holds
            client.submit("draft", params(base, base=place, logits=True))
        left = bytes_read
        while left:
            left -= len(client.sock.recv(left))
        client.close()
    with daemon.connect() as client:
        expected = head.draft(base[:1, :1], [0], [0], [0], [0.0], [False])[0]
        assert client.call("draft", params(base[:1, :1]))[0]["tokens"] == expected.ravel().tolist()


def test_a_size_of_nothing(serve):
    """size 0, and a memory that ends where it begins (server 6914, 8335)."""
    with serve(successor_model()).connect() as client:
        for method, fds in ("region_open", []), ("region_import", [os.memfd_create("empty", os.MFD_ALLOW_SEALING)]):
            with pytest.raises(wire_codec.ErrorReply) as refused:
                client.call(method, {"bytes": 0, "memory": "host"}, fds)
            assert refused.value.name == "BAD_REQUEST" and "bytes" in refused.value.message
            for fd in fds:
                os.close(fd)
        client.call("ping")
