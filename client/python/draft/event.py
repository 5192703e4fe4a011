"""CUDA events of this process that draftd looks at, so that no stream has to be synchronized before a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._native import Pointer, Sealed
from .errors import ConnectionBusy, invalid

if TYPE_CHECKING:
    from .connection import Connection

HANDLE_BYTES = 64


class Event(Sealed):
    """From Connection.event_import(). The CUDA event itself is yours: keep it until close(), or the end of the connection."""

    def __init__(self, connection: Connection, pointer: Pointer) -> None:
        self._connection = connection
        self._pointer = pointer

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self.close()
        except ConnectionBusy:
            pass  # once dropped, it is closed by the connection's next call

    def __repr__(self) -> str:
        return f"<draft.Event{'' if self._is_open() else ', closed'}>"

    def _is_open(self) -> bool:
        handle = self._connection._handle
        return handle is not None and self._pointer in handle.events

    def close(self) -> None:
        """Waits until no request waits for it: afterwards the CUDA event may go."""
        if self._connection._is_gone():
            return
        with self._connection._enter():
            handle = self._connection._handle
            if handle is not None:
                self._connection._check(handle, handle.events.take_back(self._pointer))

    def _of(self, connection: Connection) -> int | None:
        """For a request of `connection`, which has its lock."""
        if self._connection is not connection:
            raise invalid("event is another connection's")
        if not self._is_open():
            raise invalid("event was closed; import it again")
        return self._pointer.value
