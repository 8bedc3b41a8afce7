"""The device port: what the engine may ask of a device, and the order (happens-before) that both devices share.

Order is decided when an operation is launched, never when it runs. Each stream numbers its operations 1, 2, 3, …;
`base` is a tuple with one number per stream: the last operation of that stream which is ordered before whatever this
stream launches next. Index 0 is the host. Tuples are shared between operations and replaced only when an edge is
added, so a launch copies no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from specfuzz.errors import DeviceFault
from specfuzz.gpu.races import HOST, HOST_INDEX, USE_AFTER_FREE, Access, NoAccess, Race, RaceLog, Rows, Shadow

# Recognisable in a dump, negative so that it is no legal token, length or row, and small enough for int32.
POISON = -0x5EC0DEAD

# The streams of an overlap scheduler; opened first, so that their indices never depend on the order of first use.
STREAMS = ("schedule", "forward", "copy", "d2h")

# The host, the four streams above and three more; clocks have a fixed width, so that they compare without padding.
CLOCK_WIDTH = 8

Kernel = Callable[..., None]
Clock = tuple[int, ...]

_PLAIN = frozenset((int, float, str, bool, type(None)))


class Memory:
    """The device side of a buffer: lives on while a queued operation names it, after the host binding has gone."""

    __slots__ = ("born", "home", "last", "name", "shadow", "tensor")

    def __init__(self, tensor: torch.Tensor, name: str, home: Stream, shadow: Shadow | None) -> None:
        self.tensor = tensor
        self.name = name
        self.home = home
        self.shadow = shadow
        self.last: dict[int, Operation] = {}  # per stream the last operation that names it
        self.born: Any = None  # cuda only: the event after which the adopted tensor is filled


class Operation:
    """One launched kernel. Emptied when it has run; the rest stays as the stamp of its accesses."""

    __slots__ = ("args", "base", "index", "kernel", "memories", "n", "name", "sequence", "stream_name")

    def __init__(
        self,
        name: str,
        stream_name: str,
        index: int,
        n: int,
        base: Clock,
        kernel: Any = None,
        args: Any = None,
        memories: Any = (),
        sequence: int = 0,
    ) -> None:
        self.name = name
        self.stream_name = stream_name
        self.index = index
        self.n = n
        self.base = base
        self.kernel = kernel
        self.args = args
        self.memories = memories
        self.sequence = sequence  # its place among the launches of all streams


class Buffer:
    """Host binding of device memory. When the last reference to it goes, the memory is freed AT THAT HOST TIME.

    name: for reports; several buffers may share one. id: unique on its device, counts from 1. A buffer that sits in a
    reference cycle is freed when the garbage collector runs, which no replay can repeat: keep buffers out of cycles.
    """

    __slots__ = ("_device", "_memory", "id", "name")

    def __init__(self, device: Device, memory: Memory, id: int) -> None:
        self._device = device
        self._memory = memory
        self.name = memory.name
        self.id = id

    def peek(self) -> torch.Tensor:
        """What the memory holds now, on the CPU, for observers. Never synchronises, is no access. Do not mutate it."""
        return self._device._peek(self._memory)

    def __repr__(self) -> str:
        """Name and id; the content would need a peek."""
        return f"Buffer({self.name!r}, id={self.id})"

    def __del__(self) -> None:
        """Free the memory, now."""
        memory = getattr(self, "_memory", None)
        if memory is not None and memory.last:
            self._device._free(memory)


class Event:
    """A point in a stream, as recorded: everything launched there before, and all that is ordered before that."""

    __slots__ = ("clock", "device", "name")

    def __init__(self, device: Device, name: str, clock: Clock) -> None:
        self.device = device
        self.name = name
        self.clock = clock

    def synchronize(self) -> None:
        """HOST wait: returns when the past of this event has run; what the host launches later is ordered after it.

        The cpu device runs exactly the unexecuted part of that past, oldest first, and nothing more.
        """
        self.device._synchronize(self)
        self.device._host_learns(self.clock)

    def query(self) -> bool:
        """Whether all of the past of this event has run.

        For observers: unlike `synchronize` it gives the host no order, so host code that acts on True must still
        call `synchronize` (which then has nothing to wait for), or the checker reports what follows.
        """
        return self.device._query(self)


class Stream:
    """A queue of operations that run in the order of their launch. Made by `Device.stream` only."""

    __slots__ = ("_host", "base", "device", "index", "n", "name")

    def __init__(self, device: Device, name: str, index: int) -> None:
        self.device = device
        self.name = name
        self.index = index
        self.n = 0
        self.base: Clock = (0,) * CLOCK_WIDTH
        self._host: Clock = self.base

    def launch(self, name: str, kernel: Kernel, *args: Any) -> None:
        """Enqueue `kernel(access, *args)`, like a CUDA launch; the host learns nothing about when it runs.

        kernel: a module-level function (a closure could keep a host binding alive, or see later host values).
        args: every Buffer, also inside tuples, lists and dicts, reaches the kernel as its torch tensor, and is not
        kept alive by the queue. Containers are copied now; anything else passes through as it is.
        An exception of the kernel surfaces unchanged where the operation runs, with a note that names the operation.
        """
        raise NotImplementedError

    def record(self, name: str = "") -> Event:
        """A new event whose past is all that this stream has been given so far. No operation: it costs no progress."""
        return Event(self.device, name, self._clock())

    def wait(self, event: Event) -> None:
        """Device-side edge: whatever this stream launches from now on runs after `event`. The host doesn't wait."""
        if event.device is not self.device:
            raise DeviceFault(f"stream `{self.name}` cannot wait for event `{event.name}`: it belongs to another device.")
        self.base = _join(self.base, event.clock)

    def wait_stream(self, other: Stream) -> None:
        """`wait` for all that `other` has been given so far."""
        self.wait(other.record(f"tail of {other.name}"))

    def _clock(self) -> Clock:
        clock = list(self.base)
        clock[self.index] = self.n
        return tuple(clock)

    def _meet_host(self, host: Clock) -> None:
        # What the host has seen, or done, is ordered before whatever it launches from now on.
        self._host = host
        self.base = _join(self.base, host)


