"""Planted bugs of what happens when KV is short: who gives way, who waits, who is let in, what the tree keeps."""

from __future__ import annotations

from collections.abc import Callable

from specfuzz.core.capability import Capability
from specfuzz.mutants import mutant
from specfuzz.reference.req import Req
from specfuzz.reference.result_processor import Settled
from specfuzz.reference.retraction import Retraction
from specfuzz.reference.scheduler import Prepared, Scheduler
from specfuzz.reference.tree_node import TreeNode

_TREE = Capability.RADIX | Capability.TREE_VIEW


def _junior(req: Req) -> tuple[int, int]:
    return -len(req.output_ids), len(req.origin_input_ids)


def _senior(req: Req) -> tuple[int, int]:
    return len(req.output_ids), -len(req.origin_input_ids)


def _retract_by(
    engine: Scheduler, rank: Callable[[Req], tuple[int, int]], goes_on: Callable[[list[Req], bool], bool]
) -> None:
    """Retract the row with the highest rank while goes_on(kept, short); one row that is left is dealt with as ever."""
    retractor, retract = engine.retractor, engine.retractor.retract_decode

    def retract_decode(reqs: list[Req]) -> Retraction:
        keep, gone = sorted(reqs, key=rank), list[Req]()
        while goes_on(keep, not gone or not engine.pools.check_decode_mem(keep)):
            gone.append(keep.pop())
            retractor.release_req(gone[-1], len(keep))
        outcome = retract(keep) if len(keep) == 1 else Retraction(kept=keep)
        outcome.retracted = gone
        return outcome

    retractor.retract_decode = retract_decode  # type: ignore[method-assign]


@mutant(
    "eldest-gives-way",
    source="sglang 0.5.23 ScheduleBatch._get_decode_retraction_order",
    killed_by=("retraction-takes-the-youngest",),
)
def eldest_gives_way(engine: Scheduler) -> None:
    """The row that has generated most is retracted first."""
    _retract_by(engine, _senior, lambda keep, short: len(keep) > 1 and short)


@mutant(
    "all-but-one-give-way",
    source="sglang 0.5.23 ScheduleBatch.retract_decode",
    killed_by=("retraction-needs-pressure",),
)
def all_but_one_give_way(engine: Scheduler) -> None:
    """A retraction goes on until one row is left, whether or not the others would fit by then."""
    _retract_by(engine, _junior, lambda keep, short: len(keep) > 1)


@mutant(
    "last-row-requeued",
    source="sglang 0.5.23 ScheduleBatch.retract_decode",
    killed_by=("retraction-leaves-a-row",),
)
def last_row_requeued(engine: Scheduler) -> None:
    """A row that doesn't fit alone is retracted like any other one, and admitted and retracted for ever."""
    _retract_by(engine, _junior, lambda keep, short: bool(keep) and short)


@mutant(
    "decode-skipped-for-nobody",
    source="sglang 0.5.23 Scheduler.update_running_batch",
    killed_by=("skip-waits-for-a-finish",),
)
def decode_skipped_for_nobody(engine: Scheduler) -> None:
    """Where memory is short the decode is skipped, also if no queued result is about to give some back."""
    update = engine.update_running_batch

    def update_running_batch() -> Prepared:
        reqs = engine.running_batch.reqs
        if reqs and not engine.pools.check_decode_mem(reqs):
            return Prepared(skipped=True)
        return update()

    engine.update_running_batch = update_running_batch  # type: ignore[method-assign]


@mutant(
    "finishing-rows-run-on",
    source="vLLM #27922",
    killed_by=("no-row-runs-past-its-cap",),
    needs=Capability.OVERLAP,
)
def finishing_rows_run_on(engine: Scheduler) -> None:
    """Rows that the queued result finishes by length for certain take part in the next round."""
    engine._drop_reqs_finishing_inflight = list  # type: ignore[method-assign]


@mutant(
    "mixed-rows-not-counted",
    source="TensorRT-LLM #16101",
    killed_by=("admission-leaves-room",),
    needs=Capability.MIXED_CHUNK,
)
def mixed_rows_not_counted(engine: Scheduler) -> None:
    """The estimate of an admission sets nothing aside for the running rows that may ride along."""
    engine._num_mixed_decode_tokens = lambda: 0  # type: ignore[method-assign]


@mutant("whole-demand-evicted", source="sglang #32459", killed_by=("eviction-is-needed",), needs=_TREE)
def whole_demand_evicted(engine: Scheduler) -> None:
    """An allocation evicts all that it needs, whatever is free already."""
    tree = engine.tree_cache

    def evict_to_free_tokens(num_tokens: int) -> None:
        tree.evict(num_tokens)

    tree.evict_to_free_tokens = evict_to_free_tokens  # type: ignore[method-assign]


@mutant(
    "finished-text-not-cached",
    source="sglang 0.5.23 mem_cache/common release_kv_cache",
    killed_by=("settled-text-is-cached",),
    needs=_TREE,
)
def finished_text_not_cached(engine: Scheduler) -> None:
    """A finished request frees its KV in the place of handing it to the tree."""

    def release_finished(req: Req, settled: Settled) -> None:
        settled.finished.append(req)
        engine.pools.release_kv_cache(req, checkpoint=False)

    engine.result_processor.release_finished = release_finished  # type: ignore[method-assign]


@mutant(
    "hit-a-page-short",
    source="sglang #34870",
    killed_by=("prefill-hits-what-is-cached",),
    needs=_TREE,
)
def hit_a_page_short(engine: Scheduler) -> None:
    """A lookup of a prefix leaves out its last page."""
    adder, tree = engine.prefill_adder, engine.tree_cache

    def match_kv_cache(req: Req) -> TreeNode:
        req.refresh_fill_ids()
        tokens = req.full_untruncated_fill_ids[: -1 - tree.page_size]
        req.prefix_len, req.last_node = tree.match_prefix(tokens)
        req.kv.cache_protected_len = req.prefix_len
        return req.last_node

    adder.match_kv_cache = match_kv_cache  # type: ignore[method-assign]
