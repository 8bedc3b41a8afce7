"""Planted bugs of a speculative worker's contract: accept lengths, frontier, publish, what it leaves bound."""

from __future__ import annotations

from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.gpu.arrays import Array
from specfuzz.gpu.device import Buffer
from specfuzz.gpu.races import Access
from specfuzz.mutants import mutant
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import GenerationBatchResult

_SPEC = Capability.SPECULATIVE


def _add_kernel(access: Access, values: Array, amount: int) -> None:
    access.write(values, None)
    values[...] = values + amount


def _add(engine: Scheduler, buffer: Buffer, amount: int) -> None:
    """Add to every element, behind all that the forward stream has been given."""
    engine.streams.forward.launch("off_by_one", _add_kernel, buffer, amount)


def _wrap(engine: Scheduler, around: Any) -> None:
    """Call around(forward, batch, on_publish) in the place of the worker's forward."""
    forward = engine.model_worker.forward_batch_generation
    engine.model_worker.forward_batch_generation = (  # type: ignore[method-assign]
        lambda batch, on_publish: around(forward, batch, on_publish)
    )


@mutant("accept-counts-one-more", source="sglang 0.5.23 run_eagle_verify", killed_by=("accept-in-range",), needs=_SPEC)
def accept_counts_one_more(engine: Scheduler) -> None:
    """The accept length of a verify counts the bonus twice."""

    def around(forward: Any, batch: ScheduleBatch, on_publish: Any) -> GenerationBatchResult:
        result: GenerationBatchResult = forward(batch, on_publish)
        if result.accept_lens is not None:
            _add(engine, result.accept_lens, 1)
        return result

    _wrap(engine, around)


@mutant(
    "frontier-without-bonus",
    source="sglang 0.5.23 run_eagle_verify",
    killed_by=("frontier-steps-by-accept", "frontier-only-advances"),
    needs=_SPEC | Capability.OVERLAP,
)
def frontier_without_bonus(engine: Scheduler) -> None:
    """The new frontier of a verify counts the accepted drafts only."""

    relay = engine.future_map
    publish = relay.publish

    def publish_less(batch: ScheduleBatch, new_seq_lens: Buffer) -> None:
        if batch.extend_lens is None:
            _add(engine, new_seq_lens, -1)  # the tensor that the result carries as well
        publish(batch, new_seq_lens)

    relay.publish = publish_less  # type: ignore[method-assign]


@mutant(
    "window-published",
    source="sglang 0.5.23 FutureMap.publish",
    killed_by=("publish-equals-result", "device-lead-is-one-round"),
    needs=_SPEC | Capability.OVERLAP,
)
def window_published(engine: Scheduler) -> None:
    """A verify publishes the end of its reserve in the place of what it has accepted."""
    relay, reserve = engine.future_map, engine.config.reserve_per_decode
    publish = relay.publish

    def publish_window(batch: ScheduleBatch, new_seq_lens: Buffer) -> None:
        if batch.extend_lens is not None:
            publish(batch, new_seq_lens)
            return
        relay.scatter_frontier(batch, new_seq_lens, reserve)
        relay.publish_ready = engine.streams.forward.record("publish_ready")

    relay.publish = publish_window  # type: ignore[method-assign]


@mutant(
    "published-twice",
    source="sglang 0.5.23 forward_batch_generation",
    killed_by=("publishes-once",),
    needs=_SPEC | Capability.OVERLAP,
)
def published_twice(engine: Scheduler) -> None:
    """The worker publishes its frontier once more than the scheduler waits for."""

    def around(forward: Any, batch: ScheduleBatch, on_publish: Any) -> GenerationBatchResult:
        result: GenerationBatchResult = forward(batch, on_publish)
        if on_publish is not None and result.new_seq_lens is not None:
            on_publish(batch, result.new_seq_lens)
        return result

    _wrap(engine, around)


@mutant(
    "forward-sampling-info-kept",
    source="sglang 0.5.23 Scheduler._forward_isolation",
    killed_by=("bindings-are-restored",),
    needs=_SPEC,
)
def forward_sampling_info_kept(engine: Scheduler) -> None:
    """The copy of the sampling inputs that was made for the forward stays bound, without its penalties."""
    recommit = engine.forward.recommit

    def recommit_too_much(batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        recommit(batch, result)
        if batch.sampling_info is not None:
            batch.sampling_info = batch.sampling_info.copy_for_forward()

    engine.forward.recommit = recommit_too_much  # type: ignore[method-assign]
