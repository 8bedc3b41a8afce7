"""Planted bugs of constrained decoding: FSMs that move wrongly, vocab masks of a wrong state."""

from __future__ import annotations

from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.gpu.device import Buffer
from specfuzz.mutants import mutant
from specfuzz.reference.grammar import Grammar
from specfuzz.reference.req import Req
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import GenerationBatchResult

_GRAMMAR = Capability.GRAMMAR
_VERIFIED = Capability.GRAMMAR | Capability.SPECULATIVE
_EARLY = _VERIFIED | Capability.OVERLAP | Capability.GRAMMAR_OVERLAP


@mutant(
    "grammar-run-kept-whole",
    source="sglang #28682",
    killed_by=("grammar-cuts-the-run",),
    needs=_VERIFIED,
)
def grammar_run_kept_whole(engine: Scheduler) -> None:
    """What was accepted past the end of a constrained text is committed and emitted with the rest."""
    processor = engine.result_processor
    resolve = processor.resolve_spec_v2_tokens

    def resolve_spec_v2_tokens(batch: ScheduleBatch, result: GenerationBatchResult) -> list[list[int]]:
        if result.next_token_ids_cpu is None or result.accept_lens_cpu is None:
            return resolve(batch, result)  # plain decoding accepts no runs
        ids = processor.device.host_read(result.next_token_ids_cpu).reshape(-1, result.stride).tolist()
        lens = processor.device.host_read(result.accept_lens_cpu).tolist()
        result.grammar_retained_tokens = [run[:length] for run, length in zip(ids, lens, strict=True)]
        return resolve(batch, result)

    processor.resolve_spec_v2_tokens = resolve_spec_v2_tokens  # type: ignore[method-assign]


@mutant(
    "grammar-advanced-twice",
    source="sglang 0.5.23 advance_grammar_fsm: result.grammar_advanced",
    killed_by=("grammar-accepts-what-is-emitted",),
    needs=_EARLY,
)
def grammar_advanced_twice(engine: Scheduler) -> None:
    """Nobody notes that a forward has let the FSMs accept a queued result, so its processing does it again."""
    masks = engine.model_runner.vocab_masks
    barrier = masks.barrier

    def forgetful() -> None:
        barrier()
        for _, result in engine.result_queue:
            result.grammar_advanced = False

    masks.barrier = forgetful


@mutant(
    "grammar-barrier-dropped",
    source="sglang 0.5.23 Scheduler._advance_pending_grammar",
    killed_by=("decided-tokens-are-allowed",),
    needs=_EARLY,
)
def grammar_barrier_dropped(engine: Scheduler) -> None:
    """Vocab masks are built while the FSMs lack the result that is still queued."""
    engine.model_runner.vocab_masks.barrier = lambda: None


@mutant(
    "grammar-sampled-too-early",
    source="sglang 0.5.23 Scheduler.launch_batch_sample_if_needed",
    killed_by=("decided-tokens-are-allowed",),
    needs=_GRAMMAR | Capability.OVERLAP,
    algorithm="NONE",
)
def grammar_sampled_too_early(engine: Scheduler) -> None:
    """A plain forward is sampled at its launch, before the result ahead of it is processed."""

    def launch_batch_sample_if_needed() -> None:
        for _, result in engine.result_queue:
            if result.delay_sample_func is not None:
                assert engine.last_batch is not None
                engine.forward.launch_batch_sample(engine.last_batch, result)

    engine.launch_batch_sample_if_needed = launch_batch_sample_if_needed  # type: ignore[method-assign]


@mutant(
    "grammar-mask-of-the-root",
    source="vLLM #36138",
    killed_by=("decided-tokens-are-allowed",),
    needs=_VERIFIED,
)
def grammar_mask_of_the_root(engine: Scheduler) -> None:
    """All nodes of a verify get the mask of the state at its root."""
    masks = engine.model_runner.vocab_masks
    build = masks.of_nodes

    def of_nodes(batch: ScheduleBatch, draft_tokens: Buffer, parents: Buffer | None = None) -> list[list[int]] | None:
        found = build(batch, draft_tokens, parents)
        return None if found is None else [row[:1] * len(row) for row in found]

    masks.of_nodes = of_nodes  # type: ignore[method-assign]


