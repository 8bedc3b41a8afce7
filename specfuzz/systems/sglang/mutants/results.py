"""Bugs planted into the real SGLang classes: results, the reserve and the host ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Owner
from specfuzz.systems.sglang.mutants.planting import Swap, bug

if TYPE_CHECKING:
    from specfuzz.systems.sglang.versions import Engine

_SPECULATIVE = Capability.SPECULATIVE
_OVERLAP = Capability.OVERLAP


def _blind_to(engine: Engine, swap: Swap, flag: str, alive: Any) -> None:
    """Let result processing see every request with `flag` as a live one has it."""

    def factory(original: Any) -> Any:
        def resolve(self: Any, result: Any, batch: Any) -> Any:
            states = [getattr(req, flag) for req in batch.reqs]
            for req in batch.reqs:
                setattr(req, flag, alive)
            runs = original(self, result, batch)
            for req, state in zip(batch.reqs, states, strict=True):
                setattr(req, flag, state)
            return runs

        return resolve

    swap(engine.ResultProcessor, "_resolve_spec_v2_tokens", factory)


@bug(
    "late-result-applied-to-finished",
    Owner.RESULT_PROCESSOR,
    ("dead-rows-are-inert",),
    needs=_SPECULATIVE | _OVERLAP,
    source="the `req.finished()` guard of _resolve_spec_v2_tokens",
)
def _late_finished(engine: Engine, swap: Swap) -> None:
    """The result of a forward that was in flight when its request finished is committed to that request."""
    _blind_to(engine, swap, "finished_reason", None)


@bug(
    "late-result-applied-to-retracted",
    Owner.RESULT_PROCESSOR,
    ("dead-rows-are-inert",),
    needs=_SPECULATIVE | _OVERLAP,
    source="the `req.is_retracted` guard of _resolve_spec_v2_tokens",
)
def _late_retracted(engine: Engine, swap: Swap) -> None:
    """The result of a forward that was in flight when its request was retracted is committed to that request."""
    _blind_to(engine, swap, "is_retracted", False)


@bug(
    "length-before-stop",
    Owner.RESULT_PROCESSOR,
    ("finish-reason-is-first", "nothing-emitted-past-the-end"),
    needs=_SPECULATIVE,
    source="Req.update_finish_state checks the stop first because one accepted run can cross both",
)
def _length_before_stop(engine: Engine, swap: Swap) -> None:
    """A run that holds a stop token and crosses the length cap is finished by length."""

    def factory(original: Any) -> Any:
        def update(self: Any, new_accepted_len: int = 1) -> None:
            cap = self.sampling_params.max_new_tokens
            if self.finished() or self.to_finish or len(self.output_ids) < cap:
                return original(self, new_accepted_len)
            self.finished_reason, self.finished_len = engine.FINISH_LENGTH(length=cap), cap
            return None

        return update

    swap(engine.Req, "update_finish_state", factory)


@bug(
    "reserve-1x",
    Owner.SCHEDULER,
    ("reserve-covers-two-rounds",),
    needs=_SPECULATIVE | _OVERLAP,
    source="get_alloc_reserve_per_decode: the second half absorbs the one unsettled verify",
)
def _reserve_1x(engine: Engine, swap: Swap) -> None:
    """Prepare reserves one verify window instead of two."""
    for module in (engine.eagle_utils, engine.schedule_batch):
        swap(module, "get_alloc_reserve_per_decode", lambda original: lambda: original() // 2)


@bug(
    "worker-advances-committed",
    Owner.SPEC_WORKER,
    ("worker-keeps-off-the-ledger", "steady-bonus"),
    needs=_SPECULATIVE,
    source="the pre-claim protocol of older releases: the worker counted the bonus before its result was processed",
)
def _worker_advances(engine: Engine, swap: Swap) -> None:
    """The draft worker counts the bonus token as committed when it has verified."""
    from specfuzz.systems.sglang.worker import ToyWorker

    def factory(original: Any) -> Any:
        def verify(self: Any, batch: Any, *rest: Any) -> Any:
            result = original(self, batch, *rest)
            for req in batch.reqs:
                req.kv.kv_committed_len += 1
            return result

        return verify

    swap(ToyWorker, "_verify", factory)


@bug(
    "retract-keeps-committed",
    Owner.SCHEDULER,
    ("retraction-resets",),
    needs=_SPECULATIVE,
    source="Req.reset_for_retract clears kv_committed_len by hand",
)
def _retract_keeps_committed(engine: Engine, swap: Swap) -> None:
    """A retracted request keeps its committed length."""

    def factory(original: Any) -> Any:
        def reset(self: Any) -> None:
            committed = self.kv.kv_committed_len
            original(self)
            self.kv.kv_committed_len = committed

        return reset

    swap(engine.Req, "reset_for_retract", factory)


@bug(
    "penalties-counted-twice",
    Owner.SAMPLER,
    ("penalties-count-once",),
    needs=_SPECULATIVE,
    source="cumulate_penalty_output_tokens in eagle_prepare_for_decode",
)
def _penalties_twice(engine: Engine, swap: Swap) -> None:
    """A prepare feeds the last output token to the penalties, and so does the one behind it."""

    def factory(original: Any) -> Any:
        def cumulate(self: Any) -> None:
            original(self)
            original(self)

        return cumulate

    swap(engine.ScheduleBatch, "cumulate_penalty_output_tokens", factory)
