#!/usr/bin/env python3
"""The Python package on a GPU machine: PyTorch writes base logits into device regions through DLPack; tokens and draft logits must be
the golden cases' bits, and those of host regions.

Usage: python_device.py, from the unpacked archive or the sources (built with CUDA). Ends with "N passed, N failed, N waived"; exit
code 1 if anything failed.
"""

import array
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
if (HERE.parents[3] / "bin/draftd").exists():
    TOP = HERE.parents[3]
    PACKAGES, DRAFTD, GOLDEN = TOP / "lib/python3/dist-packages", TOP / "bin/draftd", TOP / "share/draftd/golden"
    EXAMPLE = TOP / "share/doc/draftd/client/examples/draft_torch.py"
else:
    TOP = HERE.parents[2]
    PACKAGES, DRAFTD, GOLDEN = TOP / "client/python", TOP / "build/draftd", TOP / "tests/golden"
    EXAMPLE = TOP / "client/examples/draft_torch.py"
sys.path.insert(0, str(PACKAGES))

import draft

try:
    import torch
except ImportError:
    torch = None

CYCLES = 200
FLAT_BYTES = 64 << 20  # what device memory may differ by: other users of the GPU, PyTorch's own first allocations


class Waived(Exception):
    pass


class Case:
    """A golden case: tensors as PyTorch's in host memory, BF16 as int16 so that bits are compared."""

    def __init__(self, path):
        self.path = path
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8:start])

        def bytes_of(name):
            begin, end = tensors[name]["data_offsets"]
            return bytearray(data[start + begin : start + end])

        self.shape = tensors["base_logits"]["shape"]
        self.rows, self.steps, self.vocab = self.shape
        self.base = torch.frombuffer(bytes_of("base_logits"), dtype=torch.int16).reshape(self.shape)
        self.logits = torch.frombuffer(bytes_of("draft_logits"), dtype=torch.int16).reshape(self.shape)

        def column(name):
            types = {"I32": "i", "I64": "q", "F32": "f"}
            return array.array(types[tensors[name]["dtype"]], bytes(bytes_of(name)))

        tokens = column("tokens").tolist()
        self.tokens = [tokens[row * self.steps : (row + 1) * self.steps] for row in range(self.rows)]
        self.columns = {name: column(name) for name in ("anchors", "positions", "seeds", "temperatures", "slots")}
        self.columns["steps"] = self.steps
        self.slots = self.columns["slots"]
        self.places = max(max(self.slots) + 1, 1)


class Daemon:
    def __init__(self, model, backend="cuda"):
        self.folder = tempfile.TemporaryDirectory(prefix="draftd-", dir="/tmp")
        self.socket = f"{self.folder.name}/draftd.sock"
        self.process = subprocess.Popen(
            [DRAFTD, "--backend", backend, "--model", model, "--socket", self.socket], stderr=subprocess.PIPE, text=True
        )
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "ready on" in line:
                return
        raise RuntimeError("draftd did not start: " + "".join(said))

    def __enter__(self):
        return draft.connect(self.socket, client_name="python_device")

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.communicate()
        self.folder.cleanup()


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
    with Daemon(path) as d, d:
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
    with Daemon(case.path) as d, d:
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


def array_interface():
    """uint16 through __cuda_array_interface__ is the same memory as through DLPack."""
    with Daemon(GOLDEN / "greedy_small.safetensors") as d, d:
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
    with Daemon(GOLDEN / "greedy_small.safetensors") as d, d:
        view = open_device(d, 4096).tensor([4, 8], "uint16")
        cupy.from_dlpack(view)[:] = 0x3F80
        cupy.cuda.Device().synchronize()
        same("values", torch.from_dlpack(view).view(torch.int16).cpu().unique().tolist(), [0x3F80])


def close_is_refused_while_tensors_exist(memory):
    with Daemon(GOLDEN / "greedy_small.safetensors") as d, d:
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
    with Daemon(GOLDEN / "greedy_small.safetensors") as d, d:
        region = open_device(d, 4096) if memory == "device" else d.region_open(4096)
        try:
            torch.from_dlpack(region.tensor([4])) + int("no number")
        except ValueError:
            return
        raise AssertionError("no ValueError came")


def tensors_outlive_the_connection():
    with Daemon(GOLDEN / "greedy_small.safetensors") as d:
        with d:
            tensor = torch.from_dlpack(open_device(d, 4096).tensor([2048]))
        tensor.fill_(1)
        same("values", tensor.float().sum().item(), 2048.0)


def cycles():
    """Regions opened, drafted from, closed: device memory, descriptors and mappings stay as they were."""
    case = Case(GOLDEN / "greedy_small.safetensors")
    with Daemon(case.path) as d, d:

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
    daemon = Daemon(GOLDEN / "sampled.safetensors")
    with daemon as d, d:
        open_device(d, 4096).close()
        done = subprocess.run(
            [sys.executable, EXAMPLE, daemon.socket], env=os.environ | {"PYTHONPATH": str(PACKAGES)}, capture_output=True, text=True
        )
        assert done.returncode == 0 and "base logits on cuda" in done.stdout, done.stdout + done.stderr


def tests():
    paths = sorted(GOLDEN.glob("*.safetensors"))
    assert paths, f"no golden cases in {GOLDEN}"
    for path in paths:
        for memory in "device", "host":
            yield f"golden {path.stem}, {memory} regions", lambda path=path, memory=memory: golden(path, memory)
    for memory in "device", "host":
        yield f"close is refused, {memory}", lambda memory=memory: close_is_refused_while_tensors_exist(memory)
        yield f"exceptions come through, {memory}", lambda memory=memory: exceptions_come_through(memory)
    for each in written_on_a_stream, array_interface, cupy_writes, tensors_outlive_the_connection, cycles, example:
        yield each.__name__.replace("_", " "), each


def main():
    passed, failed, waived = 0, 0, 0
    for name, test in tests():
        try:
            if torch is None:
                raise Waived("PyTorch isn't installed")
            if not torch.cuda.is_available():
                raise Waived("PyTorch finds no GPU")
            test()
        except Waived as reason:
            waived += 1
            print(f"waived: {name}: {reason}")
        except Exception as error:
            failed += 1
            print(f"FAILED: {name}: {type(error).__name__}: {error}")
        else:
            passed += 1
            print(f"passed: {name}")
    print(f"{passed} passed, {failed} failed, {waived} waived")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
