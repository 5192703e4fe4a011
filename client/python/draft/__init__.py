"""Draft tokens from a draftd on this host: libdraft from Python, by ctypes, with the standard library alone.

    import draft

    with draft.connect("/tmp/draftd.sock") as d:
        rows, steps, vocab = 3, d.limits.max_steps, d.model.vocab
        region = d.region_open(2 * rows * steps * vocab)        # bytes; memory="device" for GPU memory
        base = region.tensor([rows, steps, vocab])              # BF16
        torch.from_dlpack(base).copy_(base_logits)              # or write into region.data, a memoryview
        tokens, flags = d.draft([1, 2, 3], [10, 20, 30], base, steps=steps, seeds=7, temperatures=0.8)
        tokens.tolist()                                         # [rows, steps]

Times are microseconds and end in _us; sizes are bytes. Logits are BF16, [rows, steps, vocab], and pass as uint16 where a library has
no BF16. Memory that a view exists of stays mapped: close() of a region or connection refuses (RegionInUse), leaving a `with` block
waits for the last view. Every failure is a DraftError; `except draft.DraftError as error` and look at error.retryable.

The library is $LIBDRAFT, or lies where this package was installed, or where the system's linker finds it.
"""

from ._library import library
from .connection import Connection, connect
from .errors import (
    BadFrame,
    BadRequest,
    Cancelled,
    ConnectionBusy,
    ConnectionLost,
    DeadlineExceeded,
    DeviceLost,
    DraftError,
    Draining,
    Internal,
    InvalidArgument,
    NotFound,
    NotRunning,
    NotSupported,
    OutOfRange,
    PermissionDenied,
    RegionInUse,
    ResourceExhausted,
    Timeout,
    TooLarge,
    UnknownMethod,
    VersionMismatch,
)
from .event import Event
from .facts import Device, Drafted, Limits, Model, Result
from .region import Region, Tensor

__all__ = [
    "BadFrame", "BadRequest", "Cancelled", "Connection", "ConnectionBusy", "ConnectionLost", "DeadlineExceeded", "Device",
    "DeviceLost", "DraftError", "Drafted", "Draining", "Event", "Internal", "InvalidArgument", "Limits", "Model", "NotFound",
    "NotRunning", "NotSupported", "OutOfRange", "PermissionDenied", "Region", "RegionInUse", "ResourceExhausted", "Result", "Tensor",
    "Timeout", "TooLarge", "UnknownMethod", "VersionMismatch", "connect",
]

__version__ = library.draft_version().decode()  # libdraft's
