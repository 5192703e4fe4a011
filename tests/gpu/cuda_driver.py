"""NVIDIA's driver by ctypes, as far as the scripts need it: memory of a GPU that this process allocates and shares by a descriptor,
and copies to and from any that it has mapped. Needs no other package."""

import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_ulonglong, c_ushort, c_void_p
from uuid import UUID

POSIX_DESCRIPTOR, PINNED, ON_DEVICE, READ_AND_WRITE = 1, 1, 1, 3


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = [
        ("type", c_int), ("handles", c_int), ("location", Location), ("security", c_void_p), ("compression", c_ubyte),
        ("gpu_direct", c_ubyte), ("usage", c_ushort), ("reserved", c_ubyte * 4),
    ]  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class Driver:
    """`uuids`: of all GPUs that this process sees. It holds a context on each."""

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        self.uuids, self._devices, self._contexts = [], [], []
        for ordinal in range(count.value):
            device, context, uuid = c_int(), c_void_p(), (c_ubyte * 16)()
            self.call("cuDeviceGet", byref(device), ordinal)
            self.call("cuDeviceGetUuid_v2", uuid, device)
            self.call("cuDevicePrimaryCtxRetain", byref(context), device)
            self.uuids.append(f"GPU-{UUID(bytes=bytes(uuid))}")
            self._devices.append(device)
            self._contexts.append(context)

    def can_reach(self, ordinal, other):
        """Whether the first of two GPUs can use memory of the second."""
        can = c_int(ordinal == other)
        if not can:
            self.call("cuDeviceCanAccessPeer", byref(can), self._devices[ordinal], self._devices[other])
        return bool(can)

    def call(self, name, *arguments):
        result = getattr(self._driver, name)(*arguments)
        if result:
            text = c_char_p()
            self._driver.cuGetErrorName(result, byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()}")

    def write(self, ordinal, address, data):
        """`data`, anything with a buffer, to memory of that GPU."""
        data = memoryview(data).cast("B").tobytes()
        self.call("cuCtxSetCurrent", self._contexts[ordinal])
        self.call("cuMemcpyHtoD_v2", c_ulonglong(address), data, c_size_t(len(data)))
        self.call("cuStreamSynchronize", None)

    def read(self, ordinal, address, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuCtxSetCurrent", self._contexts[ordinal])
        self.call("cuMemcpyDtoH_v2", data, c_ulonglong(address), c_size_t(size))
        return data.raw


class Allocation:
    """Memory of a GPU, of `nbytes` or more, with an `address` and, until close_fd(), a descriptor `fd` that stands for it."""

    def __init__(self, driver, ordinal, nbytes):
        self._driver = driver
        where = Location(ON_DEVICE, ordinal)
        properties = Properties(type=PINNED, handles=POSIX_DESCRIPTOR, location=where)
        unit, handle, address, fd = c_size_t(), c_ulonglong(), c_ulonglong(), c_int(-1)
        driver.call("cuMemGetAllocationGranularity", byref(unit), byref(properties), 1)
        self.nbytes = -(-nbytes // unit.value) * unit.value
        size, none = c_size_t(self.nbytes), c_ulonglong(0)
        driver.call("cuMemCreate", byref(handle), size, byref(properties), none)
        driver.call("cuMemExportToShareableHandle", byref(fd), handle, POSIX_DESCRIPTOR, none)
        driver.call("cuMemAddressReserve", byref(address), size, c_size_t(0), none, none)
        driver.call("cuMemMap", address, size, c_size_t(0), handle, none)
        driver.call("cuMemRelease", handle)
        driver.call("cuMemSetAccess", address, size, byref(Access(where, READ_AND_WRITE)), c_size_t(1))
        self.address, self.fd = address.value, fd.value

    def close_fd(self):
        os.close(self.fd)
        self.fd = -1

    def free(self):
        self._driver.call("cuMemUnmap", c_ulonglong(self.address), c_size_t(self.nbytes))
        self._driver.call("cuMemAddressFree", c_ulonglong(self.address), c_size_t(self.nbytes))