class Device:
    """A device with streams, events and memory; open one with `open_device`.

    kind: "cpu" (simulated, lazy, deterministic) or "cuda". torch_device: where kernels compute.
    progress: number of executed operations; it only grows, so an observer can tell that memory may have changed.
    """

    kind: str = ""
    torch_device: torch.device = torch.device("cpu")
    progress: int = 0
    _stream_type: type[Stream] = Stream

    def __init__(self, *, check_races: bool = True) -> None:
        self._host: Clock = (0,) * CLOCK_WIDTH  # what is ordered before the next host action
        self._races = RaceLog()
        self._checks = check_races
        self._access: Access = Access() if check_races else NoAccess()
        self._streams: dict[str, Any] = {}
        self._buffers = 0
        for name in STREAMS:
            self.stream(name)

    def stream(self, name: str) -> Stream:
        """The stream of that name, made at its first use. Raises DeviceFault when the clocks have no index left."""
        stream = self._streams.get(name)
        if stream is None:
            index = HOST_INDEX + 1 + len(self._streams)
            if index >= CLOCK_WIDTH:
                raise DeviceFault(f"stream `{name}` is one too many: {list(self._streams)} use up CLOCK_WIDTH={CLOCK_WIDTH}.")
            stream = self._streams[name] = self._stream_type(self, name, index)
        return stream

    def buffer(self, tensor: torch.Tensor, name: str, *, home: str = "schedule") -> Buffer:
        """Adopt `tensor` (any shape and dtype, dimension 0 = rows); the returned object IS the host binding.

        home: the stream in whose order the caching allocator may hand the memory out again after the free.
        Its content counts as written in the host's past. Adopt a storage once: views of it would hide races.
        """
        shadow = Shadow(name, self._races) if self._checks else None
        self._buffers += 1
        return Buffer(self, self._adopt(Memory(tensor, name, self.stream(home), shadow)), self._buffers)

    def advance(self, stream_name: str, count: int) -> int:
        """Run up to `count` operations of that stream, up to the first whose predecessors have not run.

        Returns how many ran. Gives the host no order. A device that runs by itself returns 0.
        """
        raise NotImplementedError

    def drain(self) -> int:
        """Run everything, oldest first, and return how many ran. It is a host wait for the whole device."""
        raise NotImplementedError

    def pending(self, stream_name: str | None = None) -> int:
        """Number of launched operations that have not run, of one stream or of all."""
        raise NotImplementedError

    def host_read(self, buffer: Buffer, rows: Rows = None) -> torch.Tensor:
        """The host reads `rows` (None: all) directly: a copy of what the memory holds now, waiting for nothing.

        A write that is not in the host's past makes it a race `host-read-unsynchronised`.
        """
        self._host_access(buffer, rows, writes=False)
        memory = self._peek(buffer._memory)
        return memory.clone() if rows is None else memory[_index(rows)]

    def host_write(self, buffer: Buffer, values: Any, rows: Rows = None) -> None:
        """The host writes `rows` (None: all) directly, as into pinned memory, waiting for nothing.

        Queued operations that read or write those rows and are not in the host's past race with it.
        """
        self._host_access(buffer, rows, writes=True)
        self._poke(buffer._memory, values, rows)

    def take_races(self) -> list[Race]:
        """The races found since the last call, among operations that have run. Each kind of pair once per run."""
        return self._races.take()

    # ---- what the two devices fill in

    def _adopt(self, memory: Memory) -> Memory:
        return memory

    def _peek(self, memory: Memory) -> torch.Tensor:
        return memory.tensor

    def _poke(self, memory: Memory, values: Any, rows: Rows) -> None:
        memory.tensor[... if rows is None else _index(rows)] = values

    def _synchronize(self, event: Event) -> None:
        raise NotImplementedError

    def _query(self, event: Event) -> bool:
        raise NotImplementedError

    def _reuse(self, memory: Memory, hazards: list[Operation]) -> None:
        """The allocator may hand `memory` out while `hazards` still name it."""

    # ---- what they share

    def _named(self, name: str) -> Any:
        stream = self._streams.get(name)
        if stream is None:
            raise DeviceFault(f"no stream `{name}` on this device; it has {list(self._streams)}.")
        return stream

    def _host_learns(self, clock: Clock) -> None:
        self._host = _join(self._host, clock)

    def _host_access(self, buffer: Buffer, rows: Rows, *, writes: bool) -> None:
        shadow = buffer._memory.shadow
        if shadow is None:
            return
        host = self._host
        n = host[HOST_INDEX] + 1
        stamp = Operation(HOST, HOST, HOST_INDEX, n, host)
        self._host = (n, *host[1:])
        self._declare(shadow, stamp, rows, writes)

    def _declare(self, shadow: Shadow, stamp: Operation, rows: Rows, writes: bool) -> None:
        (shadow.write if writes else shadow.read)(stamp, rows)

    def _free(self, memory: Memory) -> None:
        home, host = memory.home, self._host
        # `home.base` holds the waits that the home stream has queued, also those that no operation follows yet.
        hazards = [
            operation
            for index, operation in memory.last.items()
            if index != home.index and operation.n > home.base[index] and operation.n > host[index]
        ]
        for operation in hazards:
            if self._checks:
                self._races.add(USE_AFTER_FREE, memory.name, None, operation, "free", home.name)
        if hazards:
            self._reuse(memory, hazards)


