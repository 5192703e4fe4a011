#!/usr/bin/env python3
"""The Python package on a GPU machine: PyTorch writes base logits into device regions through DLPack; tokens and draft logits must be
the golden cases' bits, and those of host regions; synchronized, or behind an event.

Usage: python_device.py, from the unpacked archive or the sources (built with CUDA). Ends with "N passed, N failed, N waived"; exit
code 1 if anything failed.
"""

import os
import pathlib
import subprocess
import sys
import time

import golden_case
import tally
from daemon import EXAMPLES, GOLDEN, PACKAGES, Daemon, need_gpus

import draft

try:
    import torch
except ImportError:
    torch = None

CYCLES = 200
FLAT_BYTES = 64 << 20  # what device memory may differ by: other users of the GPU, PyTorch's own first allocations


class Waived(Exception):
    pass


class Case(golden_case.Case):
    """With its logits as PyTorch's tensors in host memory, int16 so that bits are compared."""

    def __init__(self, path):
        super().__init__(path)
        self.inline = self.base
        self.base, self.logits = (
            torch.frombuffer(bits, dtype=torch.int16).reshape(self.shape) for bits in (self.base, self.logits)
        )


def open_device(d, nbytes):
    try:
        return d.region_open(nbytes, memory="device")
    except draft.NotSupported as error:
        raise Waived(f"no device regions: {error}")


def same(name, got, expected):
    assert got == expected, f"{name} differ: {got} instead of {expected}"


def check_logits(case, got):
    """`got`: [places, steps, vocab], wherever it lies."""
    got = got.view(torch.int16).cpu()
    for row, slot in enumerate(case.slots):
        if slot >= 0:
            wrong = int((got[slot] != case.logits[row]).sum())
            assert wrong == 0, f"row {row}: {wrong} of {case.logits[row].numel()} logits differ"


def golden(path, memory):
    """A case through a region of `memory`: base written by PyTorch, logits read by PyTorch; contiguous, then with gaps."""
    case = Case(path)
    with Daemon(path) as daemon, daemon.connect() as d:
        for gap in 0, 24:
            strides = [case.steps * (case.vocab + gap) + gap, case.vocab + gap, 1]
            base_bytes, logits_bytes = (2 * n * strides[0] + 64 for n in (case.rows, case.places))
            allocate = open_device if memory == "device" else draft.Connection.region_open
            base, logits = allocate(d, base_bytes), allocate(d, logits_bytes)
            base_view = base.tensor(case.shape, offset=64, strides=strides)
            logits_view = logits.tensor([case.places, case.steps, case.vocab], strides=strides)
            source = torch.from_dlpack(base_view)
            target = torch.from_dlpack(logits_view)
            assert source.dtype == torch.bfloat16 and source.is_cuda == (memory == "device"), source
            source.copy_(case.base.view(torch.bfloat16).to(source.device))
            if source.is_cuda:
                torch.cuda.synchronize(source.device)
            tokens, _ = d.draft(base=base_view, logits=logits_view, **case.columns)
            same("tokens", tokens.tolist(), case.tokens)
            check_logits(case, target)


