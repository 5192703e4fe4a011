"""What clients do at random. An operation is (kind, client, seed): what it does depends on these and on the state that the model
knows, so any part of a sequence is a sequence too, and failing ones can be made short."""

import fcntl
import os
import socket

import msgpack
import wire_codec
from random_broken import BAD, BODIES_WITHOUT_ID, broken_bodies, broken_maps, broken_places, broken_values
from random_draft import Draft
from random_world import Expectation, Peer, Region, memfd, require
from wire_codec import pack

KINDS = {}  # name: (weight, function)


def operation(weight):
    def register(function):
        KINDS[function.__name__] = weight, function
        return function

    return register


def draw(dice, count):
    names, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    kinds = dice.choices(names, weights, k=count)
    return [(kind, dice.randrange(60), dice.getrandbits(32)) for kind in kinds]


def perform(world, kind, client, dice):
    if kind != "connect" and not world.peers:
        return
    peer = world.peers[client % len(world.peers)] if world.peers else None
    KINDS[kind][1](world, peer, dice)
    for each in world.peers:  # neither side's socket buffer may fill up
        if len(each.all_pending()) > 24:
            each.sync()


# ---- sending ----


def allowed(peer, method, wanted):
    """What may come of a request: `wanted`, if the connection is greeted and its limits are not reached."""
    if not peer.greeted:
        return {"BAD_REQUEST"}
    later = method in Expectation.LATER and peer.count() >= peer.world.settings.INFLIGHT
    held = method == "draft" and peer.held() > peer.world.settings.held_bytes
    return set(wanted) | ({"RESOURCE_EXHAUSTED"} if later or held else set())


def deliver(peer, data, dice, fds=()):
    """Whole, in pieces, or but for its last bytes, which come before whatever the peer sends next."""
    latest = peer.latest
    peer.complete()
    way = dice.random()
    if way < 0.8 or fds:
        peer.send(data, fds)
    elif way < 0.95:
        cut = dice.randrange(1, len(data))
        peer.send(data[:cut])
        peer.send(data[cut:])
    else:
        cut = dice.randrange(1, len(data))
        peer.send(data[:cut])
        peer.partial, peer.partial_of = data[cut:], latest


def call(peer, method, params, wanted, dice, fds=(), **more):
    id = peer.new_id(dice)
    deliver(peer, peer.request(id, method, params, allowed(peer, method, wanted), fds, **more), dice, fds)
    return id


# ---- connections ----


@operation(6)
def connect(world, _, dice):
    if len(world.peers) + world.ghosts >= world.settings.PEERS:
        world.settle()
    full = len(world.peers) == world.settings.PEERS
    peer = Peer(world)
    world.peers.append(peer)
    if full:
        peer.expect(None, Expectation("connect", {"RESOURCE_EXHAUSTED"}))
        peer.end()
        world.settle()
    elif dice.random() < 0.9:
        greet(peer, dice)


def greet(peer, dice):
    def done(result, _):
        world, settings = peer.world, peer.world.settings
        limits = {
            "max_rows": settings.rows, "max_steps": settings.STEPS, "max_frame_bytes": settings.frame_bytes,
            "max_inflight": settings.INFLIGHT, "max_regions": settings.REGIONS, "max_region_bytes": settings.region_bytes,
        }
        newest = world.generation + (world.reloader is not None)
        require(result["limits"] == limits and result["protocol"] == 1, f"hello says {result}")
        require(result["model"]["vocab"] == settings.vocab and world.generation <= result["generation"] <= newest, f"hello says {result}")
        peer.greeted = True
        peer.codec.reader.body_bytes_max = 1 << 30

    id = peer.new_id(dice)
    peer.send(peer.request(id, "hello", {"protocol": 1, "client": "random/1"}, {"done"}, done=done))
    peer.sync()


