"""Bugs planted into the real SGLang classes: constrained decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Owner
from specfuzz.systems.sglang.mutants.planting import Swap, bug

if TYPE_CHECKING:
    from specfuzz.systems.sglang.versions import Engine

_GRAMMAR = Capability.GRAMMAR
_OVERLAP = Capability.OVERLAP


@bug(
    "grammar-run-kept-whole",
    Owner.RESULT_PROCESSOR,
    ("grammar-cuts-the-run",),
    needs=_GRAMMAR,
    source="sglang #28682",
)
def _run_kept_whole(engine: Engine, swap: Swap) -> None:
    """What was accepted past the end of a constrained text is committed and emitted with the rest."""

    def factory(original: Any) -> Any:
        def accept(self: Any, req: Any, tokens: Any) -> Any:
            retained = original(self, req, tokens)
            return tokens if isinstance(tokens, list) else retained

        return accept

    swap(engine.ResultProcessor, "_accept_grammar_tokens", factory)


@bug(
    "grammar-advanced-twice",
    Owner.GRAMMAR,
    ("grammar-accepts-what-is-emitted",),
    needs=_GRAMMAR | _OVERLAP,
    source="result.grammar_advanced in advance_grammar_fsm",
)
def _advanced_twice(engine: Engine, swap: Swap) -> None:
    """Nobody notes that a verify has let the FSMs accept a queued result, so its processing does it again."""

    def factory(original: Any) -> Any:
        def advance(self: Any) -> None:
            original(self)
            for _, result in self.result_queue:
                result.grammar_advanced = False

        return advance

    swap(engine.Scheduler, "_advance_pending_grammar", factory)


@bug(
    "grammar-barrier-dropped",
    Owner.GRAMMAR,
    ("decided-tokens-are-allowed",),
    needs=_GRAMMAR | _OVERLAP,
    source="grammar_barrier in run_batch",
)
def _barrier_dropped(engine: Engine, swap: Swap) -> None:
    """The masks of a verify are built while the FSMs lack the result that is still queued."""
    swap(engine.Scheduler, "_advance_pending_grammar", lambda original: lambda self: None)


@bug(
    "grammar-drafts-not-rolled-back",
    Owner.GRAMMAR,
    ("grammar-accepts-what-is-emitted",),
    needs=_GRAMMAR,
    source="traverse_tree in spec_utils; vLLM #25905",
)
def _not_rolled_back(engine: Engine, swap: Swap) -> None:
    """The walk over the drafts leaves the FSM where it came to."""

    def factory(original: Any) -> Any:
        def traverse(children: Any, siblings: Any, tokens: Any, grammar: Any, *mask: Any, **vocab: Any) -> None:
            grammar.rollback = lambda k: None
            original(children, siblings, tokens, grammar, *mask, **vocab)
            del grammar.rollback

        return traverse

    swap(engine.spec_utils, "traverse_tree", factory)


@bug(
    "grammar-accepts-for-dead-rows",
    Owner.GRAMMAR,
    ("grammar-accepts-what-is-emitted",),
    needs=_GRAMMAR | _OVERLAP,
    source="the `req.is_retracted` guard of advance_grammar_fsm",
)
def _accepts_for_dead_rows(engine: Engine, swap: Swap) -> None:
    """A late result moves the FSM of a request that was retracted in the meantime."""

    def factory(original: Any) -> Any:
        def advance(self: Any, result: Any, batch: Any) -> None:
            states = [req.is_retracted for req in batch.reqs]
            for req in batch.reqs:
                req.is_retracted = False
            original(self, result, batch)
            for req, state in zip(batch.reqs, states, strict=True):
                req.is_retracted = state

        return advance

    swap(engine.ResultProcessor, "advance_grammar_fsm", factory)


@bug(
    "grammar-flag-lost-on-merge",
    Owner.SCHEDULER,
    ("decided-tokens-are-allowed", "grammar-accepts-what-is-emitted"),
    needs=_GRAMMAR,
    source="ScheduleBatch.merge_batch",
)
def _flag_lost_on_merge(engine: Engine, swap: Swap) -> None:
    """A batch that takes in the first constrained rows doesn't say so, and nobody masks them."""

    def factory(original: Any) -> Any:
        def merge_batch(self: Any, other: Any) -> None:
            before = self.has_grammar
            original(self, other)
            self.has_grammar = before

        return merge_batch

    swap(engine.ScheduleBatch, "merge_batch", factory)