def written_on_a_stream():
    """By a stream of PyTorch's own, synchronized before the request, and many requests in flight."""
    case = Case(GOLDEN / "many_rows.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:
        region = open_device(d, 2 * case.base.numel())
        view = region.tensor(case.shape)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.from_dlpack(view).copy_(case.base.view(torch.bfloat16).cuda(non_blocking=True))
        stream.synchronize()
        tickets = {d.submit(base=view, **case.columns) for _ in range(16)}
        for _ in range(16):
            result = d.poll()
            assert result.error is None, result.error
            tickets.remove(result.ticket)
            same("tokens", result.tokens.tolist(), case.tokens)


# ---- events ----

def expect(error, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except error as caught:
        return caught
    raise AssertionError(f"no {error.__name__} came")


SLEEP_S = 0.15  # of the GPU, before base is written: much longer than a draft


def cycles_of(seconds):
    """Of torch.cuda._sleep(), measured once."""
    global _cycles_a_second
    if not _cycles_a_second:
        torch.cuda._sleep(1000)
        torch.cuda.synchronize()
        begin = time.monotonic()
        torch.cuda._sleep(100_000_000)
        torch.cuda.synchronize()
        _cycles_a_second = 100_000_000 / (time.monotonic() - begin)
    return int(seconds * _cycles_a_second)


_cycles_a_second = 0


class Writer:
    """Base logits of a case, written late by a stream of its own, with an event behind."""

    def __init__(self, d, case):
        self.case = case
        self.view = open_device(d, 2 * case.base.numel()).tensor(case.shape)
        self.target = torch.from_dlpack(self.view)
        self.source = case.base.view(torch.bfloat16).to(self.target.device)
        self.stream = torch.cuda.Stream()
        self.event = torch.cuda.Event(interprocess=True)
        self.fired = d.event_import(self.event.ipc_handle())
        torch.cuda.synchronize()

    def write(self, seconds=SLEEP_S):
        """Clears base, then has it written `seconds` later; nothing is waited for."""
        self.target.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(cycles_of(seconds))
            self.target.copy_(self.source)
            self.event.record(self.stream)

    def still_writes(self):
        return not self.event.query()


def event_before_the_launch(path):
    """Sent while base is not written yet: the bits are right all the same, and another client's drafts pass meanwhile."""
    case = Case(path)
    with Daemon(path) as daemon, daemon.connect() as d, daemon.connect() as other:
        writer = Writer(d, case)
        logits = open_device(d, 2 * case.places * case.steps * case.vocab)
        logits_view = logits.tensor([case.places, case.steps, case.vocab])
        for _ in range(3):
            writer.write()
            ticket = d.submit(base=writer.view, logits=logits_view, event=writer.fired, **case.columns)
            assert writer.still_writes(), "base was written before the request was sent: SLEEP_S is too short"
            passing = other.draft(base=case.inline, **case.columns)
            assert writer.still_writes(), "another client's draft did not pass"
            same("tokens of another client", passing.tokens.tolist(), case.tokens)
            result = d.poll()
            assert result.error is None and result.ticket == ticket, result.error
            same("tokens", result.tokens.tolist(), case.tokens)
            check_logits(case, torch.from_dlpack(logits_view))
            assert result.queue_us > SLEEP_S * 1e6 / 3, f"queue_us is {result.queue_us}; it counts from the arrival"


def events_in_a_pipeline():
    """Four requests under way, each with an event and a region of its own; a fifth event is refused until one is closed."""
    case = Case(GOLDEN / "many_rows.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:
        writers = [Writer(d, case) for _ in range(4)]
        spare = torch.cuda.Event(interprocess=True)
        expect(draft.ResourceExhausted, d.event_import, spare.ipc_handle())
        tickets = set()
        for writer in writers:
            writer.write(SLEEP_S / 4)
            tickets.add(d.submit(base=writer.view, event=writer.fired, **case.columns))
        for _ in writers:
            result = d.poll()
            assert result.error is None, result.error
            tickets.remove(result.ticket)
            same("tokens", result.tokens.tolist(), case.tokens)
        writers[0].fired.close()
        d.event_import(spare.ipc_handle()).close()
        expect(draft.InvalidArgument, d.draft, base=writers[0].view, event=writers[0].fired, **case.columns)


def events_that_are_too_late():
    """event_timeout and deadline_us end the wait; cancel does; the next draft of the same event is right."""
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path, "--event-timeout", "40ms") as daemon, daemon.connect() as d:
        writer = Writer(d, case)
        for named, what in ({}, "event_timeout"), ({"deadline_us": 5000}, "deadline_us"):
            writer.write()
            error = expect(draft.DeadlineExceeded, d.draft, base=writer.view, event=writer.fired, **named, **case.columns)
            assert writer.still_writes() and what in str(error), error
            torch.cuda.synchronize()
            same("tokens", d.draft(base=writer.view, event=writer.fired, **case.columns).tokens.tolist(), case.tokens)
        writer.write(0.03)
        d.cancel(d.submit(base=writer.view, event=writer.fired, **case.columns))
        result = d.poll()
        assert isinstance(result.error, draft.Cancelled) and writer.still_writes(), result.error
        torch.cuda.synchronize()


def an_event_without_a_record_has_fired():
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:
        writer = Writer(d, case)
        writer.target.copy_(writer.source)
        torch.cuda.synchronize()
        same("tokens", d.draft(base=writer.view, event=writer.fired, **case.columns).tokens.tolist(), case.tokens)


CHILD = """
import sys, torch
event = torch.cuda.Event(interprocess=True)
handle = event.ipc_handle()
if "behind" in sys.argv:
    torch.cuda._sleep(int(sys.argv[-1]))
event.record()
print(handle.hex(), flush=True)
sys.stdin.readline()
"""


def child_event(*arguments):
    """Another process with an event, and the event's handle."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, bytes.fromhex(process.stdout.readline().strip())


def kill(process):
    process.kill()
    process.communicate()


def bad_handles():
    """No handle: one typed error, and everything else goes on. One of a process that is gone: that, or a draft that ends."""
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:
        writer = Writer(d, case)
        process, gone = child_event()
        kill(process)
        good = writer.event.ipc_handle()
        turned = bytes(byte ^ 0xFF for byte in good)
        handles = {"zeros": bytes(64), "ones": b"\xff" * 64, "every bit turned": turned}
        handles.update((f"random bytes {i}", os.urandom(64)) for i in range(20))
        for name, handle in handles.items():
            try:
                expect(draft.BadRequest, d.event_import, handle)
            except AssertionError as error:
                raise AssertionError(f"the handle {name}: {error}") from None
        expect(draft.NotFound, d.event_import, good, device="GPU-00000000-0000-0000-0000-000000000000")
        expect(draft.InvalidArgument, d.event_import, good[:63])
        try:
            left = d.event_import(gone)
            writer.write()
            torch.cuda.synchronize()
            result = d.draft(base=writer.view, event=left, deadline_us=100000, **case.columns)
            same("tokens", result.tokens.tolist(), case.tokens)
        except (draft.BadRequest, draft.DeadlineExceeded):
            pass
        same_event = d.event_import(good, device=d.devices[0].uuid)
        for event in writer.fired, same_event:
            writer.write()
            same("tokens", d.draft(base=writer.view, event=event, **case.columns).tokens.tolist(), case.tokens)


def events_of_a_user():
    """One user's events on all connections, at the limit and beyond; others, and what is closed, do not count. Needs root, to be others."""
    if os.geteuid() != 0:
        raise Waived("only root may become another user")
    daemon = Daemon(GOLDEN / "greedy_small.safetensors", "--max-user-events", "3", "--socket-mode", "666")
    os.chmod(daemon.folder.name, 0o755)

    def connect(uid):
        try:
            os.seteuid(uid)
        except OSError as error:
            raise Waived(f"there are no other users here: {error}")
        try:
            return draft.connect(daemon.socket)
        finally:
            os.seteuid(0)

    with daemon, daemon.connect() as d, connect(54321) as one, connect(54321) as same, connect(54322) as other:
        event = torch.cuda.Event(interprocess=True)
        event.record()
        handle = event.ipc_handle()
        first = [connection.event_import(handle) for connection in (one, one, same)]
        for connection in one, same:
            error = expect(draft.ResourceExhausted, connection.event_import, handle)
            assert "max_user_events is 3" in str(error), error
        kept = [connection.event_import(handle) for connection in (other, d, d, d, d)]
        first.pop().close()
        same.event_import(handle)
        expect(draft.ResourceExhausted, one.event_import, handle)
        del kept


def a_process_dies_with_its_event():
    """While a draft waits for its event: that draft has an answer of some kind, others are right."""
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:
        writer = Writer(d, case)
        process, handle = child_event("behind", str(cycles_of(5)))
        theirs = d.event_import(handle)
        d.submit(base=writer.view, event=theirs, **case.columns)
        d.ping()
        kill(process)
        begin = time.monotonic()
        result = d.poll()
        took = time.monotonic() - begin
        assert isinstance(result.error, (type(None), draft.BadRequest, draft.DeadlineExceeded)), result.error
        assert took < 3, f"its answer took {took:.1f} s"
        print(f"        the draft that waited got {type(result.error).__name__ if result.error else 'tokens'} after {took:.2f} s")
        theirs.close()
        writer.write()
        same("tokens", d.draft(base=writer.view, event=writer.fired, **case.columns).tokens.tolist(), case.tokens)


CLIENT = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import draft
d = draft.connect(sys.argv[2])
event = torch.cuda.Event(interprocess=True)
fired = d.event_import(event.ipc_handle())
base = d.region_open(2 * int(sys.argv[3]), memory="device").tensor([1, 1, int(sys.argv[3])])
torch.cuda._sleep(int(sys.argv[4]))
event.record()
d.submit([0], [0], base, steps=1, event=fired)
d.ping()
print("sent", flush=True)
sys.stdin.readline()
"""


def a_client_dies_with_a_held_draft():
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:
        writer = Writer(d, case)
        before = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, PACKAGES, daemon.socket, str(case.vocab), str(cycles_of(5))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert process.stdout.readline() == "sent\n"
        assert d.stats()["queue_depth"] == 1
        kill(process)
        begin = time.monotonic()
        while d.stats()["connections"] > 1 or d.stats()["regions"] > 1:
            assert time.monotonic() - begin < 10, d.stats()
        same("queue_depth", d.stats()["queue_depth"], 0)
        writer.write()
        same("tokens", d.draft(base=writer.view, event=writer.fired, **case.columns).tokens.tolist(), case.tokens)
        after = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        assert after <= before, f"descriptors of draftd: {before}, then {after}"


def held_drafts_survive(what):
    """A reload or a drain: they are answered all the same."""
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path, "--event-timeout", "20s") as daemon, daemon.connect() as d, daemon.connect() as other:
        writer = Writer(d, case)
        writer.write(3)
        d.submit(base=writer.view, event=writer.fired, **case.columns)
        d.ping()
        other.reload() if what == "a reload" else other.drain()
        held = writer.still_writes()
        result = d.poll()
        assert result.error is None, result.error
        same("tokens", result.tokens.tolist(), case.tokens)
        if what == "a reload" and held:
            same("generation", result.generation, 2)


def event_cycles():
    """Imported, drafted behind, closed: device memory, and draftd's descriptors and mappings, stay as they were."""
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:
        writer = Writer(d, case)
        writer.target.copy_(writer.source)
        event = torch.cuda.Event(interprocess=True)
        handle = event.ipc_handle()

        def cycle():
            with d.event_import(handle) as fired:
                event.record()
                same("tokens", d.draft(base=writer.view, event=fired, **case.columns).tokens.tolist(), case.tokens)

        def counts():
            torch.cuda.synchronize()
            process = pathlib.Path(f"/proc/{daemon.process.pid}")
            return torch.cuda.mem_get_info()[0], len(os.listdir(process / "fd")), len((process / "maps").read_text().splitlines())

        for _ in range(20):
            cycle()
        before = counts()
        for _ in range(10 * CYCLES):
            cycle()
        after = counts()
        assert before[0] - after[0] < FLAT_BYTES, f"free device memory was {before[0]}, is {after[0]}"
        same("descriptors of draftd", after[1], before[1])
        assert after[2] <= before[2] + 8, f"mappings of draftd were {before[2]}, are {after[2]}"


def event_round_trips():
    """What an event saves: a short write on a stream, and the draft behind it, synchronized or by event."""
    case = Case(GOLDEN / "many_rows.safetensors")
    with Daemon(case.path, "--engine-spin", "20ms", "--loop-spin", "20ms") as daemon, daemon.connect() as d:
        writer = Writer(d, case)
        took = {"synchronized": [], "by event": []}
        for _ in range(300):
            for how, list_of in took.items():
                begin = time.monotonic_ns()
                with torch.cuda.stream(writer.stream):
                    writer.target.copy_(writer.source)
                    writer.event.record(writer.stream)
                if how == "synchronized":
                    writer.stream.synchronize()
                    drafted = d.draft(base=writer.view, **case.columns)
                else:
                    drafted = d.draft(base=writer.view, event=writer.fired, **case.columns)
                list_of.append((time.monotonic_ns() - begin) / 1000)
                same("tokens", drafted.tokens.tolist(), case.tokens)
        for how, list_of in took.items():
            list_of.sort()
            print(f"        {how}: p50 {list_of[len(list_of) // 2]:.0f} us, p99 {list_of[len(list_of) * 99 // 100]:.0f} us")


def array_interface():
    """uint16 through __cuda_array_interface__ is the same memory as through DLPack."""
    with Daemon(GOLDEN / "greedy_small.safetensors") as daemon, daemon.connect() as d:
        view = open_device(d, 4096).tensor([4, 8], "uint16", strides=[16, 1])
        try:
            seen = torch.as_tensor(view, device="cuda")
        except TypeError as error:
            raise Waived(f"this PyTorch takes no such arrays: {error}")
        torch.from_dlpack(view).view(torch.int16).fill_(0x3F80)
        assert seen.data_ptr() == torch.from_dlpack(view).data_ptr() and seen.stride() == (16, 1)
        same("values", seen.view(torch.int16).cpu().unique().tolist(), [0x3F80])


def cupy_writes():
    try:
        import cupy
    except ImportError:
        raise Waived("CuPy isn't installed")
    with Daemon(GOLDEN / "greedy_small.safetensors") as daemon, daemon.connect() as d:
        view = open_device(d, 4096).tensor([4, 8], "uint16")
        cupy.from_dlpack(view)[:] = 0x3F80
        cupy.cuda.Device().synchronize()
        same("values", torch.from_dlpack(view).view(torch.int16).cpu().unique().tolist(), [0x3F80])


def close_is_refused_while_tensors_exist(memory):
    with Daemon(GOLDEN / "greedy_small.safetensors") as daemon, daemon.connect() as d:
        region = open_device(d, 4096) if memory == "device" else d.region_open(4096)
        tensor = torch.from_dlpack(region.tensor([4, 8]))[1]
        for close in region.close, d.close:
            try:
                close()
            except draft.RegionInUse:
                continue
            raise AssertionError("closed under a tensor")
        tensor.fill_(1)
        del tensor
        region.close()


def exceptions_come_through(memory):
    """A tensor that goes away while an exception is on its way does not swallow it."""
    with Daemon(GOLDEN / "greedy_small.safetensors") as daemon, daemon.connect() as d:
        region = open_device(d, 4096) if memory == "device" else d.region_open(4096)
        try:
            torch.from_dlpack(region.tensor([4])) + int("no number")
        except ValueError:
            return
        raise AssertionError("no ValueError came")


def tensors_outlive_the_connection():
    with Daemon(GOLDEN / "greedy_small.safetensors") as daemon:
        with daemon.connect() as d:
            tensor = torch.from_dlpack(open_device(d, 4096).tensor([2048]))
        tensor.fill_(1)
        same("values", tensor.float().sum().item(), 2048.0)


def cycles():
    """Regions opened, drafted from, closed: device memory, descriptors and mappings stay as they were."""
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path) as daemon, daemon.connect() as d:

        def cycle():
            with open_device(d, 16 << 20) as region:
                view = region.tensor(case.shape)
                torch.from_dlpack(view).copy_(case.base.view(torch.bfloat16).cuda())
                torch.cuda.synchronize()
                same("tokens", d.draft(base=view, **case.columns).tokens.tolist(), case.tokens)
                del view

        def counts():
            torch.cuda.synchronize()
            maps = len(pathlib.Path("/proc/self/maps").read_text().splitlines())
            return torch.cuda.mem_get_info()[0], len(os.listdir("/proc/self/fd")), maps

        for _ in range(20):
            cycle()
        before = counts()
        for _ in range(CYCLES):
            cycle()
        after = counts()
        assert before[0] - after[0] < FLAT_BYTES, f"free device memory was {before[0]}, is {after[0]}"
        same("descriptors", after[1], before[1])
        assert after[2] <= before[2] + 8, f"mappings were {before[2]}, are {after[2]}"


def example():
    with Daemon(GOLDEN / "sampled.safetensors") as daemon, daemon.connect() as d:
        open_device(d, 4096).close()
        done = subprocess.run(
            [sys.executable, EXAMPLES / "draft_torch.py", daemon.socket], env=os.environ | {"PYTHONPATH": str(PACKAGES)}, capture_output=True, text=True
        )
        assert done.returncode == 0 and "base logits on cuda" in done.stdout, done.stdout + done.stderr


def tests():
    paths = sorted(GOLDEN.glob("*.safetensors"))
    assert paths, f"no golden cases in {GOLDEN}"
    for path in paths:
        for memory in "device", "host":
            yield f"golden {path.stem}, {memory} regions", lambda path=path, memory=memory: golden(path, memory)
        yield f"event before the launch, {path.stem}", lambda path=path: event_before_the_launch(path)
    for memory in "device", "host":
        yield f"close is refused, {memory}", lambda memory=memory: close_is_refused_while_tensors_exist(memory)
        yield f"exceptions come through, {memory}", lambda memory=memory: exceptions_come_through(memory)
    for what in "a reload", "a drain":
        yield f"held drafts survive {what}", lambda what=what: held_drafts_survive(what)
    for each in (
        events_in_a_pipeline, events_that_are_too_late, an_event_without_a_record_has_fired, bad_handles, events_of_a_user,
        a_process_dies_with_its_event, a_client_dies_with_a_held_draft, event_cycles, event_round_trips,
    ):
        yield each.__name__.replace("_", " "), each
    for each in written_on_a_stream, array_interface, cupy_writes, tensors_outlive_the_connection, cycles, example:
        yield each.__name__.replace("_", " "), each


def main():
    need_gpus(1)
    for name, test in tests():
        try:
            if torch is None:
                raise Waived("PyTorch isn't installed")
            if not torch.cuda.is_available():
                raise Waived("PyTorch finds no GPU")
            test()
        except Waived as reason:
            tally.waive(f"{name}: {reason}")
        except Exception as error:
            tally.check(name, False, f"{type(error).__name__}: {error}")
        else:
            tally.check(name, True)
            print(f"passed: {name}", flush=True)
    tally.end()


if __name__ == "__main__":
    main()
