"""Planted bugs of forward isolation and tensor lifetime."""

from __future__ import annotations

from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.gpu.arrays import Array
from specfuzz.gpu.races import Access
from specfuzz.mutants import mutant
from specfuzz.reference.isolation import KeepAliveRing
from specfuzz.reference.req import Req
from specfuzz.reference.sampling import Penalizer, SamplingBatchInfo
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import GenerationBatchResult


@mutant(
    "leaked-forward-mode",
    source="sglang 0.5.23 _forward_isolation",
    killed_by=("mode-is-restored", "rows-are-unique"),
    needs=Capability.SPECULATIVE,
)
def leaked_forward_mode(engine: Scheduler) -> None:
    """The worker's TARGET_VERIFY stays on the scheduler's batch."""
    run = engine.forward.run_batch

    def run_batch(batch: ScheduleBatch) -> Any:
        decoding = batch.forward_mode is ForwardMode.DECODE
        result = run(batch)
        if decoding:
            batch.forward_mode = ForwardMode.TARGET_VERIFY
        return result

    engine.forward.run_batch = run_batch  # type: ignore[method-assign]


def _bump_kernel(access: Access, seq_lens: Array) -> None:
    seq_lens += 1


@mutant(
    "in-place-write",
    source="sglang #26376",
    killed_by=("no-write-through-the-isolation", "mirror-equals-device"),
    needs=Capability.SPECULATIVE,
)
def in_place_write(engine: Scheduler) -> None:
    """The worker advances the scheduler's seq_lens in place, which isolation can't undo."""
    work = engine.model_worker.forward_batch_generation

    def forward(batch: ScheduleBatch, on_publish: Any) -> Any:
        decoding = batch.forward_mode is ForwardMode.DECODE
        result = work(batch, on_publish)
        if decoding:
            engine.streams.forward.launch("advance_seq_lens", _bump_kernel, batch.seq_lens)
        return result

    engine.model_worker.forward_batch_generation = forward  # type: ignore[method-assign]


@mutant(
    "ring-of-one",
    source="sglang 0.5.23 record_batch_in_overlap",
    killed_by=("tensors-outlive-their-forward",),
    needs=Capability.SPECULATIVE | Capability.OVERLAP | Capability.RACE_CHECK,
)
def ring_of_one(engine: Scheduler) -> None:
    """The keep-alive ring covers one launch instead of two."""
    engine.forward.ring = KeepAliveRing(1)


@mutant(
    "penalties-of-the-old-rows",
    source="sglang #7613",
    killed_by=("penalties-count-once", "forward-sees-its-penalties"),
)
def penalties_of_the_old_rows(engine: Scheduler) -> None:
    """A filter leaves out the sampling state, which keeps a row for every request that was ever in the batch."""

    class Unfiltered(Penalizer):
        def filter(self, keep: list[int]) -> None:
            """Keeps all."""

    new_batch = engine._new_batch

    def _new_batch(reqs: list[Req], mode: ForwardMode) -> ScheduleBatch:
        batch = new_batch(reqs, mode)
        batch.sampling_info = SamplingBatchInfo(Unfiltered(len(reqs)))
        return batch

    engine._new_batch = _new_batch  # type: ignore[method-assign]


@mutant(
    "penalties-counted-by-the-forward",
    source="sglang 0.5.23 SamplingBatchInfo.copy_for_forward",
    killed_by=("penalties-count-once",),
)
def penalties_counted_by_the_forward(engine: Scheduler) -> None:
    """The launch counts the last tokens of a decode once more."""
    run = engine.forward.run_batch

    def run_batch(batch: ScheduleBatch) -> GenerationBatchResult:
        if not batch.forward_mode.is_extend():
            batch.cumulate_penalty_output_tokens()
        return run(batch)

    engine.forward.run_batch = run_batch  # type: ignore[method-assign]


def _sample_with(engine: Scheduler, kind: type[SamplingBatchInfo]) -> None:
    prepare = engine.prepare_for_decode

    def prepare_for_decode(batch: ScheduleBatch) -> None:
        prepare(batch)
        batch.sampling_info = kind(batch.sampling_info.penalizer if batch.sampling_info else None)

    engine.prepare_for_decode = prepare_for_decode  # type: ignore[method-assign]


class _Early(SamplingBatchInfo):
    def copy_for_forward(self) -> SamplingBatchInfo:
        return SamplingBatchInfo(acc_penalties=tuple(row[:-1] for row in self.penalties))


@mutant(
    "penalties-copied-before-the-count",
    source="sglang 0.5.23 SamplingBatchInfo.copy_for_forward: update_penalties",
    killed_by=("forward-sees-its-penalties",),
)
def penalties_copied_before_the_count(engine: Scheduler) -> None:
    """A forward gets what its rows had run up one prepare ago."""
    _sample_with(engine, _Early)


class _Shared(SamplingBatchInfo):
    def copy_for_forward(self) -> SamplingBatchInfo:
        return self


@mutant(
    "sampling-info-shared", source="sglang #7613", killed_by=("sampling-info-is-copied",), needs=Capability.SPECULATIVE
)
def sampling_info_shared(engine: Scheduler) -> None:
    """The forward gets the scheduler's own sampling_info instead of a copy."""
    _sample_with(engine, _Shared)
