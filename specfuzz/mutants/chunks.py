"""Planted bugs of prompts that are launched in chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.mutants import mutant
from specfuzz.mutants.seams import around_extend_results
from specfuzz.reference.req import Req
from specfuzz.reference.result_processor import Settled
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Prepared, Scheduler

_CHUNKED = Capability.CHUNKED_PREFILL


@mutant(
    "chunk-merged-into-running",
    source="sglang 0.5.23 Scheduler.get_next_batch_to_run",
    killed_by=("chunked-request-stays-outside",),
    needs=_CHUNKED,
)
def chunk_merged_into_running(engine: Scheduler) -> None:
    """The batch forgets which of its requests is chunked, so that the merge takes it along."""
    launch = engine.launch

    def forgetful(batch: ScheduleBatch) -> None:
        launch(batch)
        batch.chunked_req = None

    engine.launch = forgetful  # type: ignore[method-assign]


@mutant(
    "chunked-req-forgotten",
    source="sglang 0.5.23 Scheduler.get_next_batch_to_run",
    killed_by=("chunked-request-is-remembered",),
    needs=_CHUNKED,
)
def chunked_req_forgotten(engine: Scheduler) -> None:
    """A decode between two chunks makes the scheduler forget whose prompt goes on."""
    prepare = engine.update_running_batch

    def update_running_batch() -> Prepared:
        engine.chunked_req = None
        return prepare()

    engine.update_running_batch = update_running_batch  # type: ignore[method-assign]


@mutant(
    "middle-chunk-sampled",
    source="sglang 0.5.23 process_batch_result_prefill",
    killed_by=("settle-appends-the-run", "chunks-in-flight-are-counted", "output-is-plain-decoding"),
    needs=_CHUNKED,
)
def middle_chunk_sampled(engine: Scheduler) -> None:
    """What a middle chunk has sampled is taken for the first output token."""

    def sampled(batch: ScheduleBatch, process: Callable[[], Settled]) -> Settled:
        counts = [(req, req.inflight_middle_chunks) for req in batch.reqs]
        for req, _count in counts:
            req.inflight_middle_chunks = 0
        settled = process()
        for req, count in counts:
            req.inflight_middle_chunks = max(0, count - 1)
        return settled

    around_extend_results(engine, sampled)


@mutant(
    "dead-chunk-not-drained",
    source="sglang 0.5.23 process_batch_result_prefill: the chunked branch of an aborted request",
    killed_by=("chunks-in-flight-are-counted",),
    needs=_CHUNKED | Capability.OVERLAP,
)
def dead_chunk_not_drained(engine: Scheduler) -> None:
    """The result of an aborted request's chunk is skipped before its count is lowered."""

    def skipped(batch: ScheduleBatch, process: Callable[[], Settled]) -> Settled:
        counts = [(req, req.inflight_middle_chunks) for req in batch.reqs if req.finished()]
        settled = process()
        for req, count in counts:
            req.inflight_middle_chunks = count
        return settled

    around_extend_results(engine, skipped)


@mutant(
    "draft-guesses-at-chunk-end",
    source="sglang #26329",
    killed_by=("draft-kv-is-true",),
    needs=_CHUNKED | Capability.DRAFT_KV,
)
def draft_guesses_at_chunk_end(engine: Scheduler) -> None:
    """The draft takes what a middle chunk has sampled for the next prompt token."""
    admit = engine.admit

    def admit_blindly(req: Req, chunk: int = 0) -> ScheduleBatch:
        batch = admit(req, chunk)
        if batch.chunked_req is not None:
            batch.chunked_req_next_prompt_token = -1
        return batch

    engine.admit = admit_blindly  # type: ignore[method-assign]


@mutant(
    "chunked-abort-at-once",
    source="sglang 0.5.23 Scheduler.abort_request, process_pending_chunked_abort",
    killed_by=("abort-waits-for-a-result",),
    needs=_CHUNKED,
)
def chunked_abort_at_once(engine: Scheduler) -> None:
    """The abort of a chunked request takes its KV away while its chunk may be in flight."""
    abort = engine.abort

    def abort_at_once(req: Req) -> bool:
        done = abort(req)
        engine.process_pending_chunked_abort()
        return done

    engine.abort = abort_at_once  # type: ignore[method-assign]


@mutant(
    "chunked-abort-forgotten",
    source="sglang 0.5.23 Scheduler.process_pending_chunked_abort",
    killed_by=("aborted-chunk-is-dropped",),
    needs=_CHUNKED,
)
def chunked_abort_forgotten(engine: Scheduler) -> None:
    """The abort of a chunked request is noted down and never executed."""
    engine.process_pending_chunked_abort = lambda: None  # type: ignore[method-assign]


@mutant(
    "row-released-between-chunks",
    source="sglang-jax #1008",
    killed_by=("chunked-request-keeps-its-row",),
    needs=_CHUNKED,
)
def row_released_between_chunks(engine: Scheduler) -> None:
    """A chunked request gives its row back when its chunk is stashed, and is given another one for the next."""
    stash: Any = engine.stash_chunked_request

    def stash_and_swap(req: Req) -> None:
        stash(req)
        table = engine.req_to_token_pool
        if table.free_slots:
            row, slots = table.free_slots.pop(0), table.read(req.kv.req_pool_idx or 0, 0, req.kv.kv_allocated_len)
            table.free(req)
            req.kv.req_pool_idx = row
            table.write([(row, 0, slots)])

    engine.stash_chunked_request = stash_and_swap  # type: ignore[method-assign]
