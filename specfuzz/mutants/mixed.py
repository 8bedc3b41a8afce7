"""Planted bugs of MIXED batches: the five failures of mixed chunk with speculation, and their opposites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.mutants import mutant
from specfuzz.mutants.seams import around_extend_results
from specfuzz.reference.result_processor import Settled
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler

_MIXED = Capability.MIXED_CHUNK
_MIXED_SPEC = _MIXED | Capability.SPECULATIVE


def _lag_by_one(batch: ScheduleBatch) -> None:
    """Take one token off the lengths that the tails' rows carry."""
    assert batch.seq_lens_cpu is not None
    tails = len(batch.decoding_reqs)
    batch.bind_seq_lens(batch.seq_lens_cpu[:-tails] + [length - 1 for length in batch.seq_lens_cpu[-tails:]])


def _after_mixing(engine: Scheduler, change: Any) -> None:
    """Call change(batch) on every MIXED batch before it is launched."""
    mix = engine.mix

    def mixed(batch: ScheduleBatch) -> Any:
        dropped = mix(batch)
        if batch.decoding_reqs:
            change(batch)
        return dropped

    engine.mix = mixed  # type: ignore[method-assign]


@mutant(
    "mixed-tail-has-no-query",
    source="sglang mixed chunk with speculation: qo_len 0",
    killed_by=("worker-starts-at-the-frontier", "window-follows-the-row"),
    needs=_MIXED_SPEC,
    overlap=False,
)
def mixed_tail_has_no_query(engine: Scheduler) -> None:
    """A speculative tail carries the settled base as its length, without the pending token that it feeds."""
    _after_mixing(engine, _lag_by_one)


@mutant(
    "mixed-tails-not-stashed",
    source="sglang mixed chunk with speculation: relay row never written without overlap",
    killed_by=("worker-feeds-the-pending-token",),
    needs=_MIXED_SPEC,
    overlap=False,
)
def mixed_tails_not_stashed(engine: Scheduler) -> None:
    """Without overlap the tails' pending tokens never get into the relay."""
    engine.future_map.stash_bonus_tokens = lambda batch, tokens: None  # type: ignore[method-assign]


@mutant(
    "mixed-tails-bound-too-early",
    source="sglang mixed chunk with speculation: schedule-time tails under overlap",
    killed_by=("worker-starts-at-the-frontier",),
    needs=_MIXED_SPEC | Capability.OVERLAP,
)
def mixed_tails_bound_too_early(engine: Scheduler) -> None:
    """The tails keep the lengths and slots that the scheduler knew while their verify was in flight."""
    engine.future_map.resolve_mixed_spec_tails = lambda batch: None  # type: ignore[method-assign]


@mutant(
    "plain-mirror-rebuilt",
    source="sglang mixed chunk with speculation: the rebuild of the mirror on the plain path",
    killed_by=("worker-starts-at-the-frontier", "mirror-equals-device"),
    needs=_MIXED | Capability.OVERLAP,
    algorithm="NONE",
)
def plain_mirror_rebuilt(engine: Scheduler) -> None:
    """The tails of a plain batch get their lengths from the settled text, which lags behind under overlap."""

    def rebuild(batch: ScheduleBatch) -> None:
        assert batch.seq_lens_cpu is not None
        lens = batch.seq_lens_cpu[: -len(batch.decoding_reqs)]
        batch.bind_seq_lens(lens + [req.seqlen for req in batch.decoding_reqs])

    _after_mixing(engine, rebuild)


def _commit_after_prefill(engine: Scheduler, tokens: Any) -> None:
    """Add tokens(batch, req) to the ledger of every live row of a settled extend."""

    def process_batch_result_prefill(batch: ScheduleBatch, process: Callable[[], Settled]) -> Settled:
        settled = process()
        for req, _run in settled.emitted:
            if not req.finished():
                req.kv.kv_committed_len += tokens(batch, req)
        return settled

    around_extend_results(engine, process_batch_result_prefill)


@mutant(
    "mixed-tail-not-committed",
    source="sglang mixed chunk with speculation: missing kv_committed_len += 1",
    killed_by=("commit-equals-emitted", "steady-bonus"),
    needs=_MIXED_SPEC,
)
def mixed_tail_not_committed(engine: Scheduler) -> None:
    """The token that a speculative tail has written is not counted."""
    _commit_after_prefill(engine, lambda batch, req: -(req in batch.decoding_reqs))


@mutant(
    "mixed-tail-committed-twice",
    source="sglang mixed chunk with speculation: kv_committed_len += 1 at mixing as well",
    killed_by=("commit-equals-emitted", "steady-bonus"),
    needs=_MIXED_SPEC,
)
def mixed_tail_committed_twice(engine: Scheduler) -> None:
    """The token that a speculative tail has written is counted twice."""
    _commit_after_prefill(engine, lambda batch, req: int(req in batch.decoding_reqs))


@mutant(
    "mixed-prefill-committed",
    source="sglang 0.5.23 process_batch_result_prefill: the tail's commit applied to every row",
    killed_by=("commit-equals-emitted", "steady-bonus"),
    needs=_MIXED_SPEC,
)
def mixed_prefill_committed(engine: Scheduler) -> None:
    """The new request of a MIXED batch commits a token beyond its prompt."""
    _commit_after_prefill(engine, lambda batch, req: int(bool(batch.decoding_reqs) and req not in batch.decoding_reqs))


@mutant(
    "plain-tail-committed",
    source="sglang 0.5.23 process_batch_result_prefill: the tail's commit without its guard",
    killed_by=("commit-equals-emitted", "plain-claims-are-counted"),
    needs=_MIXED,
    algorithm="NONE",
)
def plain_tail_committed(engine: Scheduler) -> None:
    """A plain tail, which was committed when it was prepared, is committed again."""
    _commit_after_prefill(engine, lambda batch, req: int(req in batch.decoding_reqs))


@mutant(
    "mixed-tails-sit-out",
    source="sglang 0.5.23 Scheduler._get_new_batch_prefill_raw",
    killed_by=("mix-carries-the-running",),
    needs=_MIXED,
)
def mixed_tails_sit_out(engine: Scheduler) -> None:
    """The running rows never ride along, whatever room there is."""
    engine.mix = lambda batch: []  # type: ignore[method-assign]
