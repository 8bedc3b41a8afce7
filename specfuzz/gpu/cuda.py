"""The real device: the same calls on torch.cuda streams and events, the same order computed at launch.

The hardware decides when operations run; seeded delays push the streams apart. The checker must not synchronise in
between, so declared accesses are kept (rows that are device tensors are cloned in stream order) and compared later,
in launch order, once their operations have finished.

The stream `schedule` is the stream that is current when the device is opened, because that is the one in whose order
the caching allocator reuses what the host allocates.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import torch

from specfuzz.errors import DeviceFault
from specfuzz.gpu.device import Device, Event, Kernel, Memory, Operation, Stream, bind_arguments
from specfuzz.gpu.races import Access, Rows, Shadow, row_list

# About 0.5 ms at 2 GHz: several launches long, so that streams really overtake each other, yet cheap in a run.
LONGEST_DELAY_CYCLES = 1_000_000


class CudaEvent(Event):
    """An event with its counterpart on the hardware."""

    __slots__ = ("torch_event",)

    torch_event: Any


class CudaStream(Stream):
    """A stream of the hardware."""

    __slots__ = ("torch_stream", "unfinished")

    def __init__(self, device: Device, name: str, index: int) -> None:
        super().__init__(device, name, index)
        self.torch_stream: Any = torch.cuda.current_stream() if name == "schedule" else torch.cuda.Stream()
        self.unfinished: deque[Any] = deque()  # one torch event after each operation, oldest first

    def launch(self, name: str, kernel: Kernel, *args: Any) -> None:
        """Run the kernel function at once under this stream, which enqueues its device work; see `Stream.launch`."""
        device: CudaDevice = self.device  # type: ignore[assignment]
        memories: list[Memory] = []
        bound = bind_arguments(args, memories)
        if device._host is not self._host:
            self._meet_host(device._host)
        self.n = n = self.n + 1
        operation = Operation(name, self.name, self.index, n, self.base, memories=memories)
        for memory in memories:
            memory.last[self.index] = operation
            self._wait_for_birth(memory)
        done = torch.cuda.Event()
        device._access.operation = operation
        try:
            with torch.cuda.stream(self.torch_stream):
                if device._delays is not None:
                    torch.cuda._sleep(device._delays.randrange(LONGEST_DELAY_CYCLES))
                kernel(device._access, *bound)
        except Exception as error:
            error.add_note(f"in operation `{name}` on stream `{self.name}`")
            raise
        finally:
            operation.memories = ()  # the stamp must not keep memory alive, or no free would ever happen
            done.record(self.torch_stream)
            self.unfinished.append(done)
            device._entries.append((done, None, operation, None, False))

    def record(self, name: str = "") -> Event:
        """Record on the hardware as well; see `Stream.record`."""
        event = CudaEvent(self.device, name, self._clock())
        event.torch_event = torch.cuda.Event()
        event.torch_event.record(self.torch_stream)
        return event

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
        # Content counts as there from the start, but the host filled it through an asynchronous stream.
        if memory.born is not None:
            if memory.born.query():
                memory.born = None
            else:
                self.torch_stream.wait_event(memory.born)


class DeferredAccess(Access):
    """Keeps what kernels declare, for a comparison after the operation has finished."""

    __slots__ = ("device",)

    def __init__(self, device: CudaDevice) -> None:
        super().__init__()
        self.device = device

    def read(self, tensor: torch.Tensor, rows: Rows) -> None:
        """Keep the declaration of a read."""
        self._keep(tensor, rows, writes=False)

    def write(self, tensor: torch.Tensor, rows: Rows) -> None:
        """Keep the declaration of a write."""
        self._keep(tensor, rows, writes=True)

    def _keep(self, tensor: torch.Tensor, rows: Rows, *, writes: bool) -> None:
        self.device._declare(self.memory(tensor).shadow, self.operation, rows, writes)


class CudaDevice(Device):
    """The device that `open_device("cuda")` gives. Use it from one thread, with one CUDA device current."""

    kind = "cuda"
    _stream_type = CudaStream

    def __init__(self, *, check_races: bool = True, delay_seed: int | None = None) -> None:
        if not torch.cuda.is_available():
            raise DeviceFault("no CUDA device is visible to torch: run on a machine with one, or open the `cpu` device.")
        self.torch_device = torch.device("cuda", torch.cuda.current_device())
        self._delays = None if delay_seed is None else random.Random(delay_seed)
        self._side: Any = torch.cuda.Stream()  # for peeks: ordered with nothing
        # (done event | None, shadow | None, stamp, rows, writes), in launch order; an entry without a shadow ends
        # an operation.
        self._entries: deque[tuple[Any, Shadow | None, Operation, Rows, bool]] = deque()
        super().__init__(check_races=check_races)
        if check_races:
            self._access = DeferredAccess(self)
