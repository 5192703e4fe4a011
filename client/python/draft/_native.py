"""What libdraft has made for this process, in tables: connections, and the regions and events of each.

The table holds every entry, so garbage collection never takes one to be garbage, and none is freed by a finalizer: those of a cycle's
members run in any order, before others that still read the memory. sweep() frees what nobody but the table holds: at each call, and
once something outlives its connection, after each collection.

A signal's handler may raise between any two lines. Therefore a pointer is in its table before libdraft fills it, and leaves it in the
same step as it is freed. In a forked child the tables are empty: what was in them is the parent's, and stays.
"""

from __future__ import annotations

import gc
import os
import sys
from ctypes import c_void_p
from typing import Any, Callable

from . import _dlpack
from ._library import library

_forks = 0  # between the first process and this one


class Pointer(c_void_p):
    """To something of libdraft's; NULL until libdraft has filled it."""

    def __init__(self) -> None:
        super().__init__()
        self.use = object()  # whatever needs the memory holds this, once

    def count_uses(self) -> int:
        return sys.getrefcount(self.use) - 2  # ours, and the argument


def take_back(free: Callable[[Any], Any], entries: dict[int, Any], key: int) -> Any:
    """free(entries.pop(key, None)). Not a line of Python runs in between, so that no interrupt leaves it in both places, or in none."""
    return next(map(free, map(entries.pop, (key,), (None,))))


class Table:
    """Pointers of one kind, and libdraft's function that frees them (and takes NULL)."""

    def __init__(self, free: Callable[[Any], Any]) -> None:
        self._free = free
        self._entries: dict[int, Pointer] = {}

    def __contains__(self, pointer: Pointer) -> bool:
        return id(pointer) in self._entries

    def add(self, pointer: Pointer) -> Pointer:
        self._entries[id(pointer)] = pointer
        return pointer

    def take_back(self, pointer: Pointer) -> Any:
        """Frees it, unless that was done; and what the function returned."""
        return take_back(self._free, self._entries, id(pointer))

    def count_uses(self) -> int:
        return sum(pointer.count_uses() for pointer in list(self._entries.values()))

    def sweep(self) -> None:
        for key in list(self._entries):
            try:
                # Held by the table and as an argument; a variable would be one more. Unheld first: then no new use can begin.
                free = sys.getrefcount(self._entries[key]) == 2 and not self._entries[key].count_uses()
            except KeyError:  # another thread swept
                continue
            if free:
                take_back(self._free, self._entries, key)

    def forget(self) -> None:
        self._entries.clear()


class Handle(Pointer):
    """A connection. In use while views of its regions exist."""

    def __init__(self) -> None:
        super().__init__()
        self.regions = Table(library.draft_region_close)
        self.events = Table(library.draft_event_close)
        self._born = _forks
        handles.add(self)

    def count_uses(self) -> int:
        return self.regions.count_uses()

    def is_parents(self) -> bool:
        """Made before a fork, so another process's."""
        return self._born != _forks


handles = Table(library.draft_close)


def sweep() -> None:
    """Ends the connections that nobody holds any longer, nor views of their memory. From any thread, in any call: that never waits."""
    _dlpack.sweep()
    handles.sweep()


def _after_collection(phase: str, info: Any, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    if phase == "stop" and not is_finalizing():
        sweep()


def sweep_after_collections(
    callbacks: list[Any] = gc.callbacks, callback: Callable[..., None] = _after_collection
) -> None:
    """Not before it is needed: an exception that a signal's handler raises in there is lost. (Defaults, since at exit globals go.)"""
    if callback not in callbacks:
        callbacks.append(callback)


def _in_child() -> None:
    global _forks
    _forks += 1
    handles.forget()


os.register_at_fork(after_in_child=_in_child)


class Sealed:
    """Of what stands for a pointer: there is one of it, and what became addresses and sizes stays as it was."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"{name} of a {type(self).__name__} can't be set")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} of a {type(self).__name__} can't be deleted")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} can't be copied or pickled: it is memory or a connection of this process; open another")
