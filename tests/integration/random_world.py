"""What must come of what several clients do to one draftd, predicted from proto/PROTOCOL.md and kernels/NUMERICS.md alone.

A Peer is a client of its own connection; the World is what they share: the daemon, the models that it may be serving, the books
about what is in use. For every request there is an Expectation: which outcomes ("done" or an error's name) may be its reply. There
is one, except where the page leaves it to time: a full queue, a deadline, a cancellation, what a dead client has left. Requests of one
connection are read in their order, those of several in any. Whatever differs raises Wrong.
"""

import collections
import fcntl
import itertools
import mmap
import os
import re
import select
import signal
import time

import wire_codec
from conftest import SANITIZED, WRAPPER, Daemon
from reference import Head

PATIENCE_S = 60 if WRAPPER or SANITIZED else 20
# A socket can be written to, says poll, until a quarter of its buffer is taken; messages take up to twice their length, and more.
UNREAD_BYTES_MAX, MESSAGE_BYTES = 16 << 10, 1 << 10
# What no error message has: paths, pointers, what can't be printed.
NO_TEXT = re.compile(r"/|0x[0-9a-fA-F]{3}|\b(?=\d*[a-f])[0-9a-f]{8,}|[^ -~]")


class Wrong(AssertionError):
    """The daemon did what it must not."""


def require(condition, text):
    if not condition:
        raise Wrong(text)


class Settings:
    """Limits of a daemon, small enough to be reached. In the large one inline base is longer than what the daemon copies (64 KiB)."""

    PEERS, REGIONS, QUEUE, INFLIGHT, STEPS = 5, 4, 16, 8, 4

    def __init__(self, name):
        large = name == "large"
        self.name = name
        self.vocab, self.rank, self.rows = (1031, 40, 16) if large else (61, 24, 8)
        self.frame_bytes = (128 if large else 64) << 10
        self.region_bytes = self.frame_bytes
        self.memory_bytes = 10 * self.region_bytes
        # PROTOCOL bounds "the memory of all inline data" without a figure: below this, nothing may be refused for it
        self.held_bytes = (1 << 20) + self.frame_bytes

    def options(self):
        limits = {
            "max-connections": self.PEERS + 1, "max-regions": self.REGIONS, "max-queue": self.QUEUE, "max-inflight": self.INFLIGHT,
            "max-steps": self.STEPS, "max-rows": self.rows, "max-frame-bytes": self.frame_bytes,
            "max-region-bytes": self.region_bytes, "max-memory-bytes": self.memory_bytes, "hello-timeout": "3600s",
            "frame-timeout": "3600s",
        }
        return [text for key, value in limits.items() for text in (f"--{key}", str(value))]


class Expectation:
    """How a request may end. `done(result, fds)` looks at a result, whose descriptors are closed after it; `ended()` is called
    with any reply. `held`: bytes that the request may take meanwhile, inline or as a region. `if_it_fits`: what may come of a
    request for a region when all regions' memory has room for it."""

    LATER = {"draft", "region_open", "region_import", "region_close", "event_import", "event_close", "reload"}
    QUEUED = {"done", "DEADLINE_EXCEEDED"}  # of a draft in which nothing is wrong

    def __init__(self, method, outcomes, done=None, ended=None, held=0, if_it_fits=()):
        self.method, self.outcomes, self.done, self.ended, self.held = method, set(outcomes), done, ended, held
        self.if_it_fits = set(if_it_fits)


class Region:
    """Shared memory: the mapping, what must lie there, and which parts of it requests in flight read and write."""

    def __init__(self, fd, size, imported):
        self.size, self.imported = size, imported
        self.map = mmap.mmap(fd, size)
        self.shadow = bytearray(self.map[:])
        self.closing = False
        self.busy = []  # (start, end, writes)

    def overlaps(self, start, end, writers_only=False):
        return any(s < end and start < e and (w or not writers_only) for s, e, w in self.busy)

    def look(self):
        if not any(writes for _, _, writes in self.busy):
            require(self.map[:] == self.shadow, "a region holds something else than was written there")