@operation(0.7)
def hello(world, peer, dice):
    peer.sync()
    if not peer.greeted and dice.random() < 0.7:
        greet(peer, dice)
    elif dice.random() < 0.8:
        params = dice.choice(({"protocol": 1, "client": ""}, {"protocol": 1}, {"protocol": "1", "client": "x/1"}, {}))
        if peer.greeted:
            params = {"protocol": 1, "client": "again/1"}
        peer.send(peer.request(peer.new_id(dice), "hello", params, {"BAD_REQUEST"}))
    else:
        peer.send(peer.request(peer.new_id(dice), "hello", {"protocol": 2, "client": "x/1"}, {"VERSION_MISMATCH"}))
        peer.end()


@operation(0.7)
def close(world, peer, _):
    """Closes, or dies, which is the same to the daemon; whatever is in flight."""
    world.wait_for_reload(peer)
    peer.gone()


@operation(0.7)
def half_close(world, peer, _):
    """All that was sent is answered, then the stream ends; half a frame is told of."""
    world.wait_for_reload(peer)
    if peer.partial:
        peer.withdraw_partial()
        peer.expect(None, Expectation("end", {"BAD_FRAME"}))
    peer.codec.sock.shutdown(socket.SHUT_WR)
    peer.end()


@operation(0.7)
def broken_frame(world, peer, dice):
    """Told of, and the connection is closed; what is in flight may be lost."""
    world.wait_for_reload(peer)
    peer.complete()
    frame = dice.choice((
        b"D!", b"X", b"DT\2\0\0\0\0\0", b"DT\0", b"DT\1\5", b"DT\1\xff\0\0\0\0", b"DT\1\0\xff\xff\xff\xff", b"DT\1\1\0\0\0\1",
    ))
    name = "VERSION_MISMATCH" if frame[2:3] in (b"\2", b"\0") else "BAD_FRAME"
    for each in peer.all_pending():
        each.outcomes.add("lost")
    peer.expect(None, Expectation("frame", {name}))
    peer.send(frame)
    peer.end()


@operation(0.7)
def wrong_descriptors(world, peer, dice):
    """Another number than the method's: the same, but the id is known."""
    world.wait_for_reload(peer)
    peer.complete()
    for each in peer.all_pending():
        each.outcomes.add("lost")
    method, count = dice.choice((("ping", 1), ("draft", 4), ("region_open", 1), ("region_import", 0), ("region_import", 2), ("no_such", 1)))
    fds = [world.daemon.manager.fileno()] * count
    peer.send(peer.request(peer.new_id(dice), method, {}, {"BAD_FRAME"}, fds), fds)
    peer.end()


# ---- drafts ----


@operation(40)
def draft(world, peer, dice):
    each = Draft(peer, dice, plain=not peer.greeted, rows=None if peer.greeted else 1, steps=None if peer.greeted else 1)
    call(peer, "draft", each.params, each.outcomes, dice, **each.sent())


@operation(4)
def cancel(world, peer, dice):
    drafts = [id for id, expectations in peer.pending.items() if expectations[0].method == "draft"]
    id = dice.choice(drafts) if drafts and dice.random() < 0.9 else peer.new_id(dice)
    for each in peer.pending.get(id, ()):
        if "done" in each.outcomes or "DEADLINE_EXCEEDED" in each.outcomes:
            each.outcomes.add("CANCELLED")
    deliver(peer, wire_codec.notification("cancel", {"id": id}), dice)


@operation(4)
def cancel_at_once(world, peer, dice):
    """In the same write as drafts, most of which are still in the queue."""
    peer.complete()
    data, ids = b"", []
    for _ in range(dice.randint(1, 4) if peer.greeted else 0):
        each, id = Draft(peer, dice, plain=True, rows=dice.randint(1, 3)), peer.new_id(dice)
        data += peer.request(id, "draft", each.params, allowed(peer, "draft", {"done"}) | {"CANCELLED"}, **each.sent())
        ids.append(id)
    peer.send(data + b"".join(wire_codec.notification("cancel", {"id": id}) for id in reversed(ids)))


