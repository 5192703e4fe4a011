"""Every golden case through the running daemon, bit for bit: by draftctl, and by the independent codec."""

import fcntl
import math
import mmap
import os
import random
import struct

import pytest

import golden
from conftest import draftctl
from golden import Case

by_case = pytest.mark.parametrize("path", golden.PATHS, ids=lambda path: path.stem)


def test_there_are_cases():
    assert len(golden.PATHS) >= 19


@by_case
def test_draftctl_replays(start, path):
    daemon = start(model=path)
    for base in "inline", "host":
        done = draftctl("replay", "--base", base, path, socket=daemon.socket)
        assert done.returncode == 0, done.stdout + done.stderr


@by_case
def test_inline(start, path):
    case = Case(path)
    daemon = start(model=path)
    with daemon.connect() as client:
        case.check(client.call("draft", case.params(logits=True))[0])
        # without logits: the same tokens
        result = client.call("draft", case.params())[0]
        assert result["tokens"] == case.tokens and "logits" not in result
        # NUMERICS, "How equality is tested": a row alone equals the row in the batch
        for row in range(min(case.rows, 8)):
            case.check(client.call("draft", case.params([row], logits=True))[0], [row])


@by_case
def test_flags_tell_where_a_nan_won(start, path):
    """PROTOCOL, draft: bit 0 of a row's flag, exactly if its token's value was NaN in some step."""
    case = Case(path)
    daemon = start(model=path)
    with daemon.connect() as client:
        flags = client.call("draft", case.params())[0]["flags"]
    for row in range(case.rows):
        won = False
        for step, token in enumerate(case.tokens_of(row)):
            at = (row * case.steps + step) * case.vocab + token
            (value,) = struct.unpack_from("<f", case.bytes["noised"], at * 4)
            won |= math.isnan(value)
        assert flags[row] == won, f"row {row}"


class Region:
    """Shared memory of the daemon's, mapped here and filled with a pattern."""

    PATTERN = b"\xa5"

    def __init__(self, client, size):
        result, (fd,) = client.call("region_open", {"bytes": size, "memory": "host"})
        self.id = result["region"]
        self.map = mmap.mmap(fd, size)
        os.close(fd)
        assert self.map[:] == bytes(size), "a new region is zeroed"
        self.map[:] = self.PATTERN * size


@by_case
def test_strides_and_gaps(start, path):
    """Base and logits in one region, at strides larger than the data, at an odd multiple of 2: nothing between is touched."""
    case = Case(path)
    daemon = start(model=path)
    slots = [slot for slot in case.slots if slot >= 0]
    step_stride, row_stride = case.cell + 6, case.steps * (case.cell + 6) + 10
    slot_step, slot_stride = case.cell + 34, case.steps * (case.cell + 34) + 2
    base_at = 18
    logits_at = base_at + case.rows * row_stride + 14
    size = logits_at + (max(slots, default=0) + 1) * slot_stride
    with daemon.connect() as client:
        region = Region(client, size)
        for row in range(case.rows):
            for step in range(case.steps):
                at = base_at + row * row_stride + step * step_stride
                region.map[at : at + case.cell] = case.base_of(row, step)
        expected = bytearray(region.map)
        for row in range(case.rows):
            for step in range(case.steps if case.slots[row] >= 0 else 0):
                at = logits_at + case.slots[row] * slot_stride + step * slot_step
                expected[at : at + case.cell] = case.logits_of(row, step)
        result, _ = client.call(
            "draft",
            case.params(
                base={"region": region.id, "offset": base_at, "row_stride": row_stride, "step_stride": step_stride},
                logits={
                    "region": region.id, "offset": logits_at, "slot_stride": slot_stride, "step_stride": slot_step,
                },
            ),
        )
        assert result["tokens"] == case.tokens
        assert region.map[:] == bytes(expected)
        client.call("region_close", {"region": region.id})
        region.map.close()


@pytest.mark.valgrind
def test_batches_do_not_mix(start):
    """Many clients' rows of the same length share launches: each gets its own answer, whatever else is in the batch."""
    case = golden.case("many_rows")
    daemon = start(model=case.path)
    dice = random.Random(1)
    clients = [daemon.connect() for _ in range(4)]
    submitted = []
    for _ in range(40):
        client = dice.choice(clients)
        rows = dice.sample(range(case.rows), dice.randint(1, 6))
        submitted.append((client, client.submit("draft", case.params(rows, logits=True)), rows))
    dice.shuffle(submitted)
    for client, id, rows in submitted:
        case.check(client.wait(id)[0], rows)
    for client in clients:
        client.close()


def test_shorter_blocks_are_the_first_steps(start):
    case = golden.case("sampled")
    daemon = start(model=case.path)
    with daemon.connect() as client:
        for steps in range(1, case.steps + 1):
            base = b"".join(case.base_of(r)[: steps * case.cell] for r in range(case.rows))
            result, _ = client.call("draft", case.params(steps=steps, base=base))
            assert result["tokens"] == [t for r in range(case.rows) for t in case.tokens_of(r)[:steps]]


def test_region_of_the_clients(start):
    """region_import: base in a sealed memfd of the client's."""
    case = golden.case("sampled_odd_vocab")
    daemon = start(model=case.path)
    fd = os.memfd_create("base", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, case.bytes["base_logits"])
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with daemon.connect() as client:
        size = len(case.bytes["base_logits"])
        result, _ = client.call("region_import", {"bytes": size, "memory": "host"}, [fd])
        base = {"region": result["region"], "offset": 0, "row_stride": case.block, "step_stride": case.cell}
        case.check(client.call("draft", case.params(base=base, logits=True))[0])
    os.close(fd)
