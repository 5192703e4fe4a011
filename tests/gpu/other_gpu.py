#!/usr/bin/env python3
"""Memory of a GPU that need not be the daemon's: regions that draftd opens there by its UUID, and allocations of the client's there that
it imports, for base logits and for draft logits. The daemon is on the first GPU, on the second, on both together, or has a replica on
each. Golden cases, and random drafts, whose tokens and logits must be the CPU backend's. Where a GPU can't reach the memory of the
other, the refusal must say so, and the connection live on.

Usage: other_gpu.py, from the unpacked archive or the sources (built with CUDA). Ends with "N passed, N failed, N waived"; exit code 1 if
anything failed.
"""

import array
import contextlib
import itertools
import pathlib
import random
import tempfile
from types import SimpleNamespace

from daemon import GOLDEN, Daemon, make_model, need_gpus
from golden_case import Case
from tally import check, end

import draft
from cuda_driver import Allocation, Driver
from draft._library import library

CASES = "greedy_small", "sampled_odd_vocab", "nan_logits", "padding_rows"
VOCAB, RANK, ROWS, STEPS = 10007, 64, 8, 4
POISON = b"\xa5\xa5"


def random_case(path):
    """As golden ones are, but that the CPU backend says what must come."""
    dice = random.Random(1)
    shape = [ROWS, STEPS, VOCAB]
    floats = array.array("f", (dice.gauss(0, 4) for _ in range(ROWS * STEPS * VOCAB)))
    base = array.array("H", memoryview(floats).cast("B").cast("H")[1::2].tolist())
    columns = {
        "anchors": [dice.randrange(VOCAB) for _ in range(ROWS)], "positions": [dice.randrange(1 << 20) for _ in range(ROWS)],
        "seeds": [dice.randrange(1 << 40) for _ in range(ROWS)], "temperatures": [0, 1, 0.7, 2, 0, 1, 0.1, 1], "steps": STEPS,
    }  # fmt: skip
    logits = array.array("H", bytes(2 * len(base)))
    with Daemon(path, backend="cpu") as daemon, daemon.connect() as d:
        tokens, _ = d.draft(base=base, logits=logits, **columns)
    return SimpleNamespace(
        path=path, shape=shape, base=base, logits=logits, tokens=tokens.tolist(), columns=columns, slots=range(ROWS), places=ROWS
    )


class Memory:
    """[n, steps, vocab] of 16 bits on a GPU, in a region of `connection`: opened there, or of an own allocation."""

    def __init__(self, driver, connection, ordinal, how, shape):
        self.driver, self.ordinal, self.allocation = driver, ordinal, None
        self.nbytes = 2 * shape[0] * shape[1] * shape[2]
        uuid = driver.uuids[ordinal]
        if how == "opened":
            region = connection.region_open(self.nbytes, memory="device", device=uuid)
        else:
            self.allocation = Allocation(driver, ordinal, self.nbytes)
            try:  # (the package imports host memory alone, libdraft this, too)
                size = self.allocation.nbytes
                region = connection._region("device", library.draft_region_import_device, self.allocation.fd, size, uuid.encode())
            except draft.DraftError:
                self.free()
                raise
            finally:
                self.allocation.close_fd()
        assert region.device == uuid, f"the region is on {region.device}, not {uuid}"
        self.view = region.tensor(shape, "uint16")
        self.address = self.allocation.address if self.allocation else self.view.__cuda_array_interface__["data"][0]

    def write(self, data):
        self.driver.write(self.ordinal, self.address, data)

    def read(self):
        return self.driver.read(self.ordinal, self.address, self.nbytes)

    def free(self):
        if self.allocation:
            self.allocation.free()


def expected(case):
    """The bytes of draft logits: what no row writes stays as it was."""
    _, steps, vocab = case.shape
    row_bytes = 2 * steps * vocab
    memory, rows = bytearray(POISON * (case.places * steps * vocab)), memoryview(case.logits).cast("B")
    for row, slot in enumerate(case.slots):
        if slot >= 0:
            memory[slot * row_bytes : (slot + 1) * row_bytes] = rows[row * row_bytes : (row + 1) * row_bytes]
    return memory


def draft_over(driver, daemon, case, how, base_on, logits_on):
    """An error in words, or None."""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(daemon.connect())
        try:
            base = Memory(driver, connection, base_on, how, case.shape)
            stack.callback(base.free)
            logits = Memory(driver, connection, logits_on, how, [case.places, *case.shape[1:]])
            stack.callback(logits.free)
        except draft.BadRequest as refused:
            connection.ping()
            inline, _ = connection.draft(base=case.base, **case.columns)
            assert inline.tolist() == case.tokens, "tokens behind a refusal"
            return str(refused)
        base.write(case.base)
        logits.write(POISON * (logits.nbytes // 2))
        tokens, _ = connection.draft(base=base.view, logits=logits.view, **case.columns)
        assert tokens.tolist() == case.tokens, f"tokens {tokens.tolist()}, not {case.tokens}"
        got, right = logits.read(), expected(case)
        assert got == right, f"{sum(a != b for a, b in zip(got, right))} bytes of the draft logits differ"
        assert base.read() == case.base.tobytes(), "the base logits were written"
    return None


def try_setup(driver, label, own, cases, *options):
    """`own`: the numbers of the daemon's GPUs."""
    devices = ",".join(driver.uuids[ordinal] for ordinal in own)
    refusals = set()
    with contextlib.ExitStack() as stack:
        daemons = [(case, Daemon(case.path, "--devices", devices, *options)) for case in cases]  # which start at the same time
        for case, daemon in daemons:
            stack.enter_context(daemon)
        for (case, daemon), how, base_on, logits_on in itertools.product(daemons, ("opened", "imported"), (0, 1), (0, 1)):
            reach = all(driver.can_reach(ordinal, on) for ordinal in own for on in (base_on, logits_on))
            name = f"{label}, {case.path.stem}, {how}, base on {base_on}, logits on {logits_on}"
            try:
                refused = draft_over(driver, daemon, case, how, base_on, logits_on)
                refusals |= {refused}
                check(name, refused is None if reach else refused and "can't reach memory of" in refused, refused)
            except Exception as error:
                check(name, False, f"{type(error).__name__}: {error}")
    for refused in refusals - {None}:
        print(f"{label}: refused: {refused}")
    print(f"{label}: {len(cases)} cases over memory of either GPU", flush=True)


def main():
    need_gpus(2)
    driver = Driver()
    with tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp") as folder:
        cases = [Case(GOLDEN / f"{name}.safetensors") for name in CASES]
        cases.append(random_case(make_model(pathlib.Path(folder) / "random.safetensors", VOCAB, RANK)))
        try_setup(driver, "on the first GPU", (0,), cases)
        try_setup(driver, "on the second", (1,), cases)
        try_setup(driver, "on both", (0, 1), cases)
        try_setup(driver, "a replica on each", (0, 1), cases, "--tensor-parallel", "1")
    end()


if __name__ == "__main__":
    main()
