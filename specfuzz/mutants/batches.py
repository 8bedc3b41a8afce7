"""Planted bugs of filter and merge: row-parallel fields that fall out of step."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.mutants import mutant
from specfuzz.reference.req import Req
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.scheduler import Scheduler


def _use(engine: Scheduler, batch_type: type[ScheduleBatch]) -> None:
    make = engine._new_batch

    def new_batch(reqs: list[Req], mode: ForwardMode) -> ScheduleBatch:
        batch = make(reqs, mode)
        batch.__class__ = batch_type
        return batch

    engine._new_batch = new_batch  # type: ignore[method-assign]
    engine.running_batch.__class__ = batch_type


class _SpecInfoForgotten(ScheduleBatch):
    def filter_spec_info(self, keep: list[int]) -> None:
        pass


@mutant(
    "filter-forgets-spec-info",
    source="sglang #2939, #18984",
    killed_by=("future-indices-are-rows", "batch-arrays-agree"),
    needs=Capability.SPECULATIVE | Capability.OVERLAP,
)
def filter_forgets_spec_info(engine: Scheduler) -> None:
    """filter_batch doesn't forward to the relay binding."""
    _use(engine, _SpecInfoForgotten)


class _Swapped(ScheduleBatch):
    def merge_batch(self, other: ScheduleBatch) -> None:
        super().merge_batch(other)
        self.reqs = [*other.reqs, *self.reqs[: len(self.reqs) - len(other.reqs)]]


@mutant(
    "merge-swaps-requests",
    source="sglang #10991",
    killed_by=(
        "rows-belong-to-their-requests",
        "batch-arrays-agree",
        "writes-start-past-the-tree",
        "cached-within-owned",
    ),
)
def merge_swaps_requests(engine: Scheduler) -> None:
    """merge_batch appends the tensors but prepends the requests."""
    _use(engine, _Swapped)
