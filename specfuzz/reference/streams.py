"""Which stream does what: four of them under overlap, one without."""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.gpu.device import Device, Stream


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


def open_streams(device: Device, *, overlap: bool) -> Streams:
    """The streams of one scheduler."""
    schedule = device.stream("schedule")
    if not overlap:
        return Streams(device, schedule, schedule, schedule, schedule)
    return Streams(device, schedule, device.stream("forward"), device.stream("copy"), device.stream("d2h"))
