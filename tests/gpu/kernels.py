"""Kernels and devices for the tests of the port; kernels are module-level, as the port asks."""

from __future__ import annotations

from typing import Any

import torch

from specfuzz.gpu import Access, Buffer, Device


class Log:
    """Collects what kernels saw; a launch passes it through as it is (lists would be copied)."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


def zeros(device: Device, name: str, rows: int = 8, *, home: str = "schedule") -> Buffer:
    """A fresh int64 buffer of zeros."""
    return device.buffer(torch.zeros(rows, dtype=torch.int64, device=device.torch_device), name, home=home)


def nothing(access: Access, *args: Any) -> None:
    """Touch nothing."""


def append(access: Access, log: Log, what: Any) -> None:
    """Leave a trace of the order of execution."""
    log.seen.append(what)


def store(access: Access, target: torch.Tensor, rows: Any, value: int) -> None:
    """target[rows] = value; rows None: everywhere."""
    access.write(target, rows)
    target[... if rows is None else rows] = value


def load(access: Access, source: torch.Tensor, rows: Any, log: Log) -> None:
    """Log source[rows]; rows None: everything."""
    access.read(source, rows)
    log.seen.append(source[... if rows is None else rows].tolist())


def fail(access: Access, *args: Any) -> None:
    """Raise what a bad row raises."""
    raise IndexError("row 9 of 8")


def declare(access: Access, tensors: list[torch.Tensor], plan: list[Any]) -> None:
    """Declare the accesses of `plan`: (number of the tensor, "read" or "write", rows)."""
    for number, kind, rows in plan:
        getattr(access, kind)(tensors[number], rows)
