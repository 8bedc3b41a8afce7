"""Bugs planted into the real SGLang classes: isolation, the relay, and the pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Owner
from specfuzz.systems.sglang.mutants.planting import Swap, bug

if TYPE_CHECKING:
    from specfuzz.systems.sglang.versions import Engine

_SPECULATIVE = Capability.SPECULATIVE
_OVERLAP = Capability.OVERLAP


@bug(
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


@bug(
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
        def verify(self: Any, batch: Any, *rest: Any) -> Any:
            held = batch.seq_lens
            result = original(self, batch, *rest)
            held += result.accept_lens
            return result

        return verify

    swap(ToyWorker, "_verify", factory)


@bug(
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


@bug(
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


@bug(
    "filter-keeps-future-indices",
    Owner.SCHEDULER,
    ("future-indices-are-rows",),
    needs=_SPECULATIVE | _OVERLAP,
    source="ScheduleBatch.filter_batch must be forwarded to spec_info",
)
def _filter_keeps(engine: Engine, swap: Swap) -> None:
    """Dropping a row from a batch does not drop its relay row."""
    swap(engine.EagleDraftInput, "filter_batch", lambda original: lambda self, new_indices, new_indices_cpu=None: None)


@bug(
    "over-allocation-leaked",
    Owner.KV_ALLOCATOR,
    ("pages-are-conserved",),
    needs=_SPECULATIVE,
    source="release_kv_cache: what was reserved beyond the owned length must be freed too",
)
def _over_allocation(engine: Engine, swap: Swap) -> None:
    """A releasing request does not free what it had reserved ahead."""
    swap(engine.common, "_release_overallocated_kv_indices", lambda original: lambda req, start, end, tree: None)


@bug(
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
