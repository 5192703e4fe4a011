"""Which of this process's GPUs is the one with a UUID: frameworks count those that CUDA_VISIBLE_DEVICES leaves, from 0."""

from __future__ import annotations

import ctypes
import errno

from .errors import NotSupported


def ordinal_of(uuid: str) -> int:
    """`uuid` as draftd says it: "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NotSupported(-errno.ENOTSUP, f"device memory needs NVIDIA's driver: {error}") from None
    wanted = uuid.partition("-")[2].replace("-", "").lower()
    count, device, found = ctypes.c_int(), ctypes.c_int(), (ctypes.c_uint8 * 16)()
    try:
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
            for ordinal in range(count.value):
                if driver.cuDeviceGet(ctypes.byref(device), ordinal) == 0 and driver.cuDeviceGetUuid_v2(found, device) == 0:
                    if bytes(found).hex() == wanted:
                        return ordinal
    except AttributeError as error:
        raise NotSupported(-errno.ENOTSUP, f"device memory needs a newer driver of NVIDIA's: {error}") from None
    raise NotSupported(
        -errno.ENOTSUP, f"draftd's {uuid} is not among this process's GPUs ({count.value}); check CUDA_VISIBLE_DEVICES"
    )
