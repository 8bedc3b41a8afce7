"""Bugs planted into the real SGLang classes, each of a kind that this engine has had or could have.

A planted bug is at most 15 lines, lives as long as one run and names the oracles of which at least one must notice
it. This module imports no engine: a bug gets the loaded one when it is planted. Bugs of a draft worker are planted
into the toy worker, which stands where SGLang's workers stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Owner
from specfuzz.core.registry import Registry

if TYPE_CHECKING:
    from specfuzz.systems.sglang.versions import Engine

#: swap(target, name, replacement factory): rebind target.name to factory(original) until the run ends.
Swap = Callable[[Any, str, Callable[[Any], Any]], None]

_SPECULATIVE = Capability.SPECULATIVE
_OVERLAP = Capability.OVERLAP


class Planted:
    """A planted bug's rebound names; `undo` restores them, newest first."""

    def __init__(self) -> None:
        """Nothing is rebound yet."""
        self._saved: list[tuple[Any, str, Any]] = []

    def swap(self, target: Any, name: str, factory: Callable[[Any], Any]) -> None:
        """Rebind `target.name`; the factory gets what was there."""
        original = target.__dict__[name]
        self._saved.append((target, name, original))
        setattr(target, name, factory(original))

    def undo(self) -> None:
        """Restore every name; idempotent."""
        while self._saved:
            target, name, original = self._saved.pop()
            setattr(target, name, original)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedBug:
    """One bug. killed_by: oracles of which at least one must be violated. needs: what the configuration must offer.

    algorithm: the one that it is pinned to. source: where such a bug was seen, or why it can happen. config: pinned
    fields. equivalent: why it can't die, or None.
    """

    name: str
    summary: str
    owner: Owner
    killed_by: tuple[str, ...]
    needs: Capability
    algorithm: str
    source: str
    patch: Callable[[Engine, Swap], None]
    config: Mapping[str, Any] = field(default_factory=dict)
    equivalent: str | None = None

    def plant(self, engine: Engine) -> Planted:
        """Rebind the engine's names for one run."""
        planted = Planted()
        self.patch(engine, planted.swap)
        return planted


MUTANTS: Registry[PlantedBug] = Registry("mutant of sglang")


def get(name: str) -> PlantedBug:
    """The bug of that name; raises UnknownName with the closest ones."""
    return MUTANTS.get(name)


def _bug(
    name: str, owner: Owner, killed_by: tuple[str, ...], *, needs: Capability, source: str, algorithm: str = "EAGLE"
) -> Callable[[Callable[[Engine, Swap], None]], Callable[[Engine, Swap], None]]:
    def register(patch: Callable[[Engine, Swap], None]) -> Callable[[Engine, Swap], None]:
        summary = (patch.__doc__ or "").strip().splitlines()[0]
        bug = PlantedBug(
            name=name, summary=summary, owner=owner, killed_by=killed_by, needs=needs, algorithm=algorithm,
            source=source, patch=patch,
        )  # fmt: skip
        MUTANTS.register(name, bug)
        return patch

    return register


# ---------------------------------------------------------------------- results of dead rows
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


@_bug(
    "late-result-applied-to-finished",
    Owner.RESULT_PROCESSOR,
    ("dead-rows-are-inert",),
    needs=_SPECULATIVE | _OVERLAP,
    source="the `req.finished()` guard of _resolve_spec_v2_tokens",
)
def _late_finished(engine: Engine, swap: Swap) -> None:
    """The result of a forward that was in flight when its request finished is committed to that request."""
    _blind_to(engine, swap, "finished_reason", None)


@_bug(
    "late-result-applied-to-retracted",
    Owner.RESULT_PROCESSOR,
    ("dead-rows-are-inert",),
    needs=_SPECULATIVE | _OVERLAP,
    source="the `req.is_retracted` guard of _resolve_spec_v2_tokens",
)
def _late_retracted(engine: Engine, swap: Swap) -> None:
    """The result of a forward that was in flight when its request was retracted is committed to that request."""
    _blind_to(engine, swap, "is_retracted", False)


