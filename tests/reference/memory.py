"""Rows of the toy model laid out over scattered slots, as the kernels see them; and engines to put requests into."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from specfuzz.core.config import EngineConfig
from specfuzz.core.language import Continuation, prompt_tokens
from specfuzz.gpu import open_device
from specfuzz.gpu.arrays import Array, Arrays, host_arrays
from specfuzz.gpu.races import NoAccess, RaceLog
from specfuzz.reference.model import Weights, window_forward
from specfuzz.reference.req import Req
from specfuzz.reference.scheduler import Scheduler


class Outside(NoAccess):
    """For kernels that no device runs."""

    def write(self, tensor: Any, rows: Any) -> None:
        """Nobody observes."""


ACCESS = Outside(RaceLog())
#: What unwritten cells hold: any reader of one changes the text.
JUNK = 0x7E57
WIDTH = 24


class Rows:
    """`count` texts whose positions lie in scattered slots of one pool; slot 0 is padding, as in the engine."""

    def __init__(self, count: int, xp: Arrays | None = None, seed: int = 0, width: int = WIDTH) -> None:
        """xp: numpy or torch. seed: of the slots. width: cells per row."""
        self.xp = xp or host_arrays()
        slots = list(range(1, count * width + 1))
        Random(seed).shuffle(slots)
        self.row_slots = [slots[row * width : (row + 1) * width] for row in range(count)]
        self.weights = Weights(width, self.xp)
        self.target_v1, self.target_v2, self.draft_kv = (self.xp.full((len(slots) + 1,), JUNK) for _ in range(3))
        self.texts = [Continuation(prompt_tokens(f"r{row}", 2 + row)) for row in range(count)]

    @property
    def kv_indices(self) -> Array:
        """(count, width): what a plan has copied out of the shared table."""
        return self.xp.array(self.row_slots)

    def slots(self, row: int, start: int, end: int) -> list[int]:
        """Slots of positions [start, end)."""
        return self.row_slots[row][start:end]

    def zeros(self, *shape: int) -> Array:
        """An output of a kernel."""
        return self.xp.full(shape, 0)

    def fill_target(self, lens: Sequence[int]) -> None:
        """Write the right target cells of [0, length) of every row."""
        for row, length in enumerate(lens):
            for position, slot in enumerate(self.slots(row, 0, length)):
                self.target_v1[slot], self.target_v2[slot] = self.texts[row].target_cell(position)

    def fill_draft(self, lens: Sequence[int]) -> None:
        """Write the right draft cells of [0, length) of every row."""
        for row, length in enumerate(lens):
            for position, slot in enumerate(self.slots(row, 0, length)):
                self.draft_kv[slot] = self.texts[row].draft_cell(position)

    def target_cells(self, row: int, start: int, end: int) -> list[tuple[int, int]]:
        """(v1, v2) of positions [start, end), as they are in the pool."""
        return [(int(self.target_v1[slot]), int(self.target_v2[slot])) for slot in self.slots(row, start, end)]

    def draft_cells(self, row: int, end: int) -> list[int]:
        """Draft cells of positions [0, end), as they are in the pool."""
        return [int(self.draft_kv[slot]) for slot in self.slots(row, 0, end)]

    def window(self, base: list[int], lanes: int) -> list[list[int]]:
        """Reductions of the target over [base, base + lanes) of every row; writes the rows' own slots."""
        tokens = [[self.texts[row].token(start + lane) for lane in range(lanes)] for row, start in enumerate(base)]
        reductions, positions = window_forward(
            ACCESS, self.weights, self.target_v1, self.target_v2, self.kv_indices, self.xp.array(base),
            self.xp.array(tokens), None,
        )  # fmt: skip
        assert positions.tolist() == [[start + lane for lane in range(lanes)] for start in base]
        found: list[list[int]] = reductions.tolist()
        return found


def touched(cells: Array) -> set[int]:
    """Slots that were written."""
    return {slot for slot, cell in enumerate(cells.tolist()) if cell != JUNK}


def open_engine(**fields: Any) -> Scheduler:
    """A reference engine on the simulated device; fields: of EngineConfig."""
    return Scheduler(EngineConfig().with_(**fields), open_device("cpu"))


def admitted(engine: Scheduler, rid: str, prompt_len: int, outputs: int = 0, max_new: int = 40) -> Req:
    """A request with a row whose KV is settled, as if it had been prefilled and had decoded `outputs` tokens."""
    req = Req(rid, prompt_tokens(rid, prompt_len), max_new)
    req.output_ids = list(range(outputs))
    tree = engine.tree_cache
    tree.lock(req, engine.prefill_adder.match_kv_cache(req))
    engine.pools.alloc_for_extend(req, max(req.seqlen - (outputs > 0), 1))
    return req
