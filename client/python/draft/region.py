"""Memory that draftd and this process share, and views of it.

A view (a memoryview, an array over one, a Tensor, what a framework made of a Tensor) holds the `use` of the region's pointer: as long as
one lives, the memory stays mapped (_native.py). close() refuses meanwhile; what leaves scope waits for the last of them.
"""

from __future__ import annotations

import ctypes
import errno
import math
import pickle
from typing import TYPE_CHECKING, Any, Sequence

from . import _cuda, _dlpack
from ._buffers import integers, number, plural
from ._library import Place, library
from ._native import Pointer, Sealed
from .errors import ConnectionBusy, RegionInUse, invalid

if TYPE_CHECKING:
    from .connection import Connection

_TYPES = {"bf16": _dlpack.BFLOAT, "uint16": _dlpack.UINT}
_ITEM_BYTES = 2
_DIMENSIONS_MAX = 64  # the most that NumPy and PyTorch take


def refuse_while_used(pointer: Pointer) -> None:
    """Raises RegionInUse if views of the region, or of any region of the connection, exist."""
    count = pointer.count_uses()
    if count:
        raise RegionInUse(
            -errno.EBUSY,
            f"views of the memory exist ({count}: memoryviews, tensors, or arrays over them); delete them, then close again",
        )


class Region(Sealed):
    """Shared memory of a connection; from Connection.region_open() or region_import().

    nbytes  usable bytes
    memory  "host" or "device"
    device  UUID of the GPU that it lies on, or "" for host memory
    """

    memory: str
    nbytes: int
    device: str

    def __init__(self, connection: Connection, pointer: Pointer, memory: str) -> None:
        vars(self).update(
            memory=memory, nbytes=library.draft_region_bytes(pointer), device=library.draft_region_device(pointer).decode()
        )
        self._address: int = library.draft_region_data(pointer)
        self._connection = connection
        self._pointer = pointer

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exception: Any) -> None:
        """Closes it; where views still exist, when the last of them is gone, and this object."""
        _dlpack.sweep()
        if not self._pointer.count_uses():
            try:
                self.close()
            except (ConnectionBusy, RegionInUse):
                pass  # once dropped, it is closed by the connection's next call

    def __repr__(self) -> str:
        return f"<draft.Region of {plural(self.nbytes, 'byte')} of {self.memory} memory{'' if self._is_open() else ', closed'}>"

    def _is_open(self) -> bool:
        handle = self._connection._handle
        return handle is not None and self._pointer in handle.regions

    def close(self) -> None:
        """Unmaps it and gives it back; waits until no request uses it. RegionInUse while views of it exist."""
        connection = self._connection
        if connection._is_gone():
            return
        lock = connection._enter()
        if self._is_open():
            connection._collect(self._pointer)
        with lock:
            handle = connection._handle
            if handle is not None and self._pointer in handle.regions:
                refuse_while_used(self._pointer)
                connection._check(handle, handle.regions.take_back(self._pointer))

    def _use(self) -> object:
        """What a view holds."""
        with self._connection._enter():
            if self._pointer not in self._connection._open().regions:
                raise invalid("the region was closed; open another")
            return self._pointer.use

    @property
    def data(self) -> memoryview:
        """Host memory as `nbytes` writable bytes, format "B"; numpy.frombuffer(region.data, numpy.uint16) is an array over it."""
        if self.memory != "host":
            raise invalid("device memory can't be read from here; use tensor()")
        use = self._use()
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self._address)
        memory.use = use  # type: ignore[attr-defined]
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


class Tensor(Sealed):
    """A part of a region as 16-bit elements: shape, strides (in elements), offset (in bytes), dtype ("bf16", "uint16")."""

    region: Region
    shape: tuple[int, ...]
    dtype: str
    offset: int
    strides: tuple[int, ...]

    def __init__(
        self, region: Region, shape: Sequence[int], dtype: str, offset: int, strides: Sequence[int] | None
    ) -> None:
        most = region.nbytes // _ITEM_BYTES
        shape = integers("shape", shape, most, _DIMENSIONS_MAX)
        offset = number("offset", offset, region.nbytes)
        if not isinstance(dtype, str) or dtype not in _TYPES:
            raise invalid(f'dtype is {dtype!r}; it is "bf16" or "uint16"')
        if offset % _ITEM_BYTES:
            raise invalid(f"offset is {offset}; it is even")
        if 0 in shape:
            raise invalid(f"shape is {list(shape)}; each is at least 1")
        if strides is None:
            strides = tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))
        else:
            strides = integers("strides", strides, most, _DIMENSIONS_MAX)
            if len(strides) != len(shape) or 0 in strides:
                raise invalid(f"strides is {list(strides)}; shape {list(shape)} needs as many, each at least 1")
        end = offset + _ITEM_BYTES * (1 + sum((n - 1) * stride for n, stride in zip(shape, strides)))
        if end > region.nbytes:
            raise invalid(f"the view ends at byte {end}, the region has {region.nbytes}; open a larger one")
        vars(self).update(region=region, shape=shape, dtype=dtype, offset=offset, strides=strides)
        self._use = region._use()

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
        try:
            elsewhere = dl_device is not None and tuple(dl_device) != device
            versioned = max_version is not None and max_version[0] >= 1
        except (TypeError, LookupError):
            raise invalid(f"max_version is {max_version!r}, dl_device {dl_device!r}; each is two integers") from None
        if copy or elsewhere:
            raise BufferError(f"a region is shared as it is, on device {device}; copy it there")
        return _dlpack.export(
            self, self.region._address + self.offset, device, _TYPES[self.dtype], self.shape, self.strides,
            versioned=versioned,
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
        if not self.region._is_open():
            raise invalid(f"the region of {name} was closed; open another")
        return Place(
            region=self.region._pointer.value,
            offset=self.offset,
            row_stride=_ITEM_BYTES * self.strides[0],
            step_stride=_ITEM_BYTES * self.strides[1],
        )

