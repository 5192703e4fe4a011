"""A connection to draftd, and what comes back over it."""

from __future__ import annotations

import ctypes
import errno
import json
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Sequence, Union

from ._buffers import FLOAT32, INT64, UINT32, address_of, column, inline, number
from ._library import MEMORY, DeviceFacts, Options, Place, Request, ResultView, free, library
from .errors import TYPED_ERROR_BASE, ConnectionLost, DraftError, TooLarge, connect_error_of, error_of, invalid
from .event import HANDLE_BYTES, Event
from .region import Region, Tensor, _Lease, refuse_while_leased

_UINT32_MAX, _UINT64_MAX = 2**32 - 1, 2**64 - 1
_ERROR_BYTES = 512
# poll() comes up this often: for Ctrl-C, and for other threads that want the connection.
_POLL_SLICE_US = 100_000

# A column: one number a row, as a sequence, or as a buffer of the type that fits, which is then not copied.
Column = Union[Sequence[Any], Any]


@dataclass(frozen=True)
class Model:
    """What draftd serves, as it said when we connected."""

    server: str
    name: str
    backend: str  # "cpu" or "cuda"
    bias_order: str
    generation: int  # when connected; every Result has the current one
    vocab: int  # V
    rank: int
    target_vocab: int  # ids that an anchor may have
    multiplier: float
    soft_cap: float | None
    tensor_parallel: int


@dataclass(frozen=True)
class Limits:
    """What draftd takes; beyond is TooLarge, or ResourceExhausted for what is in use at the moment."""

    max_rows: int
    max_steps: int
    max_frame_bytes: int
    max_inflight: int
    max_regions: int
    max_region_bytes: int


@dataclass(frozen=True)
class Device:
    """One that draftd computes on; regions of device memory are on the first."""

    uuid: str  # "GPU-…", or "CPU"
    name: str
    memory_bytes: int


class Drafted(NamedTuple):
    """tokens: [rows, steps] of uint32, a memoryview (tokens.tolist(), numpy.asarray(tokens)). flags: a byte a row, bit 0: a NaN
    won somewhere in it."""

    tokens: memoryview
    flags: bytes


@dataclass(frozen=True)
class Result:
    """The answer to a submit(): either `error`, or the rest."""

    ticket: int
    error: DraftError | None
    tokens: memoryview | None = None  # as in Drafted
    flags: bytes = b""
    generation: int = 0
    queue_us: int = 0  # as draftd measured: waiting,
    device_us: int = 0  # the launch that had these rows,
    total_us: int = 0  # from arrival to the reply