@operation(1)
def same_id(world, peer, dice):
    """Both in one write to an idle connection: the first is in flight when the second is read."""
    if not peer.greeted or world.settings.name != "small":
        return
    peer.sync()
    each, id = Draft(peer, dice, plain=True, rows=1, steps=1), peer.new_id(dice)
    first = peer.request(id, "draft", each.params, allowed(peer, "draft", {"done"}), **each.sent())
    method = dice.choice(("ping", "stats", "draft", "region_close"))
    peer.send(first + peer.request(id, method, {"region": 1}, {"BAD_REQUEST"}))


@operation(1)
def too_many(world, peer, dice):
    """The same with more drafts than may be in flight; nobody else has drafts in the queue."""
    if not peer.greeted or world.settings.name != "small":
        return
    world.settle()
    data = b""
    for at in range(world.settings.INFLIGHT + 3):
        each = Draft(peer, dice, plain=True, rows=1, steps=1)
        outcomes = {"done"} if at < world.settings.INFLIGHT else {"RESOURCE_EXHAUSTED"}
        data += peer.request(peer.new_id(dice), "draft", each.params, outcomes, **each.sent())
    peer.send(data)


# ---- regions and events ----


def open_region(peer, method, size, memory, wanted, dice, fds=(), late=False):
    """`late`: what is wrong is found when the limits have been looked at."""
    settings, others = peer.world.settings, peer.count("region_open", "region_import", "region_close")
    if_it_fits = set()
    if peer.greeted and (wanted == {"done"} or late):
        if len(peer.regions) >= settings.REGIONS:
            wanted = {"RESOURCE_EXHAUSTED"}
        else:
            if_it_fits, wanted = wanted, {"RESOURCE_EXHAUSTED"} if len(peer.regions) + others >= settings.REGIONS else set()
    own = Region(fds[0], size, imported=True) if fds and "done" in if_it_fits else None

    def done(result, received):
        require(result["region"] not in peer.seen_regions, f"the id of region {result['region']} is used again")
        peer.seen_regions.add(result["region"])
        if own:
            peer.regions[result["region"]] = own
            return
        require((result["memory"], result["device"]) == ("host", "") and result["bytes"] >= size, f"opened {result}")
        region = peer.regions[result["region"]] = Region(received[0], result["bytes"], imported=False)
        require(not any(region.shadow), "a new region is not zeroed")

    params = {"bytes": size, "memory": memory[0]} | ({"device": memory[1]} if len(memory) > 1 else {})
    call(peer, method, params, wanted, dice, fds, done=done, held=size if if_it_fits else 0, if_it_fits=if_it_fits)


def draw_size(world, dice):
    return dice.choice((1, 4096, world.settings.region_bytes, dice.randint(1, world.settings.region_bytes)))


MEMORIES = [(("device",), "BAD_REQUEST"), (("device", "CPU"), "BAD_REQUEST"), (("host", "CPU"), "BAD_REQUEST"), (("disk",), "BAD_REQUEST")]


@operation(5)
def region_open(world, peer, dice):
    size, memory, wanted = draw_size(world, dice), ("host",), "done"
    if dice.random() < 0.2:
        size, wanted = dice.choice((
            (0, "BAD_REQUEST"), (-1, "BAD_REQUEST"), (world.settings.region_bytes + 1, "TOO_LARGE"), (2**64 - 1, "TOO_LARGE"),
        ))
    elif dice.random() < 0.1:
        memory, wanted = dice.choice(MEMORIES)
    open_region(peer, "region_open", size, memory, {wanted}, dice)


