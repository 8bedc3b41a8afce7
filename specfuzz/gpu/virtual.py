"""The simulated device: streams are lazy queues, and nothing runs unless it is advanced, drained or waited for.

Because streams run in order, "operation `n` of stream `s` has run" is one comparison with `_executed[s]`; records and
waits need no place in a queue, and the past of an event is a prefix of every queue.
"""

from __future__ import annotations

import sys
from collections import deque
from operator import le
from typing import Any

import torch

from specfuzz.gpu.arrays import host_arrays
from specfuzz.gpu.device import Device
from specfuzz.gpu.memory import Memory, bind_arguments, poison
from specfuzz.gpu.races import HOST, HOST_INDEX, HOST_READ, Rows
from specfuzz.gpu.streams import CLOCK_WIDTH, Clock, Event, Kernel, Operation, Stream, failed


class VirtualStream(Stream):
    """A lazy stream."""

    __slots__ = ("queue", "ready_base")

    def __init__(self, device: Device, name: str, index: int) -> None:
        super().__init__(device, name, index)
        self.queue: deque[Operation] = deque()
        self.ready_base: Clock | None = None  # this tuple was once satisfied, and stays so: spares the comparison

    def launch(self, name: str, kernel: Kernel, *args: Any) -> None:
        """Queue the operation; see `Stream.launch`."""
        memories: list[Memory] = []
        bound = bind_arguments(args, memories)
        device = self.device
        host = device._host
        if host is not self._host:
            self._meet_host(host)
        index = self.index
        self.n = n = self.n + 1
        device._launched = sequence = device._launched + 1  # type: ignore[attr-defined]
        operation = Operation(name, self.name, index, n, self.base, kernel, bound, memories, sequence)
        for memory in memories:
            memory.last[index] = operation
        self.queue.append(operation)


class VirtualDevice(Device):
    """The device that `open_device("cpu")` gives."""

    kind = "cpu"
    torch_device = torch.device("cpu")
    _stream_type = VirtualStream

    def __init__(self, *, check_races: bool = True) -> None:
        self.progress = 0
        self.arrays = host_arrays()
        self._launched = 0
        self._executed = [0] * CLOCK_WIDTH
        self._executed[HOST_INDEX] = sys.maxsize  # host accesses happen at once, so no operation waits for them
        self._barrier = 0  # launches up to this one may be unordered with what `_next_horizon` says
        self._next_horizon: Clock = (0,) * CLOCK_WIDTH
        super().__init__(check_races=check_races)

    def advance(self, stream_name: str, count: int) -> int:
        """Run up to `count` operations of the stream, up to the first that isn't ready; returns how many ran."""
        stream = self._named(stream_name)
        queue, executed = stream.queue, self._executed
        ran = 0
        while ran < count and queue:
            base = queue[0].base
            if base is not stream.ready_base:
                if not all(map(le, base, executed)):
                    break
                stream.ready_base = base
            self._execute(queue.popleft())
            ran += 1
        return ran

    def drain(self) -> int:
        """Run everything, oldest first; a host wait for the whole device. Returns how many ran."""
        tail = [0] * CLOCK_WIDTH
        for stream in self._streams.values():
            tail[stream.index] = stream.n
        clock = tuple(tail)
        ran = self._run_past(clock)
        self._host_learns(clock)
        return ran

    def close(self) -> None:
        """Drop what is queued too: it holds memory that knows its last operation."""
        for stream in self._streams.values():
            for operation in stream.queue:
                operation.kernel = operation.args = None
                operation.memories = ()
            stream.queue.clear()
        super().close()

    def pending(self, stream_name: str | None = None) -> int:
        """Number of queued operations, of one stream or of all."""
        if stream_name is not None:
            return len(self._named(stream_name).queue)
        queued = 0
        for stream in self._streams.values():
            queued += len(stream.queue)
        return queued

    def _poke(self, memory: Memory, values: Any, rows: Rows) -> None:
        super()._poke(memory, values, rows)
        self.progress += 1

    def _synchronize(self, event: Event) -> None:
        self._run_past(event.clock)

    def _query(self, event: Event) -> bool:
        return all(map(le, event.clock, self._executed))

    def _host_learns(self, clock: Clock) -> None:
        super()._host_learns(clock)
        # Whatever is launched from now on is ordered after `_host`. Once all that was launched before has run, no
        # access in that past can race any more, and the checker may forget it.
        barrier = self._barrier
        for stream in self._streams.values():
            if stream.queue and stream.queue[0].sequence <= barrier:
                return
        self._races.horizon = self._next_horizon
        self._next_horizon = self._host
        self._barrier = self._launched

    def _run_past(self, clock: Clock) -> int:
        executed = self._executed
        behind = [stream for stream in self._streams.values() if executed[stream.index] < clock[stream.index]]
        ran = 0
        while behind:
            # A past is closed under predecessors and a launch comes after all of its own, so the oldest is ready.
            stream = behind[0] if len(behind) == 1 else min(behind, key=_age)
            index = stream.index
            self._execute(stream.queue.popleft())
            ran += 1
            if executed[index] >= clock[index]:
                behind.remove(stream)
        return ran

    def _execute(self, operation: Operation) -> None:
        # Counted before the kernel runs: an operation that raises is over, and must not block its stream for ever.
        self._executed[operation.index] = operation.n
        self.progress += 1
        self._access.operation = operation
        try:
            operation.kernel(self._access, *operation.args)
        except Exception as error:
            raise failed(operation, error) from error
        finally:
            # Lets memory go whose host binding has died, and leaves a stamp that holds no memory.
            operation.kernel = operation.args = None
            operation.memories = ()

    def _host_reads_early(self, memory: Memory) -> None:
        for operation in memory.last.values():
            if operation.n > self._executed[operation.index] and operation.n > self._host[operation.index]:
                self._races.add(HOST_READ, memory.name, None, operation, HOST, HOST)

    def _reuse(self, memory: Memory, hazards: list[Operation]) -> None:
        """Poison, if one of the hazards is still queued: it will read what the next owner may have written.

        One fill at free time: a queued operation that IS ordered before the free then sees the poison as well.
        """
        executed = self._executed
        if any(operation.n > executed[operation.index] for operation in hazards):
            poison(memory.tensor)
            memory.version += 1
            self.progress += 1


def _age(stream: VirtualStream) -> int:
    return stream.queue[0].sequence