def open_device(kind: str, *, check_races: bool = True, delay_seed: int | None = None) -> Device:
    """Open the simulated device ("cpu") or the current CUDA device ("cuda").

    check_races=False makes the declarations of kernels free of charge. delay_seed: cuda only, injects seeded delays
    before operations so that streams drift apart. Raises DeviceFault if `kind` is unknown or CUDA isn't there.
    """
    if kind == "cpu":
        from specfuzz.gpu.virtual import VirtualDevice

        return VirtualDevice(check_races=check_races)
    if kind == "cuda":
        from specfuzz.gpu.cuda import CudaDevice

        return CudaDevice(check_races=check_races, delay_seed=delay_seed)
    raise DeviceFault(f"unknown device `{kind}`: use `cpu` or `cuda`.")


def bind_arguments(args: tuple[Any, ...], memories: list[Memory]) -> list[Any]:
    """Replace every Buffer in `args` by its tensor, copy containers, and collect the memories that are named."""
    bound = []
    for arg in args:
        kind = type(arg)
        if kind is Buffer:
            memory = arg._memory
            memories.append(memory)
            bound.append(memory.tensor)
        elif kind in _PLAIN:
            bound.append(arg)
        elif (kind is list or kind is tuple) and _PLAIN.issuperset(map(type, arg)):
            bound.append(arg[:])  # rows and lengths: copied without a look at each
        elif isinstance(arg, (tuple, list)):
            items = bind_arguments(arg, memories)  # type: ignore[arg-type]
            bound.append(items if kind is list else tuple(items) if kind is tuple else kind._make(items))  # type: ignore[union-attr]
        elif isinstance(arg, dict):
            bound.append(dict(zip(arg, bind_arguments(tuple(arg.values()), memories), strict=True)))
        else:
            bound.append(arg)
    return bound


def _join(one: Clock, other: Clock) -> Clock:
    return tuple([a if a > b else b for a, b in zip(one, other)])  # twice as fast as map(max, …), and on a hot path


def _index(rows: Any) -> Any:
    return rows if isinstance(rows, torch.Tensor) else list(rows)