@operation(4)
def region_import(world, peer, dice):
    size, memory, wanted, seals = draw_size(world, dice), ("host",), "done", fcntl.F_SEAL_SHRINK
    longer = dice.choice((0, 100))
    if dice.random() < 0.3:
        seals, longer, wanted = dice.choice((
            (0, 0, "BAD_REQUEST"), (seals, -1, "OUT_OF_RANGE"), (seals | fcntl.F_SEAL_WRITE, 0, "BAD_REQUEST"),
            (seals | 0x10, 0, "BAD_REQUEST"), (None, 0, "BAD_REQUEST"),
        ))
    elif dice.random() < 0.1:
        memory, wanted = dice.choice(MEMORIES)
    if seals is None:
        fd = os.open("/dev/zero", os.O_RDWR | os.O_CLOEXEC)
    else:
        fd = memfd(dice.randbytes(size + longer), seals)
    open_region(peer, "region_import", size, memory, {wanted}, dice, [fd], late=memory == ("host",))
    os.close(fd)


def foreign_id(world, peer, dice):
    """An id that is none of the peer's regions: one that it has closed, one of another client's, or nobody's."""
    ids = peer.seen_regions - set(peer.regions)
    if not peer.count("region_open", "region_import"):
        ids |= {id for other in world.peers for id in other.regions} - peer.seen_regions
    return dice.choice([*sorted(ids), 2**31, 2**32 - 1])


@operation(4)
def region_close(world, peer, dice):
    if not peer.regions or dice.random() < 0.2:
        call(peer, "region_close", {"region": foreign_id(world, peer, dice)}, {"NOT_FOUND"}, dice)
        return
    id = dice.choice(sorted(peer.regions))
    if "RESOURCE_EXHAUSTED" in allowed(peer, "region_close", ()):
        peer.sync()  # else nobody knows whether it is closed
    region = peer.regions.pop(id)
    region.closing = True

    def done(*_):
        require(not region.busy, "a region was closed before the drafts that use it were answered")
        require(region.map[:] == region.shadow if region.imported else not any(region.map[:]), "a closed region's memory is another")
        region.map.close()

    call(peer, "region_close", {"region": id}, {"done"}, dice, done=done, held=region.size)


@operation(1)
def event(world, peer, dice):
    """The processor has none."""
    if dice.random() < 0.5:
        handle = dice.choice((dice.randbytes(64), dice.randbytes(63), None))
        call(peer, "event_import", {"handle": handle}, {"BAD_REQUEST"}, dice)
    else:
        call(peer, "event_close", {"event": dice.choice((0, 1, 2**32 - 1))}, {"NOT_FOUND"}, dice)


@operation(3)
def look(world, peer, _):
    for region in peer.regions.values():
        region.look()


# ---- small calls ----


@operation(3)
def ping(world, peer, dice):
    call(peer, "ping", dice.choice(({}, {"unknown": [1, {"deep": [[]]}]})), {"done"}, dice)


@operation(2)
def stats(world, peer, dice):
    method = dice.choice(("stats", "stats", "metrics"))
    name = "text" if method == "metrics" else "requests"
    call(peer, method, {}, {"done"}, dice, done=lambda result, _: require(result[name], f"{method} says nothing"))


@operation(1)
def unknown(world, peer, dice):
    method = dice.choice(("", "cancel", "goaway", "Ping", "no_such_method", "x" * 300))
    id = peer.new_id(dice)
    deliver(peer, peer.request(id, method, dice.choice(({}, [1], 7)), {"UNKNOWN_METHOD"}), dice)


@operation(2)
def notification(world, peer, dice):
    params, good = dice.choice((({"id": 1 << 31}, True), ({}, False), ({"id": -1}, False), ({"id": "1"}, False), ([], False)))
    method = dice.choice(("cancel", "no_such_notification"))
    if method == "cancel" and not good:
        peer.expect(None, Expectation("notification", {"BAD_REQUEST"}))
    deliver(peer, wire_codec.notification(method, params), dice)