class Handle:
    """libdraft's connection. Freed with the last of those who hold it: the Connection until its close, and leases."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        self.leases: weakref.WeakSet[_Lease] = weakref.WeakSet()
        self.dropped: deque[tuple[Callable[[int], int], int]] = deque()  # regions and events that nobody holds, and what closes them
        weakref.finalize(self, library.draft_close, pointer).atexit = False


def connect(socket_path: str | None = None, *, client_name: str | None = None, timeout_us: int = 0, spin_us: int = 0) -> Connection:
    """Connects to the draftd of this host.

    socket_path  default: /run/draftd/draftd.sock
    client_name  for draftd's log, "name" or "name/version"
    timeout_us   to connect, and of every call that waits; 0: 10 seconds, negative: none
    spin_us      how long a wait looks at the socket before it sleeps, up to 1 second: quicker, for a core meanwhile; 0: not at all

    NotRunning when nobody listens there.
    """
    options = Options(
        size=ctypes.sizeof(Options),
        socket_path=None if socket_path is None else str(socket_path).encode(),
        client_name=(client_name or "python").encode(),
        timeout_us=timeout_us,
        spin_us=spin_us,
    )
    pointer = ctypes.c_void_p()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    code = library.draft_connect(options, pointer, error, _ERROR_BYTES)
    if code < 0:
        raise connect_error_of(code, error.value)
    assert pointer.value
    return Connection(Handle(pointer.value))


class Connection:
    """From connect(); use it in a `with`. Threads may share it: their calls wait for each other.

    Calls that wait for draftd do so without the interpreter's lock, up to the connection's timeout (Timeout; the connection lives
    on). After ConnectionLost nothing but reconnect() and close() makes sense.
    """

    model: Model
    limits: Limits
    devices: tuple[Device, ...]

    def __init__(self, handle: Handle) -> None:
        self._handle: Handle | None = handle
        self._lock = threading.RLock()
        # What libdraft may still write or read for a ticket. `_sending` has it before the ticket is known.
        self._tickets: dict[int, tuple[Any, ...]] = {}
        self._sending: list[tuple[Any, ...]] = []
        self._read_facts(handle)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: Any) -> None:
        """Closes it; where views of regions still exist, when the last of them is gone (and collected, if made through DLPack)."""
        with self._lock:
            self._let_go()

    def close(self) -> None:
        """Ends the connection and frees its regions. RegionInUse while views of them exist; then nothing has happened."""
        with self._lock:
            if self._handle is not None:
                refuse_while_leased(self._handle)
                self._let_go()

    def _let_go(self) -> None:
        self._handle = None
        self._tickets.clear()
        self._sending.clear()

    def reconnect(self, within_us: int = 0) -> None:
        """The same socket again; tried for so long, with growing pauses, while draftd is away (negative: for ever). Outstanding
        tickets are forgotten; regions are invalid, but views of them stay readable."""
        with self._lock:
            handle = self._open()
            if within_us:
                code = library.draft_reconnect_within(handle.pointer, within_us)
            else:
                code = library.draft_reconnect(handle.pointer)
            if code < 0:
                raise connect_error_of(code, library.draft_error(handle.pointer))
            self._tickets.clear()
            self._sending.clear()
            self._read_facts(handle)

    def _open(self) -> Handle:
        """The handle, for a caller that has the lock; regions and events that were dropped are closed first."""
        if self._handle is None:
            raise ConnectionLost(-errno.ENOTCONN, "the connection was closed; connect again")
        while self._handle.dropped:
            close, pointer = self._handle.dropped.popleft()
            close(pointer)
        return self._handle

    def _check(self, handle: Handle, code: int) -> int:
        if code < 0:
            raise error_of(code, library.draft_error(handle.pointer))
        return code

    def _call(self, function: Callable[..., int], *arguments: Any) -> int:
        with self._lock:
            handle = self._open()
            return self._check(handle, function(handle.pointer, *arguments))

    def _read_facts(self, handle: Handle) -> None:
        facts = library.draft_model(handle.pointer).contents
        self.model = Model(
            server=facts.server.decode(errors="replace"),
            name=facts.name.decode(errors="replace"),
            backend=facts.backend.decode(errors="replace"),
            bias_order=facts.bias_order.decode(errors="replace"),
            generation=facts.generation,
            vocab=facts.vocab,
            rank=facts.rank,
            target_vocab=facts.target_vocab,
            multiplier=facts.multiplier,
            soft_cap=facts.soft_cap or None,
            tensor_parallel=facts.tensor_parallel,
        )
        self.limits = Limits(
            facts.max_rows, facts.max_steps, facts.max_frame_bytes, facts.max_inflight, facts.max_regions, facts.max_region_bytes
        )
        devices = []
        device = DeviceFacts()
        for index in range(facts.device_count):
            if library.draft_device_at(handle.pointer, index, device):
                devices.append(Device(device.uuid.decode(), device.name.decode(errors="replace"), device.memory_bytes))
        self.devices = tuple(devices)

    # ---- regions ----

    def region_open(self, nbytes: int, memory: str = "host", device: str | None = None) -> Region:
        """Zeroed memory of at least `nbytes` bytes that draftd shares: "host", or "device" for memory of the GPU with the UUID
        `device` (default: draftd's first)."""
        if memory not in MEMORY:
            raise invalid(f'memory is {memory!r}; it is "host" or "device"')
        nbytes = number("nbytes", nbytes, _UINT64_MAX)
        if device is None:
            return self._region(memory, library.draft_region_open, nbytes, MEMORY[memory])
        if memory == "host":
            raise invalid(f'device is {device!r}, but memory is "host"')
        return self._region(memory, library.draft_region_open_device, nbytes, device.encode())

    def region_import(self, fd: int, nbytes: int) -> Region:
        """The first `nbytes` bytes of a memfd of the caller's, sealed with F_SEAL_SHRINK, who may close it at once."""
        return self._region("host", library.draft_region_import, fd, number("nbytes", nbytes, _UINT64_MAX))

    def _region(self, memory: str, function: Callable[..., int], *arguments: Any) -> Region:
        pointer = ctypes.c_void_p()
        with self._lock:
            self._call(function, *arguments, pointer)
            assert self._handle is not None and pointer.value
            return Region(self, self._handle, pointer.value, memory)

    # ---- events ----

    def event_import(self, handle: bytes, device: str | None = None) -> Event:
        """Shares a CUDA event of this process by its `handle`: torch.cuda.Event(interprocess=True).ipc_handle(). It was made on the GPU
        with the UUID `device` (default: draftd's first). Name it in a draft() or submit() after recording it behind the work that
        writes `base`, and record it again only after the answer. At most 4 a connection."""
        if len(handle) != HANDLE_BYTES:
            raise invalid(f"handle has {len(handle)} bytes; an event's has {HANDLE_BYTES}")
        pointer = ctypes.c_void_p()
        with self._lock:
            self._call(
                library.draft_event_import, bytes(handle), HANDLE_BYTES, None if device is None else device.encode(), pointer
            )
            assert self._handle is not None and pointer.value
            return Event(self, self._handle, pointer.value)

    # ---- drafting ----

    def draft(
        self,
        anchors: Column,
        positions: Column,
        base: Any,
        *,
        steps: int,
        seeds: Column | int = 0,
        temperatures: Column | float = 0.0,
        slots: Column | None = None,
        logits: Any = None,
        deadline_us: int = 0,
        priority: int = 0,
        event: Event | None = None,
    ) -> Drafted:
        """Draws `steps` tokens for each row and waits for them.

        anchors       [rows] of uint32, the token before each block
        positions     [rows] of int64, position of the first token to draw
        base          base logits [rows, steps, vocab], BF16: a region's tensor() of at least that shape (its first rows and
                      steps count), or any C-contiguous buffer of uint16, which is sent
        seeds         [rows] of int64, or one for all
        temperatures  [rows] of float32, or one for all; 0 is greedy
        slots         [rows] of int64, where in `logits` a row's go; negative: a padding row; default 0, 1, …
        logits        draft logits, not wanted by default: a region's tensor() of [slots, steps, vocab], or a writable buffer
                      of uint16 [rows, steps, vocab] (row r at row r, zeros for padding rows)
        deadline_us   microseconds from arrival at draftd to the launch; 0: none
        priority      0, or 1 which goes first
        event         of event_import(), recorded behind whatever still writes `base`

        Columns are sequences, or buffers (NumPy, array) that are not copied where the type fits. What lies in a region
        must be written when this is called: on a GPU, the stream that wrote it is synchronized, or an `event` says when.
        """
        with self._lock:
            handle = self._open()
            request, _held = self._request(
                anchors, positions, base, steps, seeds, temperatures, slots, logits, deadline_us, priority, event
            )
            tokens, flags = memoryview(bytearray(4 * request.rows * request.steps)), memoryview(bytearray(request.rows))
            self._check(handle, library.draft_draft(handle.pointer, request, address_of(tokens), address_of(flags)))
        return Drafted(tokens.cast("I", (request.rows, request.steps)), bytes(flags))

    def submit(
        self,
        anchors: Column,
        positions: Column,
        base: Any,
        *,
        steps: int,
        seeds: Column | int = 0,
        temperatures: Column | float = 0.0,
        slots: Column | None = None,
        logits: Any = None,
        deadline_us: int = 0,
        priority: int = 0,
        event: Event | None = None,
    ) -> int:
        """Sends what draft() would, and gives its ticket, for poll(). Columns and a `base` that is sent may be reused at once; what
        lies in a region, and `logits`, not before the result."""
        ticket = ctypes.c_uint64()
        with self._lock:
            self._open()
            request, held = self._request(
                anchors, positions, base, steps, seeds, temperatures, slots, logits, deadline_us, priority, event
            )
            # Whatever interrupts us from here on, memory that libdraft may write stays.
            self._sending.append(held)
            try:
                self._call(library.draft_submit, request, ticket)
            except DraftError:
                self._sending.pop()
                raise
            self._tickets[ticket.value] = self._sending.pop()
        return ticket.value

    def _request(
        self, anchors: Column, positions: Column, base: Any, steps: int, seeds: Column | int,
        temperatures: Column | float, slots: Column | None, logits: Any, deadline_us: int, priority: int,
        event: Event | None,
    ) -> tuple[Request, tuple[Any, ...]]:
        """The request, and what must live as long as a ticket. The request itself holds what must live while it is sent."""
        anchors = column("anchors", UINT32, anchors)
        rows, steps = len(anchors), number("steps", steps, _UINT32_MAX)
        for name, count, most in ("rows", rows, self.limits.max_rows), ("steps", steps, self.limits.max_steps):
            if not 1 <= count:
                raise invalid(f"{name} is {count}; it is at least 1")
            if count > most:
                raise TooLarge(-TYPED_ERROR_BASE - TooLarge.CODE, f"{name} is {count}, the most is {most}")
        columns = [anchors, column("positions", INT64, positions, rows), column("seeds", INT64, seeds, rows),
                   column("temperatures", FLOAT32, temperatures, rows)]
        request = Request(
            size=ctypes.sizeof(Request),
            rows=rows,
            steps=steps,
            deadline_us=number("deadline_us", deadline_us, _UINT64_MAX),
            priority=number("priority", priority, _UINT32_MAX),
        )
        request.anchors, request.positions, request.seeds, request.temperatures = map(address_of, columns)
        places = rows
        if slots is not None:
            slots = column("slots", INT64, slots, rows)
            columns.append(slots)
            request.slots = address_of(slots)
            places = max(slots, default=0) + 1
        shape = (rows, steps, self.model.vocab)
        request.base, base = self._place("base", base, shape, rows, False)
        held: tuple[Any, ...] = (base.region,) if isinstance(base, Tensor) else ()
        if logits is not None:
            request.logits, logits = self._place("logits", logits, shape, places, True)
            held += (logits.region if isinstance(logits, Tensor) else logits,)
        if event is not None:
            request.event = event._of(self)
            held += (event,)
        request.holds = columns, base, logits
        return request, held

    def _place(self, name: str, where: Any, shape: Sequence[int], places: int, writable: bool) -> tuple[Place, Any]:
        """A place, and what keeps its memory."""
        if isinstance(where, Region):
            raise invalid(f"{name} is a region; say how the logits lie in it: region.tensor([rows, steps, vocab])")
        if isinstance(where, Tensor):
            return where._place(name, (places, *shape[1:])), where
        view = inline(name, where, shape, writable)
        return Place(data=address_of(view)), view

    def poll(self, timeout_us: int = -1) -> Result | None:
        """The next result in order of arrival, which is not the order of sending. Waits up to `timeout_us` (0: not at all;
        negative: no limit, the connection's timeout does not count). None when none came, at once when no ticket is out."""
        end = None if timeout_us < 0 else time.monotonic_ns() // 1000 + timeout_us
        while True:
            left = _POLL_SLICE_US if end is None else max(0, end - time.monotonic_ns() // 1000)
            view = ctypes.POINTER(ResultView)()
            with self._lock:
                if self._call(library.draft_poll, min(left, _POLL_SLICE_US), view):
                    return self._take(view)
                if not self._tickets or left == 0:
                    return None

    def _take(self, view: Any) -> Result:
        """Copies a result out of libdraft and gives it back."""
        found = view.contents
        self._tickets.pop(found.ticket, None)
        if found.code:
            result = Result(found.ticket, error_of(found.code, found.error))
        else:
            tokens = memoryview(bytearray(ctypes.string_at(found.tokens, 4 * found.rows * found.steps)))
            result = Result(
                found.ticket, None, tokens.cast("I", (found.rows, found.steps)), ctypes.string_at(found.flags, found.rows),
                found.generation, found.queue_us, found.device_us, found.total_us,
            )
        library.draft_result_free(view)
        return result

    def cancel(self, ticket: int) -> None:
        """Asks draftd to drop a ticket. Its result still comes: Cancelled, or the tokens if it was too late."""
        self._call(library.draft_cancel, number("ticket", ticket, _UINT64_MAX))

    def fileno(self) -> int:
        """For an event loop: when it is ready for events() (bits of select.poll), call poll(0) until it returns None."""
        with self._lock:
            fd = library.draft_fd(self._open().pointer)
        if fd < 0:
            raise ConnectionLost(-errno.ENOTCONN, "the connection is at its end; reconnect")
        return fd

    def events(self) -> int:
        with self._lock:
            return library.draft_events(self._open().pointer)

    # ---- the service ----

    @property
    def going_away(self) -> str | None:
        """Why draftd will stop, once it has said so: take the results that are out, then connect elsewhere or later."""
        with self._lock:
            handle = self._open()
            if not library.draft_going_away(handle.pointer):
                return None
            return library.draft_goaway_reason(handle.pointer).decode(errors="replace")

    def ping(self) -> None:
        """One round trip to draftd's loop."""
        self._call(library.draft_ping)

    def stats(self) -> dict[str, Any]:
        """Counters: PROTOCOL.md, "stats"."""
        return json.loads(self._text(library.draft_stats))

    def metrics(self) -> str:
        """The same as Prometheus text."""
        return self._text(library.draft_metrics).decode(errors="replace")

    def _text(self, function: Callable[..., int]) -> bytes:
        pointer = ctypes.c_void_p()
        self._call(function, pointer)
        text = ctypes.string_at(pointer)
        free(pointer)
        return text

    def drain(self) -> None:
        """For root and draftd's own user, else PermissionDenied: draftd finishes what it has accepted, and exits."""
        self._call(library.draft_drain)

    def reload(self) -> None:
        """For the same: reads settings and model again. Returns when the new model serves; loading takes a while."""
        self._call(library.draft_reload)