@mutant(
    "grammar-mask-of-the-next-row",
    source="vLLM #49738",
    killed_by=("decided-tokens-are-allowed", "decided-tokens-are-the-text"),
    needs=_VERIFIED,
)
def grammar_mask_of_the_next_row(engine: Scheduler) -> None:
    """The masks of a batch are shifted by one row."""
    masks = engine.model_runner.vocab_masks
    build = masks.of_nodes

    def of_nodes(batch: ScheduleBatch, draft_tokens: Buffer, parents: Buffer | None = None) -> list[list[int]] | None:
        found = build(batch, draft_tokens, parents)
        return None if found is None else found[1:] + found[:1]

    masks.of_nodes = of_nodes  # type: ignore[method-assign]


class _NeverBack(Grammar):
    def rollback(self, k: int) -> None:
        """Forgets nothing."""


class _StaysTerminated(Grammar):
    def rollback(self, k: int) -> None:
        """Restores the position only."""
        terminated = self.terminated
        super().rollback(k)
        self.terminated = terminated


def _constrain_with(engine: Scheduler, kind: type[Grammar]) -> None:
    add = engine.add_request

    def add_request(*request: Any) -> Req:
        req = add(*request)
        if req.grammar is not None:
            req.grammar = kind(req.grammar.length)
        return req

    engine.add_request = add_request  # type: ignore[assignment, method-assign]


@mutant(
    "grammar-drafts-not-rolled-back",
    source="sglang 0.5.23 spec_utils.traverse_tree",
    killed_by=("grammar-accepts-what-is-emitted",),
    needs=_VERIFIED,
)
def grammar_drafts_not_rolled_back(engine: Scheduler) -> None:
    """The walk over the drafts leaves the FSM where it came to."""
    _constrain_with(engine, _NeverBack)


@mutant(
    "grammar-stays-terminated",
    source="vLLM #25905",
    killed_by=("grammar-ends-with-the-stop",),
    needs=_VERIFIED,
)
def grammar_stays_terminated(engine: Scheduler) -> None:
    """A draft that reaches the end of the text is rolled back, but the FSM still says that it is complete."""
    _constrain_with(engine, _StaysTerminated)


@mutant(
    "grammar-accepts-for-dead-rows",
    source="sglang 0.5.23 advance_grammar_fsm: is_retracted",
    killed_by=("grammar-accepts-what-is-emitted",),
    needs=_GRAMMAR | Capability.OVERLAP,
)
def grammar_accepts_for_dead_rows(engine: Scheduler) -> None:
    """A late result moves the FSM of a request that was retracted in the meantime."""
    processor = engine.result_processor
    advance, is_dead = processor.advance_grammar_fsm, processor.is_dead

    def advance_grammar_fsm(batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        processor.is_dead = lambda req: req.finished()  # type: ignore[method-assign]
        advance(batch, result)
        processor.is_dead = is_dead  # type: ignore[method-assign]

    processor.advance_grammar_fsm = advance_grammar_fsm  # type: ignore[method-assign]


@mutant(
    "grammar-restarts-on-retraction",
    source="sglang 0.5.23 Req.reset_for_retract",
    killed_by=("grammar-accepts-what-is-emitted",),
    needs=_GRAMMAR,
)
def grammar_restarts_on_retraction(engine: Scheduler) -> None:
    """A retraction resets the FSM, although the output stays."""

    class Restarting(Req):
        __slots__ = ()

        def reset_for_retract(self) -> None:
            super().reset_for_retract()
            self.grammar = None if self.grammar is None else Grammar(self.grammar.length)

    engine.req_type = Restarting


@mutant(
    "grammar-misses-the-first-token",
    source="sglang 0.5.23 _apply_prefill_grammar",
    killed_by=("grammar-accepts-what-is-emitted",),
    needs=_GRAMMAR,
)
def grammar_misses_the_first_token(engine: Scheduler) -> None:
    """The token that a prefill samples doesn't reach the FSM."""
    processor = engine.result_processor
    advance = processor.advance_grammar_fsm

    def advance_grammar_fsm(batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        if not batch.forward_mode.is_extend():
            advance(batch, result)

    processor.advance_grammar_fsm = advance_grammar_fsm  # type: ignore[method-assign]
