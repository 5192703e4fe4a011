"""What draftd says: what it serves, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ._library import DeviceFacts, library
from ._native import Handle
from .errors import DraftError


@dataclass(frozen=True)
class Model:
    """What draftd serves, as it said when we connected."""

    server: str
    name: str
    backend: str  # "cpu" or "cuda"
    bias_order: str
    generation: int  # when connected; every Result has the current one
    vocab: int  # V
    rank: int
    target_vocab: int  # ids that an anchor may have
    multiplier: float
    soft_cap: float | None
    tensor_parallel: int


@dataclass(frozen=True)
class Limits:
    """What draftd takes; beyond is TooLarge, or ResourceExhausted for what is in use at the moment."""

    max_rows: int
    max_steps: int
    max_frame_bytes: int
    max_inflight: int
    max_regions: int
    max_region_bytes: int


@dataclass(frozen=True)
class Device:
    """One that draftd computes on; regions of device memory are on the first."""

    uuid: str  # "GPU-…", or "CPU"
    name: str
    memory_bytes: int


class Drafted(NamedTuple):
    """tokens: [rows, steps] of uint32, a memoryview (tokens.tolist(), numpy.asarray(tokens)). flags: a byte a row, bit 0: a NaN
    won somewhere in it."""

    tokens: memoryview
    flags: bytes


@dataclass(frozen=True)
class Result:
    """The answer to a submit(): either `error`, or the rest."""

    ticket: int
    error: DraftError | None
    tokens: memoryview | None = None  # as in Drafted
    flags: bytes = b""
    generation: int = 0
    queue_us: int = 0  # as draftd measured: waiting,
    device_us: int = 0  # the launch that had these rows,
    total_us: int = 0  # from arrival to the reply


def read_facts(handle: Handle) -> dict[str, Any]:
    """model, limits, devices"""
    facts = library.draft_model(handle).contents
    model = Model(
        server=facts.server.decode(errors="replace"),
        name=facts.name.decode(errors="replace"),
        backend=facts.backend.decode(errors="replace"),
        bias_order=facts.bias_order.decode(errors="replace"),
        generation=facts.generation,
        vocab=facts.vocab,
        rank=facts.rank,
        target_vocab=facts.target_vocab,
        multiplier=facts.multiplier,
        soft_cap=facts.soft_cap or None,
        tensor_parallel=facts.tensor_parallel,
    )
    limits = Limits(
        facts.max_rows, facts.max_steps, facts.max_frame_bytes, facts.max_inflight, facts.max_regions, facts.max_region_bytes
    )
    devices = []
    device = DeviceFacts()
    for index in range(facts.device_count):
        if library.draft_device_at(handle, index, device):
            devices.append(Device(device.uuid.decode(), device.name.decode(errors="replace"), device.memory_bytes))
    return {"model": model, "limits": limits, "devices": tuple(devices)}
