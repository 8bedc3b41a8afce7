"""Bugs planted into the real SGLang classes: mixed batches with speculation, and prompts that are launched in chunks.

The first five are the failures that SGLang met when it brought mixed chunk and speculation together; the next three
are their opposites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Owner
from specfuzz.systems.sglang.mutants.planting import Swap, bug

if TYPE_CHECKING:
    from specfuzz.systems.sglang.versions import Engine

_MIXED = Capability.MIXED_CHUNK
_MIXED_SPEC = _MIXED | Capability.SPECULATIVE
_CHUNKED = Capability.CHUNKED_PREFILL
_PAPER = "sglang mixed chunk with speculation: "


def _lag_by_one(batch: Any, tails: int) -> None:
    """Take one token off the lengths of the last `tails` rows, on both sides."""
    for name in ("seq_lens", "seq_lens_cpu"):
        lens = getattr(batch, name).clone()
        lens[-tails:] -= 1
        setattr(batch, name, lens)


@bug(
    "mixed-tail-has-no-query",
    Owner.FUTURE_MAP,
    ("worker-starts-at-the-frontier", "window-follows-the-row"),
    needs=_MIXED_SPEC,
    source=_PAPER + "qo_len 0",
)
def _no_query(engine: Engine, swap: Swap) -> None:
    """A speculative tail carries its frontier as its length, without the pending token that it feeds."""

    def mixed(original: Any) -> Any:
        def mix_with_running(self: Any, running: Any) -> None:
            original(self, running)
            _lag_by_one(self, running.batch_size())

        return mix_with_running

    def resolved(original: Any) -> Any:
        def resolve(self: Any, batch: Any) -> None:
            original(self, batch)
            _lag_by_one(batch, len(batch.mix_running_indices))

        return resolve

    swap(engine.ScheduleBatch, "mix_with_running", mixed)
    swap(engine.FutureMap, "resolve_mixed_spec_tails", resolved)


@bug(
    "mixed-tails-not-stashed",
    Owner.FUTURE_MAP,
    ("worker-feeds-the-pending-token",),
    needs=_MIXED_SPEC,
    source=_PAPER + "relay row never written without overlap",
    overlap=False,
)
def _not_stashed(engine: Engine, swap: Swap) -> None:
    """Without overlap the tails' pending tokens never get into the relay."""
    swap(engine.FutureMap, "stash_bonus_tokens", lambda original: lambda self, indices, bonus_tokens: None)


@bug(
    "mixed-tails-bound-too-early",
    Owner.FUTURE_MAP,
    ("worker-starts-at-the-frontier",),
    needs=_MIXED_SPEC | Capability.OVERLAP,
    source=_PAPER + "schedule-time tails under overlap",
)
def _bound_too_early(engine: Engine, swap: Swap) -> None:
    """The tails keep the lengths and slots that the scheduler knew while their verify was in flight."""
    swap(engine.FutureMap, "resolve_mixed_spec_tails", lambda original: lambda self, batch: None)


@bug(
    "plain-mirror-rebuilt",
    Owner.SCHEDULER,
    ("mirror-equals-device", "worker-starts-at-the-frontier"),
    needs=_MIXED | Capability.OVERLAP,
    source=_PAPER + "the rebuild of the mirror on the plain path",
    algorithm="NONE",
)
def _mirror_rebuilt(engine: Engine, swap: Swap) -> None:
    """The mirror of a plain batch's tails is rebuilt from the settled text, which lags behind under overlap."""

    def factory(original: Any) -> Any:
        def mix_with_running(self: Any, running: Any) -> None:
            lens = [*self.seq_lens_cpu.tolist(), *(req.seqlen for req in running.reqs)]
            original(self, running)
            self.seq_lens_cpu = self.seq_lens_cpu.new_tensor(lens)

        return mix_with_running

    swap(engine.ScheduleBatch, "mix_with_running", factory)


def _around_extend_results(engine: Engine, swap: Swap, around: Callable[[Any, Callable[[], None]], None]) -> None:
    """Let around(batch, process) stand where the result of an extend is processed; process() does what is due there."""

    def factory(original: Any) -> Any:
        return lambda self, batch, result: around(batch, lambda: original(self, batch, result))

    swap(engine.ResultProcessor, "process_batch_result_prefill", factory)


