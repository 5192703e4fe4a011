"""A random draft that must succeed: its params, and what its reply and its regions must hold."""

import numpy as np
from random_world import require
from reference import TEMPERATURES, narrow

EDGES = (0, 1, -1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))


class Place:
    """Where the values of rows and steps lie in a region."""

    def __init__(self, region, offset, stride, step_stride, cell, slots, steps):
        self.region, self.offset, self.stride, self.step_stride, self.cell = region, offset, stride, step_stride, cell
        self.slots, self.steps = slots, steps
        self.busy = None

    @property
    def span(self):
        last = max(max(self.slots), 0)
        return self.offset, self.offset + last * self.stride + (self.steps - 1) * self.step_stride + self.cell

    def cells(self):
        """(row, step, first byte) of every row that has a place."""
        for row, slot in enumerate(self.slots):
            for step in range(self.steps if slot >= 0 else 0):
                yield row, step, self.offset + slot * self.stride + step * self.step_stride

    def take(self, writes):
        self.busy = (*self.span, writes)
        self.region.busy.append(self.busy)

    def give_back(self):
        self.region.busy.remove(self.busy)

    def params(self, id, stride):
        return {"region": id, "offset": self.offset, stride: self.stride, "step_stride": self.step_stride}


class Draft:
    def __init__(self, peer, dice, plain=False, rows=None, steps=None):
        """`plain`: inline base of less than half a frame, no logits, no deadline; nothing but the columns is random."""
        self.peer, self.world, self.settings = peer, peer.world, peer.world.settings
        self.dice, self.numbers = dice, np.random.default_rng(dice.getrandbits(64))
        self.rows = rows or dice.choice((1, 2, dice.randint(1, self.settings.rows)))
        self.steps = steps or dice.randint(1, self.settings.STEPS)
        self.cell = self.settings.vocab * 2
        self.outcomes = {"done"}
        self.places = []
        self.base_place = self.logits_place = None
        self.columns()
        self.values = self.draw_values()
        if plain or not self.place_base():
            while self.bytes > self.settings.frame_bytes / (2 if plain else 1) - 8192:
                self.steps -= 1
                self.values = np.ascontiguousarray(self.values[:, : self.steps])
            self.params["base"] = self.values.tobytes()
        self.params["steps"] = self.steps
        if not plain:
            self.choose_logits()
            self.choose_extras()

    @property
    def bytes(self):
        return self.rows * self.steps * self.cell

    @property
    def held(self):
        """Bytes that the daemon may hold for it beyond its columns."""
        inline = len(self.params["base"]) if isinstance(self.params["base"], bytes) else 0
        return inline + (self.bytes if self.params.get("logits") is True else 0)

    def columns(self):
        dice, rows = self.dice, range(self.rows)
        self.params = {
            "steps": 0,
            "anchors": [dice.choice((dice.randrange(self.settings.vocab), dice.randrange(2**32))) for _ in rows],
            "positions": [dice.choice((dice.randrange(4096), dice.choice(EDGES), dice.randrange(-(2**63), 2**63))) for _ in rows],
            "seeds": [dice.choice((dice.randrange(2**64), -dice.randrange(2**63), dice.choice(EDGES))) for _ in rows],
            "temperatures": [dice.choice(TEMPERATURES) for _ in rows],
        }

    def draw_values(self):
        shape = self.rows, self.steps, self.settings.vocab
        kind = self.dice.randrange(8)
        if kind == 0:  # any bits: NaN, infinities, subnormals
            return self.numbers.integers(0, 2**16, shape, np.uint16)
        if kind == 1:  # ties
            return narrow(self.numbers.integers(-1, 2, shape).astype(np.float32))
        values = narrow(self.numbers.normal(0, 4, shape).astype(np.float32))
        if kind == 2:
            values[self.numbers.random(shape) < 0.5] = 0xFF80  # -inf
        return values

    def pick_place(self, slots, overlapping):
        """A random place for the values of `slots` in one of the peer's regions, or None."""
        if not self.peer.regions:
            return None
        id = self.dice.choice(sorted(self.peer.regions))
        region = self.peer.regions[id]
        step_stride = self.cell + self.dice.choice((0, 0, 2, 30))
        stride = self.steps * step_stride + self.dice.choice((0, 0, 2, 126))
        if self.dice.random() < 0.3:  # steps outside, slots inside
            stride = self.cell + self.dice.choice((0, 6))
            step_stride = (max(*slots, 0) + 1) * stride + self.dice.choice((0, 2))
        if overlapping and self.dice.random() < 0.3:
            stride, step_stride = self.dice.choice(((0, self.cell), (self.cell, 0), (0, 0), (2, 2)))
        place = Place(region, 0, stride, step_stride, self.cell, slots, self.steps)
        room = region.size - place.span[1]
        if room < 0:
            return None
        place.offset = self.dice.choice((0, room // 2 * 2, self.dice.randrange(0, room + 1, 2)))
        place.id = id
        return place

    def place_base(self):
        if self.dice.random() < 0.4:
            return False
        place = self.pick_place(list(range(self.rows)), overlapping=True)
        if not place or place.region.overlaps(*place.span, writers_only=True):
            return False
        shadow = place.region.shadow
        if not place.region.overlaps(*place.span):  # else it reads what is there
            for row, step, at in place.cells():
                shadow[at : at + self.cell] = self.values[row, step].tobytes()
            start, end = place.span
            place.region.map[start:end] = shadow[start:end]
        for row, step, at in place.cells():
            self.values[row, step] = np.frombuffer(shadow, np.uint16, self.settings.vocab, at)
        place.take(writes=False)
        self.places.append(place)
        self.params["base"] = place.params(place.id, "row_stride")
        return True

    def choose_logits(self):
        dice, kind = self.dice, self.dice.randrange(6)
        slots = [s if dice.random() < 0.9 else -dice.choice((1, 2**63)) for s in dice.sample(range(self.rows + 2), self.rows)]
        if kind < 3:
            self.params |= {"slots": slots} if dice.random() < 0.5 else {}
            self.params |= ({}, {"logits": False}, {"logits": True})[kind]
            if kind == 2 and self.bytes > self.settings.frame_bytes:
                self.outcomes = {"TOO_LARGE"}
            return
        place = self.pick_place(slots, overlapping=False)
        if place and not place.region.overlaps(*place.span):
            place.take(writes=True)
            self.places.append(place)
            self.logits_place = place
            self.params |= {"slots": slots, "logits": place.params(place.id, "slot_stride")}

    def choose_extras(self):
        dice = self.dice
        if dice.random() < 0.2:
            self.params["priority"] = dice.randrange(2)
        if dice.random() < 0.2:
            self.params["deadline_us"] = deadline = dice.choice((0, dice.randrange(1, 2000), 3_600_000_000))
            if self.outcomes == {"done"} and deadline < 3_600_000_000:
                self.outcomes = {"DEADLINE_EXCEEDED"} | ({"done"} if deadline else set())
        if dice.random() < 0.1:
            self.params["of a later version"] = {"nested": [1, b"2", None, {"3": 4.0}]}

    # ---- the reply ----

    def sent(self):
        """What Expectation wants to know."""
        self.generation = self.world.generation
        return {"done": self.done, "ended": self.ended, "held": self.held}

    def ended(self):
        for place in self.places:
            place.give_back()

    def done(self, result, fds):
        generation = result["generation"]
        newest = self.world.generation + (self.world.reloader is not None)
        require(self.generation <= generation <= newest, f"generation is {generation}, not {self.generation} to {newest}")
        slots = self.params.get("slots", range(self.rows))
        padding = np.array([slot < 0 for slot in slots])
        columns = [self.params[key] for key in ("anchors", "positions", "seeds", "temperatures")]
        tokens, flags, logits = self.world.heads[generation].draft(self.values, *columns, padding)
        require(not fds, "a draft's reply with descriptors")
        require(
            result["tokens"] == tokens.ravel().tolist() and result["flags"] == flags.astype(int).tolist(),
            f"tokens and flags are {result['tokens']}, {result['flags']}; expected {tokens.tolist()}, {flags.tolist()}",
        )
        logits[padding] = 0
        wanted = logits.tobytes() if self.params.get("logits") is True else None
        require(result.get("logits") == wanted, "the reply's logits are others")
        if self.logits_place:
            self.written(logits)

    def written(self, logits):
        """The reply means that the logits are in the region, for as long as it is one."""
        region = self.logits_place.region
        if (self.peer.ending or region.closing) and not region.imported:
            return
        for row, step, at in self.logits_place.cells():
            region.shadow[at : at + self.cell] = logits[row, step].tobytes()
            require(
                region.map[at : at + self.cell] == region.shadow[at : at + self.cell], f"the logits of row {row}, step {step} are others"
            )
