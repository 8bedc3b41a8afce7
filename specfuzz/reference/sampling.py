"""Sampling inputs of a batch: what its rows have run up in penalties, and the copy that a forward works with.

Greedy text doesn't change by what is counted here; that it is counted once, for the right row, is the point.
Source: sglang 0.5.23 sampling/sampling_batch_info.py, sampling/penaltylib/orchestrator.py (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass

#: By row, the output tokens that its penalties have counted.
Penalties = tuple[tuple[int, ...], ...]


class Penalizer:
    """Counts output tokens by row since the row was admitted; stateful, so exactly one batch object may drive it."""

    __slots__ = ("cumulated",)

    def __init__(self, rows: int) -> None:
        """rows: those of the batch, nothing counted yet."""
        self.cumulated: list[tuple[int, ...]] = [()] * rows

    def cumulate_output_tokens(self, output_ids: list[int]) -> None:
        """Count one token per row. With drafts that is the last one of the run that the host knows, not all of it."""
        self.cumulated = [(*row, token) for row, token in zip(self.cumulated, output_ids, strict=True)]

    def filter(self, keep: list[int]) -> None:
        """Keep these rows, in this order."""
        self.cumulated = [self.cumulated[i] for i in keep]

    def merge(self, theirs: Penalizer) -> None:
        """Append the rows of another batch."""
        self.cumulated = self.cumulated + theirs.cumulated


@dataclass(slots=True)
class SamplingBatchInfo:
    """Row-parallel. penalizer: held by the scheduler's own object only; acc_penalties: what a forward applies."""

    penalizer: Penalizer | None = None
    acc_penalties: Penalties = ()

    @property
    def penalties(self) -> Penalties:
        """What a forward with this object sees."""
        return self.acc_penalties if self.penalizer is None else tuple(self.penalizer.cumulated)

    def copy_for_forward(self) -> SamplingBatchInfo:
        """A forward-only copy: several internal forwards can't count twice, the next filter doesn't reach it."""
        return SamplingBatchInfo(acc_penalties=self.penalties)

    def filter_batch(self, keep: list[int]) -> None:
        """Keep these rows; in place."""
        if self.penalizer is not None:
            self.penalizer.filter(keep)

    def merge_batch(self, other: SamplingBatchInfo) -> None:
        """Append the rows of another batch; in place."""
        if self.penalizer is not None and other.penalizer is not None:
            self.penalizer.merge(other.penalizer)
