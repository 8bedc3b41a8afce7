"""Planted bugs of result processing: late results, finish conditions, statistics."""

from __future__ import annotations

from collections.abc import Callable

from specfuzz.core.capability import Capability
from specfuzz.core.language import STOP_TOKEN
from specfuzz.mutants import mutant
from specfuzz.reference.req import Req
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import GenerationBatchResult


def _resolve_as_if(engine: Scheduler, is_dead: Callable[[Req], bool]) -> None:
    processor = engine.result_processor
    resolve = processor.resolve_spec_v2_tokens

    def resolve_late(batch: ScheduleBatch, result: GenerationBatchResult) -> list[list[int]]:
        processor.is_dead = is_dead  # type: ignore[method-assign, assignment]
        try:
            return resolve(batch, result)
        finally:
            del processor.is_dead

    processor.resolve_spec_v2_tokens = resolve_late  # type: ignore[method-assign]


@mutant(
    "late-result-for-finished",
    source="sglang #23456",
    killed_by=("dead-rows-are-inert",),
    needs=Capability.SPECULATIVE | Capability.OVERLAP,
)
def late_result_for_finished(engine: Scheduler) -> None:
    """The accepted run of a request that has finished meanwhile is still committed."""
    _resolve_as_if(engine, lambda req: req.is_retracted)


@mutant(
    "late-result-for-retracted",
    source="sglang #23456",
    killed_by=("dead-rows-are-inert",),
    needs=Capability.SPECULATIVE | Capability.OVERLAP,
)
def late_result_for_retracted(engine: Scheduler) -> None:
    """The accepted run of a request that was retracted meanwhile is still committed."""
    _resolve_as_if(engine, lambda req: req.finished())


class _LengthFirst(Req):
    __slots__ = ()

    def update_finish_state(self, new_tokens: int) -> None:
        if not self.finished() and self.to_finish is None and len(self.output_ids) >= self.max_new_tokens:
            self.finished_reason, self.finished_len = "length", self.max_new_tokens
        super().update_finish_state(new_tokens)


@mutant(
    "length-before-stop",
    source="sglang #31599",
    killed_by=("finish-reason-is-first", "nothing-emitted-past-the-end"),
    needs=Capability.SPECULATIVE,
)
def length_before_stop(engine: Scheduler) -> None:
    """A run that contains the stop and crosses the cap finishes by length, and junk behind the stop is emitted."""
    engine.req_type = _LengthFirst


class _LastTokenOnly(Req):
    __slots__ = ()

    def update_finish_state(self, new_tokens: int) -> None:
        if self.output_ids[-1] == STOP_TOKEN or STOP_TOKEN not in self.output_ids[-new_tokens:]:
            super().update_finish_state(new_tokens)


@mutant(
    "stop-seen-only-at-the-end",
    source="vLLM #47616",
    killed_by=("finish-reason-is-first",),
    needs=Capability.SPECULATIVE,
)
def stop_seen_only_at_the_end(engine: Scheduler) -> None:
    """Only the last token of an accepted run is looked at for the stop."""
    engine.req_type = _LastTokenOnly


class _StopAnywhere(Req):
    __slots__ = ()

    def update_finish_state(self, new_tokens: int) -> None:
        super().update_finish_state(new_tokens)
        if self.finished_reason == "length" and STOP_TOKEN in self.output_ids:
            self.finished_reason, self.finished_len = "stop", self.output_ids.index(STOP_TOKEN) + 1


@mutant(
    "stop-behind-the-cap-counts",
    source="sglang #31599",
    killed_by=("finish-reason-is-first", "nothing-emitted-past-the-end"),
    needs=Capability.SPECULATIVE,
)
def stop_behind_the_cap_counts(engine: Scheduler) -> None:
    """A run crosses the cap and holds the stop token behind it, and the request is told to have stopped there."""
    engine.req_type = _StopAnywhere


class _Forgetful(Req):
    __slots__ = ()

    def reset_for_retract(self) -> None:
        super().reset_for_retract()
        self.spec_verify_ct = self.spec_num_correct_drafts = 0
        self.spec_correct_drafts_histogram = []


@mutant(
    "counts-reset-by-retraction",
    source="sglang 0.5.23 Req.reset_for_retract",
    killed_by=("counts-move-where-they-are-earned",),
    needs=Capability.SPECULATIVE,
)
def counts_reset_by_retraction(engine: Scheduler) -> None:
    """A retraction forgets how many drafts of the request were accepted before."""
    engine.req_type = _Forgetful


@mutant(
    "bonus-counted-as-draft",
    source="sglang #11572",
    killed_by=("histogram-adds-up", "verify-count-is-settled-rounds"),
    needs=Capability.SPECULATIVE,
)
def bonus_counted_as_draft(engine: Scheduler) -> None:
    """Acceptance statistics count the bonus token as an accepted draft."""
    processor = engine.result_processor
    resolve = processor.resolve_spec_v2_tokens

    def resolve_spec_v2_tokens(batch: ScheduleBatch, result: GenerationBatchResult) -> list[list[int]]:
        runs = resolve(batch, result)
        for req in batch.reqs:
            req.spec_num_correct_drafts += not processor.is_dead(req)
        return runs

    processor.resolve_spec_v2_tokens = resolve_spec_v2_tokens  # type: ignore[method-assign]
