"""CUDA events of this process that draftd looks at, so that no stream has to be synchronized before a request."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ._library import library
from .errors import error_of, invalid

if TYPE_CHECKING:
    from .connection import Connection, Handle

HANDLE_BYTES = 64


class Event:
    """From Connection.event_import(). The CUDA event itself is yours: keep it until close(), or the end of the connection."""

    def __init__(self, connection: Connection, handle: Handle, pointer: int) -> None:
        self._connection = connection
        self._pointer: int | None = pointer
        # Dropped without a close, it is closed by the connection's next call: here we may be in any thread.
        self._finalizer = weakref.finalize(self, handle.dropped.append, (library.draft_event_close, pointer))
        self._finalizer.atexit = False

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<draft.Event{'' if self._pointer else ', closed'}>"

    def close(self) -> None:
        """Waits until no request waits for it: afterwards the CUDA event may go."""
        with self._connection._lock:
            handle, pointer = self._connection._handle, self._pointer
            self._pointer = None
            if handle is None or pointer is None:
                return  # the connection took it along
            self._finalizer.detach()
            code = library.draft_event_close(pointer)
            if code < 0:
                raise error_of(code, library.draft_error(handle.pointer))

    def _of(self, connection: Connection) -> int:
        """For a request of `connection`, which has its lock."""
        if self._connection is not connection:
            raise invalid("event is another connection's")
        if self._pointer is None:
            raise invalid("event was closed; import it again")
        return self._pointer