@operation(3)
def bad_body(world, peer, dice):
    """Costs its request alone; the reply has the id as far as it could be read."""
    id, known = peer.new_id(dice), True
    body = dice.choice(broken_bodies(id))
    if dice.random() < 0.3:
        known, body = False, dice.choice((*BODIES_WITHOUT_ID, pack([1, id, None, {}]), dice.randbytes(5) + b"\xc1"))
    peer.expect(id if known else None, Expectation("body", {"BAD_REQUEST"}))
    deliver(peer, wire_codec.frame(body), dice)


@operation(20)
def bad_draft(world, peer, dice):
    each, kind = Draft(peer, dice, plain=True), dice.randrange(3)
    if not peer.greeted:
        each.params["base"] = b""  # its frame may not be longer than 4 KiB
    regions = [(id, region) for id, region in sorted(peer.regions.items()) if region.size > each.cell]
    if kind == 0:
        pairs, wanted = dice.choice(list(broken_maps(each))), BAD
    else:
        cases = broken_values(each)
        if kind == 1 and regions:
            cases = broken_places(each, *dice.choice(regions), foreign_id(world, peer, dice))
        changes, wanted = dice.choice(list(cases))
        pairs = list((each.params | changes).items())
    raw = msgpack.Packer(use_bin_type=True, use_single_float=True).pack_map_pairs(pairs)
    call(peer, "draft", None, {wanted}, dice, raw=raw)


# ---- the daemon ----


@operation(8)
def sync(world, peer, _):
    peer.sync()


@operation(4)
def pause(world, _, dice):
    """What is sent from now on is read later, not in the order of sending; sometimes more drafts than the queue holds."""
    world.pause()
    greeted = [peer for peer in world.peers if peer.greeted]
    for _ in range(dice.choice((0, 0, world.settings.QUEUE + 4)) if greeted else 0):
        peer = dice.choice(greeted)
        each = Draft(peer, dice, plain=True, rows=1, steps=1)
        call(peer, "draft", each.params, {"done"}, dice, **each.sent())


@operation(0.5)
def settle(world, *_):
    world.settle()


@operation(0.3)
def reload(world, peer, dice):
    if not peer.greeted:
        return
    world.wait_for_reload()
    peer.sync()
    world.heads[world.generation + 1] = world.new_model(dice.getrandbits(32))
    world.reloader = peer

    def done(*_):
        world.generation, world.reloader = world.generation + 1, None

    call(peer, "reload", {}, {"done"}, dice, done=done)


@operation(0.2)
def bad_reload(world, peer, dice):
    """The old model serves on."""
    if not peer.greeted:
        return
    world.wait_for_reload()
    peer.sync()
    data = world.model.read_bytes()
    world.model.write_bytes(dice.choice((data[:-1], data[:100], b"", data.replace(b"BF16", b"FP16"), data.replace(b"w2", b"w3"))))
    call(peer, "reload", {}, {"INTERNAL"}, dice)
    peer.sync()
    world.model.write_bytes(data)


@operation(0.05)
def drain(world, peer, dice):
    """What was accepted is answered, new drafts and regions are refused, every stream ends, and so does the daemon."""
    if not peer.greeted:
        return
    world.wait_for_reload()
    world.draining = True
    for other in world.peers:
        other.complete()
        for each in other.all_pending() if other is not peer else ():
            if each.method in ("draft", "region_open", "region_import"):
                each.outcomes.add("DRAINING")  # if it is read after the drain
            if not other.heard:
                each.outcomes.add("lost")
    peer.send(peer.request(peer.new_id(dice), "drain", {}, {"done"}))
    for method in dice.choices(("ping", "draft", "region_open"), k=dice.randrange(4)):
        if "RESOURCE_EXHAUSTED" in allowed(peer, method, ()):
            break
        params = Draft(peer, dice, plain=True).params if method == "draft" else {"bytes": 1, "memory": "host"}
        peer.send(peer.request(peer.new_id(dice), method, params, {"done" if method == "ping" else "DRAINING", "lost"}))
    world.drained()
