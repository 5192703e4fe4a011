"""A connection to draftd, and what comes back over it."""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import math
import os
import random
import select
import threading
import time
from typing import Any, Callable, Sequence, Union

from . import _native
from ._buffers import FLOAT32, INT64, UINT32, address_of, column, inline, number, octets, path, plural, text
from ._library import MEMORY, Options, Place, Request, ResultView, free, library
from ._native import Handle, Sealed, take_back
from .errors import TYPED_ERROR_BASE, ConnectionBusy, ConnectionLost, TooLarge, connect_error_of, error_of, invalid
from .event import HANDLE_BYTES, Event
from .facts import Device, Drafted, Limits, Model, Result, read_facts
from .region import Region, Tensor, refuse_while_used

_INT32_MAX, _UINT32_MAX, _INT64_MAX, _UINT64_MAX = 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1
_SPIN_MAX_US = 1_000_000
_ERROR_BYTES = 512
# Between reconnect()'s tries, in seconds: as draft_reconnect_within() has it.
_PAUSE_FIRST, _PAUSE_MOST = 0.01, 1.0
# poll() comes up this often, for results that another thread's call took from the socket.
_POLL_SLICE_US = 10_000

# A column: one number a row, as a sequence, or as a buffer of the type that fits, which is then not copied.
Column = Union[Sequence[Any], Any]


def connect(
    socket_path: str | bytes | os.PathLike[Any] | None = None, *, client_name: str | None = None, timeout_us: int = 0, spin_us: int = 0
) -> Connection:
    """Connects to the draftd of this host.

    socket_path  default: $DRAFTD_SOCKET, else /run/draftd/draftd.sock
    client_name  for draftd's log, "name" or "name/version"
    timeout_us   to connect, and of every call that waits; 0: 10 seconds, negative: none
    spin_us      how long a wait looks at the socket before it sleeps, up to 1 second: quicker, for a core meanwhile; 0: not at all

    NotRunning when nobody listens there.
    """
    options = Options(
        size=ctypes.sizeof(Options),
        socket_path=None if socket_path is None else path("socket_path", socket_path),
        client_name=text("client_name", "python" if client_name is None else client_name),
        timeout_us=number("timeout_us", timeout_us, _INT64_MAX, -_INT64_MAX),
        spin_us=number("spin_us", spin_us, _SPIN_MAX_US),
    )
    _native.sweep()
    handle = Handle()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    code = library.draft_connect(options, handle, error, _ERROR_BYTES)
    if code < 0:
        raise connect_error_of(code, error.value)
    return Connection(handle, options.spin_us)