class Peer:
    def __init__(self, world):
        self.world = world
        self.codec = wire_codec.Connection(world.daemon.socket, timeout=PATIENCE_S, hello=False)
        self.greeted = False
        self.partial = self.partial_of = None  # the rest of a frame that has begun; who is expected to answer it
        self.latest = None  # (id, Expectation) of the frame that is sent next
        self.pending = collections.defaultdict(list)  # id or None: [Expectation]
        self.regions = {}
        self.seen_regions = set()
        self.goaways = 0
        self.heard = False  # of the daemon: else it may not have accepted the connection yet
        self.ending = False  # the daemon closes after its last reply, and takes the pages of its regions
        self.unread_bytes = 0  # at most, while the daemon is paused

    # ---- sending ----

    def send(self, data, fds=()):
        rest, self.partial = self.partial, None
        self.latest = None
        if rest:
            self.write(rest)
        if data:
            self.write(data, fds)

    def write(self, data, fds=()):
        if self.unread_bytes > UNREAD_BYTES_MAX:
            self.world.resume()
        self.unread_bytes += len(data) + MESSAGE_BYTES
        try:
            self.codec.send(data, fds)
        except OSError as error:
            raise Wrong(f"sending failed: {error}") from None

    def complete(self):
        if self.partial:
            self.send(b"")

    def new_id(self, dice):
        while (id := dice.choice((dice.randrange(8), dice.randrange(2**32)))) in self.pending:
            pass
        return id

    def request(self, id, method, params, outcomes, fds=(), raw=None, **more):
        """Notes what must come, and returns the frame. `raw` are params that are packed already."""
        self.expect(id, Expectation(method, outcomes, **more))
        head = b"\x94\0" + wire_codec.pack(id) + wire_codec.pack(method)
        return wire_codec.frame(head + (wire_codec.pack(params) if raw is None else raw), len(fds))

    def expect(self, id, expectation):
        self.pending[id].append(expectation)
        self.latest = id, expectation
        if id is not None:
            self.codec.methods[id] = expectation.method
        self.world.reconsider()

    def withdraw_partial(self):
        """The frame will never be whole."""
        id, expectation = self.partial_of or (None, None)
        self.partial = self.partial_of = None
        if expectation:
            self.pending[id].remove(expectation)
            if not self.pending[id]:
                del self.pending[id]

    # ---- what is in flight: at most this, for the daemon may have answered already ----

    def all_pending(self):
        return [e for expectations in self.pending.values() for e in expectations]

    def count(self, *methods):
        return sum(e.method in (methods or Expectation.LATER) for e in self.all_pending())

    def held(self):
        return sum(e.held for e in self.all_pending() if e.method == "draft")

    # ---- receiving ----

    def receive(self):
        """Takes one message; False at the end of the stream."""
        self.world.resume()
        try:
            got = self.codec.receive()
        except ConnectionResetError:
            return False
        except TimeoutError:
            raise Wrong(f"no reply to {self.names()} within {PATIENCE_S} s") from None
        except (wire_codec.BodyError, wire_codec.FrameError) as error:
            raise Wrong(f"a bad reply: {error}") from None
        if not got:
            return False
        message, fds = got
        self.heard = True
        try:
            self.take(message, fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def take(self, message, fds):
        if message[0] == 2:
            require(message[1] == "goaway" and self.world.draining, f"an unexpected notification: {message}")
            self.goaways += 1
            return
        _, id, error, result = message
        name = error["name"] if error else "done"
        if error:
            shape = wire_codec.ERRORS.get(error["code"], (None,))[:2]
            require(shape == (error["name"], error["retryable"]), f"an error that the page doesn't have: {error}")
            require(not NO_TEXT.search(error["message"]), f"a message that tells too much: {error['message']}")
        fits = [e for e in self.pending.get(id, ()) if name in e.outcomes]
        expected = [(e.method, sorted(e.outcomes)) for e in self.pending.get(id, ())]
        require(fits, f"the reply to {id} is {name} ({(error or {}).get('message')}), expected {expected or 'none'}")
        self.pending[id].remove(fits[0])
        if not self.pending[id]:
            del self.pending[id]
        self.world.ended(fits[0], name)
        if fits[0].ended:
            fits[0].ended()
        if not error and fits[0].done:
            fits[0].done(result, fds)
        else:
            require(not fds, f"descriptors with a reply to {fits[0].method}")

    def names(self):
        return sorted((str(id), e.method) for id, expectations in self.pending.items() for e in expectations)

    def sync(self):
        """Reads every reply that must come."""
        self.complete()
        while self.pending:
            require(self.receive(), f"the connection ended before the replies to {self.names()}")
        require(not select.select([self.codec.sock], [], [], 0)[0] or self.world.draining, "a message that nothing asked for")

    def end(self, ending=True):
        """Reads to the end of the stream; what may be "lost" needs no reply."""
        self.ending = ending
        while self.receive():
            pass
        lacking = [e for e in self.all_pending() if "lost" not in e.outcomes]
        require(not lacking, f"the connection ended before the replies to {self.names()}")
        self.gone()

    def gone(self):
        """The connection is closed here; what it asked for may be done or not."""
        self.world.lose(self)
        self.codec.close()
        for region in self.regions.values():
            region.map.close()


class World:
    def __init__(self, folder, settings):
        self.folder, self.settings = folder, settings
        self.outcomes = collections.Counter()
        self.started = itertools.count()
        self.config = folder / "draftd.conf"
        self.model = folder / "model.safetensors"
        self.config.write_text(f"[model]\npath = {self.model}\n")
        self.daemon = None
        self.paused = False
        self.start()

    # ---- the daemon's life ----

    def start(self):
        place = self.folder / str(next(self.started))
        place.mkdir()
        self.heads = {1: self.new_model(1)}
        self.generation, self.reloader = 1, None  # the last one known to serve; the peer whose reload is in flight
        self.draining = False
        self.peers = []
        self.ghost_drafts = self.ghost_bytes = self.ghosts = 0  # what dead clients may have left: drafts, bytes of regions, connections
        self.drafts = self.unsure_drafts = 0  # that were answered; that may have been computed for nobody
        self.daemon = Daemon(place, *self.settings.options(), "--config", self.config, model=None)
        self.daemon.ready().watch()

    def new_model(self, seed):
        head = Head.random(seed, self.settings.vocab, self.settings.rank)
        new = self.folder / "new"
        head.write(new)
        os.replace(new, self.model)
        return head

    def pause(self):
        """The daemon reads nothing until a reply is waited for: then it finds what all have sent meanwhile."""
        for peer in self.peers:
            peer.sync()
            peer.unread_bytes = 0
        self.paused = True
        self.daemon.process.send_signal(signal.SIGSTOP)

    def resume(self):
        if self.paused:
            self.paused = False
            self.daemon.process.send_signal(signal.SIGCONT)

    def close(self):
        """Ends all; the daemon must end well."""
        for peer in list(self.peers):
            peer.sync()
            peer.gone()
        self.settle()
        self.daemon.stop()

    def dismiss(self):
        self.resume()
        for peer in self.peers:
            peer.codec.close()
        self.daemon.dismiss()

    def drained(self):
        for peer in list(self.peers):
            peer.end(ending=False)  # a daemon that drains leaves the pages to the client
            require(peer.goaways == peer.heard, f"{peer.goaways} goaways")
        self.daemon.probe.close()
        require(self.daemon.wait() == 0, f"draftd ended with {self.daemon.process.returncode}\n{self.daemon.log}")
        require(not self.daemon.socket.exists(), "the socket file stayed")
        self.daemon.dismiss()
        self.start()

    def wait_for_reload(self, peer=None):
        """Until the one in flight is answered, if it is `peer`'s."""
        if self.reloader and peer in (None, self.reloader):
            self.reloader.sync()

    # ---- books ----

    def ended(self, expectation, name):
        self.outcomes[expectation.method, name] += 1
        self.drafts += expectation.method == "draft" and name == "done"

    def lose(self, peer):
        self.peers.remove(peer)
        self.ghosts += 1
        drafts = peer.count("draft")
        self.ghost_drafts += drafts
        self.unsure_drafts += drafts
        self.ghost_bytes += self.bytes_most(peer)
        self.reconsider()

    def bytes_least(self):
        return sum(r.size for p in self.peers for r in p.regions.values())

    def bytes_most(self, peer):
        waiting = sum(e.held for e in peer.all_pending() if e.method.startswith("region_"))
        return waiting + sum(r.size for r in peer.regions.values())

    def reconsider(self):
        """After each request and each end of a connection: what was sent before may be read after it."""
        drafts = [[e for e in peer.all_pending() if e.method == "draft"] for peer in self.peers]
        count = sum(map(len, drafts)) + self.ghost_drafts
        for own in drafts:
            for earlier, e in enumerate(own):  # a connection that has none in the queue may add one
                if earlier and count - len(own) + earlier >= self.settings.QUEUE and e.outcomes & Expectation.QUEUED:
                    e.outcomes.add("RESOURCE_EXHAUSTED")
        least, most = self.bytes_least(), sum(map(self.bytes_most, self.peers)) + self.ghost_bytes
        for e in [e for peer in self.peers for e in peer.all_pending() if e.if_it_fits]:
            if most > self.settings.memory_bytes:  # which has the request's own
                e.outcomes.add("RESOURCE_EXHAUSTED")
            if least + e.held <= self.settings.memory_bytes:
                e.outcomes |= e.if_it_fits

    # ---- now and then ----

    def settle(self):
        """Reads all replies, waits until what clients left behind is gone, and compares the daemon's books with these."""
        self.resume()
        for peer in self.peers:
            peer.sync()
            for region in peer.regions.values():
                region.look()
        wanted = {
            "connections": len(self.peers) + 1, "regions": sum(len(p.regions) for p in self.peers),
            "region_bytes": self.bytes_least(), "inflight": 0, "queue_depth": 0, "generation": self.generation,
            "draining": False, "device_region_bytes": 0,
        }
        descriptors, threads = self.daemon.base
        end = time.monotonic() + PATIENCE_S
        while True:
            told, _ = self.daemon.probe.call("stats")
            counts = self.daemon.counts()
            if {key: told[key] for key in wanted} == wanted and counts == (descriptors + len(self.peers), threads):
                break
            require(time.monotonic() < end, f"stats and (descriptors, threads) are {told}, {counts}; expected {wanted}")
        require(
            self.drafts <= told["drafts"] <= self.drafts + self.unsure_drafts,
            f"drafts is {told['drafts']}, expected {self.drafts} and at most {self.unsure_drafts} more",
        )
        self.ghosts = self.ghost_drafts = self.ghost_bytes = 0


def memfd(data, seals):
    fd = os.memfd_create("random", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
