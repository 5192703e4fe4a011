"""client/python: the package `draft` against the real daemon, with NumPy; its structs and codes against draft.h and PROTOCOL.md."""

import array
import copy
import ctypes
import ctypes.util
import errno
import fcntl
import gc
import importlib.util
import linecache
import os
import pickle
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy
import pytest

import golden
import wire_codec
from conftest import BUILD, PATIENCE_S, ROOT, SANITIZED
from golden import Case

if SANITIZED:
    pytest.skip("an instrumented library can't be loaded into a plain interpreter", allow_module_level=True)

PACKAGES = ROOT / "client/python"
EXAMPLE = ROOT / "client/examples/draft_torch.py"
os.environ["LIBDRAFT"] = str(BUILD / "libdraft.so.0")
sys.path.insert(0, str(PACKAGES))

import draft
from draft import _buffers, _cuda, _dlpack, _library, errors

by_case = pytest.mark.parametrize("path", golden.PATHS, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def collected(start):
    """Ends the connections that only garbage and DLPack's consumers held, before the daemons are checked."""
    yield
    gc.collect()


def connect(daemon, **options):
    return draft.connect(daemon.socket, **options)


def columns(case, rows=None):
    """A case's columns as sequences."""
    rows = range(case.rows) if rows is None else rows
    return {
        name: [getattr(case, name)[r] for r in rows] for name in ("anchors", "positions", "seeds", "temperatures", "slots")
    } | {"steps": case.steps}


def base_of(case):
    return numpy.frombuffer(case.bytes["base_logits"], numpy.uint16).reshape(case.rows, case.steps, case.vocab)


def logits_of(case):
    """[rows, steps, vocab], in the order of the rows; those of padding rows don't count."""
    return numpy.frombuffer(case.bytes["draft_logits"], numpy.uint16).reshape(case.rows, case.steps, case.vocab)


def check_logits(case, got):
    for row in range(case.rows):
        expected = logits_of(case)[row] if case.slots[row] >= 0 else 0
        assert (got[row] == expected).all(), f"{case.path.stem}: logits of row {row}"


# ---- against the header ----


HEADER = (ROOT / "client/draft.h").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
STRUCTS = {
    "draft_options": _library.Options,
    "draft_model": _library.ModelFacts,
    "draft_device": _library.DeviceFacts,
    "draft_place": _library.Place,
    "draft_request": _library.Request,
    "draft_result": _library.ResultView,
}


def test_structs_are_those_of_the_header(folder):
    """Sizes and offsets as the C compiler has them; a field that only one side has changes a size."""
    lines, expected = [], []

    def ask(expression, value):
        lines.append(f'printf("%s %zu\\n", "{expression}", (size_t)({expression}));')
        expected.append(f"{expression} {value}")

    assert set(re.findall(r"^struct (\w+) \{", CODE, re.M)) == set(STRUCTS)
    for name, layout in STRUCTS.items():
        ask(f"sizeof(struct {name})", ctypes.sizeof(layout))
        for field, type in layout._fields_:
            ask(f"offsetof(struct {name}, {field})", getattr(layout, field).offset)
            ask(f"sizeof(((struct {name} *)0)->{field})", ctypes.sizeof(type))
    for memory, number in _library.MEMORY.items():
        ask(f"DRAFT_{memory.upper()}", number)
    for name, error in TYPED.items():
        ask(f"DRAFT_E_{name}", errors.TYPED_ERROR_BASE + error.CODE)
    source = folder / "layout.c"
    source.write_text(
        '#include "draft.h"\n#include <stdio.h>\nint main(void)\n{\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    program = folder / "layout"
    subprocess.run([os.environ.get("CC", "cc"), f"-I{ROOT}/client", "-o", program, source], check=True)
    assert subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines() == expected


def test_functions_are_those_of_the_header():
    declared = {}
    for name, parameters in re.findall(r"\b(draft_\w+)\(([^)]*)\)", CODE):
        declared[name] = 0 if parameters.strip() == "void" else parameters.count(",") + 1
    assert declared == {name: len(types) - 1 for name, types in _library.FUNCTIONS.items()}


# ---- errors ----


def class_name(name):
    return "".join(word.capitalize() for word in name.split("_"))


TYPED = {name: getattr(draft, class_name(name)) for name in re.findall(r"DRAFT_E_(\w+) = ", CODE)}


def test_errors_are_those_of_the_protocol():
    page = (ROOT / "proto/PROTOCOL.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| (yes|no) \| (?:yes|no) \|", page, re.M)
    assert [name for _, name, _ in rows] == list(TYPED)
    for code, name, retryable in rows:
        error = errors.error_of(-errors.TYPED_ERROR_BASE - int(code), b"a sentence")
        assert type(error) is TYPED[name] and isinstance(error, draft.DraftError)
        assert (error.name, error.retryable, str(error)) == (name, retryable == "yes", "a sentence")


def test_errors_of_this_side():
    for code, kind, base in (
        (errno.ETIMEDOUT, draft.Timeout, TimeoutError),
        (errno.ECONNRESET, draft.ConnectionLost, ConnectionError),
        (errno.ENOTCONN, draft.ConnectionLost, ConnectionError),
        (errno.EPROTO, draft.ConnectionLost, ConnectionError),
        (errno.EINVAL, draft.InvalidArgument, ValueError),
        (errno.EBUSY, draft.RegionInUse, BufferError),
        (errno.ENODEV, draft.NotSupported, draft.DraftError),
        (errno.EIO, draft.DraftError, Exception),
    ):
        error = errors.error_of(-code, b"a sentence")
        assert type(error) is kind and isinstance(error, base)
        for error in error, pickle.loads(pickle.dumps(error)):
            assert (error.code, error.name, str(error)) == (-code, os.strerror(code), "a sentence")
            if isinstance(error, OSError):
                assert error.errno == code


def test_every_public_name_is_exported():
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert classes <= set(draft.__all__)
    assert all(hasattr(draft, name) for name in draft.__all__)


def refused(kind, words, call, *arguments, **named):
    with pytest.raises(kind) as caught:
        call(*arguments, **named)
    assert words in str(caught.value)
    return caught.value


def test_nobody_there(folder):
    error = refused(draft.NotRunning, "is draftd running?", draft.connect, folder / "none")
    assert error.code == -errno.ENOENT and not error.retryable
    (folder / "file").touch()
    assert not refused(draft.InvalidArgument, "is no socket; name the one", draft.connect, folder / "file").retryable
    assert not refused(draft.InvalidArgument, "leads through a file", draft.connect, folder / "file" / "x").retryable
    with socket.socket(socket.AF_UNIX) as leftover:
        leftover.bind(str(folder / "leftover"))
    assert refused(draft.NotRunning, "refused", draft.connect, folder / "leftover").retryable
    assert not refused(draft.InvalidArgument, "is a folder; name the socket in it", draft.connect, folder).retryable
    refused(draft.InvalidArgument, "socket_path", draft.connect, "/" + "x" * 200)
    refused(draft.InvalidArgument, "client_name", draft.connect, folder / "none", client_name="\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_not_in_the_group(daemon):
    daemon.folder.chmod(0o755)
    os.seteuid(54321)
    try:
        error = refused(draft.PermissionDenied, "the socket's mode and group say who may", draft.connect, daemon.socket)
    finally:
        os.seteuid(0)
    assert error.code == -errno.EACCES and not error.retryable


def test_socket_from_the_environment(daemon, folder, monkeypatch):
    monkeypatch.setenv("DRAFTD_SOCKET", str(daemon.socket))
    with draft.connect() as d:
        d.ping()
    refused(draft.NotRunning, str(folder / "none"), draft.connect, folder / "none")
    monkeypatch.setenv("DRAFTD_SOCKET", "x" * 200)
    refused(draft.InvalidArgument, "DRAFTD_SOCKET", draft.connect)


def test_refused_requests(start):
    case = golden.case("many_rows")
    daemon = start(model=case.path)
    good = columns(case) | {"base": base_of(case)}
    with connect(daemon) as d:
        rows, steps, vocab = good["base"].shape
        region = d.region_open(2 * good["base"].size)
        whole = region.tensor(good["base"].shape)

        def bad(kind, words, **changed):
            for call in d.draft, d.submit:
                refused(kind, words, call, **good | changed)

        def answered(kind, words, **changed):
            """By draftd."""
            refused(kind, words, d.draft, **good | changed)
            ticket = d.submit(**good | changed)
            result = d.poll()
            assert result.ticket == ticket and type(result.error) is kind and words in str(result.error)

        bad(draft.TooLarge, f"steps is {d.limits.max_steps + 1}", steps=d.limits.max_steps + 1)
        bad(draft.InvalidArgument, "steps is 0", steps=0)
        bad(draft.InvalidArgument, "steps is -1", steps=-1)
        bad(draft.InvalidArgument, "steps is 4294967297", steps=2**32 + 1)
        bad(draft.InvalidArgument, "steps is a float", steps=1.0)
        bad(draft.InvalidArgument, "rows is 0", anchors=[])
        bad(draft.TooLarge, "rows is 1000", anchors=[1] * 1000, positions=[1] * 1000, seeds=1, temperatures=0, slots=None)
        bad(draft.InvalidArgument, "priority is 2", priority=2)
        bad(draft.InvalidArgument, "deadline_us is -1", deadline_us=-1)
        answered(draft.BadRequest, "deadline_us", deadline_us=3600 * 1000000 + 1)
        # columns
        bad(draft.InvalidArgument, f"positions has 1 value where anchors has {rows}", positions=[1])
        bad(draft.InvalidArgument, "anchors can't be a column", anchors=[-1] * rows)
        bad(draft.InvalidArgument, "anchors can't be a column", anchors=[2**32] * rows)
        bad(draft.InvalidArgument, "anchors can't be a column", anchors=5)
        bad(draft.InvalidArgument, "positions can't be a column", positions=numpy.ones(rows))
        bad(draft.InvalidArgument, "seeds can't be a column", seeds=[[1]] * rows)
        bad(draft.InvalidArgument, "temperatures can't be a column", temperatures="warm")
        bad(draft.InvalidArgument, "temperatures can't be a column", temperatures=None)
        # memory
        bad(draft.InvalidArgument, "base is a NoneType", base=None)
        bad(draft.InvalidArgument, "base is a list", base=[1, 2])
        bad(draft.InvalidArgument, "elements of type 'e'", base=good["base"].view(numpy.float16))
        bad(draft.InvalidArgument, "elements of type 'f'", base=good["base"].astype(numpy.float32))
        bad(draft.InvalidArgument, "elements of type '>H'", base=good["base"].astype(">u2"))
        bad(draft.InvalidArgument, "elements of type 'B'", base=good["base"].tobytes())
        bad(draft.InvalidArgument, "not C-contiguous", base=numpy.asfortranarray(good["base"]))
        bad(draft.InvalidArgument, "not C-contiguous", base=numpy.repeat(good["base"], 2, axis=0)[::2])
        bad(draft.InvalidArgument, "base has the shape", base=good["base"].reshape(-1)[:-1])
        bad(draft.InvalidArgument, "base has the shape", base=good["base"].reshape(vocab, steps, rows))
        bad(draft.InvalidArgument, "logits is read-only", logits=good["base"])
        bad(draft.InvalidArgument, "logits has the shape", logits=numpy.zeros(3, numpy.uint16))
        # regions
        bad(draft.InvalidArgument, "base is a region", base=region)
        bad(draft.InvalidArgument, "base has the shape", base=region.tensor([rows, steps, vocab - 1]))
        bad(draft.InvalidArgument, "base has the shape", base=region.tensor([rows * steps * vocab]))
        bad(draft.InvalidArgument, "base has the shape", base=region.tensor([rows, vocab, steps]))
        bad(draft.InvalidArgument, "the last of them contiguous",
            base=region.tensor([rows, steps, vocab], strides=[1, 1, 2]))
        slots = [rows] + [-1] * (rows - 1)
        bad(draft.InvalidArgument, "logits has the shape", logits=whole, slots=slots)
        answered(draft.BadRequest, "slot", logits=whole, slots=[0] * rows)
        with connect(daemon) as other:
            refused(draft.InvalidArgument, "another connection's", other.draft, **good | {"base": whole})
        # the connection has taken no harm
        assert d.draft(**good).tokens.tolist() == [case.tokens_of(r) for r in range(rows)]
        refused(draft.NotFound, "ticket 77", d.cancel, 77)
        refused(draft.InvalidArgument, "memory is", d.region_open, 1, "gpu")
        refused(draft.InvalidArgument, "nbytes is", d.region_open, -1)
        refused(draft.InvalidArgument, "bytes is 0", d.region_open, 0)
        refused(draft.TooLarge, "bytes", d.region_open, d.limits.max_region_bytes + 1)
        refused(draft.BadRequest, "memory", d.region_open, 4096, "device")  # the CPU backend has none
        refused(draft.BadRequest, "memory", d.region_open, 4096, "device", "GPU-0")
        refused(draft.InvalidArgument, "device", d.region_open, 4096, "host", "GPU-0")
        refused(draft.InvalidArgument, "no memfd", d.region_import, daemon.pidfd, 4096)


def test_views_stay_inside(daemon):
    with connect(daemon) as d, d.region_open(64) as region:
        assert region.tensor([4, 8]).strides == (8, 1)
        assert region.tensor([2, 2], offset=32, strides=[12, 3]).offset == 32  # its last byte is the region's
        for arguments in (
            {"shape": [33]}, {"shape": [4, 9]}, {"shape": [32], "offset": 2}, {"shape": [2, 2], "offset": 34, "strides": [12, 3]},
            {"shape": [2], "strides": [32]}, {"shape": [2**70]}, {"shape": [1], "offset": 64}, {"shape": [1], "offset": 2**70},
            {"shape": [0]}, {"shape": [-1]}, {"shape": [1.0]}, {"shape": [1], "offset": 1}, {"shape": [1], "offset": -2},
            {"shape": [2], "strides": [0]}, {"shape": [2], "strides": [-1]}, {"shape": [2], "strides": [1, 1]},
            {"shape": [1], "dtype": "float16"},
        ):  # fmt: skip
            refused(draft.InvalidArgument, "", region.tensor, **arguments)


# ---- golden cases ----


@by_case
def test_inline(start, path):
    case = Case(path)
    with connect(start(model=path)) as d:
        logits = numpy.full((case.rows, case.steps, case.vocab), 0xFFFF, numpy.uint16)
        tokens, flags = d.draft(base=base_of(case), logits=logits, **columns(case))
        assert tokens.tolist() == [case.tokens_of(r) for r in range(case.rows)]
        assert len(flags) == case.rows
        check_logits(case, logits)
        # bytes and an array of another module will do
        tokens, _ = d.draft(base=memoryview(case.bytes["base_logits"]).cast("H"), **columns(case))
        assert tokens.tolist() == [case.tokens_of(r) for r in range(case.rows)]
        assert numpy.asarray(tokens).shape == (case.rows, case.steps)


@by_case
def test_regions(start, path):
    """Base logits through a memoryview, draft logits in slots and read through DLPack; strides with gaps that nobody touches."""
    case = Case(path)
    places = max(max(case.slots) + 1, 1)
    steps, vocab = case.steps, case.vocab
    with connect(start(model=path)) as d:
        strides = [steps * (vocab + 3) + 5, vocab + 3, 1]
        base = d.region_open(2 * case.rows * strides[0] + 18)
        view = base.tensor([case.rows, steps, vocab], offset=18, strides=strides)
        memory = numpy.frombuffer(base.data, numpy.uint16)
        cells = numpy.lib.stride_tricks.as_strided(memory[9:], view.shape, [2 * stride for stride in strides])
        cells[:] = base_of(case)
        logits = d.region_open(2 * places * strides[0])
        numpy.frombuffer(logits.data, numpy.uint16)[:] = 0xA5A5
        target = logits.tensor([places, steps, vocab], "uint16", strides=strides)
        tokens, _ = d.draft(base=view, logits=target, **columns(case))
        assert tokens.tolist() == [case.tokens_of(r) for r in range(case.rows)]

        got = numpy.from_dlpack(target)
        assert got.shape == target.shape and got.strides == tuple(2 * stride for stride in strides)
        assert got.ctypes.data == numpy.frombuffer(logits.data, numpy.uint16).ctypes.data, "no copy"
        for row, slot in enumerate(case.slots):
            if slot >= 0:
                assert (got[slot] == logits_of(case)[row]).all(), f"row {row}"
        untouched = numpy.ones(logits.nbytes // 2, bool)
        written = numpy.lib.stride_tricks.as_strided(untouched, target.shape, strides)
        written[[slot for slot in case.slots if slot >= 0]] = False
        assert (numpy.frombuffer(logits.data, numpy.uint16)[untouched] == 0xA5A5).all()


def test_a_larger_view_serves_smaller_requests(start):
    """An engine's buffer of [most rows, most steps, vocab]: requests take its first rows and steps."""
    case = golden.case("many_rows")
    with connect(start(model=case.path)) as d:
        region = d.region_open(2 * 64 * 8 * case.vocab)
        buffer = region.tensor([64, 8, case.vocab])
        numpy.frombuffer(region.data, numpy.uint16).reshape(buffer.shape)[: case.rows, : case.steps] = base_of(case)
        for rows in 1, 3, case.rows:
            tokens, _ = d.draft(base=buffer, **columns(case, range(rows)) | {"slots": None})
            assert tokens.tolist() == [case.tokens_of(r) for r in range(rows)]


def test_imported_region(daemon):
    case = golden.case("greedy_small")
    fd = os.memfd_create("base", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, case.bytes["base_logits"])
    with connect(daemon) as d:
        refused(draft.InvalidArgument, "F_SEAL_SHRINK", d.region_import, fd, 4096)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with connect(daemon) as d:
        region = d.region_import(fd, len(case.bytes["base_logits"]))
        os.close(fd)
        assert region.memory == "host" and bytes(region.data) == case.bytes["base_logits"]
        tokens, _ = d.draft(base=region.tensor(base_of(case).shape), **columns(case))
        assert tokens.tolist() == [case.tokens_of(r) for r in range(case.rows)]


# ---- columns ----


def test_columns_that_fit_are_not_copied():
    for kind, made in (
        (_buffers.UINT32, [numpy.arange(4, dtype=numpy.uint32), array.array("I", range(4))]),
        (_buffers.INT64, [numpy.arange(4), array.array("q", range(4)), array.array("l", range(4))]),
        (_buffers.FLOAT32, [numpy.zeros(4, numpy.float32), array.array("f", range(4))]),
    ):
        for values in made:
            whole = memoryview(values)
            whole_at = values.ctypes.data if isinstance(values, numpy.ndarray) else values.buffer_info()[0]
            assert _buffers.address_of(_buffers.column("x", kind, values, 4)) == whole_at
            read_only = whole.toreadonly()[1:]
            assert _buffers.address_of(_buffers.column("x", kind, read_only, 3)) == whole_at + whole.itemsize


def test_columns_that_do_not_fit_are_converted():
    for values in (
        [1, 2, 3], (1, 2, 3), range(1, 4), numpy.array([1, 2, 3], numpy.uint8), numpy.arange(6)[1::2],
        array.array("b", [1, 2, 3]), bytes([1, 2, 3]), (ctypes.c_int64 * 3)(1, 2, 3), numpy.array([1, 2, 3], ">i8"),
    ):  # fmt: skip
        for kind in _buffers.UINT32, _buffers.INT64, _buffers.FLOAT32:
            view = _buffers.column("x", kind, values, 3)
            assert (view.format, view.nbytes) == (kind, 24 if kind == _buffers.INT64 else 12)
            assert view.tolist() == list(values)
    assert _buffers.column("x", _buffers.FLOAT32, numpy.float32(0.5), 2).tolist() == [0.5, 0.5]
    assert _buffers.column("x", _buffers.INT64, -7, 2).tolist() == [-7, -7]
    for number in numpy.array(3), numpy.array(3, numpy.uint8), numpy.int64(3), numpy.array(True) + 2:
        for kind in _buffers.UINT32, _buffers.INT64, _buffers.FLOAT32:
            assert _buffers.column("x", kind, number, 2).tolist() == [3, 3]
            refused(draft.InvalidArgument, "x can't be a column", _buffers.column, "x", kind, number)  # anchors: one says nothing
    refused(draft.InvalidArgument, "it has integers from -2^63 to 2^63-1", _buffers.column, "x", _buffers.INT64, 2**63, 2)


# ---- pipelined ----


def test_pipelined(start):
    case = golden.case("many_rows")
    with connect(start(model=case.path)) as d:
        assert d.poll() is None, "no ticket is out"
        sent = {}
        for row in range(case.rows):
            logits = numpy.zeros((1, case.steps, case.vocab), numpy.uint16)
            base = base_of(case)[row : row + 1].copy()
            sent[d.submit(base=base, logits=logits, priority=row % 2, **columns(case, [row]))] = row, logits
            base[:] = 0  # it is sent
        assert select.select([d], [], [], PATIENCE_S)[0] and d.events() & select.POLLIN
        while sent:
            result = d.poll()
            row, logits = sent.pop(result.ticket)
            assert result.error is None and result.tokens.tolist() == [case.tokens_of(row)]
            assert (logits[0] == logits_of(case)[row]).all()
            assert result.generation == d.model.generation and result.total_us >= result.device_us > 0
            assert result.flags in (b"\0", b"\1")
        assert d.poll() is None


def test_small_requests_go_together(start):
    case = golden.case("many_rows")
    daemon = start(model=case.path)
    with connect(daemon) as d, connect(daemon) as other:

        def arrived():
            return other.stats()["requests"].get("draft", 0)

        tickets = [d.submit(base=base_of(case)[:1], more=True, **columns(case, [0])) for _ in range(3)]
        other.ping()
        assert arrived() == 0
        d.flush()
        while arrived() < 3:
            pass
        tickets.append(d.submit(base=base_of(case)[:1], more=True, **columns(case, [0])))
        for _ in tickets:  # the last is sent by this
            assert d.poll().tokens.tolist() == [case.tokens_of(0)]


def test_memory_of_a_ticket_stays(slow_model):
    """Nobody but the ticket holds the logits' buffer and the region when the answer comes."""
    with connect(slow_model.start()) as d:
        region = d.region_open(2 * 8 * d.model.vocab)
        base = region.tensor([1, 8, d.model.vocab])
        logits = bytearray(2 * 8 * d.model.vocab)
        view = memoryview(logits).cast("H")
        ticket = d.submit([1], [2], base, steps=8, logits=view)
        del view, base, region
        gc.collect()
        with pytest.raises(BufferError):
            logits.clear()
        assert d.stats()["regions"] == 1
        result = d.poll()
        assert (result.ticket, result.error) == (ticket, None)
        assert any(logits)
        logits.clear()
        assert d.stats()["regions"] == 0, "dropped, and closed by this call"


def test_cancel_and_deadline(slow_model):
    daemon = slow_model.start()
    with connect(daemon) as d:
        rows = slow_model.ROWS
        region = d.region_open(2 * rows * 8 * d.model.vocab)
        base = region.tensor([rows, 8, d.model.vocab])
        work = range(rows), range(rows), base
        os.kill(daemon.pid, signal.SIGSTOP)  # it will read all this at once, when only the first can have been launched
        try:
            tickets = [d.submit(*work, steps=8) for _ in range(4)]
            late = d.submit(*work, steps=8, deadline_us=1)
            d.cancel(tickets[-1])
            assert d.poll(0) is None and d.poll(1000) is None
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        found = {}
        while len(found) < 5:
            result = d.poll(PATIENCE_S * 1000000)
            found[result.ticket] = result
        assert [found[ticket].error for ticket in tickets[:-1]] == [None] * 3
        assert type(found[tickets[-1]].error) is draft.Cancelled and found[tickets[-1]].tokens is None
        assert type(found[late].error) is draft.DeadlineExceeded


def test_threads_share_a_connection(start):
    case = golden.case("many_rows")
    with connect(start(model=case.path)) as d:
        wrong = []

        def work():
            for row in range(case.rows):
                tokens, _ = d.draft(base=base_of(case)[row : row + 1], **columns(case, [row]))
                if tokens.tolist() != [case.tokens_of(row)]:
                    wrong.append(row)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


# ---- failures ----


def test_timeout(daemon):
    case = golden.case("greedy_small")
    with connect(daemon, timeout_us=1000000) as d:
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            logits = numpy.zeros(base_of(case).shape, numpy.uint16)
            error = refused(draft.Timeout, "timeout", d.draft, base=base_of(case), logits=logits, **columns(case))
            assert error.retryable
            assert d.poll(1000) is None
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        d.ping()
        assert not logits.any(), "what came late was dropped"
        assert d.draft(base=base_of(case), **columns(case)).tokens.tolist() == [case.tokens_of(r) for r in range(case.rows)]


def test_daemon_killed(slow_model):
    """kill -9 while one thread is in draft() (without the interpreter's lock, or this one would not get on)."""
    daemon = slow_model.start()
    caught = []
    with connect(daemon) as d, connect(daemon) as pipelined:
        rows = slow_model.ROWS
        region = d.region_open(2 * rows * 8 * d.model.vocab)
        base = region.tensor([rows, 8, d.model.vocab])
        memory = region.data

        def work(base):
            try:
                while True:
                    d.draft(range(rows), range(rows), base, steps=8)
            except Exception as error:
                caught.append(error)

        thread = threading.Thread(target=work, args=(base,))
        thread.start()
        other = pipelined.region_open(2 * 8 * d.model.vocab)
        tickets = [pipelined.submit([1], [1], other.tensor([1, 8, d.model.vocab]), steps=8) for _ in range(8)]
        while pipelined.stats()["requests"].get("draft", 0) < 9:
            pass
        daemon.process.kill()
        daemon.wait()
        thread.join()
        (error,) = caught
        assert type(error) is draft.ConnectionLost and error.retryable and str(error)

        with pytest.raises(draft.ConnectionLost):  # after the results that had come
            while pipelined.poll().ticket in tickets:
                pass
        refused(draft.ConnectionLost, "reconnect", pipelined.ping)
        refused(draft.ConnectionLost, "reconnect", pipelined.fileno)
        refused(draft.NotRunning, "is draftd running", pipelined.reconnect)
        assert memory[0] == 0, "mapped for as long as somebody looks"
        refused(draft.RegionInUse, "delete them", region.close)
        del memory, base, error
        caught.clear()  # its traceback holds the tensor
        region.close()
    daemon.probe.close()


def test_reconnect(start):
    case = golden.case("greedy_small")
    daemon = start()
    with connect(daemon) as d:
        region = d.region_open(2 * base_of(case).size)
        base = region.tensor(base_of(case).shape)
        d.submit(base=base, **columns(case))
        d.reconnect()
        assert d.poll() is None, "the old tickets are forgotten"
        refused(draft.NotFound, "reconnect", d.draft, base=base, **columns(case))
        del base
        region.close()
        d.ping()


def test_reconnect_to_a_daemon_that_restarts(start, folder):
    case = golden.case("greedy_small")
    one = start(socket=folder / "s")
    with connect(one) as d:
        one.probe.close()
        one.process.send_signal(signal.SIGTERM)
        assert one.wait() == 0
        refused(draft.NotRunning, "is draftd running", d.reconnect, 1000)
        start(socket=folder / "s", wait=False)  # it is not there yet
        d.reconnect(within_us=60_000_000)
        tokens, _ = d.draft(base=base_of(case), **columns(case))
        assert tokens.tolist() == [case.tokens_of(row) for row in range(case.rows)]


def test_a_reconnect_can_be_interrupted(start, handler):
    daemon = start()
    with connect(daemon) as d:
        daemon.probe.close()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait() == 0

        def stop():
            raise Stop

        def work():
            while d._lock.acquire(blocking=False):  # until reconnect() has it
                d._lock.release()
            os.kill(os.getpid(), signal.SIGUSR1)

        handler(stop)
        thread = threading.Thread(target=work)
        thread.start()
        with pytest.raises(Stop):
            d.reconnect(within_us=PATIENCE_S * 1000000)
        thread.join()


def test_a_reconnect_has_the_connections_timeout(daemon):
    """A draftd that is slow to answer, not away: also without within_us."""
    with connect(daemon) as d:
        os.kill(daemon.pid, signal.SIGSTOP)
        timer = threading.Timer(0.3, os.kill, (daemon.pid, signal.SIGCONT))
        timer.start()
        try:
            d.reconnect()
        finally:
            timer.join()
        d.ping()


def test_going_away(daemon):
    with connect(daemon) as d:
        assert d.going_away is None
        d.drain()
        while d.going_away is None:
            d.poll(0)
        assert d.going_away
        with pytest.raises((draft.Draining, draft.ConnectionLost)):  # it has nothing to wait for, and closes at once
            d.region_open(1)
    daemon.probe.close()
    assert daemon.wait() == 0


# ---- lifetimes ----


def in_use(close):
    refused(draft.RegionInUse, "delete them", close)
    return True


def test_close_is_refused_while_views_exist(daemon):
    with connect(daemon) as d:
        region = d.region_open(4096)
        make = [
            lambda: region.data,
            lambda: region.data[8:16],
            lambda: region.data.cast("H"),
            lambda: numpy.frombuffer(region.data, numpy.uint16)[5:7],
            lambda: region.tensor([16, 16]),
            lambda: region.tensor([16, 16]).__dlpack__(),
            lambda: region.tensor([16, 16]).__dlpack__(max_version=(1, 0)),
            lambda: numpy.from_dlpack(region.tensor([16, 16], "uint16"))[3],
        ]
        for each in make:
            view = each()
            assert in_use(region.close) and in_use(d.close)
            with region:
                pass  # waits for the view
            assert d.stats()["regions"] == 1
            del view
        region.data.release()
        region.close()
        region.close()
        assert d.stats()["regions"] == 0
        for each in make:
            refused(draft.InvalidArgument, "was closed", each)


def test_a_view_outlives_its_connection(daemon):
    """Leaving `with` does not pull memory from under a view; the connection ends with the last one."""

    def others():
        return daemon.probe.call("stats")[0]["connections"] - 1

    for make in (
        lambda region: numpy.frombuffer(region.data, numpy.uint16),
        lambda region: numpy.from_dlpack(region.tensor([2048], "uint16")),
    ):
        with connect(daemon) as d, d.region_open(4096) as region:
            region.data[:2] = b"\1\2"
            view = make(region)
        gc.collect()
        assert view[0] == 0x0201 and not view[1:].any()
        assert others() == 1
        refused(draft.ConnectionLost, "was closed", d.ping)
        refused(draft.ConnectionLost, "was closed", lambda: region.data)
        region.close()
        assert view[0] == 0x0201
        del view
        gc.collect()
        end = time.monotonic() + PATIENCE_S
        while others():
            assert time.monotonic() < end
        d.close()


def test_dropped_regions_are_closed(daemon):
    with connect(daemon) as d:
        for _ in range(100):
            view = d.region_open(1 << 20).tensor([2, 2], "uint16")
            numpy.from_dlpack(view)
            del view
        _dlpack.sweep()
        assert d.stats()["regions"] == 0 and not _dlpack._exports


def test_refused_events(daemon):
    """The daemon's CPU backend has none; what is wrong on this side is not sent."""
    with connect(daemon) as d:
        for handle in bytes(64), bytearray(range(64)):
            refused(draft.BadRequest, "knows no CUDA events", d.event_import, handle)
        for handle in b"", bytes(63), bytes(65):
            refused(draft.InvalidArgument, f"handle has {len(handle)} bytes", d.event_import, handle)
        refused(draft.InvalidArgument, "device has 0 characters", d.event_import, bytes(64), device="")


class EventServer:
    """A daemon with events, as far as a client can tell: what the real one has only on a GPU. Drafts are answered with zeros."""

    def __init__(self, folder, facts):
        self.path, self.seen = folder / "events.sock", []
        self.facts = facts
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.fspath(self.path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.listener.close()
        self.thread.join()

    def result(self, method, params):
        if method == "hello":
            return self.facts
        self.seen.append((method, params))
        if method == "event_import":
            return {"event": 40 + len(self.seen)}
        if method == "draft":
            tokens = len(params["anchors"]) * params["steps"]
            return {"tokens": [0] * tokens, "flags": [0] * len(params["anchors"]), "generation": 1,
                    "times_us": {"queue": 0, "device": 0, "total": 0}}
        return {}

    def serve(self):
        client, _ = self.listener.accept()
        reader = wire_codec.Reader(1 << 20)
        with client:
            while data := wire_codec.receive(client)[0]:
                reader.feed(data)
                while whole := reader.next():
                    _, id, method, params = wire_codec.decode(whole[0])
                    client.sendall(wire_codec.reply(id, self.result(method, params)))


def test_events(daemon, folder):
    case = golden.case("greedy_small")
    with daemon.connect() as client:
        facts = client.server
    with EventServer(folder, facts) as server:
        with draft.connect(os.fspath(server.path)) as d, draft.connect(os.fspath(daemon.socket)) as other:
            event = d.event_import(bytes(range(64)))
            spare = d.event_import(bytes(range(64, 128)), device="GPU-1")
            assert repr(event) == "<draft.Event>"
            d.draft(base=base_of(case), event=event, **columns(case))
            ticket = d.submit(base=base_of(case), event=event, **columns(case))
            assert any(event in held for _, held in d._sent), "kept for the ticket"
            assert d.poll().ticket == ticket
            d.draft(base=base_of(case), **columns(case))
            refused(draft.InvalidArgument, "another connection's", other.draft, base=base_of(case), event=event, **columns(case))
            event.close()
            event.close()
            refused(draft.InvalidArgument, "event was closed", d.draft, base=base_of(case), event=event, **columns(case))
            del spare
            gc.collect()
            d.ping()  # closes what was dropped
            with d.event_import(bytes(64)):
                pass
    assert [(method, params.get("event")) for method, params in server.seen] == [
        ("event_import", None), ("event_import", None), ("draft", 41), ("draft", 41), ("draft", None), ("event_close", 41),
        ("event_close", 42), ("ping", None), ("event_import", None), ("event_close", 49),
    ]
    assert server.seen[0][1] == {"handle": bytes(range(64))}
    assert server.seen[1][1] == {"handle": bytes(range(64, 128)), "device": "GPU-1"}


def test_gpus_are_counted_by_uuid(monkeypatch):
    uuids = [bytes(range(16)), bytes(range(16, 32))]

    class Driver:
        def cuInit(self, flags):
            return 0

        def cuDeviceGetCount(self, count):
            count._obj.value = len(uuids)
            return 0

        def cuDeviceGet(self, device, ordinal):
            device._obj.value = ordinal
            return 0

        def cuDeviceGetUuid_v2(self, found, device):
            found[:] = uuids[device.value]
            return 0

    monkeypatch.setattr(_cuda.ctypes, "CDLL", lambda name: Driver())
    assert _cuda.ordinal_of("GPU-10111213-1415-1617-1819-1A1b1c1d1e1f") == 1
    for uuid in "GPU-\ufffd", "GPU-1", "", "GPU-10111213-1415-1617-1819-1a1b1c1d1e20":
        refused(draft.NotSupported, f"draftd's {uuid} is not among this process's GPUs (2)", _cuda.ordinal_of, uuid)
    del Driver.cuDeviceGetUuid_v2
    refused(draft.NotSupported, "newer driver", _cuda.ordinal_of, "GPU-1")


def test_texts_of_interrupted_calls_are_freed(daemon, monkeypatch):
    freed, kept = [], 0

    def free(found):
        if found:
            freed.append(found.value)
            _library.free(found)

    monkeypatch.setattr(draft.connection, "free", free)
    d = connect(daemon)
    for _ in interrupted(lambda: d.stats()):
        had = [text.value for text in d._texts.values() if text.value]  # what has come, and nobody has seen
        freed.clear()
        d.close()
        assert [text for text in freed if text] == had
        kept += len(had)
        d = connect(daemon)
    d.close()
    assert kept > 0


def test_closed_connection(daemon):
    d = connect(daemon)
    d.close()
    d.close()
    for call in d.ping, d.poll, d.fileno, d.reconnect, lambda: d.region_open(1), lambda: d.going_away:
        refused(draft.ConnectionLost, "connect again", call)


def test_sealed(daemon):
    """What became addresses and sizes can't be changed, and what frees can't be doubled."""
    with connect(daemon) as d, d.region_open(4096) as region:
        tensor = region.tensor([4], "uint16")
        for each, names in (
            (d, ["model", "limits", "devices"]), (region, ["nbytes", "memory", "device"]),
            (tensor, ["region", "shape", "dtype", "offset", "strides"]),
        ):  # fmt: skip
            for name in names:
                before = getattr(each, name)
                with pytest.raises(AttributeError, match=f"{name} of a {type(each).__name__}"):
                    setattr(each, name, 1 << 40)
                with pytest.raises(AttributeError, match=f"{name} of a {type(each).__name__}"):
                    delattr(each, name)
                assert getattr(each, name) == before
            for double in copy.copy, copy.deepcopy, pickle.dumps:
                with pytest.raises(TypeError, match=f"a {type(each).__name__} can't be copied or pickled"):
                    double(each)
        with pytest.raises(AttributeError):
            d.limits.max_rows = 1 << 40
        del tensor, each, before


GARBAGE = """
import asyncio, gc, sys, draft
class Engine:
    def __init__(self):
        self.d = draft.connect(sys.argv[1])
        self.region = self.d.region_open(1 << 20)
        self.cycle = self
def drop():
    engine = Engine()
    engine.view = engine.region.data
    engine.tensor = engine.region.tensor([4, 4], "uint16")
def refused(call):
    try:
        call()
    except draft.RegionInUse:
        return
    sys.exit("not refused")
"""


@pytest.mark.parametrize("script", {
    "uses": """
def use(self):
    self.view[0] = 1
    print(self.d.stats()["regions"], self.tensor.shape[0] + self.region.data[0])
Engine.__del__ = use
drop()
""",
    "closes": """
def close(self):
    refused(self.region.close)
    refused(self.d.close)
    del self.tensor
    self.view[0] = 1
    self.view.release()
    self.region.close()
    self.d.close()
    print(1, 5)
Engine.__del__ = close
drop()
""",
    "comes_back": """
def come_back(self):
    global engine
    engine = self
Engine.__del__ = come_back
drop()
gc.collect()
engine.view[0] = 1
print(engine.d.stats()["regions"], engine.tensor.shape[0] + engine.region.data[0])
del engine
""",
    "generator": """
def work(box):
    with draft.connect(sys.argv[1]) as d, d.region_open(4096) as region:
        box.append(region.data)
        yield
        sys.exit("went on")
box = []
box.append(work(box))
next(box[0])
del box
print(1, 5)
""",
    "exception": """
Engine.__del__ = lambda self: (self.region.close(), self.d.close(), print(1, 5))
def run():
    engine = Engine()
    try:
        engine.d.draft([1], [0], None, steps=1)
    except draft.DraftError as error:
        kept = error
run()
""",
    "coroutine": """
async def serve():
    with draft.connect(sys.argv[1]) as d, d.region_open(4096) as region:
        view = region.data
        await asyncio.get_running_loop().create_future()
async def main():
    asyncio.create_task(serve())
    await asyncio.sleep(0)
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *_: None)
loop.run_until_complete(main())
loop.close()
del loop
print(1, 5)
""",
}.items(), ids=lambda item: item[0])  # fmt: skip
def test_garbage(daemon, script):
    """Finalizers of a cycle run in any order: what they use is there until the last has."""
    _, script = script
    ending = "gc.collect()\nassert draft.connect(sys.argv[1]).stats()['connections'] == 2, 'the one is gone'\n"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", GARBAGE + script + ending, daemon.socket],
        env=os.environ | {"PYTHONPATH": PACKAGES}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.replace("Task was destroyed but it is pending!", "").strip()) == (0, "1 5\n", "")


def test_dropped_connections_end(daemon):
    """Not closed, but dropped: draftd hears of it at the next collection."""
    d = connect(daemon)
    region = d.region_open(4096)
    view = region.data
    del d, region
    gc.collect()
    with daemon.connect() as client:
        assert client.call("stats")[0]["connections"] == 3
        view[0] = 1
        del view
        gc.collect()
        end = time.monotonic() + PATIENCE_S
        while client.call("stats")[0]["connections"] > 2:
            assert time.monotonic() < end


# ---- signals, forks, threads ----


class Stop(Exception):
    pass


def interrupted(call):
    """Runs it again and again, each time with an exception from one line of the package later, as a signal's handler raises it."""
    package, line = os.fspath(PACKAGES / "draft"), 0

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(package) or frame.f_code.co_name == "__del__":  # there it would get lost
            return None
        # Not where a lock is given back: there a tracer is called before, a signal's handler only after.
        if event in ("line", "return") and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            left -= 1
            if left == 0:
                raise Stop
        return trace

    while True:
        line += 1
        left = line
        sys.settrace(trace)
        try:
            call()
        except Stop:
            pass
        finally:
            sys.settrace(None)
        if left > 0:
            return
        yield line


def test_interrupts(daemon):
    """Whatever line they come in, nothing is leaked at draftd, no result is waited for that doesn't come, and all goes on."""
    case = golden.case("greedy_small")
    request = columns(case) | {"base": base_of(case)}

    def use_region():
        with d.region_open(4096) as region:
            region.data[0] = 1
            region.tensor([4]).__dlpack__()

    def submit():
        tickets.append(d.submit(logits=numpy.zeros(base_of(case).shape, numpy.uint16), **request))

    def connect_and_close():
        with connect(daemon) as other:
            other.stats()

    def drain():
        results.extend(iter(lambda: d.poll(-1), None))
        assert d.stats()["inflight"] == 0 and not any(ticket.value for ticket, _ in d._sent)

    with connect(daemon) as d:
        for lines in interrupted(use_region):
            assert d.stats()["regions"] == 0
        assert lines > 50
        for _ in interrupted(d.stats):
            assert len(d._texts) <= 1
        tickets, results = [], []
        os.kill(daemon.pid, signal.SIGSTOP)  # so that no answer is there before poll() asks what to wait for
        for lines in interrupted(submit):
            known = sum(ticket.value > 0 for ticket, _ in d._sent)
            before = len(results)
            os.kill(daemon.pid, signal.SIGCONT)
            drain()
            assert len(results) == d.stats()["requests"].get("draft", 0), "of all that was sent"
            assert len(results) - before == known
            os.kill(daemon.pid, signal.SIGSTOP)
        os.kill(daemon.pid, signal.SIGCONT)
        drain()
        assert lines > 50 and len(tickets) == 1 and len(results) > 1
        for lines in interrupted(lambda: d.poll(-1)):
            drain()
            submit()
        assert lines > 10
        for _ in interrupted(lambda: d.draft(**request)):
            d.ping()
        assert d.draft(**request).tokens.tolist() == [case.tokens_of(r) for r in range(case.rows)]
        for _ in interrupted(d.reconnect):
            while d.poll(-1):
                pass
            submit()
        while d.poll(-1):
            pass
        for _ in interrupted(connect_and_close):
            gc.collect()
            d.ping()
        end = time.monotonic() + PATIENCE_S
        while d.stats()["connections"] > 2:
            assert time.monotonic() < end


@pytest.fixture
def handler():
    """handler(function): of SIGUSR1, for the test's time."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda function: signal.signal(signal.SIGUSR1, lambda number, frame: function())
    signal.signal(signal.SIGUSR1, before)


def signaller(daemon, enough=lambda: True):
    """A thread that signals this process until it is enough and lets the daemon go on, and the lock that it waits for."""
    gate = threading.Lock()
    gate.acquire()

    def work():
        gate.acquire()
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            while not enough():
                os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, gate


def test_an_interrupted_poll_loses_nothing(daemon, handler):
    case = golden.case("greedy_small")

    def stop():
        raise Stop

    handler(stop)
    with connect(daemon) as d:
        for _ in range(20):
            os.kill(daemon.pid, signal.SIGSTOP)
            ticket = d.submit(base=base_of(case), **columns(case))
            thread, gate = signaller(daemon)
            with pytest.raises(Stop):
                gate.release()
                d.poll(-1)
            thread.join()
            assert d.poll(-1).ticket == ticket
            assert d.poll(-1) is None


def test_close_by_a_signal(daemon, handler):
    """During a poll() it closes, and poll() says so; in the middle of a call it is refused."""
    case = golden.case("greedy_small")
    d = connect(daemon)

    def close():
        try:
            d.close()
        except draft.ConnectionBusy:  # just then poll() asked libdraft; there is a next signal
            pass

    handler(close)
    os.kill(daemon.pid, signal.SIGSTOP)
    d.submit(base=base_of(case), **columns(case))
    thread, gate = signaller(daemon, d._is_gone)
    with pytest.raises(draft.ConnectionLost, match="was closed"):
        gate.release()
        d.poll(-1)
    thread.join()

    class Column:
        def tolist(self):
            call()
            return [1] * case.rows

    with connect(daemon) as d, d.region_open(4096) as region:
        for call in d.close, d.ping, d.reconnect, region.close, lambda: region.data, lambda: d.poll(0):
            error = refused(
                draft.ConnectionBusy, "call again after it", d.draft, base=base_of(case), **columns(case) | {"seeds": Column()}
            )
            assert isinstance(error, RuntimeError) and not error.retryable
            error = None
        call = lambda: region.__exit__()  # in garbage, say: it waits for the next call
        d.draft(base=base_of(case), **columns(case) | {"seeds": Column()})
        assert d.stats()["regions"] == 1
        del region
        call = None
        d.ping()


def test_fork(daemon):
    """The connection stays the parent's, though another thread of the parent has its lock, or polls."""
    case = golden.case("greedy_small")
    with connect(daemon) as d:
        region = d.region_open(4096)
        view = region.data
        os.kill(daemon.pid, signal.SIGSTOP)
        ticket = d.submit(base=base_of(case), **columns(case))
        results = []
        threads = [threading.Thread(target=lambda: results.append(d.poll(-1))), threading.Thread(target=d.ping)]
        for thread in threads:
            thread.start()
        while d._lock.acquire(blocking=False):  # until the ping has it
            d._lock.release()
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE_S)
            try:
                for call in d.ping, d.poll, d.reconnect, lambda: region.data, lambda: region.tensor([1]):
                    refused(draft.ConnectionLost, "connect again in this one, after the fork", call)
                view[0] = 7
                region.close()
                with region, d:
                    pass
                d.close()
                del view, region, d
                gc.collect()
                os.kill(daemon.pid, signal.SIGCONT)
                with connect(daemon) as mine:
                    mine.ping()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        os.kill(daemon.pid, signal.SIGCONT)
        for thread in threads:
            thread.join()
        assert results[0].ticket == ticket
        assert view[0] == 7 and d.stats()["regions"] == 1
        del view


@pytest.mark.alone
def test_a_poll_hinders_nobody(daemon):
    """While one thread waits for a result, others' calls go on."""
    case = golden.case("greedy_small")
    with connect(daemon) as d:
        os.kill(daemon.pid, signal.SIGSTOP)
        ticket = d.submit(base=base_of(case), **columns(case))
        results = []
        thread = threading.Thread(target=lambda: results.append(d.poll(-1)))
        thread.start()
        waited = 0
        for _ in range(50):
            time.sleep(0.001)  # the poll() goes on
            start = time.monotonic()
            d.events()
            waited += time.monotonic() - start
        assert waited < 1, "for 50 calls that wait for nothing"
        assert thread.is_alive()
        os.kill(daemon.pid, signal.SIGCONT)
        d.ping()  # takes the result from the socket, perhaps
        thread.join()
        assert results[0].ticket == ticket


# ---- arguments ----


def test_arguments(daemon, folder):
    """Integers fit their C types, strings have no zero byte; what is wrong is named."""

    def bad(words, call, *arguments, **named):
        refused(draft.InvalidArgument, words, call, *arguments, **named)

    for path in str(daemon.socket), os.fsencode(daemon.socket), daemon.socket:
        draft.connect(path).close()
    for words, options in (
        ("socket_path has a zero byte at 1", {"socket_path": "a\0b"}),
        ("socket_path is a int", {"socket_path": 5}),
        ("socket_path has 0 bytes", {"socket_path": ""}),
        ("client_name has a zero byte at 1", {"client_name": "a\0b"}),
        ("client_name is a int", {"client_name": 5}),
        ("client_name has 0 characters", {"client_name": ""}),
        ("client_name has a character at 1", {"client_name": "a\ud800"}),
        ("timeout_us is a float", {"timeout_us": 1.5}),
        (f"timeout_us is {2**64 + 1}; it is from", {"timeout_us": 2**64 + 1}),
        (f"timeout_us is {-2**70}; it is from", {"timeout_us": -(2**70)}),
        ("spin_us is 1000001; it is from 0 to 1000000", {"spin_us": 1000001}),
        ("spin_us is -1", {"spin_us": -1}),
    ):
        bad(words, draft.connect, **{"socket_path": daemon.socket} | options)
    memfd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, 4096)
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with connect(daemon) as d, d.region_open(4096) as region:
        bad(f"fd is {memfd + 2**32}; it is from 0 to 2147483647", d.region_import, memfd + 2**32, 4096)
        bad("fd is -1", d.region_import, -1, 4096)
        bad("fd is a str", d.region_import, "1", 4096)
        bad("Bad file descriptor", d.region_import, 2**31 - 1, 4096)
        d.region_import(memfd, 4096).close()
        os.close(memfd)
        bad("memory is []", d.region_open, 4096, [])
        bad("device is a int", d.region_open, 4096, "device", 0)
        bad("device has a zero byte at 3", d.region_open, 4096, "device", "GPU\0")
        bad("handle is a str", d.event_import, "x" * 64)
        bad("handle is a int", d.event_import, 64)
        bad("device is a int", d.event_import, bytes(64), 0)
        for timeout, words in (None, "a NoneType"), (1.5, "a float"), (2**63, f"{2**63}; it is from"), (-(2**64), f"{-2**64}; it"):
            bad(f"timeout_us is {words}", d.poll, timeout)
        for ticket, words in (None, "a NoneType"), (-1, "-1; it is from 0"), (2**64, f"{2**64}; it is from 0"):
            bad(f"ticket is {words}", d.cancel, ticket)
        bad("shape is a int", region.tensor, 5)
        bad("shape has 65 numbers; the most is 64", region.tensor, [1] * 65)
        bad("strides is a int", region.tensor, [1], strides=1)
        bad("dtype is []", region.tensor, [1], [])
        tensor = region.tensor([1])
        bad("max_version is 5", tensor.__dlpack__, max_version=5)
        bad("dl_device 5", tensor.__dlpack__, dl_device=5)
        del tensor
        case = golden.case("greedy_small")
        good = columns(case) | {"base": base_of(case)}
        for far in 1e39, -1e300, 10**400:
            bad("temperatures can't be a column", d.draft, **good | {"temperatures": far})
        bad("event is a int", d.draft, **good | {"event": 5})
        d.draft(**good | {"temperatures": float("inf")})


# ---- DLPack, by hand: as the specification's header has it ----


class Capsule:
    """A consumer of a capsule, as careless as it may be."""

    VERSION_BYTES = 8 + 8 + 8 + 8  # version, context, deleter, flags

    def __init__(self, tensor, versioned):
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
        rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
        capsule = tensor.__dlpack__(max_version=(1, 1)) if versioned else tensor.__dlpack__()
        self.used_name = b"used_dltensor_versioned" if versioned else b"used_dltensor"  # stays: the capsule points to it
        self.at = get(capsule, self.used_name[5:])
        rename(capsule, self.used_name)
        if versioned:
            assert self.word(0, "2I") == (1, 0) and self.word(24, "Q") == (0,), "version 1.0, no flags"
        start = self.VERSION_BYTES if versioned else 0
        self.data, self.device, self.device_id, self.ndim, self.code, self.bits, self.lanes, shape, strides, self.offset = (
            self.word(start, "QiiiBBHQQQ")
        )
        self.shape = list((ctypes.c_int64 * self.ndim).from_address(shape))
        self.strides = list((ctypes.c_int64 * self.ndim).from_address(strides))
        (self.deleter,) = self.word(16 if versioned else 56, "Q")

    def word(self, at, format):
        return struct.unpack(format, ctypes.string_at(self.at + at, struct.calcsize(format)))

    def delete(self):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.deleter)(self.at)


@pytest.mark.parametrize("versioned", [False, True], ids=["unversioned", "versioned"])
def test_capsule(daemon, versioned):
    with connect(daemon) as d:
        region = d.region_open(4096)
        at = _buffers.address_of(region.data)
        for dtype, code in ("bf16", 4), ("uint16", 1):
            capsule = Capsule(region.tensor([3, 5], dtype, offset=10, strides=[20, 2]), versioned)
            assert (capsule.data + capsule.offset, capsule.device, capsule.device_id) == (at + 10, 1, 0)
            assert (capsule.code, capsule.bits, capsule.lanes) == (code, 16, 1)
            assert (capsule.shape, capsule.strides) == ([3, 5], [20, 2])
            gc.collect()
            ctypes.c_uint16.from_address(capsule.data + capsule.offset).value = 0x3F80
            assert region.data[10:12] == b"\x80\x3f"
            assert in_use(region.close)
            thread = threading.Thread(target=capsule.delete)
            thread.start()
            thread.join()
        region.close()


def test_capsule_while_it_is_made(daemon):
    """A collection or another thread between any two lines doesn't take it for dropped."""

    def trace(frame, event, argument):
        if frame.f_code.co_name == "export":
            _dlpack.sweep()
            return trace
        return None

    with connect(daemon) as d, d.region_open(4096) as region:
        for versioned in False, True:
            sys.settrace(trace)
            try:
                capsule = region.tensor([4]).__dlpack__(max_version=(1, 0) if versioned else None)
            finally:
                sys.settrace(None)
            assert len(_dlpack._exports) == 1
            del capsule
            _dlpack.sweep()
            assert not _dlpack._exports


def test_capsule_that_is_refused(daemon):
    """A consumer's own error comes through, and the capsule that it dropped holds nothing."""
    with connect(daemon) as d:
        region = d.region_open(4096)
        with pytest.raises((RuntimeError, BufferError), match="Unsupported dtype"):
            numpy.from_dlpack(region.tensor([4]))  # NumPy has no BF16
        tensor = region.tensor([4])
        assert tensor.__dlpack_device__() == (1, 0)
        for arguments in {"copy": True}, {"dl_device": (2, 0)}:
            with pytest.raises(BufferError):
                tensor.__dlpack__(**arguments)
        tensor.__dlpack__(copy=False, dl_device=(1, 0), stream=None)
        assert not hasattr(tensor, "__cuda_array_interface__")
        del tensor
        region.close()


def test_tensors_at_exit(daemon):
    """What is still consumed when the interpreter ends does no harm, in whatever order it goes."""
    script = """
import sys, numpy, draft
d = draft.connect(sys.argv[1])
region = d.region_open(4096)
sys.kept = numpy.from_dlpack(region.tensor([4], "uint16"))
kept = numpy.from_dlpack(region.tensor([4], "uint16"))
numpy.kept = memoryview(region.data)
d.submit([1], [1], memoryview(bytearray(2 * d.model.vocab)).cast("H"), steps=1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, daemon.socket], env=os.environ | {"PYTHONPATH": PACKAGES}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


# ---- the rest ----


def test_facts(daemon):
    with connect(daemon, client_name="test/1.0") as d:
        assert d.model.backend == "cpu" and d.model.name == "greedy_small" and d.model.bias_order == "mma16"
        assert (d.model.vocab, d.model.rank) == (300, 16) and d.model.soft_cap is None
        assert d.limits.max_rows == 64 and d.limits.max_steps == 8 and d.limits.max_region_bytes == 1 << 30
        assert [device.uuid for device in d.devices] == ["CPU"] and d.devices[0].memory_bytes > 0
        d.ping()
        stats = d.stats()
        assert stats["model"] == "greedy_small" and stats["connections"] == 2
        assert "draftd_connections 2\n" in d.metrics()
        generation = d.model.generation
        d.reload()
        d.reconnect()
        assert d.model.generation > generation
    assert "test/1.0" in daemon.log
    assert draft.__version__ in d.model.server


def test_library_is_found(folder):
    def load(**environment):
        return subprocess.run(
            [sys.executable, "-B", "-c", "import draft; print(draft._library.library._name)"],
            env={k: v for k, v in os.environ.items() if k != "LIBDRAFT"} | {"PYTHONPATH": str(PACKAGES)} | environment,
            capture_output=True, text=True,
        )  # fmt: skip

    named = BUILD / "libdraft.so.0"
    assert load(LIBDRAFT=str(named)).stdout.strip() == str(named)
    if (ROOT / "build/libdraft.so.0").exists():
        assert load().stdout.strip() == str(ROOT / "build/libdraft.so.0")
    done = load(LIBDRAFT=str(folder / "none"))
    assert "set LIBDRAFT to the path of libdraft.so.0" in done.stderr
    other = ctypes.util.find_library("m")
    assert f"ImportError: {other} has no draft_" in load(LIBDRAFT=other).stderr


def test_pyflakes():
    if not importlib.util.find_spec("pyflakes"):
        pytest.skip("pyflakes isn't installed")
    done = subprocess.run([sys.executable, "-m", "pyflakes", PACKAGES, EXAMPLE], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


def test_example(daemon):
    if not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch isn't installed; tests/gpu/python_device.py runs the example on a GPU machine")
    path = os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, EXAMPLE, daemon.socket], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0 and "after" in done.stdout, done.stdout + done.stderr
