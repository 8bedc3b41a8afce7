"""Planted bugs of tree drafts (topk > 1): branches, the accepted path and its move, what the next round is handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.device import Buffer
from specfuzz.gpu.races import Access
from specfuzz.mutants import mutant
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import EagleDraftInput, GenerationBatchResult, gather_rows_kernel

_TREE = Capability.TREE


def _around(engine: Scheduler, stage: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a stage of the tree worker; a chain, which a shrinker may try instead, has no such stage."""
    if engine.config.topk > 1:
        setattr(engine.model_worker, stage, wrap(getattr(engine.model_worker, stage)))


@mutant("tree-move-skipped", source="sglang #15360", killed_by=("accepted-path-leads-the-window",), needs=_TREE)
def tree_move_skipped(engine: Scheduler) -> None:
    """The KV of the accepted path stays where it was verified, scattered over the window."""
    _around(engine, "move_accepted_path", lambda move: lambda targets, sources: None)


@mutant(
    "tree-path-not-compacted",
    source="sglang #15360",
    killed_by=("decided-tokens-are-the-text", "bonus-ends-the-run"),
    needs=_TREE,
)
def tree_path_not_compacted(engine: Scheduler) -> None:
    """The first nodes of the window are taken for the accepted path: its tokens and hidden states are not gathered."""
    _around(engine, "compact_accepted_path", lambda compact: lambda batch, verified: verified)


def _front_of_row_kernel(
    access: Access, arrays: Arrays, table: Array, rows: list[int], seq_lens: Array, targets: Array
) -> None:
    access.read(table, rows)
    targets[...] = arrays.gather(table[rows], seq_lens[:, None] + arrays.arange(targets.shape[1]))


@mutant(
    "tree-move-reads-the-row",
    source="sglang 0.5.23 move_accept_tokens_to_target_kvcache",
    killed_by=("move-stays-in-the-window", "row-writes-wait-for-readers"),
    needs=_TREE | Capability.OVERLAP | Capability.RACE_CHECK,
)
def tree_move_reads_the_row(engine: Scheduler) -> None:
    """The targets of the move are read from req_to_token, whose row may belong to another request by then."""

    def wrap(of_window: Any) -> Any:
        def of_row(batch: ScheduleBatch, verified: Any) -> tuple[Buffer, Buffer]:
            targets, sources = of_window(batch, verified)
            args = (engine.device.arrays, table, batch.req_pool_indices_cpu, batch.seq_lens, targets)
            engine.streams.forward.launch("accepted_locs", _front_of_row_kernel, *args)
            return targets, sources

        return of_row

    table = engine.req_to_token_pool.req_to_token
    _around(engine, "accepted_locs", wrap)


@mutant(
    "tree-move-from-the-ledger",
    source="sglang 0.5.23 move_accept_tokens_to_target_kvcache",
    killed_by=("move-stays-in-the-window",),
    needs=_TREE | Capability.OVERLAP,
)
def tree_move_from_the_ledger(engine: Scheduler) -> None:
    """The targets of the move start at kv_committed_len, which lags behind the window by the accept in flight."""

    def wrap(of_window: Any) -> Any:
        def of_ledger(batch: ScheduleBatch, verified: Any) -> tuple[Buffer, Buffer]:
            width, table = engine.config.max_accept, engine.req_to_token_pool
            fronts = [(req.kv.req_pool_idx or 0, req.kv.kv_committed_len) for req in batch.reqs]
            targets: Any = [table.read(row, start, start + width) for row, start in fronts]
            return batch.to_device(targets, "tgt_cache_loc"), of_window(batch, verified)[1]

        return of_ledger

    _around(engine, "accepted_locs", wrap)


class _Dense(EngineConfig):
    @property
    def alloc_len_per_decode(self) -> int:
        return max(self.spec_steps * self.topk, self.draft_token_num)


@mutant(
    "tree-branch-pages-dropped",
    source="sglang #26972",
    killed_by=("branches-inside-the-reserve", "reserve-covers-two-rounds"),
    needs=_TREE | Capability.PAGED,
)
def tree_branch_pages_dropped(engine: Scheduler) -> None:
    """The reserve counts the slots of all branches, not the whole pages that each of them takes."""
    engine.pools.config = _Dense(**engine.config.as_dict())


@mutant(
    "tree-tail-not-copied",
    source="sglang 0.5.23 duplicate_prefix_tail_to_draft_branches",
    killed_by=("right-draft-is-accepted",),
    needs=_TREE | Capability.PAGED,
)
def tree_tail_not_copied(engine: Scheduler) -> None:
    """Branches behind the first one read a first page into which nobody has copied the prefix's partial page."""
    _around(engine, "duplicate_prefix_tail", lambda copy: lambda batch, kv_indices: None)


