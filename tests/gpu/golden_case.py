"""A golden case, as a request and the answer that must come. Logits are the bits of BF16, [rows, steps, vocab], one after the other."""

import array
import json

COLUMNS = "anchors", "positions", "seeds", "temperatures", "slots"
CODES = {"BF16": "H", "I32": "i", "I64": "q", "F32": "f"}


class Case:
    def __init__(self, path):
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8:start])

        def column(name):
            begin, end = tensors[name]["data_offsets"]
            return array.array(CODES[tensors[name]["dtype"]], data[start + begin : start + end])

        self.path = path
        self.shape = tensors["base_logits"]["shape"]
        self.rows, self.steps, self.vocab = self.shape
        self.base, self.logits = column("base_logits"), column("draft_logits")
        tokens = column("tokens").tolist()
        self.tokens = [tokens[row * self.steps : (row + 1) * self.steps] for row in range(self.rows)]
        self.columns = {name: column(name) for name in COLUMNS} | {"steps": self.steps}
        self.slots = self.columns["slots"]
        self.places = max(max(self.slots) + 1, 1)  # of draft logits