def _taken_for(engine: Engine, swap: Swap, algorithm: str | None) -> None:
    """Let the processing of an extend's result take the batch for one of another algorithm."""

    def mistaken(batch: Any, process: Callable[[], None]) -> None:
        found = batch.spec_algorithm
        batch.spec_algorithm = engine.SpeculativeAlgorithm.from_string(algorithm)
        process()
        batch.spec_algorithm = found

    _around_extend_results(engine, swap, mistaken)


@bug(
    "mixed-tail-not-committed",
    Owner.RESULT_PROCESSOR,
    ("commit-equals-emitted", "steady-bonus"),
    needs=_MIXED_SPEC,
    source=_PAPER + "missing kv_committed_len += 1",
)
def _not_committed(engine: Engine, swap: Swap) -> None:
    """The token that a speculative tail has written is not counted."""
    _taken_for(engine, swap, None)


@bug(
    "plain-tail-committed",
    Owner.RESULT_PROCESSOR,
    ("commit-equals-emitted", "plain-claims-are-counted"),
    needs=_MIXED,
    source="process_batch_result_prefill: the tail's commit without its guard",
    algorithm="NONE",
)
def _plain_committed(engine: Engine, swap: Swap) -> None:
    """A plain tail, which was committed when it was prepared, is committed again."""
    _taken_for(engine, swap, "EAGLE")


def _commit_more(engine: Engine, swap: Swap, more: Callable[[Any, Any], bool]) -> None:
    """Commit one more token of every live row of a settled extend for which more(batch, req)."""

    def process_batch_result_prefill(batch: Any, process: Callable[[], None]) -> None:  # an owner's name
        before = [len(req.output_ids) for req in batch.reqs]
        process()
        for req, length in zip(batch.reqs, before, strict=True):
            if len(req.output_ids) > length and not req.finished():
                req.kv.kv_committed_len += more(batch, req)

    _around_extend_results(engine, swap, process_batch_result_prefill)


@bug(
    "mixed-tail-committed-twice",
    Owner.RESULT_PROCESSOR,
    ("commit-equals-emitted", "steady-bonus"),
    needs=_MIXED_SPEC,
    source=_PAPER + "kv_committed_len += 1 at mixing as well",
)
def _committed_twice(engine: Engine, swap: Swap) -> None:
    """The token that a speculative tail has written is counted twice."""
    _commit_more(engine, swap, lambda batch, req: req in (batch.decoding_reqs or ()))


@bug(
    "mixed-prefill-committed",
    Owner.RESULT_PROCESSOR,
    ("commit-equals-emitted", "steady-bonus"),
    needs=_MIXED_SPEC,
    source="process_batch_result_prefill: the tail's commit applied to every row",
)
def _prefill_committed(engine: Engine, swap: Swap) -> None:
    """The new request of a MIXED batch commits a token beyond its prompt."""
    _commit_more(engine, swap, lambda batch, req: bool(batch.decoding_reqs) and req not in batch.decoding_reqs)


# ---------------------------------------------------------------------- chunks
@bug(
    "draft-guesses-at-chunk-end",
    Owner.SPEC_WORKER,
    ("draft-kv-is-true",),
    needs=_CHUNKED | Capability.DRAFT_KV,
    source="speculative/eagle_utils _eagle_prefill_tail_tokens; sglang #26329",
)
def _guesses(engine: Engine, swap: Swap) -> None:
    """The draft takes what a middle chunk has sampled for the next prompt token."""
    swap(engine, "prefill_tail_tokens", lambda original: lambda batch, next_token_ids: next_token_ids)


@bug(
    "chunked-abort-forgotten",
    Owner.SCHEDULER,
    ("aborted-chunk-is-dropped",),
    needs=_CHUNKED,
    source="Scheduler.process_pending_chunked_abort",
)
def _abort_forgotten(engine: Engine, swap: Swap) -> None:
    """The abort of a chunked request is noted down and never executed."""
    swap(engine.Scheduler, "process_pending_chunked_abort", lambda original: lambda self: None)
