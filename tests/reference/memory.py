"""Rows of the toy model laid out over scattered slots, as the kernels see them; and engines to put requests into."""

from __future__ import annotations

from random import Random

import torch

from specfuzz.core.config import EngineConfig
from specfuzz.core.language import Continuation, prompt_tokens
from specfuzz.gpu.device import open_device
from specfuzz.gpu.races import NoAccess
from specfuzz.reference.model import Weights, window_forward
from specfuzz.reference.req import Req
from specfuzz.reference.scheduler import Scheduler

ACCESS = NoAccess()
#: What unwritten cells hold: any reader of one changes the text.
JUNK = 0x7E57


def ints(values: list[int]) -> torch.Tensor:
    """(n,) int64."""
    return torch.tensor(values, dtype=torch.int64)


class Rows:
    """`count` texts whose positions lie in scattered slots of one pool; slot 0 is padding, as in the engine."""

    def __init__(self, count: int, width: int = 24, seed: int = 0) -> None:
        """width: cells of one row. seed: of the slots."""
        slots = list(range(1, count * width + 1))
        Random(seed).shuffle(slots)
        self.kv_indices = ints(slots).reshape(count, width)
        self.weights = Weights(width, torch.device("cpu"))
        self.target_kv = torch.full((len(slots) + 1, 2), JUNK, dtype=torch.int64)
        self.draft_kv = torch.full((len(slots) + 1,), JUNK, dtype=torch.int64)
        self.texts = [Continuation(prompt_tokens(f"r{row}", 2 + row)) for row in range(count)]

    def slots(self, row: int, start: int, end: int) -> list[int]:
        """Slots of positions [start, end)."""
        return self.kv_indices[row, start:end].tolist()

    def fill_target(self, lens: list[int]) -> None:
        """Write the right target cells of [0, length) of every row."""
        for row, length in enumerate(lens):
            for position, slot in enumerate(self.slots(row, 0, length)):
                self.target_kv[slot] = ints(list(self.texts[row].target_cell(position)))

    def fill_draft(self, lens: list[int]) -> None:
        """Write the right draft cells of [0, length) of every row."""
        for row, length in enumerate(lens):
            for position, slot in enumerate(self.slots(row, 0, length)):
                self.draft_kv[slot] = self.texts[row].draft_cell(position)

    def window(self, base: list[int], lanes: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the target over [base, base + lanes) of every row, writing the rows' own slots."""
        tokens = [[self.texts[row].token(start + lane) for lane in range(lanes)] for row, start in enumerate(base)]
        return window_forward(
            ACCESS, self.target_kv, self.kv_indices, self.weights, ints(base), torch.tensor(tokens), None
        )


def open_engine(**fields: object) -> Scheduler:
    """A reference engine on the simulated device; fields: of EngineConfig."""
    config = EngineConfig().with_(**fields)
    return Scheduler(config, open_device("cpu"))


def admitted(engine: Scheduler, rid: str, prompt_len: int, outputs: int = 0, max_new: int = 40) -> Req:
    """A request with a row whose KV is settled, as if it had been prefilled and had decoded `outputs` tokens."""
    req = Req(rid, prompt_tokens(rid, prompt_len), max_new)
    req.output_ids = list(range(outputs))
    tree = engine.tree_cache
    tree.lock(req, engine.match_kv_cache(req))
    engine.pools.alloc_for_extend(req, max(req.seqlen - (outputs > 0), 1))
    return req
