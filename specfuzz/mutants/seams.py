"""Where planted bugs of several files hook in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from specfuzz.reference.result_processor import Settled
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import GenerationBatchResult


def around_extend_results(
    engine: Scheduler, around: Callable[[ScheduleBatch, Callable[[], Settled]], Settled]
) -> None:  # fmt: skip
    """Let around(batch, process) stand where the result of an extend is processed; process() does what is due there.

    A bug that writes owned fields calls its `around` by the engine's name, as if it stood in the engine's own function.
    """
    processor = engine.result_processor
    process = processor.process_batch_result_prefill

    def process_batch_result_prefill(batch: ScheduleBatch, result: GenerationBatchResult) -> Settled:
        return around(batch, partial(process, batch, result))

    processor.process_batch_result_prefill = process_batch_result_prefill  # type: ignore[method-assign]
