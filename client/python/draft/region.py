"""Memory that draftd and this process share, and views of it.

A view (a memoryview, an array over one, a Tensor, what a framework made of a Tensor) holds a lease, and a lease the connection: as
long as one lives, the memory stays mapped. close() refuses while there are leases; what leaves scope waits for the last of them.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import math
import pickle
import weakref
from typing import TYPE_CHECKING, Any, Sequence

from . import _cuda, _dlpack
from ._buffers import number
from ._library import Place, library
from .errors import ConnectionLost, RegionInUse, error_of, invalid

if TYPE_CHECKING:
    from .connection import Connection, Handle

_TYPES = {"bf16": _dlpack.BFLOAT, "uint16": _dlpack.UINT}
_ITEM_BYTES = 2


class _Lease:
    __slots__ = ("handle", "region", "__weakref__")

    def __init__(self, handle: Handle, region: Region) -> None:
        self.handle = handle
        self.region = region
        handle.leases.add(self)


def _count_leases(handle: Handle, region: Region | None) -> int:
    """Of the region, or of any."""
    _dlpack.sweep()
    return sum(region is None or lease.region is region for lease in handle.leases)


def refuse_while_leased(handle: Handle, region: Region | None = None) -> None:
    """Raises RegionInUse if views of the region, or of any, exist."""
    if _count_leases(handle, region):
        gc.collect()  # what only garbage holds is no view
    count = _count_leases(handle, region)
    if count:
        raise RegionInUse(
            -errno.EBUSY,
            f"views of the memory exist ({count}: memoryviews, tensors, or arrays over them); delete them, then close again",
        )


class Region:
    """Shared memory of a connection; from Connection.region_open() or region_import().

    nbytes  usable bytes
    memory  "host" or "device"
    device  UUID of the GPU that it lies on, or "" for host memory
    """

    def __init__(self, connection: Connection, handle: Handle, pointer: int, memory: str) -> None:
        self.memory = memory
        self.nbytes: int = library.draft_region_bytes(pointer)
        self.device: str = library.draft_region_device(pointer).decode()
        self._address: int = library.draft_region_data(pointer)
        self._connection = connection
        self._pointer: int | None = pointer
        # Dropped without a close, it is closed by the connection's next call: here we may be in any thread.
        self._finalizer = weakref.finalize(self, handle.dropped.append, (library.draft_region_close, pointer))
        self._finalizer.atexit = False

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exception: Any) -> None:
        """Closes it; where views still exist, when the last of them is gone, and this object."""
        with self._connection._lock:
            handle = self._connection._handle
            if handle is None or not _count_leases(handle, self):
                self.close()

    def __repr__(self) -> str:
        return f"<draft.Region of {self.nbytes} bytes of {self.memory} memory{'' if self._pointer else ', closed'}>"

    def close(self) -> None:
        """Unmaps it and gives it back; waits until no request uses it. RegionInUse while views of it exist."""
        with self._connection._lock:
            handle, pointer = self._connection._handle, self._pointer
            if handle is None or pointer is None:
                self._pointer = None  # the connection took it along
                return
            refuse_while_leased(handle, self)
            self._pointer = None
            self._finalizer.detach()
            code = library.draft_region_close(pointer)
            if code < 0:
                raise error_of(code, library.draft_error(handle.pointer))

    def _lease(self) -> _Lease:
        with self._connection._lock:
            if self._connection._handle is None:
                raise ConnectionLost(-errno.ENOTCONN, "the region's connection was closed; open both again")
            if self._pointer is None:
                raise invalid("the region was closed; open another")
            return _Lease(self._connection._handle, self)

    @property
    def data(self) -> memoryview:
        """Host memory as `nbytes` writable bytes, format "B"; numpy.frombuffer(region.data, numpy.uint16) is an array over it."""
        if self.memory != "host":
            raise invalid("device memory can't be read from here; use tensor()")
        lease = self._lease()
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self._address)
        memory.lease = lease  # type: ignore[attr-defined]
        # ctypes says "<B", which memoryview can't cast; raw() says "B"
        return pickle.PickleBuffer(memory).raw()

    def tensor(
        self, shape: Sequence[int], dtype: str = "bf16", *, offset: int = 0, strides: Sequence[int] | None = None
    ) -> Tensor:
        """A view for DLPack (torch.from_dlpack(view)) and for `base` and `logits` of a request.

        shape    [rows, steps, vocab] or any other
        dtype    "bf16", or "uint16" for the same bits where BF16 is unknown (NumPy)
        offset   of the first element, in bytes, even
        strides  one a dimension, in elements, at least 1; default: contiguous
        """
        return Tensor(self, shape, dtype, offset, strides)


class Tensor:
    """A part of a region as 16-bit elements: shape, strides (in elements), offset (in bytes), dtype ("bf16", "uint16")."""

    def __init__(
        self, region: Region, shape: Sequence[int], dtype: str, offset: int, strides: Sequence[int] | None
    ) -> None:
        most = region.nbytes // _ITEM_BYTES
        self.region = region
        self.shape = tuple(number("shape", n, most) for n in shape)
        self.dtype = dtype
        self.offset = number("offset", offset, region.nbytes)
        if dtype not in _TYPES:
            raise invalid(f'dtype is {dtype!r}; it is "bf16" or "uint16"')
        if self.offset % _ITEM_BYTES:
            raise invalid(f"offset is {offset}; it is even")
        if 0 in self.shape:
            raise invalid(f"shape is {list(self.shape)}; each is at least 1")
        if strides is None:
            self.strides = tuple(math.prod(self.shape[at + 1 :]) for at in range(len(self.shape)))
        else:
            self.strides = tuple(number("strides", n, most) for n in strides)
            if len(self.strides) != len(self.shape) or 0 in self.strides:
                raise invalid(f"strides is {list(self.strides)}; shape {list(self.shape)} needs as many, each at least 1")
        end = self.offset + _ITEM_BYTES * (1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides)))
        if end > region.nbytes:
            raise invalid(f"the view ends at byte {end}, the region has {region.nbytes}; open a larger one")
        self._lease = region._lease()

    def __repr__(self) -> str:
        return f"<draft.Tensor {list(self.shape)} of {self.dtype} in {self.region!r}>"

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.region.memory == "host":
            return _dlpack.CPU, 0
        return _dlpack.CUDA, _cuda.ordinal_of(self.region.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory itself, never a copy. No stream has to wait for it: what draftd writes is there when its reply is."""
        device = self.__dlpack_device__()
        if copy or (dl_device is not None and tuple(dl_device) != device):
            raise BufferError(f"a region is shared as it is, on device {device}; copy it there")
        return _dlpack.export(
            self, self.region._address + self.offset, device, _TYPES[self.dtype], self.shape, self.strides,
            versioned=max_version is not None and max_version[0] >= 1,
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For Numba and others: uint16 only, since this interface has no BF16."""
        if self.region.memory != "device" or self.dtype != "uint16":
            raise AttributeError("only device memory as uint16 has a __cuda_array_interface__")
        return {
            "version": 3,
            "shape": self.shape,
            "strides": tuple(_ITEM_BYTES * stride for stride in self.strides),
            "typestr": "<u2",
            "data": (self.region._address + self.offset, False),
        }

    def _place(self, name: str, shape: Sequence[int]) -> Place:
        """Its first [rows or slots, steps] as libdraft's place."""
        fits = len(self.shape) == 3 and self.shape[0] >= shape[0] and self.shape[1] >= shape[1] and self.shape[2] == shape[2]
        if not fits or self.strides[2] != 1:
            raise invalid(
                f"{name} has the shape {list(self.shape)}, strides {list(self.strides)}; "
                f"it needs at least {list(shape)}, the last of them contiguous"
            )
        if self.region._pointer is None:
            raise invalid(f"the region of {name} was closed; open another")
        return Place(
            region=self.region._pointer,
            offset=self.offset,
            row_stride=_ITEM_BYTES * self.strides[0],
            step_stride=_ITEM_BYTES * self.strides[1],
        )

