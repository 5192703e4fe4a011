"""What breaks one rule of proto/PROTOCOL.md, and what must come of it: params of drafts, and bodies."""

from wire_codec import pack

# ---- params of a draft ----

BAD, LARGE, RANGE, NONE = "BAD_REQUEST", "TOO_LARGE", "OUT_OF_RANGE", "NOT_FOUND"
COLUMNS = "anchors", "positions", "seeds", "temperatures"


def broken_values(draft):
    """(params that are others, what comes of it)"""
    good, rows, most = draft.params, draft.rows, draft.settings.rows
    for key in COLUMNS:
        for value in [], None, 1, {}, [None] * rows, ["1"] * rows, [[]] * rows, good[key] + good[key][:1], good[key][1:]:
            yield {key: value}, BAD
    for key, values in {
        "anchors": ([-1] * rows, [2**32] * rows, [1.0] * rows), "positions": ([2**63] * rows, [0.5] * rows), "seeds": ([1.5] * rows,),
        "slots": ([2**63] * rows, [0] * (rows + 1), [0.5] * rows, None), "steps": (0, -1, 2**32, 1.0, None, "1"),
        "base": (good["base"][:-1], good["base"][2:], good["base"] + b"\0\0", b"", None, True, {}, "x"), "logits": (1, None, b"", {}),
        "deadline_us": (-1, 3_600_000_001, 1.5, None), "priority": (2, -1, True, None), "event": (-1, 2**32, None),
    }.items():
        yield from (({key: value}, BAD) for value in values)
    yield {"steps": draft.settings.STEPS + 1}, LARGE
    yield {"steps": 2**32 - 1}, LARGE
    yield {key: (good[key] * (most + 1))[: most + 1] for key in COLUMNS}, LARGE
    yield {"event": 1}, NONE


def broken_places(draft, id, region, foreign):
    """The same in a region that is large enough for one row and step."""
    top, last, rows, steps = 2**64 - 2, region.size // 2 * 2 - draft.cell + 2, draft.rows, draft.steps
    for key, stride in ("base", "row_stride"), ("logits", "slot_stride"):
        good = {"region": id, "offset": 0, stride: steps * draft.cell, "step_stride": draft.cell}
        yield {key: good | {"region": foreign}}, NONE
        for offset in last, region.size // 2 * 2, top, top - draft.cell + 2, 2**63:
            yield {key: good | {"offset": offset}}, RANGE
        for name in "offset", stride, "step_stride":
            yield from (({key: good | {name: value}}, BAD) for value in (1, -2, 2**63 + 1, None, 2.0))
            yield {key: {k: v for k, v in good.items() if k != name}}, BAD
        for value in top, 2**63, 2**63 - draft.cell:
            if rows > 1:
                yield {key: good | {stride: value}}, RANGE
            if steps > 1 and key == "base":
                yield {key: good | {"step_stride": value}}, RANGE
    if rows > 1 and (rows - 1 + steps - 1) * 2 + draft.cell <= region.size:
        yield {"logits": {"region": id, "offset": 0, "slot_stride": 2, "step_stride": 2}}, BAD
    if rows > 1 and rows * steps * draft.cell <= region.size:
        yield {"logits": good, "slots": [0] * rows}, BAD


def broken_maps(draft):
    """Maps as lists of pairs."""
    pairs = list(draft.params.items())
    for at, pair in enumerate(pairs):
        yield pairs[:at] + pairs[at + 1 :]
        yield [*pairs, pair]
    for key in 7, None, "k" * 256, b"base":
        yield [(key, 1), *pairs]
    yield [*pairs, ("new", 1), ("new", 1)]
    yield [*((f"{i}", i) for i in range(64)), *pairs]


# ---- bodies ----

BODIES_WITHOUT_ID = (
    b"", b"\xc0", b"\xdd\xff\xff\xff\xff", pack({}), pack([]), pack([0, -1, "ping", {}]), pack([0, 2**32, "ping", {}]),
    pack([3, 1, "ping", {}]),
)


def broken_bodies(id):
    """Requests whose id can be read, whatever follows."""
    good = pack([0, id, "ping", {}])
    return (
        good[:-1], good + b"\0", good[:-1] + b"\xc1", good[:-1] + b"\xd4\1\1", good[:-1] + b"\xdd\xff\xff\xff\xff",
        good[:-1] + b"\xdf\xff\xff\xff\xff", good[:-1] + b"\x91" * 9 + b"\0", good[:-1] + b"\x81\xa1x" * 9 + b"\0",
        pack([0, id, "ping", None]), pack([0, id, "ping", {1: 2}]), pack([0, id, "ping", {"k" * 256: 1}]),
        pack([0, id, 7, {}]), pack([0, id, "ping"]), pack([0, id]), b"\x94\0" + pack(id) + b"\xa4ping\x82\xa1a\0\xa1a\0",
        pack([0, id, "ping", {f"{i}": i for i in range(65)}]),
    )
