"""Golden cases: .safetensors files with a model, a request, and what must come back."""

import array
import json
import pathlib

from conftest import ROOT

PATHS = sorted((ROOT / "tests/golden").glob("*.safetensors"))
TYPES = {"I32": "i", "I64": "q", "F32": "f", "BF16": "H"}


class Case:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        data = self.path.read_bytes()
        header_bytes = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + header_bytes])
        self.bytes, self.shapes, columns = {}, {}, {}
        for name, tensor in header.items():
            if name == "__metadata__":
                self.metadata = tensor
                continue
            start, end = (8 + header_bytes + offset for offset in tensor["data_offsets"])
            self.bytes[name], self.shapes[name] = data[start:end], tensor["shape"]
            columns[name] = lambda n=name, t=tensor["dtype"]: array.array(TYPES[t], self.bytes[n]).tolist()
        self.rows, self.steps, self.vocab = self.shapes["base_logits"]
        self.cell = self.vocab * 2  # bytes of the logits of one row and step
        self.block = self.steps * self.cell  # and of one row
        self.anchors, self.positions, self.seeds, self.temperatures, self.slots, self.tokens = (
            columns[n]() for n in ("anchors", "positions", "seeds", "temperatures", "slots", "tokens")
        )

    def base_of(self, row, step=None):
        return self.piece("base_logits", row, step)

    def logits_of(self, row, step=None):
        return self.piece("draft_logits", row, step)

    def piece(self, name, row, step):
        start = row * self.block + (step or 0) * self.cell
        return self.bytes[name][start : start + (self.block if step is None else self.cell)]

    def tokens_of(self, row):
        return self.tokens[row * self.steps : (row + 1) * self.steps]

    def params(self, rows=None, **more):
        """Params of a draft of some rows, or of all; inline base unless `more` says otherwise."""
        rows = range(self.rows) if rows is None else rows
        return {
            "steps": self.steps,
            "anchors": [self.anchors[r] for r in rows],
            "positions": [self.positions[r] for r in rows],
            "seeds": [self.seeds[r] for r in rows],
            "temperatures": [self.temperatures[r] for r in rows],
            "slots": [self.slots[r] for r in rows],
            "base": b"".join(self.base_of(r) for r in rows),
        } | more

    def check(self, result, rows=None):
        """A reply with inline logits is the recorded one, bit for bit."""
        rows = list(range(self.rows) if rows is None else rows)
        assert result["tokens"] == [token for r in rows for token in self.tokens_of(r)]
        for at, r in enumerate(rows):
            if self.slots[r] >= 0:
                got = result["logits"][at * self.block : (at + 1) * self.block]
                assert got == self.logits_of(r), f"{self.path.stem}: logits of row {r}"


def case(name):
    return Case(ROOT / f"tests/golden/{name}.safetensors")
