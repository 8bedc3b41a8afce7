"""Streams and events: the order (happens-before) that both devices share.

Order is decided when an operation is launched, never when it runs. Each stream numbers its operations 1, 2, 3, …;
`base` is a tuple with one number per stream: the last operation of that stream which is ordered before whatever this
stream launches next. Index 0 is the host. Tuples are shared between operations and replaced only when an edge is
added, so a launch copies no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from specfuzz.errors import DeviceFault

# The host, the four streams of an overlap scheduler and three more; of fixed width, so that clocks compare unpadded.
CLOCK_WIDTH = 8

Kernel = Callable[..., None]
Clock = tuple[int, ...]


class Ordering(Protocol):
    """What a stream and an event need of their device."""

    _host: Clock

    def _synchronize(self, event: Event) -> None: ...

    def _host_learns(self, clock: Clock) -> None: ...

    def _query(self, event: Event) -> bool: ...


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


class Event:
    """A point in a stream, as recorded: everything launched there before, and all that is ordered before that."""

    __slots__ = ("clock", "device", "name")

    def __init__(self, device: Ordering, name: str, clock: Clock) -> None:
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

    def __init__(self, device: Ordering, name: str, index: int) -> None:
        self.device = device
        self.name = name
        self.index = index
        self.n = 0
        self.base: Clock = (0,) * CLOCK_WIDTH
        self._host: Clock = self.base

    def launch(self, name: str, kernel: Kernel, *args: Any) -> None:
        """Enqueue `kernel(access, *args)`, like a CUDA launch; the host learns nothing about when it runs.

        kernel: a module-level function (a closure could keep a host binding alive, or see later host values).
        args: every Buffer, also inside tuples, lists and dicts, reaches the kernel as its array, and is not
        kept alive by the queue. Containers are copied now; anything else passes through as it is.
        An exception of the kernel surfaces where the operation runs, as a DeviceFault that names the operation and has
        the exception as its cause; the operation counts as executed.
        """
        raise NotImplementedError

    def record(self, name: str = "") -> Event:
        """A new event whose past is all that this stream has been given so far. No operation: it costs no progress."""
        return Event(self.device, name, self._clock())

    def wait(self, event: Event) -> None:
        """Device-side edge: whatever this stream launches from now on runs after `event`. The host doesn't wait."""
        if event.device is not self.device:
            raise DeviceFault(
                f"stream `{self.name}` cannot wait for event `{event.name}`: it belongs to another device."
            )
        self.base = join(self.base, event.clock)

    def wait_stream(self, other: Stream) -> None:
        """`wait` for all that `other` has been given so far."""
        if other is not self:  # what a stream was given before is in its past anyway
            self.wait(other.record("tail"))

    def _clock(self) -> Clock:
        base, index = self.base, self.index
        return (*base[:index], self.n, *base[index + 1 :])

    def _meet_host(self, host: Clock) -> None:
        # What the host has seen, or done, is ordered before whatever it launches from now on.
        self._host = host
        self.base = join(self.base, host)


assert CLOCK_WIDTH == 8, "`join` is written out for eight streams"


def join(one: Clock, other: Clock) -> Clock:
    """The later of both, per stream."""
    if one is other:
        return one
    # Written out for CLOCK_WIDTH: a sixth of what a loop costs, and every launch behind a host wait joins.
    a, b, c, d, e, f, g, h = one
    i, j, k, l, m, n, o, p = other  # noqa: E741
    return (
        a if a > i else i, b if b > j else j, c if c > k else k, d if d > l else l, e if e > m else m,
        f if f > n else n, g if g > o else o, h if h > p else p,
    )  # fmt: skip


def failed(operation: Operation, error: Exception) -> DeviceFault:
    """What a failing kernel surfaces as; raise it `from` the error."""
    where = f"operation `{operation.name}` on stream `{operation.stream_name}`"
    return DeviceFault(f"{where} raised {type(error).__name__}: {error}")
