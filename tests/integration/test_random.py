"""Random operations of several clients against the real daemon, each reply predicted, tokens included; see random_world.py.

SEED chooses what is done (another one every time, printed), OPERATIONS how much. A sequence that fails is made as short as can be
and written to BUILD/random; from there it is moved to tests/random, whose sequences are always replayed.
"""

import collections
import os
import pathlib
import random
import shutil
import tempfile
import time

import golden
import numpy as np
import pytest
import random_operations
from conftest import BUILD, ROOT, SANITIZED, WRAPPER
from random_world import Settings, World, Wrong
from reference import TEMPERATURES, Head

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
OPERATIONS = int(os.environ.get("OPERATIONS") or (500 if WRAPPER else 3000 if SANITIZED else 7500))
SEQUENCE = 3000  # operations from one start of a daemon
SHORTEN_S = 120
KEPT = sorted((ROOT / "tests/random").glob("*.txt"))

SEEN = {  # what a long run must have met, or it tries less than it says
    ("draft", name)
    for name in ("done", "BAD_REQUEST", "NOT_FOUND", "OUT_OF_RANGE", "TOO_LARGE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED")
} | {
    ("region_open", "done"), ("region_open", "TOO_LARGE"), ("region_open", "RESOURCE_EXHAUSTED"), ("region_import", "done"),
    ("region_import", "OUT_OF_RANGE"), ("region_import", "BAD_REQUEST"), ("region_close", "done"), ("region_close", "NOT_FOUND"),
    ("frame", "BAD_FRAME"), ("frame", "VERSION_MISMATCH"), ("end", "BAD_FRAME"), ("body", "BAD_REQUEST"), ("reload", "done"),
    ("reload", "INTERNAL"), ("drain", "done"), ("connect", "RESOURCE_EXHAUSTED"),
}


def run(settings, operations, outcomes=None):
    """The number of operations that were done before one failed, and why: None if all went well."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="draftd-", dir="/tmp"))
    world, at = World(folder, Settings(settings)), 0
    try:
        for at, (kind, client, seed) in enumerate(operations):
            random_operations.perform(world, kind, client, random.Random(seed))
        world.close()
        at += 1
        failure = None
    except Exception as error:  # whatever is wrong with a reply, a Wrong or not, ends the sequence
        failure = error
    finally:
        if outcomes is not None:
            outcomes.update(world.outcomes)
        world.dismiss()
        shutil.rmtree(folder)
    return at, failure


def shorten(settings, operations, kind):
    """Delta debugging: leaves out parts, ever smaller ones, as long as what is left fails in the same kind."""
    end, part = time.monotonic() + SHORTEN_S, max(1, len(operations) // 2)
    while time.monotonic() < end:
        for start in range(0, len(operations), part):
            shorter = operations[:start] + operations[start + part :]
            if shorter and time.monotonic() < end and isinstance(run(settings, shorter)[1], kind):
                operations = shorter
                break
        else:
            if part == 1:
                break
            part = (part + 1) // 2
    return operations


def write(path, settings, operations):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{' '.join(map(str, line))}\n" for line in [(settings,), *operations]))


def read(path):
    (settings,), *lines = (line.split() for line in path.read_text().splitlines() if not line.startswith("#"))
    return settings, [(kind, int(client), int(seed)) for kind, client, seed in lines]


def try_sequence(settings, seed, count, outcomes):
    operations = random_operations.draw(random.Random(seed), count)
    at, failure = run(settings, operations, outcomes)
    if not failure:
        return
    short = shorten(settings, operations[: at + 1], type(failure))
    path = BUILD / f"random/{settings}-{seed}.txt"
    write(path, settings, short)
    again = run(settings, short)[1] or failure
    raise Wrong(f"{len(short)} operations, kept in {path}: {again}") from failure


@pytest.mark.valgrind
def test_random_operations(capsys):
    outcomes, begin = collections.Counter(), time.monotonic()
    with capsys.disabled():
        print(f"\nSEED={SEED} OPERATIONS={OPERATIONS}", flush=True)
    for number, start in enumerate(range(0, OPERATIONS, SEQUENCE)):
        settings = ("small", "small", "large")[number % 3]
        try_sequence(settings, SEED + number, min(SEQUENCE, OPERATIONS - start), outcomes)
    with capsys.disabled():
        print(f"{OPERATIONS} operations in {time.monotonic() - begin:.0f} s: {outcomes.total()} replies, none wrong")
        for (method, name), count in sorted(outcomes.items()) if OPERATIONS >= 100_000 else ():
            print(f"    {method:16}{name:20}{count:8}")
    assert OPERATIONS < 100_000 or SEEN <= set(outcomes), SEEN - set(outcomes)


@pytest.mark.parametrize("path", KEPT, ids=[path.stem for path in KEPT])
def test_what_failed_once(path):
    settings, operations = read(path)
    at, failure = run(settings, operations)
    assert not failure, f"operation {at}: {failure}"


def needs_no_table(case):
    return "final_logit_softcapping" not in case.metadata and not case.path.stem.startswith("random_weights")


@pytest.mark.parametrize("case", [c for c in map(golden.Case, golden.PATHS) if needs_no_table(c)], ids=lambda case: case.path.stem)
def test_the_reference_is_right(case):
    """Against the golden cases with exact weights and no soft cap; of their rows those whose temperatures are the reference's."""
    weights = [
        np.frombuffer(case.bytes[name], np.uint16).reshape(case.shapes[name])
        for name in ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight")
    ]
    head = Head(*weights, float(case.metadata["output_multiplier"]))
    base = np.frombuffer(case.bytes["base_logits"], np.uint16).reshape(case.rows, case.steps, case.vocab)
    padding = [slot < 0 for slot in case.slots]
    tokens, _, logits = head.draft(base, case.anchors, case.positions, case.seeds, case.temperatures, padding)
    for row, temperature in enumerate(case.temperatures):
        if padding[row] or str(temperature) in map(str, TEMPERATURES):
            assert tokens[row].tolist() == case.tokens_of(row)
            assert padding[row] or logits[row].tobytes() == case.logits_of(row)
