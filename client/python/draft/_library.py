"""libdraft as ctypes sees it: the structs and functions of draft.h. tests/integration/test_python.py compares them with the header.

Foreign calls release the interpreter's lock while they run, so that other threads go on while one waits for draftd.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int64, c_short, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

SONAME = "libdraft.so.0"
MEMORY = {"host": 0, "device": 1}  # enum draft_memory


class Options(ctypes.Structure):
    """struct draft_options"""

    _fields_ = [
        ("size", c_size_t),
        ("socket_path", c_char_p),
        ("client_name", c_char_p),
        ("timeout_us", c_int64),
        ("spin_us", c_int64),
    ]


class ModelFacts(ctypes.Structure):
    """struct draft_model"""

    _fields_ = [
        ("server", c_char_p),
        ("name", c_char_p),
        ("backend", c_char_p),
        ("bias_order", c_char_p),
        ("generation", c_uint64),
        ("vocab", c_uint32),
        ("rank", c_uint32),
        ("target_vocab", c_uint32),
        ("multiplier", c_float),
        ("soft_cap", c_float),
        ("tensor_parallel", c_uint32),
        ("device_count", c_uint32),
        ("max_rows", c_uint32),
        ("max_steps", c_uint32),
        ("max_frame_bytes", c_uint32),
        ("max_inflight", c_uint32),
        ("max_regions", c_uint32),
        ("max_region_bytes", c_uint64),
    ]


class DeviceFacts(ctypes.Structure):
    """struct draft_device"""

    _fields_ = [
        ("uuid", c_char_p),
        ("name", c_char_p),
        ("memory_bytes", c_uint64),
    ]


class Place(ctypes.Structure):
    """struct draft_place"""

    _fields_ = [
        ("data", c_void_p),
        ("region", c_void_p),
        ("offset", c_uint64),
        ("row_stride", c_uint64),
        ("step_stride", c_uint64),
    ]


class Request(ctypes.Structure):
    """struct draft_request"""

    _fields_ = [
        ("size", c_size_t),
        ("rows", c_uint32),
        ("steps", c_uint32),
        ("anchors", c_void_p),
        ("positions", c_void_p),
        ("seeds", c_void_p),
        ("temperatures", c_void_p),
        ("slots", c_void_p),
        ("base", Place),
        ("logits", Place),
        ("deadline_us", c_uint64),
        ("priority", c_uint32),
        ("event", c_void_p),
        ("more", c_uint32),
    ]


class ResultView(ctypes.Structure):
    """struct draft_result"""

    _fields_ = [
        ("ticket", c_uint64),
        ("code", c_int),
        ("error", c_char_p),
        ("rows", c_uint32),
        ("steps", c_uint32),
        ("tokens", POINTER(c_uint32)),
        ("flags", POINTER(c_uint8)),
        ("generation", c_uint64),
        ("queue_us", c_uint64),
        ("device_us", c_uint64),
        ("total_us", c_uint64),
    ]


# name: (what it returns, what it takes); a connection, a region and an event are void pointers here
FUNCTIONS = {
    "draft_socket_default": (c_char_p,),
    "draft_connect": (c_int, POINTER(Options), POINTER(c_void_p), c_char_p, c_size_t),
    "draft_reconnect": (c_int, c_void_p),
    "draft_reconnect_within": (c_int, c_void_p, c_int64),
    "draft_close": (None, c_void_p),
    "draft_error": (c_char_p, c_void_p),
    "draft_error_name": (c_char_p, c_int),
    "draft_error_retryable": (c_bool, c_int),
    "draft_model": (POINTER(ModelFacts), c_void_p),
    "draft_device_at": (c_bool, c_void_p, c_uint32, POINTER(DeviceFacts)),
    "draft_region_open": (c_int, c_void_p, c_uint64, c_int, POINTER(c_void_p)),
    "draft_region_open_device": (c_int, c_void_p, c_uint64, c_char_p, POINTER(c_void_p)),
    "draft_region_import": (c_int, c_void_p, c_int, c_uint64, POINTER(c_void_p)),
    "draft_region_import_device": (c_int, c_void_p, c_int, c_uint64, c_char_p, POINTER(c_void_p)),
    "draft_region_close": (c_int, c_void_p),
    "draft_region_data": (c_void_p, c_void_p),
    "draft_region_device": (c_char_p, c_void_p),
    "draft_region_bytes": (c_uint64, c_void_p),
    "draft_event_import": (c_int, c_void_p, c_char_p, c_size_t, c_char_p, POINTER(c_void_p)),
    "draft_event_close": (c_int, c_void_p),
    "draft_draft": (c_int, c_void_p, POINTER(Request), c_void_p, c_void_p),
    "draft_submit": (c_int, c_void_p, POINTER(Request), POINTER(c_uint64)),
    "draft_flush": (c_int, c_void_p),
    "draft_poll": (c_int, c_void_p, c_int64, POINTER(POINTER(ResultView))),
    "draft_result_free": (None, POINTER(ResultView)),
    "draft_cancel": (c_int, c_void_p, c_uint64),
    "draft_fd": (c_int, c_void_p),
    "draft_events": (c_short, c_void_p),
    "draft_going_away": (c_bool, c_void_p),
    "draft_goaway_reason": (c_char_p, c_void_p),
    "draft_ping": (c_int, c_void_p),
    "draft_stats": (c_int, c_void_p, POINTER(c_void_p)),
    "draft_metrics": (c_int, c_void_p, POINTER(c_void_p)),
    "draft_drain": (c_int, c_void_p),
    "draft_reload": (c_int, c_void_p),
    "draft_version": (c_char_p,),
}


def find() -> str:
    """$LIBDRAFT; else the library that came with this package; else whatever the system's linker finds."""
    named = os.environ.get("LIBDRAFT")
    if named:
        return named
    # PREFIX/lib of PREFIX/lib/python3*/dist-packages/draft/, or the top of the sources of client/python/draft/
    above = pathlib.Path(__file__).resolve().parents[3]
    for path in above / SONAME, above / "build" / SONAME:
        if path.exists():
            return str(path)
    return SONAME


def load() -> ctypes.CDLL:
    path = find()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libdraft can't be loaded ({error}); install it, or set LIBDRAFT to the path of {SONAME}") from error
    for name, (result, *arguments) in FUNCTIONS.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise ImportError(f"{path} has no {name}(): it is no libdraft, or an older one than this package; set LIBDRAFT") from None
        function.restype, function.argtypes = result, arguments
    return loaded


library = load()

free = ctypes.CDLL(None).free  # what draft_stats() and draft_metrics() return is malloc'd
free.restype, free.argtypes = None, [c_void_p]