class Connection(Sealed):
    """From connect(); use it in a `with`. Threads may share it: their calls wait for each other, but not for a poll() that waits.

    Calls that wait for draftd do so without the interpreter's lock, up to the connection's timeout (Timeout; the connection lives
    on). After ConnectionLost nothing but reconnect() and close() makes sense.
    """

    model: Model
    limits: Limits
    devices: tuple[Device, ...]

    _handle: Handle | None = None

    def __init__(self, handle: Handle, spin_us: int) -> None:
        self._handle = handle
        self._lock = threading.RLock()
        self._spin_us = spin_us
        # What libdraft may still write or read, and its ticket: 0 when it was refused, or not yet sent.
        self._sent: list[tuple[ctypes.c_uint64, tuple[Any, ...]]] = []
        # At 0, what libdraft returned, until we have made a Result of it, or a string.
        self._arrived: dict[int, Any] = {}
        self._texts: dict[int, ctypes.c_void_p] = {}
        vars(self).update(read_facts(handle))

    def __del__(self, sweep_after_collections: Callable[[], None] = _native.sweep_after_collections) -> None:
        """Closes nothing: others in the same garbage may yet use it."""
        if self._handle is not None:
            sweep_after_collections()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: Any) -> None:
        """Closes it; where views of regions still exist, when the last of them is gone (and collected, if made through DLPack)."""
        if not self._is_gone():
            with self._enter():
                self._let_go()

    def close(self) -> None:
        """Ends the connection and frees its regions. RegionInUse while views of them exist; then nothing has happened."""
        if self._is_gone():
            return
        lock = self._enter()
        self._collect(self._handle)
        with lock:
            if self._handle is not None:
                refuse_while_used(self._handle)
                self._let_go()

    def _let_go(self) -> None:
        handle, self._handle = self._handle, None
        if handle is None:
            return
        _native.sweep()
        if handle.count_uses():
            _native.sweep_after_collections()
        else:
            _native.handles.take_back(handle)
        self._sent.clear()
        self._arrived.clear()
        take_back(free, self._texts, 0)  # of a call that was interrupted

    def reconnect(self, within_us: int = 0) -> None:
        """The same socket again, each try for up to the connection's timeout; tried again for so long, with growing pauses, while draftd
        is away (negative: for ever). Outstanding tickets are forgotten; regions are invalid, but views of them stay readable. Ctrl-C
        ends a pause."""
        within_us = number("within_us", within_us, _INT64_MAX, -_INT64_MAX)
        end = math.inf if within_us < 0 else time.monotonic() + within_us / 1e6
        pause = _PAUSE_FIRST
        with self._enter():
            handle = self._open()
            while True:
                # One step, as in take_back(): or else poll() could wait for what doesn't come, or libdraft write what is no longer held.
                code, _ = next(zip(map(library.draft_reconnect, (handle,)), map(list.clear, (self._sent,))))
                take_back(library.draft_result_free, self._arrived, 0)
                if code == 0:
                    break
                wait = pause * (0.5 + random.random() / 2)  # so that many clients do not all come at the same moment
                passes = code == -errno.ENOENT or library.draft_error_retryable(code)
                if not passes or time.monotonic() + wait >= end:
                    raise connect_error_of(code, library.draft_error(handle))
                time.sleep(wait)  # not libdraft's: signals' handlers run in it
                pause = min(2 * pause, _PAUSE_MOST)
            vars(self).update(read_facts(handle))

    def _is_gone(self) -> bool:
        """Closed, or the parent's: nothing of it is left to close."""
        handle = self._handle
        return handle is None or handle.is_parents()

    def _enter(self) -> Any:
        """The lock, to be taken by a `with`."""
        handle = self._handle
        if handle is not None and handle.is_parents():
            raise ConnectionLost(-errno.ENOTCONN, "the connection is the parent process's; connect again in this one, after the fork")
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise ConnectionBusy(
                -errno.EDEADLK,
                "a call of this thread on the connection isn't over (this one comes from a signal's handler, a __del__ or an argument "
                "in the middle of it); call again after it",
            )
        return self._lock

    def _collect(self, pointer: _native.Pointer | None) -> None:
        """Before a close, which views refuse that only garbage holds. Without the lock: finalizers run, which may want it."""
        _native.sweep()
        if pointer is not None and pointer.count_uses():
            gc.collect()

    def _open(self) -> Handle:
        """The handle, for a caller that has the lock; regions and events that were dropped are closed first."""
        handle = self._handle
        if handle is None:
            raise ConnectionLost(-errno.ENOTCONN, "the connection was closed; connect again")
        _native.sweep()
        handle.regions.sweep()
        handle.events.sweep()
        return handle

    def _check(self, handle: Handle, code: int) -> int:
        if code < 0:
            raise error_of(code, library.draft_error(handle))
        return code

    def _call(self, function: Callable[..., int], *arguments: Any) -> int:
        with self._enter():
            handle = self._open()
            return self._check(handle, function(handle, *arguments))

    # ---- regions ----

    def region_open(self, nbytes: int, memory: str = "host", device: str | None = None) -> Region:
        """Zeroed memory of at least `nbytes` bytes that draftd shares: "host", or "device" for memory of the GPU with the UUID
        `device` (default: draftd's first)."""
        if not isinstance(memory, str) or memory not in MEMORY:
            raise invalid(f'memory is {memory!r}; it is "host" or "device"')
        nbytes = number("nbytes", nbytes, _UINT64_MAX)
        if device is None:
            return self._region(memory, library.draft_region_open, nbytes, MEMORY[memory])
        if memory == "host":
            raise invalid(f'device is {device!r}, but memory is "host"')
        return self._region(memory, library.draft_region_open_device, nbytes, text("device", device))

    def region_import(self, fd: int, nbytes: int) -> Region:
        """The first `nbytes` bytes of a memfd of the caller's, sealed with F_SEAL_SHRINK, who may close it at once."""
        return self._region(
            "host", library.draft_region_import, number("fd", fd, _INT32_MAX), number("nbytes", nbytes, _UINT64_MAX)
        )

    def _region(self, memory: str, function: Callable[..., int], *arguments: Any) -> Region:
        with self._enter():
            handle = self._open()
            pointer = handle.regions.add(_native.Pointer())
            self._check(handle, function(handle, *arguments, pointer))
            return Region(self, pointer, memory)

    # ---- events ----

    def event_import(self, handle: bytes, device: str | None = None) -> Event:
        """Shares a CUDA event of this process by its `handle`: torch.cuda.Event(interprocess=True).ipc_handle(). It was made on the GPU
        with the UUID `device` (default: draftd's first). Name it in a draft() or submit() after recording it behind the work that
        writes `base`, and record it again only after the answer. At most 4 a connection."""
        given = octets("handle", handle)
        if len(given) != HANDLE_BYTES:
            raise invalid(f"handle has {plural(len(given), 'byte')}; an event's has {HANDLE_BYTES}")
        where = None if device is None else text("device", device)
        with self._enter():
            connection = self._open()
            pointer = connection.events.add(_native.Pointer())
            self._check(connection, library.draft_event_import(connection, given, HANDLE_BYTES, where, pointer))
            return Event(self, pointer)

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
        with self._enter():
            handle = self._open()
            request, _held = self._request(
                anchors, positions, base, steps, seeds, temperatures, slots, logits, deadline_us, priority, event
            )
            tokens, flags = memoryview(bytearray(4 * request.rows * request.steps)), memoryview(bytearray(request.rows))
            self._check(handle, library.draft_draft(handle, request, address_of(tokens), address_of(flags)))
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
        more: bool = False,
    ) -> int:
        """Sends what draft() would, and gives its ticket, for poll(). Columns and a `base` that is sent may be reused at once; what
        lies in a region, and `logits`, not before the result. With `more`, others follow at once: a small one is kept and goes out
        with them, at the latest by flush(), or when poll() has no result that came before."""
        with self._enter():
            handle = self._open()
            request, held = self._request(
                anchors, positions, base, steps, seeds, temperatures, slots, logits, deadline_us, priority, event
            )
            request.more = bool(more)
            # Before it is sent: whatever interrupts us, memory that libdraft may write stays, and poll() knows what to wait for.
            ticket = ctypes.c_uint64()
            self._sent = [sent for sent in self._sent if sent[0].value]
            self._sent.append((ticket, held))
            self._check(handle, library.draft_submit(handle, request, ticket))
            return ticket.value

    def flush(self) -> None:
        """Sends what submit() has kept for `more`."""
        self._call(library.draft_flush)

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
            if not isinstance(event, Event):
                raise invalid(f"event is a {type(event).__name__}; it comes from event_import()")
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
        timeout_us = number("timeout_us", timeout_us, _INT64_MAX, -_INT64_MAX)
        end = None if timeout_us < 0 else time.monotonic_ns() // 1000 + timeout_us
        spin_us = self._spin_us
        while True:
            left = _INT64_MAX if end is None else max(0, end - time.monotonic_ns() // 1000)
            with self._enter():
                handle = self._open()
                # libdraft waits in here only to spin, once, and for less than select.poll() can count
                result = self._next(handle, left if left < 1000 else min(left, spin_us))
                if result is not None or left == 0 or not any([ticket.value for ticket, _ in self._sent]):
                    return result
                fd, events = library.draft_fd(handle), library.draft_events(handle)
            spin_us = 0
            # Without the lock, so that others' calls go on; and whatever a signal's handler does or raises in here, nothing is lost.
            if fd >= 0 and left >= 1000:
                poll = select.poll()
                poll.register(fd, events)
                poll.poll(min(left, _POLL_SLICE_US) // 1000)

    def _next(self, handle: Handle, wait_us: int) -> Result | None:
        """Takes a result from libdraft: first the one that we were interrupted over, if any."""
        if not self._arrived.get(0):
            self._arrived[0] = ctypes.POINTER(ResultView)()
            self._check(handle, library.draft_poll(handle, wait_us, self._arrived[0]))
        if not self._arrived[0]:
            return None
        found = self._arrived[0].contents
        if found.code:
            result = Result(found.ticket, error_of(found.code, found.error))
        else:
            tokens = memoryview(bytearray(ctypes.string_at(found.tokens, 4 * found.rows * found.steps)))
            result = Result(
                found.ticket, None, tokens.cast("I", (found.rows, found.steps)), ctypes.string_at(found.flags, found.rows),
                found.generation, found.queue_us, found.device_us, found.total_us,
            )
        self._sent = [sent for sent in self._sent if sent[0].value not in (0, result.ticket)]
        take_back(library.draft_result_free, self._arrived, 0)
        return result

    def cancel(self, ticket: int) -> None:
        """Asks draftd to drop a ticket. Its result still comes: Cancelled, or the tokens if it was too late."""
        self._call(library.draft_cancel, number("ticket", ticket, _UINT64_MAX))

    def fileno(self) -> int:
        """For an event loop: when it is ready for events() (bits of select.poll), call poll(0) until it returns None."""
        with self._enter():
            fd = library.draft_fd(self._open())
        if fd < 0:
            raise ConnectionLost(-errno.ENOTCONN, "the connection is at its end; reconnect")
        return fd

    def events(self) -> int:
        with self._enter():
            return library.draft_events(self._open())

    # ---- the service ----

    @property
    def going_away(self) -> str | None:
        """Why draftd will stop, once it has said so: take the results that are out, then connect elsewhere or later."""
        with self._enter():
            handle = self._open()
            if not library.draft_going_away(handle):
                return None
            return library.draft_goaway_reason(handle).decode(errors="replace")

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
        with self._enter():
            handle = self._open()
            take_back(free, self._texts, 0)  # of a call that was interrupted
            found = self._texts[0] = ctypes.c_void_p()
            self._check(handle, function(handle, found))
            copy = ctypes.string_at(found)
            take_back(free, self._texts, 0)
            return copy

    def drain(self) -> None:
        """For root and draftd's own user, else PermissionDenied: draftd finishes what it has accepted, and exits."""
        self._call(library.draft_drain)

    def reload(self) -> None:
        """For the same: reads settings and model again. Returns when the new model serves; loading takes a while.
        If it can't be used, Internal says why, and the old one serves on."""
        self._call(library.draft_reload)
