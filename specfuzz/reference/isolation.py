"""Forward isolation: whatever a worker rebinds on the batch is undone when the forward's launch is over.

A shallow snapshot of bindings: in-place writes into shared tensors, list mutations and nested objects escape it.
Source: sglang 0.5.23 managers/scheduler.py `_forward_isolation`, `record_batch_in_overlap` (behaviour).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from specfuzz.reference.schedule_batch import ScheduleBatch


class KeepAliveRing:
    """Two slots of bindings: a tensor that was bound at launch N stays referenced until launch N + 2.

    It is about memory, not meaning: an old binding that is dropped while the forward stream still reads it may be
    handed out again by the caching allocator.
    """

    def __init__(self, slots: int = 2) -> None:
        """slots: launches that are covered."""
        self._slots: list[list[Any]] = [[] for _ in range(slots)]
        self._next = 0

    def record(self, batch: ScheduleBatch) -> list[Any]:
        """Pin every binding of the batch in the next slot; the returned list takes further references."""
        self._next = (self._next + 1) % len(self._slots)
        pinned: list[Any] = list(vars(batch).values())
        self._slots[self._next] = pinned
        return pinned


@contextmanager
def forward_isolation(batch: ScheduleBatch, ring: KeepAliveRing | None) -> Iterator[list[Any]]:
    """Snapshot bindings, swap in a forward-only sampling_info, pin everything; restore on exit, also after an error.

    ring: None without overlap. Yields the list of keep-alive references of this launch.
    """
    speculative = batch.spec_algorithm != "NONE"
    bindings = vars(batch).copy() if speculative else {"sampling_info": batch.sampling_info}
    if batch.sampling_info is not None:
        batch.sampling_info = batch.sampling_info.copy_for_forward()
    # After the swap, so that the copy is pinned as well.
    keep_alive: list[Any] = ring.record(batch) if ring is not None else []
    try:
        yield keep_alive
    finally:
        vars(batch).update(bindings)
