"""Penalties behind SGLang's own orchestrator: a penalizer that notes what it is fed, row by row.

The real ones keep a tensor of (rows, vocabulary); the toy language has 2^41 words. What they would add to the logits is
never needed, only who was counted when, so the accumulated tensor of a forward is replaced by those notes. Both stay
replaced in the process that drives the engine.
"""

from __future__ import annotations

from typing import Any

from specfuzz.systems.sglang.versions import Engine

#: By row, the output tokens that were counted.
Penalties = tuple[tuple[int, ...], ...]

_REPLACED = "BatchedFrequencyPenalizer"


def install(engine: Engine) -> None:
    """Put the noting penalizer in the place of one of SGLang's, and notes in that of tensors; idempotent."""
    if not hasattr(getattr(engine.penaltylib, _REPLACED), "notes_only"):
        setattr(engine.penaltylib, _REPLACED, _penalizer_class(engine))
    engine.SamplingBatchInfo.update_penalties = _update_penalties


def counted(sampling_info: Any) -> Penalties:
    """What a forward sees that gets this object: the copy's notes, or those of the scheduler's own."""
    if sampling_info.penalizer_orchestrator is None:
        notes: Penalties = sampling_info.acc_additive_penalties
        return notes
    return _notes(sampling_info)


def _notes(sampling_info: Any) -> Penalties:
    for penalizer in sampling_info.penalizer_orchestrator.penalizers.values():
        if getattr(penalizer, "notes_only", False):
            return tuple(penalizer.rows)
    return ()  # a batch that has lost its last row has given its penalizers up


def _update_penalties(self: Any) -> None:
    self.acc_additive_penalties = _notes(self)
    self.acc_scaling_penalties = None


def _penalizer_class(engine: Engine) -> type[Any]:
    base: Any = engine.BatchedPenalizer

    class NotingPenalizer(base):  # type: ignore[misc]
        """rows: the tokens that were counted, by row."""

        notes_only = True
        rows: list[tuple[int, ...]]

        def _is_required(self) -> bool:
            return True

        def _prepare(self) -> None:
            self.rows = [()] * len(self.orchestrator.reqs())

        def _cumulate_output_tokens(self, output_ids: Any) -> None:
            # More rows than tokens, or fewer, is a bug of whoever keeps the rows, and for a rule to name.
            tokens = output_ids.tolist()
            self.rows = [(*row, *tokens[place : place + 1]) for place, row in enumerate(self.rows)]

        def _apply(self, logits: Any) -> Any:
            return logits

        def _filter(self, keep_indices: Any) -> None:
            self.rows = [self.rows[index] for index in keep_indices.tolist() if index < len(self.rows)]

        def _merge(self, their: Any) -> None:
            self.rows = self.rows + their.rows

        def _teardown(self) -> None:
            self.rows = []

    return NotingPenalizer
