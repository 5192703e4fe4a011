"""A region's memory as a DLPack capsule, unversioned or of version 1.0, for PyTorch, CuPy, NumPy.

Whoever consumes the capsule calls the deleter when it is done: from any thread, without the interpreter's lock, in the middle of an
exception, after the interpreter's end. Python code must run in none of these (in the third it would swallow the exception), so the
deleter is libc's sigemptyset(), which only clears the word that it is given; sweep() finds the cleared ones. For the same reason a
capsule has no destructor: one that nobody consumed is found because nobody but the table holds it.

sweep() runs as a part of _native.sweep(): at each call, and after collections when it has to.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Sequence

CPU, CUDA = 1, 2  # DLDeviceType
UINT, BFLOAT = 1, 4  # DLDataTypeCode
NAME, NAME_VERSIONED = b"dltensor", b"dltensor_versioned"

_SIGSET_BYTES = 128  # sigemptyset() may clear that many

_clear = ctypes.cast(ctypes.CDLL(None).sigemptyset, c_void_p).value


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("type_code", c_uint8),
        ("type_bits", c_uint8),
        ("type_lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),  # in elements
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    """Its first word is an address, so not 0 until it is cleared."""

    _fields_ = [
        ("tensor", DLTensor),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("room", c_uint8 * _SIGSET_BYTES),
    ]


class DLManagedTensorVersioned(ctypes.Structure):
    """Its first word is the version."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),  # none: it may be written, and is no copy
        ("tensor", DLTensor),
        ("room", c_uint8 * _SIGSET_BYTES),
    ]


class _Export:
    """What has to stay until the consumer is done. (`managed` points into `numbers`.)"""

    __slots__ = ("managed", "numbers", "owner", "capsule")
    managed: DLManagedTensor | DLManagedTensorVersioned
    numbers: ctypes.Array[c_int64]
    owner: Any
    capsule: Any


_exports: dict[int, _Export] = {}  # by the address of `managed`
# Never freed: a consumer may be done after this module is gone.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_exports))

_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_capsule_is = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def export(
    owner: Any, address: int, device: tuple[int, int], code: int, shape: Sequence[int], strides: Sequence[int], versioned: bool
) -> Any:
    """A capsule over 16-bit elements at `address`. `owner` lives until the consumer is done."""
    sweep()
    numbers = (c_int64 * (2 * len(shape)))(*shape, *strides)
    managed = DLManagedTensorVersioned(major=1) if versioned else DLManagedTensor()
    managed.deleter = _clear
    managed.tensor = DLTensor(
        data=address, device_type=device[0], device_id=device[1], ndim=len(shape), type_code=code, type_bits=16, type_lanes=1,
        shape=ctypes.cast(numbers, ctypes.POINTER(c_int64)),
        strides=ctypes.cast(ctypes.byref(numbers, 8 * len(shape)), ctypes.POINTER(c_int64)),
    )
    at = ctypes.addressof(managed)
    entry = _Export()
    entry.managed, entry.numbers, entry.owner = managed, numbers, owner
    capsule = entry.capsule = _capsule_new(at, NAME_VERSIONED if versioned else NAME, None)
    _exports[at] = entry
    return capsule  # a third to hold it, or a sweep() in between would find it dropped


def sweep() -> None:
    """Forgets what consumers are done with, and capsules that were dropped before anybody took them."""
    for at, entry in list(_exports.items()):
        done = c_uint64.from_buffer(entry.managed).value == 0
        # Whoever takes a capsule renames it. Two hold one that is dropped: the table, and the argument itself.
        dropped = sys.getrefcount(entry.capsule) == 2 and (
            _capsule_is(entry.capsule, NAME) or _capsule_is(entry.capsule, NAME_VERSIONED)
        )
        if done or dropped:
            _exports.pop(at, None)
