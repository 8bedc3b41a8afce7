"""Device memory and its host binding: what a queue may keep alive, and what dies with the last host reference."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from specfuzz.gpu.arrays import Array
from specfuzz.gpu.races import Shadow
from specfuzz.gpu.streams import Operation, Stream

# Recognisable in a dump, negative so that it is no legal token, length or row, and small enough for int32.
POISON = -0x5EC0DEAD

_PLAIN = frozenset((int, float, str, bool, type(None)))
_OPAQUE: set[Any] = set(_PLAIN)


class Keeper(Protocol):
    """What a binding needs of its device."""

    def _peek(self, memory: Memory) -> Array: ...

    def _free(self, memory: Memory) -> None: ...


class Memory:
    """The device side of a buffer: lives on while a queued operation names it, after the host binding has gone."""

    __slots__ = ("born", "home", "last", "name", "shadow", "tensor", "version")

    def __init__(self, tensor: Array, name: str, home: Stream) -> None:
        self.tensor = tensor
        self.name = name
        self.home = home
        self.shadow: Shadow | None = None  # made at the first declared access
        self.last: dict[int, Operation] = {}  # per stream the last operation that names it
        self.version = 0  # counts declared writes, so that an observer can tell "unchanged"
        self.born: Any = None  # cuda only: the event after which the adopted tensor is filled


class Buffer:
    """Host binding of device memory. When the last reference to it goes, the memory is freed AT THAT HOST TIME.

    name: for reports; several buffers may share one. id: unique on its device, counts from 1. A buffer that sits in a
    reference cycle is freed when the garbage collector runs, which no replay can repeat: keep buffers out of cycles.
    """

    __slots__ = ("__weakref__", "_device", "_memory", "id", "name")

    def __init__(self, device: Keeper, memory: Memory, id: int) -> None:
        self._device = device
        self._memory = memory
        self.name = memory.name
        self.id = id

    def peek(self) -> Array:
        """What the memory holds now, on the CPU, for observers. Never synchronises, is no access. Do not mutate it."""
        return self._device._peek(self._memory)

    @property
    def version(self) -> int:
        """How often kernels have declared a write to it, the host has written it, or it was poisoned."""
        return self._memory.version

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, known on the host without a look at the content."""
        return tuple(self._memory.tensor.shape)

    def watch(self) -> Watch:
        """A look at the memory for observers, that doesn't keep the host binding alive."""
        return Watch(self._device, self._memory)

    def __repr__(self) -> str:
        """Name and id; the content would need a peek."""
        return f"Buffer({self.name!r}, id={self.id})"

    def __del__(self) -> None:
        """Free the memory, now."""
        memory = self._memory
        if memory.last:
            self._device._free(memory)


class Watch:
    """Looks at memory without holding it: after the free it shows whatever is there."""

    __slots__ = ("_device", "_memory")

    def __init__(self, device: Keeper, memory: Memory) -> None:
        self._device = device
        self._memory = memory

    def read(self) -> Any:
        """What the memory holds now, as (nested) lists; never synchronises, is no access."""
        return self._device._peek(self._memory).tolist()


def bind_arguments(args: tuple[Any, ...], memories: list[Memory]) -> list[Any]:
    """Replace every Buffer in `args` by its tensor, copy containers, and collect the memories that are named.

    A list or tuple that starts with a plain value (or is empty) is taken to hold plain values only.
    """
    bound: list[Any] = []
    for arg in args:
        kind = type(arg)
        if kind is Buffer:
            memory = arg._memory
            memories.append(memory)
            bound.append(memory.tensor)
        elif kind in _OPAQUE:
            bound.append(arg)
        elif (kind is list or kind is tuple) and (not arg or type(arg[0]) in _PLAIN):
            bound.append(arg[:])  # rows and lengths: copied without a look at each
        elif isinstance(arg, (tuple, list)):
            items = bind_arguments(tuple(arg), memories)
            # A named tuple takes its fields one by one; all other sequences take a list.
            bound.append(items if kind is list else getattr(kind, "_make", kind)(items))
        elif isinstance(arg, dict):
            bound.append(dict(zip(arg, bind_arguments(tuple(arg.values()), memories), strict=True)))
        else:
            _OPAQUE.add(kind)  # neither a buffer nor a container: no second look at its kind
            bound.append(arg)
    return bound


def poison(tensor: Array) -> None:
    """Overwrite the whole tensor with what can't be mistaken for content."""
    if isinstance(tensor, torch.Tensor):
        tensor.fill_(poison_of(tensor.dtype))
    else:
        tensor.fill(POISON)  # the numpy face knows int64 only


def poison_of(dtype: torch.dtype) -> int | float | bool:
    """The poison that fits a dtype: POISON for int32 and int64, its low bits for narrower ints, NaN for floats."""
    if dtype is torch.bool:
        return True
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    info = torch.iinfo(dtype)
    if info.min <= POISON:
        return POISON
    low = POISON & ((1 << info.bits) - 1)
    return low if low <= info.max else low - (1 << info.bits)
