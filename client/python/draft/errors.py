"""What libdraft's calls fail with, as exceptions: one class for each error of PROTOCOL.md, and for what this side notices."""

from __future__ import annotations

import errno

from ._library import library


class DraftError(Exception):
    """A call failed. str() is libdraft's sentence.

    code       as libdraft returns it: -errno, or -1000 less the code of PROTOCOL.md
    name       of the code: "RESOURCE_EXHAUSTED", "Connection timed out"
    retryable  True when the same request may succeed later, unchanged
    """

    CODE = 0  # of a subclass that stands for one code of PROTOCOL.md: that code

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        if isinstance(self, OSError):
            self.errno = -code  # as everywhere in Python; OSError took the code for it

    def __str__(self) -> str:
        return self.message

    @property
    def name(self) -> str:
        return library.draft_error_name(self.code).decode()

    @property
    def retryable(self) -> bool:
        return library.draft_error_retryable(self.code)


# ---- draftd's answers: PROTOCOL.md, "Errors" ----


class BadFrame(DraftError):
    CODE = 1


class VersionMismatch(DraftError):
    CODE = 2


class BadRequest(DraftError):
    CODE = 3


class UnknownMethod(DraftError):
    CODE = 4


class NotFound(DraftError):
    CODE = 5


class OutOfRange(DraftError):
    CODE = 6


class TooLarge(DraftError):
    CODE = 7


class ResourceExhausted(DraftError):
    CODE = 8


class DeadlineExceeded(DraftError):
    CODE = 9


class Cancelled(DraftError):
    CODE = 10


class Draining(DraftError):
    CODE = 11


class PermissionDenied(DraftError):
    CODE = 12


class DeviceLost(DraftError):
    CODE = 13


class Internal(DraftError):
    CODE = 14


# ---- what this side notices ----


class Timeout(DraftError, TimeoutError):
    """draftd did not answer in time. The request is cancelled, the connection lives on."""


class ConnectionLost(DraftError, ConnectionError):
    """The connection is at its end, or was closed: Connection.reconnect(), or another one."""


class NotRunning(DraftError, ConnectionError):
    """No draftd listens on that socket."""


class InvalidArgument(DraftError, ValueError):
    """An argument has another type, shape or value than the call takes; nothing was sent."""


class NotSupported(DraftError):
    """This libdraft or this machine can't do it."""


class RegionInUse(DraftError, BufferError):
    """Views of a region exist that a close would pull the memory from under. Delete them first."""


class ConnectionBusy(DraftError, RuntimeError):
    """A call from within another one of the same thread on the same connection: of a signal's handler, say."""


# libdraft's numbers of PROTOCOL.md's codes begin here: DRAFT_E_BAD_FRAME is 1001.
TYPED_ERROR_BASE = 1000

_CLASSES: dict[int, type[DraftError]] = {
    -TYPED_ERROR_BASE - each.CODE: each for each in DraftError.__subclasses__() if each.CODE
}
_CLASSES.update({
    -errno.ETIMEDOUT: Timeout,
    -errno.ECONNRESET: ConnectionLost,
    -errno.ENOTCONN: ConnectionLost,
    -errno.EPROTO: ConnectionLost,
    -errno.ENOENT: NotFound,  # a ticket
    -errno.EINVAL: InvalidArgument,
    -errno.ENAMETOOLONG: InvalidArgument,
    -errno.ENOTSUP: NotSupported,
    -errno.ENODEV: NotSupported,  # this process does not see the GPU
    -errno.EISDIR: InvalidArgument,  # where a socket's path was wanted
    -errno.ENOTSOCK: InvalidArgument,
    -errno.ENOTDIR: InvalidArgument,
    -errno.EBADF: InvalidArgument,  # a descriptor of the caller's
    -errno.EBUSY: RegionInUse,
    -errno.EDEADLK: ConnectionBusy,
})


def error_of(code: int, message: bytes) -> DraftError:
    """The exception for what a call returned and said."""
    return _CLASSES.get(code, DraftError)(code, message.decode(errors="replace"))


def connect_error_of(code: int, message: bytes) -> DraftError:
    """The same, of a call that connects."""
    if code in (-errno.ENOENT, -errno.ECONNREFUSED):
        return NotRunning(code, message.decode(errors="replace"))
    if code == -errno.EACCES:
        return PermissionDenied(code, message.decode(errors="replace"))
    return error_of(code, message)


def invalid(message: str) -> InvalidArgument:
    return InvalidArgument(-errno.EINVAL, message)
