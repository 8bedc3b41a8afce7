"""Bugs planted into the real SGLang classes: draft trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Owner
from specfuzz.systems.sglang.mutants.planting import Swap, bug

if TYPE_CHECKING:
    from specfuzz.systems.sglang.versions import Engine

_TREE = Capability.TREE


@bug(
    "branch-pages-not-reserved",
    Owner.SCHEDULER,
    ("branches-inside-the-reserve", "reserve-covers-two-rounds"),
    needs=_TREE | Capability.PAGED,
    source="sglang #26972: get_alloc_len_per_decode",
)
def _branch_pages_not_reserved(engine: Engine, swap: Swap) -> None:
    """A tree on pages reserves the tokens of its branches, not the whole pages that each of them has of its own."""

    def factory(original: Any) -> Any:
        def alloc_len() -> int:
            spec = original.__globals__["get_spec"]()
            return max(spec.speculative_num_steps * spec.speculative_eagle_topk, spec.speculative_num_draft_tokens)

        return alloc_len

    swap(engine.allocation_sizing, "get_alloc_len_per_decode", factory)


@bug(
    "seeds-of-the-best-branch-only",
    Owner.FUTURE_MAP,
    ("relay-holds-the-draft-state", "draft-state-is-right", "right-draft-is-accepted"),
    needs=_TREE | Capability.OVERLAP,
    source="FutureMap.stash: topk_index_buf is (rows, topk)",
)
def _one_seed(engine: Engine, swap: Swap) -> None:
    """Only the first seed of a tree reaches the relay; the others are those of an older round."""

    def factory(original: Any) -> Any:
        def stash(self: Any, future_indices: Any, draft_input: Any) -> None:
            known = self.topk_index_buf
            before = None if known is None else known.clone()
            original(self, future_indices, draft_input)
            if before is not None:
                self.topk_index_buf[:, 1:] = before[:, 1:]

        return stash

    swap(engine.FutureMap, "stash", factory)
