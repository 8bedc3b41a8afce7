"""Which stream does what: four of them under overlap, one without."""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.gpu.arrays import host_arrays
from specfuzz.gpu.device import Buffer, Device, Stream

#: Content of memory before its first write: recognisable, no token, no length, and equal in every replay.
UNWRITTEN = -0x0DDBA11

_PINNED = host_arrays()


@dataclass(frozen=True, slots=True)
class Streams:
    """schedule: allocation, filter and merge, row writes. forward: all of the worker, relay gathers, publish, stash.

    copy: results to the host, a leaf. d2h: the private mirror of new_seq_lens. Without overlap there is nothing to
    overlap with, and all of them are the schedule stream: its program order is the only order.
    """

    device: Device
    schedule: Stream
    forward: Stream
    copy: Stream
    d2h: Stream

    def empty(self, shape: tuple[int, ...], name: str, home: Stream, *, pinned: bool = False) -> Buffer:
        """A new int64 buffer that nobody has written; pinned: host memory. Holds garbage, the same every time."""
        arrays = _PINNED if pinned and self.device.kind == "cuda" else self.device.arrays
        return self.device.buffer(arrays.full(shape, UNWRITTEN), name, home=home.name)


def open_streams(device: Device, *, overlap: bool) -> Streams:
    """The streams of one scheduler."""
    schedule = device.stream("schedule")
    if not overlap:
        return Streams(device, schedule, schedule, schedule, schedule)
    return Streams(device, schedule, device.stream("forward"), device.stream("copy"), device.stream("d2h"))
