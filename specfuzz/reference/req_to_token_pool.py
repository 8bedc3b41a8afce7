"""Rows: which request holds which line of the shared table position -> KV slot."""

from __future__ import annotations

from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.device import Device
from specfuzz.gpu.races import Access
from specfuzz.reference.req import Req


class RowWrites:
    """Segments (row, first position, slots) of one write; they may reach past the table."""

    __slots__ = ("segments",)

    def __init__(self, segments: list[tuple[int, int, list[int]]]) -> None:
        """segments: not to be changed afterwards."""
        self.segments = segments


def write_rows_kernel(access: Access, arrays: Arrays, req_to_token: Array, writes: RowWrites) -> None:
    """req_to_token[row, start : start + n] = slots, per segment; cells beyond the table are dropped."""
    height, width = req_to_token.shape
    for row, start, slots in writes.segments:
        if row < height and start < width:
            req_to_token[row, start : start + len(slots)] = arrays.array(slots[: width - start])
    access.write(req_to_token, [row for row, _, _ in writes.segments])


class ReqToTokenPool:
    """req_to_token (size + 1, width) int64 on the device; row 0 is padding.

    All writers run on the schedule stream, so `host_rows` is what that stream would read there now; the forward stream
    sees a write when its own order says so.
    """

    def __init__(self, size: int, width: int, device: Device) -> None:
        """size: rows without the padding row; width: cells per row."""
        self.size = size
        self.width = width
        self._arrays = device.arrays
        self._schedule = device.stream("schedule")
        self.req_to_token = device.buffer(device.arrays.full((size + 1, width), 0), "req_to_token")
        self.host_rows = [[0] * width for _ in range(size + 1)]
        self.free_slots = list(range(1, size + 1))
        self.req_generation = [0] * (size + 1)

    def available_size(self) -> int:
        """Free rows."""
        return len(self.free_slots)

    def alloc(self, req: Req) -> None:
        """Give the request a row if it holds none."""
        if req.kv.req_pool_idx is None:
            row = self.free_slots.pop()
            self.req_generation[row] += 1
            req.kv.req_pool_idx = row

    def free(self, req: Req) -> None:
        """Take the row back."""
        assert req.kv.req_pool_idx is not None
        self.free_slots.append(req.kv.req_pool_idx)
        req.kv.req_pool_idx = None

    def write(self, segments: list[tuple[int, int, list[int]]]) -> None:
        """Write (row, first position, slots) segments in the order of the schedule stream."""
        kept = [segment for segment in segments if segment[2]]
        for row, start, slots in kept:
            self.host_rows[row][start : start + len(slots)] = slots
        if kept:
            self._schedule.launch(
                "write_req_to_token", write_rows_kernel, self._arrays, self.req_to_token, RowWrites(kept)
            )

    def read(self, row: int, start: int, end: int) -> list[int]:
        """Slots of positions [start, end) as the schedule stream sees them."""
        return self.host_rows[row][start:end]
