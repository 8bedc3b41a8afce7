"""Planted bugs of the hand-over between rounds: publish, stash, resolve, fences."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.capability import Capability
from specfuzz.gpu.device import Buffer
from specfuzz.mutants import mutant
from specfuzz.reference.result_processor import Settled
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import EagleDraftInput, GenerationBatchResult

_OVERLAPPED = Capability.SPECULATIVE | Capability.OVERLAP


@mutant(
    "publish-fence-dropped",
    source="sglang #30435",
    killed_by=("relay-reads-are-fenced",),
    needs=_OVERLAPPED | Capability.RACE_CHECK,
)
def publish_fence_dropped(engine: Scheduler) -> None:
    """The publish is not recorded, so the next resolve waits for nothing."""
    relay = engine.future_map
    publish = relay.publish

    def unfenced(batch: ScheduleBatch, new_seq_lens: Buffer) -> None:
        publish(batch, new_seq_lens)
        relay.publish_ready = None

    relay.publish = unfenced  # type: ignore[method-assign]


@mutant(
    "old-frontier-published",
    source="sglang 0.5.23 FutureMap.publish",
    killed_by=("publish-equals-result", "relay-holds-the-frontier", "target-kv-is-true"),
    needs=_OVERLAPPED,
)
def old_frontier_published(engine: Scheduler) -> None:
    """The worker publishes the lengths that the round started with."""
    publish = engine.future_map.publish

    def publish_old(batch: ScheduleBatch, new_seq_lens: Buffer) -> None:
        publish(batch, batch.seq_lens or new_seq_lens)

    engine.future_map.publish = publish_old  # type: ignore[method-assign]


@mutant(
    "stash-dropped",
    source="sglang 0.5.23 FutureMap.stash",
    killed_by=(
        "relay-holds-the-pending-token",
        "worker-feeds-the-pending-token",
        "draft-state-is-right",
        "draft-extras-pair-with-rows",
    ),
    needs=_OVERLAPPED,
)
def stash_dropped(engine: Scheduler) -> None:
    """The draft state of a verify is never stashed."""
    stash = engine.future_map.stash

    def stash_extends_only(batch: ScheduleBatch, payload: EagleDraftInput) -> None:
        if batch.extend_lens is not None:
            stash(batch, payload)

    engine.future_map.stash = stash_extends_only  # type: ignore[method-assign]


@mutant(
    "partial-stash",
    source="sglang 0.5.23 FutureMap.stash",
    killed_by=("relay-holds-the-draft-state", "draft-extras-pair-with-rows", "draft-state-is-right"),
    needs=_OVERLAPPED | Capability.DRAFT_EXTRAS,
)
def partial_stash(engine: Scheduler) -> None:
    """The stash relays the pending token in the place of the first proposal."""
    stash = engine.future_map.stash
    engine.future_map.stash = lambda batch, payload: stash(  # type: ignore[method-assign]
        batch, replace(payload, topk_index=payload.bonus_tokens)
    )


@mutant(
    "copy-not-awaited",
    source="sglang 0.5.23 copy_done",
    killed_by=("results-are-waited-for",),
    needs=Capability.OVERLAP | Capability.RACE_CHECK,
)
def copy_not_awaited(engine: Scheduler) -> None:
    """The result's event is recorded before its copy is enqueued."""
    copy = engine.forward.copy_result_to_cpu

    def record_first(result: GenerationBatchResult) -> None:
        event = engine.streams.copy.record("copy_done")
        copy(result)
        result.copy_done = event

    engine.forward.copy_result_to_cpu = record_first  # type: ignore[method-assign]


@mutant(
    "war-barrier-dropped",
    source="sglang #26380, #31687",
    killed_by=("row-writes-wait-for-readers",),
    needs=Capability.OVERLAP | Capability.RACE_CHECK,
)
def war_barrier_dropped(engine: Scheduler) -> None:
    """Schedule-side row writes don't wait until the forward has read the rows."""
    engine.forward.apply_war_barrier = lambda: None  # type: ignore[method-assign]


@mutant(
    "sync-forgets-recommit",
    source="sglang 0.5.23 run_batch, sync branch",
    killed_by=("draft-input-is-committed", "worker-starts-at-the-frontier"),
    needs=Capability.SPECULATIVE,
    overlap=False,
)
def sync_forgets_recommit(engine: Scheduler) -> None:
    """Without overlap the new frontier is not bound back to the batch."""
    recommit = engine.forward.recommit

    def without_lens(batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        recommit(batch, replace(result, new_seq_lens=None))

    engine.forward.recommit = without_lens  # type: ignore[method-assign]


@mutant(
    "copy-before-verify",
    source="sglang 0.5.23 _copy_result_to_cpu",
    # The race shows when the forward runs, which may be after the host has settled garbage: the text is an answer too.
    killed_by=("device-memory-is-ordered", "output-is-plain-decoding"),
    needs=Capability.OVERLAP | Capability.RACE_CHECK,
)
def copy_before_verify(engine: Scheduler) -> None:
    """The copy stream doesn't wait for the forward stream before it reads the results."""
    engine.forward.forward_stream_to_copy = lambda: None  # type: ignore[method-assign]


@mutant("newest-result-first", source="vLLM #47900", killed_by=("settle-takes-the-oldest",), needs=Capability.OVERLAP)
def newest_result_first(engine: Scheduler) -> None:
    """With two results queued, the newest is processed first."""
    settle = engine.settle

    def settle_newest() -> Settled:
        engine.result_queue.rotate(1)
        return settle()

    engine.settle = settle_newest  # type: ignore[method-assign]
