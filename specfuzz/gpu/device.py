"""The device port: what the engine may ask of a device, and what the simulated and the real one share."""

from __future__ import annotations

from typing import Any

import torch

from specfuzz.errors import DeviceFault
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.memory import Buffer, Memory
from specfuzz.gpu.races import (
    HOST,
    HOST_INDEX,
    USE_AFTER_FREE,
    Access,
    NoAccess,
    Race,
    RaceLog,
    Rows,
    Shadow,
    row_list,
    shadow_of_memory,
)
from specfuzz.gpu.streams import CLOCK_WIDTH, Clock, Event, Operation, Stream, join

__all__ = ["STREAMS", "Buffer", "Device", "Event", "Stream"]

# The streams of an overlap scheduler; opened first, so that their indices never depend on the order of first use.
STREAMS = ("schedule", "forward", "copy", "d2h")


class Device:
    """A device with streams, events and memory; open one with `open_device`.

    kind: "cpu" (simulated, lazy, deterministic) or "cuda". torch_device: where kernels compute.
    progress: number of executed operations; it only grows, so an observer can tell that memory may have changed. What
    else changes memory (a host write, a poisoning) counts one as well.
    """

    kind: str = ""
    torch_device: torch.device = torch.device("cpu")
    progress: int = 0
    arrays: Arrays
    _stream_type: type[Stream] = Stream

    def __init__(self, *, check_races: bool = True) -> None:
        self._host: Clock = (0,) * CLOCK_WIDTH  # what is ordered before the next host action
        self._races = RaceLog()
        self._checks = check_races
        self._access: Access = Access(self._races) if check_races else NoAccess(self._races)
        self._streams: dict[str, Any] = {}
        self._buffers = 0
        self._closed = False
        for name in STREAMS:
            self.stream(name)

    def stream(self, name: str) -> Stream:
        """The stream of that name, made at its first use. Raises DeviceFault when the clocks have no index left."""
        stream = self._streams.get(name)
        if stream is None:
            index = HOST_INDEX + 1 + len(self._streams)
            if index >= CLOCK_WIDTH:
                raise DeviceFault(
                    f"stream `{name}` is one too many: {list(self._streams)} use up CLOCK_WIDTH={CLOCK_WIDTH}."
                )
            stream = self._streams[name] = self._stream_type(self, name, index)
        return stream

    def buffer(self, tensor: Array, name: str, *, home: str = "schedule") -> Buffer:
        """Adopt `tensor` (any shape and dtype, dimension 0 = rows); the returned object IS the host binding.

        home: the stream in whose order the caching allocator may hand the memory out again after the free.
        Its content counts as written in the host's past. Adopt a storage once: views of it would hide races.
        """
        self._buffers = number = self._buffers + 1
        return Buffer(self, Memory(tensor, name, self._streams[home]), number)

    def advance(self, stream_name: str, count: int) -> int:
        """Run up to `count` operations of that stream, up to the first whose predecessors have not run.

        Returns how many ran. Gives the host no order. A device that runs by itself returns 0.
        """
        raise NotImplementedError

    def run_until(self, event: Event) -> None:
        """The device's own progress up to `event` and no further; unlike a host wait it gives the host no order."""
        self._synchronize(event)

    def drain(self) -> int:
        """Run everything, oldest first, and return how many ran. It is a host wait for the whole device."""
        raise NotImplementedError

    def pending(self, stream_name: str | None = None) -> int:
        """Number of launched operations that have not run, of one stream or of all."""
        raise NotImplementedError

    def host_read(self, buffer: Buffer, rows: Rows = None) -> Array:
        """The host reads `rows` (None: all) directly: a CPU copy of what the memory holds now, waiting for nothing.

        A write that is not in the host's past makes it a race `host-read-unsynchronised`; so does a queued operation
        that names the buffer and isn't in the host's past, since what it will do is not known yet.
        """
        if self._checks:
            self._host_reads_early(buffer._memory)
            self._host_access(buffer, rows, writes=False)
        memory = self._peek(buffer._memory)
        if rows is not None:
            return memory[row_list(rows)]
        return memory.clone() if isinstance(memory, torch.Tensor) else memory.copy()

    def host_write(self, buffer: Buffer, values: Any, rows: Rows = None) -> None:
        """The host writes `rows` (None: all) directly, as into pinned memory, waiting for nothing.

        Queued operations that read or write those rows and are not in the host's past race with it.
        """
        if self._checks:
            self._host_access(buffer, rows, writes=True)
        self._poke(buffer._memory, values, rows)
        buffer._memory.version += 1

    def take_races(self) -> list[Race]:
        """The races found since the last call, among operations that have run. Each kind of pair once per run."""
        return self._races.take()

    def close(self) -> None:
        """The end: what is queued never runs, what runs already is waited for; frees are no longer looked at.

        Streams and devices hold each other: only the garbage collector frees open ones.
        """
        self._streams.clear()
        self._closed = True

    # ---- what the two devices fill in

    def _peek(self, memory: Memory) -> Array:
        return memory.tensor

    def _poke(self, memory: Memory, values: Any, rows: Rows) -> None:
        memory.tensor[... if rows is None else row_list(rows)] = values

    def _synchronize(self, event: Event) -> None:
        raise NotImplementedError

    def _query(self, event: Event) -> bool:
        raise NotImplementedError

    def _host_reads_early(self, memory: Memory) -> None:
        """Report a host read of memory that a queued, unordered operation still names."""

    def _reuse(self, memory: Memory, hazards: list[Operation]) -> None:
        """The allocator may hand `memory` out while `hazards` still name it."""

    # ---- what they share

    def _named(self, name: str) -> Any:
        stream = self._streams.get(name)
        if stream is None:
            raise DeviceFault(f"no stream `{name}` on this device; it has {list(self._streams)}.")
        return stream

    def _host_learns(self, clock: Clock) -> None:
        self._host = join(self._host, clock)

    def _host_access(self, buffer: Buffer, rows: Rows, *, writes: bool) -> None:
        shadow = shadow_of_memory(buffer._memory, self._races)
        host = self._host
        n = host[HOST_INDEX] + 1
        stamp = Operation(HOST, HOST, HOST_INDEX, n, host)
        self._host = (n, *host[1:])
        self._declare(shadow, stamp, rows, writes)

    def _declare(self, shadow: Shadow, stamp: Operation, rows: Rows, writes: bool) -> None:
        (shadow.write if writes else shadow.read)(stamp, rows)

    def _free(self, memory: Memory) -> None:
        if self._closed:
            return
        home, host = memory.home, self._host
        base, home_index = home.base, home.index
        hazards = []
        for index, operation in memory.last.items():
            # `home.base` holds the waits that the home stream has queued, also those that no operation follows yet.
            if index != home_index and (n := operation.n) > base[index] and n > host[index]:
                hazards.append(operation)
        if not hazards:
            return
        if self._checks:
            for operation in hazards:
                self._races.add(USE_AFTER_FREE, memory.name, None, operation, "free", home.name)
        self._reuse(memory, hazards)
