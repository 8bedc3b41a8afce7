"""The real device: the same calls on torch.cuda streams and events, the same order computed at launch.

The hardware decides when operations run; seeded delays push the streams apart. The checker must not synchronise in
between, so declared accesses are kept (rows that are tensors are cloned in stream order) and compared in launch order
once their operations have finished.

The stream `schedule` is the stream that is current when the device is opened, because that is the one in whose order
the caching allocator reuses what the host allocates.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import torch

from specfuzz.errors import DeviceFault, MissingPart
from specfuzz.gpu.arrays import TorchArrays
from specfuzz.gpu.device import Device
from specfuzz.gpu.memory import Buffer, Memory, bind_arguments
from specfuzz.gpu.races import Access, Race, Rows, Shadow, row_list, shadow_of
from specfuzz.gpu.streams import Clock, Event, Kernel, Operation, Stream, failed

# About 0.5 ms at 2 GHz: several launches long, so that streams really overtake each other, yet cheap in a run.
LONGEST_DELAY_CYCLES = 1_000_000


class CudaMissing(DeviceFault, MissingPart):
    """No CUDA device is visible to torch."""


class CudaEvent(Event):
    """An event with its counterpart on the hardware."""

    __slots__ = ("torch_event",)

    def __init__(self, device: Device, name: str, clock: Clock, torch_stream: Any) -> None:
        super().__init__(device, name, clock)
        self.torch_event: Any = torch.cuda.Event()
        self.torch_event.record(torch_stream)


class CudaStream(Stream):
    """A stream of the hardware."""

    __slots__ = ("torch_stream", "unfinished")

    device: CudaDevice

    def __init__(self, device: Device, name: str, index: int) -> None:
        super().__init__(device, name, index)
        self.torch_stream: Any = torch.cuda.current_stream() if name == "schedule" else torch.cuda.Stream()
        self.unfinished: deque[Any] = deque()  # one torch event after each operation, oldest first

    def launch(self, name: str, kernel: Kernel, *args: Any) -> None:
        """Run the kernel function at once under this stream, which enqueues its device work; see `Stream.launch`."""
        device = self.device
        memories: list[Memory] = []
        bound = bind_arguments(args, memories)
        if device._host is not self._host:
            self._meet_host(device._host)
        self.n = n = self.n + 1
        operation = Operation(name, self.name, self.index, n, self.base, memories=memories)
        for memory in memories:
            memory.last[self.index] = operation
            self._wait_for_birth(memory)
        device._access.operation = operation
        try:
            with torch.cuda.stream(self.torch_stream):
                if device._delays is not None:
                    torch.cuda._sleep(device._delays.randrange(LONGEST_DELAY_CYCLES))
                kernel(device._access, *bound)
        except Exception as error:
            raise failed(operation, error) from error
        finally:
            operation.memories = ()  # the stamp must not keep memory alive, or no free would ever happen
            done = torch.cuda.Event()
            done.record(self.torch_stream)
            self.unfinished.append(done)
            device._launched += 1
            device._close(done)

    def record(self, name: str = "") -> Event:
        """Record on the hardware as well; see `Stream.record`."""
        return CudaEvent(self.device, name, self._clock(), self.torch_stream)

    def wait(self, event: Event) -> None:
        """Wait on the hardware as well; see `Stream.wait`."""
        super().wait(event)
        self.torch_stream.wait_event(event.torch_event)  # type: ignore[attr-defined]

    def retire(self) -> int:
        """Forget the finished operations, without waiting; returns how many are left."""
        unfinished = self.unfinished
        while unfinished and unfinished[0].query():
            unfinished.popleft()
        return len(unfinished)

    def _wait_for_birth(self, memory: Memory) -> None:
        # Adopted content counts as there from the start, but the host filled it through an asynchronous stream.
        if memory.born is not None:
            if memory.born.query():
                memory.born = None
            else:
                self.torch_stream.wait_event(memory.born)


class KeptAccess(Access):
    """Keeps what kernels declare, for a comparison after the operation has finished."""

    __slots__ = ("device",)

    def __init__(self, device: CudaDevice) -> None:
        super().__init__(device._races)
        self.device = device

    def read(self, tensor: torch.Tensor, rows: Rows) -> None:
        """Keep the declaration of a read."""
        self.device._keep(shadow_of(self.operation, tensor, self._log), self.operation, rows, writes=False)

    def write(self, tensor: torch.Tensor, rows: Rows) -> None:
        """Keep the declaration of a write."""
        self.device._keep(shadow_of(self.operation, tensor, self._log), self.operation, rows, writes=True)


_Kept = tuple[Shadow, Operation, Rows, bool]


class CudaDevice(Device):
    """The device that `open_device("cuda")` gives. For one thread, with the same CUDA device current all along."""

    kind = "cuda"
    _stream_type = CudaStream

    def __init__(self, *, check_races: bool = True, delay_seed: int | None = None) -> None:
        if not torch.cuda.is_available():
            raise CudaMissing("torch sees no CUDA device: use a machine that has one, or open the `cpu` device.")
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self.arrays = TorchArrays(self.torch_device)
        self._delays = None if delay_seed is None else random.Random(delay_seed)
        self._side: Any = torch.cuda.Stream()  # for peeks: ordered with nothing
        self._launched = 0
        self._declared: list[_Kept] = []  # by the operation that is being launched, or by the host
        self._undecided: deque[tuple[Any, list[_Kept]]] = deque()  # (done event, declarations), in launch order
        super().__init__(check_races=check_races)
        if check_races:
            self._access = KeptAccess(self)

    @property
    def progress(self) -> int:  # type: ignore[override]
        """Number of finished operations and host writes; one that still runs may have changed memory already."""
        return self._launched - self.pending()

    def advance(self, stream_name: str, count: int) -> int:
        """Do nothing: the device runs by itself. Returns 0."""
        self._named(stream_name)
        return 0

    def drain(self) -> int:
        """Synchronise the whole device; returns how many operations were unfinished before."""
        unfinished = self.pending()
        torch.cuda.synchronize(self.torch_device)
        tail = list(self._host)
        for stream in self._streams.values():
            tail[stream.index] = stream.n
        self._host_learns(tuple(tail))
        self._decide()
        return unfinished

    def pending(self, stream_name: str | None = None) -> int:
        """Number of launched operations that have not finished, of one stream or of all; never waits."""
        streams = self._streams.values() if stream_name is None else (self._named(stream_name),)
        return sum(stream.retire() for stream in streams)

    def take_races(self) -> list[Race]:
        """The races since the last call, up to the oldest operation that has not finished; never waits for one."""
        self._decide()
        return super().take_races()

    def buffer(self, tensor: torch.Tensor, name: str, *, home: str = "schedule") -> Buffer:
        """Adopt `tensor`, which what is enqueued now will fill; see `Device.buffer`."""
        made = super().buffer(tensor, name, home=home)
        if tensor.is_cuda:
            made._memory.born = torch.cuda.Event()
            made._memory.born.record()
        return made

    def close(self) -> None:
        """Wait for what still runs: the allocator hands its memory to the next engine, on a stream of its own order."""
        torch.cuda.synchronize(self.torch_device)
        self.arrays.forget()  # its face is this device's own, and would keep tables in its memory
        super().close()

    def _peek(self, memory: Memory) -> torch.Tensor:
        if not memory.tensor.is_cuda:
            return memory.tensor
        with torch.cuda.stream(self._side):
            return memory.tensor.to("cpu")  # returns when the copy is there, having waited for this stream only

    def _poke(self, memory: Memory, values: Any, rows: Rows) -> None:
        with torch.cuda.stream(self._side):
            super()._poke(memory, torch.as_tensor(values, device=memory.tensor.device), rows)
        self._side.synchronize()
        self._launched += 1  # counts as progress

    def _synchronize(self, event: Event) -> None:
        event.torch_event.synchronize()  # type: ignore[attr-defined]

    def _query(self, event: Event) -> bool:
        return event.torch_event.query()  # type: ignore[attr-defined, no-any-return]

    def _declare(self, shadow: Shadow, stamp: Operation, rows: Rows, writes: bool) -> None:
        self._keep(shadow, stamp, rows, writes=writes)
        self._close(None)

    def _keep(self, shadow: Shadow, stamp: Operation, rows: Rows, *, writes: bool) -> None:
        if isinstance(rows, torch.Tensor):
            rows = rows.clone()  # in stream order: the tensor may be a buffer that a later operation overwrites
        elif rows is not None:
            rows = list(rows)
        self._declared.append((shadow, stamp, rows, writes))

    def _close(self, done: Any) -> None:
        if self._declared:
            self._undecided.append((done, self._declared))
            self._declared = []

    def _decide(self) -> None:
        undecided = self._undecided
        while undecided and (undecided[0][0] is None or undecided[0][0].query()):
            for shadow, stamp, rows, writes in undecided.popleft()[1]:
                if rows is not None:
                    with torch.cuda.stream(self._side):
                        rows = row_list(rows)
                (shadow.write if writes else shadow.read)(stamp, rows)
