"""Which stream does what: four of them under overlap, one without."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specfuzz.gpu.device import Buffer, Device, Stream

#: Content of memory before its first write: recognisable, no token, no length, and equal in every replay.
UNWRITTEN = -0x0DDBA11


@dataclass(frozen=True, slots=True)
class Streams:
    """schedule: allocation, filter and merge, row writes. forward: everything in the worker, relay gathers, publish, stash.

    copy: results to the host, a leaf. d2h: the private mirror of new_seq_lens. Without overlap there is nothing to
    overlap with, and all of them are the schedule stream: its program order is the only order.
    """

    device: Device
    schedule: Stream
    forward: Stream
    copy: Stream
    d2h: Stream

    def empty(self, shape: tuple[int, ...], name: str, home: Stream, *, pinned: bool = False) -> Buffer:
        """A new int64 buffer that nobody has written; pinned: host memory. What it holds is garbage, the same every time."""
        place = None if pinned else self.device.torch_device
        tensor = torch.full(shape, UNWRITTEN, dtype=torch.int64, device=place)
        return self.device.buffer(tensor, name, home=home.name)


def open_streams(device: Device, *, overlap: bool) -> Streams:
    """The streams of one scheduler."""
    schedule = device.stream("schedule")
    if not overlap:
        return Streams(device, schedule, schedule, schedule, schedule)
    return Streams(device, schedule, device.stream("forward"), device.stream("copy"), device.stream("d2h"))