@_bug(
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


# ---------------------------------------------------------------------- reserve and ledger
@_bug(
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


@_bug(
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
        def verify(self: Any, batch: Any, on_publish: Any) -> Any:
            result = original(self, batch, on_publish)
            for req in batch.reqs:
                req.kv.kv_committed_len += 1
            return result

        return verify

    swap(ToyWorker, "_verify", factory)


@_bug(
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


# ---------------------------------------------------------------------- isolation and relay
@_bug(
    "leaked-forward-mode",
    Owner.ISOLATION,
    ("mode-is-restored", "bindings-are-restored"),
    needs=_SPECULATIVE,
    source="Scheduler._forward_isolation: without the restore the next step merges a decode batch as an extend",
)
def _leaked_mode(engine: Engine, swap: Swap) -> None:
    """TARGET_VERIFY, set by the worker, stays on the batch after the forward."""
    from contextlib import contextmanager

    def factory(original: Any) -> Any:
        @contextmanager
        def isolation(self: Any, batch: Any, *, overlap: bool) -> Any:
            with original(self, batch, overlap=overlap):
                yield
                mode = batch.forward_mode
            batch.forward_mode = mode

        return isolation

    swap(engine.Scheduler, "_forward_isolation", factory)


@_bug(
    "in-place-frontier",
    Owner.SPEC_WORKER,
    ("no-write-through-the-isolation",),
    needs=_SPECULATIVE,
    source="isolation restores bindings; an in-place write through a shared tensor escapes it",
)
def _in_place_frontier(engine: Engine, swap: Swap) -> None:
    """The worker adds the accepted lengths into the batch's own seq_lens instead of making a new tensor."""
    from specfuzz.systems.sglang.worker import ToyWorker

    def factory(original: Any) -> Any:
        def verify(self: Any, batch: Any, on_publish: Any) -> Any:
            held = batch.seq_lens
            result = original(self, batch, on_publish)
            held += result.accept_lens
            return result

        return verify

    swap(ToyWorker, "_verify", factory)


@_bug(
    "publish-old-frontier",
    Owner.FUTURE_MAP,
    ("publish-equals-result",),
    needs=_SPECULATIVE | _OVERLAP,
    source="a publish that is placed before accept hands the next round the frontier of this one",
)
def _publish_old(engine: Engine, swap: Swap) -> None:
    """A verify publishes the frontier that it started from."""

    def factory(original: Any) -> Any:
        def publish(self: Any, future_indices: Any, new_seq_lens: Any, confidence: Any = None) -> None:
            old = self.new_seq_lens_buf[future_indices]
            stale = old.where((old >= 0) & (old < new_seq_lens), new_seq_lens)
            original(self, future_indices, stale, confidence)

        return publish

    swap(engine.FutureMap, "publish", factory)


@_bug(
    "stash-drops-hidden",
    Owner.FUTURE_MAP,
    ("relay-holds-the-draft-state", "draft-state-is-right", "right-draft-is-accepted"),
    needs=_SPECULATIVE | _OVERLAP,
    source="relay payloads whose extras are optional: the text stays right, acceptance collapses",
)
def _stash_drops_hidden(engine: Engine, swap: Swap) -> None:
    """Only the first payload's hidden state reaches the relay; later rounds draft from it."""

    def factory(original: Any) -> Any:
        def stash(self: Any, indices: Any, payload: Any) -> None:
            if self.need_hidden_states:
                payload.hidden_states = None
            original(self, indices, payload)

        return stash

    swap(engine.FutureMap, "stash", factory)


@_bug(
    "filter-keeps-future-indices",
    Owner.SCHEDULER,
    ("future-indices-are-rows",),
    needs=_SPECULATIVE | _OVERLAP,
    source="ScheduleBatch.filter_batch must be forwarded to spec_info",
)
def _filter_keeps(engine: Engine, swap: Swap) -> None:
    """Dropping a row from a batch does not drop its relay row."""
    swap(engine.EagleDraftInput, "filter_batch", lambda original: lambda self, new_indices, new_indices_cpu=None: None)


# ---------------------------------------------------------------------- pools
@_bug(
    "over-allocation-leaked",
    Owner.KV_ALLOCATOR,
    ("pages-are-conserved",),
    needs=_SPECULATIVE,
    source="release_kv_cache: what was reserved beyond the owned length must be freed too",
)
def _over_allocation(engine: Engine, swap: Swap) -> None:
    """A releasing request does not free what it had reserved ahead."""
    swap(engine.common, "_release_overallocated_kv_indices", lambda original: lambda req, start, end, tree: None)


@_bug(
    "double-free-at-finish",
    Owner.KV_ALLOCATOR,
    ("free-list-is-distinct", "pages-are-conserved"),
    needs=_SPECULATIVE,
    source="the allocators don't notice a double free unless SGLANG_DEBUG_MEMORY_POOL is set",
)
def _double_free(engine: Engine, swap: Swap) -> None:
    """A finished request frees its unshared tail twice."""

    def factory(original: Any) -> Any:
        def free(req: Any, start: int, end: int, tree: Any) -> None:
            original(req, start, end, tree)
            if req.finished():
                original(req, start, end, tree)

        return free

    swap(engine.common, "_release_overallocated_kv_indices", factory)