@mutant(
    "tree-bonus-stride",
    source="sglang 0.5.23 run_eagle_verify fill_bonus_tokens",
    killed_by=("bonus-ends-the-run",),
    needs=_TREE,
)
def tree_bonus_stride(engine: Scheduler) -> None:
    """The bonus is looked up with draft_token_num accepted tokens per row, not with spec_steps + 1 of them."""
    stride = engine.config.draft_token_num
    _around(engine, "fill_bonus_tokens", lambda fill: lambda batch, verified, _: fill(batch, verified, stride))


def _one_more_kernel(access: Access, lens: Array, out: Array) -> None:
    out[...] = lens + 1


@mutant(
    "tree-select-behind-the-path",
    source="sglang 0.5.23 _draft_extend_for_decode select_index",
    killed_by=("draft-state-is-right", "relay-holds-the-draft-state"),
    needs=_TREE,
)
def tree_select_behind_the_path(engine: Scheduler) -> None:
    """The draft state of the next round is taken from lane accept_len of the window, one behind the accepted path."""

    def wrap(extend: Any) -> Any:
        def extend_by_one_more(batch: ScheduleBatch, verified: Any, *rest: Any) -> Any:
            longer = batch.new_tensor("accept_lens", on=engine.streams.forward)
            engine.streams.forward.launch("select_index", _one_more_kernel, verified.accept_lens, longer)
            return extend(batch, replace(verified, accept_lens=longer), *rest)

        return extend_by_one_more

    _around(engine, "draft_extend", wrap)


def _next_branch_kernel(access: Access, seeds: Array, out: Array) -> None:
    out[:, 1:], out[:, :1] = seeds[:, :-1], seeds[:, -1:]


@mutant(
    "tree-seeds-of-the-next-branch",
    source="sglang 0.5.23 draft_worker fast_topk after draft-extend",
    killed_by=("draft-state-is-right", "relay-holds-the-draft-state"),
    needs=_TREE,
)
def tree_seeds_of_the_next_branch(engine: Scheduler) -> None:
    """Every branch is handed the seed of the branch before it."""

    def wrap(seeds: Any) -> Any:
        def shifted(batch: ScheduleBatch, best: Buffer, frontier: Buffer) -> Buffer:
            out = batch.new_tensor("topk_index", on=engine.streams.forward, lanes=engine.config.topk)
            engine.streams.forward.launch("shift_seeds", _next_branch_kernel, seeds(batch, best, frontier), out)
            return out

        return shifted

    _around(engine, "seeds", wrap)


@mutant(
    "tree-seeds-of-another-row",
    source="sglang #9976",
    killed_by=("draft-state-is-right", "relay-holds-the-draft-state"),
    needs=_TREE | Capability.OVERLAP,
)
def tree_seeds_of_another_row(engine: Scheduler) -> None:
    """The stash writes the draft seeds of a batch to its rows in reversed order."""
    stash = engine.future_map.stash

    def stash_reversed(batch: ScheduleBatch, payload: EagleDraftInput) -> None:
        order = list(range(batch.batch_size()))[::-1]
        lanes = engine.config.topk if engine.config.topk > 1 else None
        out = batch.new_tensor("topk_index", on=engine.streams.forward, lanes=lanes)
        engine.streams.forward.launch("reverse_seeds", gather_rows_kernel, payload.topk_index, order, out)
        stash(batch, replace(payload, topk_index=out))

    engine.future_map.stash = stash_reversed  # type: ignore[method-assign]


def _root_twice_kernel(access: Access, accept_index: Array) -> None:
    access.write(accept_index, None)
    accept_index[:, 1] = 0


@mutant(
    "tree-path-starts-twice",
    source="sglang 0.5.23 eagle_sample",
    killed_by=("accept-index-is-a-path",),
    needs=_TREE,
)
def tree_path_starts_twice(engine: Scheduler) -> None:
    """The second lane of accept_index names the root again, or a node behind a path that has ended there."""
    forward = engine.model_worker.forward_batch_generation

    def forward_and_spoil(batch: ScheduleBatch, on_publish: Any) -> GenerationBatchResult:
        result = forward(batch, on_publish)
        if result.accept_index is not None:
            engine.streams.forward.launch("root_twice", _root_twice_kernel, result.accept_index)
        return result

    engine.model_worker.forward_batch_generation = forward_and_spoil  # type: ignore[method-assign]
