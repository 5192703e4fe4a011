"""Arguments as memory: the columns of a request, and logits in the caller's own buffers. Nothing is copied that fits as it is."""

from __future__ import annotations

import array
import ctypes
import math
import numbers
import operator
import os
from ctypes import c_char_p, c_int, c_ssize_t, c_void_p
from typing import Any, Sequence

from .errors import invalid


def plural(count: int, word: str) -> str:
    """"1 row", "2 rows"."""
    return f"{count} {word}{'' if count == 1 else 's'}"


# One letter a column, as in the modules struct and array; the letters of a buffer that has the same bits.
UINT32, INT64, FLOAT32 = "I", "q", "f"
_KINDS = {
    UINT32: (("I", "L"), 4, "integers from 0 to 2^32-1"),
    INT64: (("q", "l"), 8, "integers from -2^63 to 2^63-1"),
    FLOAT32: (("f",), 4, "numbers of float32"),
}


class _Py_buffer(ctypes.Structure):
    """Of the interpreter's stable interface; here for its first field."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, ctypes.POINTER(_Py_buffer), c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_Py_buffer))(("PyBuffer_Release", ctypes.pythonapi))


def address_of(view: memoryview) -> int:
    """Where the bytes of a C-contiguous view begin, read-only ones too. The view keeps them there, and its exporter whole."""
    buffer = _Py_buffer()
    _get_buffer(view, buffer, 0)
    address = buffer.buf
    _release_buffer(buffer)
    return address or 0


def _view(values: Any) -> memoryview | None:
    try:
        return memoryview(values)
    except (TypeError, ValueError, BufferError):  # no buffer, or of a type that buffers can't tell
        return None


def number(name: str, value: Any, most: int, least: int = 0) -> int:
    try:
        value = operator.index(value)
    except TypeError:
        raise invalid(f"{name} is a {type(value).__name__}; it is an integer") from None
    if not least <= value <= most:
        raise invalid(f"{name} is {value}; it is from {least} to {most}")
    return value


def integers(name: str, values: Any, most: int, count_most: int) -> tuple[int, ...]:
    try:
        count = len(values)
    except TypeError:
        raise invalid(f"{name} is a {type(values).__name__}; it is a sequence of integers") from None
    if count > count_most:
        raise invalid(f"{name} has {count} numbers; the most is {count_most}")
    return tuple(number(name, value, most) for value in values)


def text(name: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise invalid(f"{name} is a {type(value).__name__}; it is a string")
    return path(name, value)


def path(name: str, value: Any) -> bytes:
    try:
        found = os.fsencode(value)
    except TypeError:
        raise invalid(f"{name} is a {type(value).__name__}; it is a string, bytes or a path") from None
    except UnicodeEncodeError as error:
        raise invalid(f"{name} has a character at {error.start} that can't be encoded; leave it out") from None
    if 0 in found:
        raise invalid(f"{name} has a zero byte at {found.index(0)}; leave it out")
    return found


def octets(name: str, value: Any) -> bytes:
    view = _view(value)
    if view is None:
        raise invalid(f"{name} is a {type(value).__name__}; it is bytes")
    return view.tobytes()


def column(name: str, kind: str, values: Any, rows: int | None = None) -> memoryview:
    """One value a row: a buffer of that type as it is, anything else copied. With `rows`, one number stands for all of them."""
    letters, size, what = _KINDS[kind]
    view = _view(values)
    if view is None or view.format not in letters or view.itemsize != size or view.ndim != 1 or not view.c_contiguous:
        try:
            values = values.tolist() if hasattr(values, "tolist") else values  # of an array without dimensions: a number
            # array() takes bytes for raw memory, so never those as they come
            values = [values] * rows if rows is not None and isinstance(values, numbers.Real) else list(values)
            view = memoryview(array.array(kind, values))
            if kind == FLOAT32 and any(math.isinf(kept) and not math.isinf(value) for kept, value in zip(view, values)):
                raise OverflowError("a number is beyond float32")  # array() makes it infinite
        except (TypeError, OverflowError, ValueError) as error:
            raise invalid(f"{name} can't be a column: {error}; it has {what}, one a row") from None
    if rows is not None and len(view) != rows:
        raise invalid(f"{name} has {plural(len(view), 'value')} where anchors has {rows}; each has one a row")
    return view


def inline(name: str, memory: Any, shape: Sequence[int], writable: bool) -> memoryview:
    """The caller's memory for logits of `shape`, [rows, steps, vocab]."""
    view = _view(memory)
    if view is None:
        raise invalid(
            f"{name} is a {type(memory).__name__}, which has no buffer of uint16; give one (of a BF16 tensor in host "
            "memory: tensor.view(torch.uint16).numpy()), or write into tensor() of a region"
        )
    if view.format.lstrip("@=<") not in ("H", "h"):
        raise invalid(
            f"{name} has elements of type {view.format!r}; BF16 travels as uint16: give the array's view(\"uint16\"), "
            'or memoryview(bytes).cast("H")'
        )
    if not view.c_contiguous:
        raise invalid(f"{name} is not C-contiguous; copy it (numpy.ascontiguousarray), or use a region, which has strides")
    if writable and view.readonly:
        raise invalid(f"{name} is read-only; give memory that can be written")
    count = shape[0] * shape[1] * shape[2]
    if view.nbytes != 2 * count or (view.ndim == 3 and view.shape != tuple(shape)):
        raise invalid(f"{name} has the shape {list(view.shape)}; [rows, steps, vocab] is {list(shape)}")
    return view
