"""Planted bugs of giving KV back: at finish, at retraction, in the tree."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.mutants import mutant
from specfuzz.reference.req import Req
from specfuzz.reference.scheduler import Scheduler


@mutant(
    "over-allocation-leaked",
    source="sglang-jax #1147",
    killed_by=("pages-are-conserved",),
    needs=Capability.SPECULATIVE,
)
def over_allocation_leaked(engine: Scheduler) -> None:
    """Release forgets the reserve behind the owned part."""
    engine.pools.release_overallocated = lambda req, owned: None  # type: ignore[method-assign]


@mutant(
    "double-free-at-finish",
    source="sglang-jax #982, sglang #12224",
    killed_by=("free-list-is-distinct",),
    needs=Capability.SPECULATIVE,
)
def double_free_at_finish(engine: Scheduler) -> None:
    """A second path frees the over-allocation of a released row again."""
    release = engine.pools.release_overallocated

    def release_overallocated(req: Req, owned: int) -> None:
        release(req, owned)
        release(req, owned)

    engine.pools.release_overallocated = release_overallocated  # type: ignore[method-assign]


@mutant(
    "release-by-token-count", source="sglang #12224", killed_by=("pages-are-conserved",), needs=Capability.SPECULATIVE
)
def release_by_token_count(engine: Scheduler) -> None:
    """Release guesses the end of the row from prompt and output instead of the ledger."""
    release = engine.pools.release_overallocated

    def release_overallocated(req: Req, owned: int) -> None:
        req.kv.kv_allocated_len = req.seqlen - 1
        release(req, owned)

    engine.pools.release_overallocated = release_overallocated  # type: ignore[method-assign]


@mutant("row-freed-twice", source="mini-sglang #111", killed_by=("rows-are-conserved",))
def row_freed_twice(engine: Scheduler) -> None:
    """Release puts the request's row into the free list twice."""
    table = engine.req_to_token_pool
    free = table.free

    def free_twice(req: Req) -> None:
        table.free_slots.append(req.kv.req_pool_idx or 0)
        free(req)

    table.free = free_twice  # type: ignore[method-assign]


@mutant("retract-keeps-committed", source="sglang 0.5.23 reset_for_retract", killed_by=("retraction-resets",))
def retract_keeps_committed(engine: Scheduler) -> None:
    """Retraction forgets to reset kv_committed_len."""
    release = engine.retractor.release_req

    def release_req(req: Req, survivors: int) -> None:
        committed = req.kv.kv_committed_len
        release(req, survivors)
        req.kv.kv_committed_len = committed

    engine.retractor.release_req = release_req  # type: ignore[method-assign]


class _UncutReq(Req):
    __slots__ = ()

    def owned_kv_len(self) -> int:
        return self.kv.kv_committed_len


@mutant(
    "cache-past-the-stop",
    source="sglang #22897",
    killed_by=("cached-within-owned",),
    needs=Capability.SPECULATIVE | Capability.RADIX,
)
def cache_past_the_stop(engine: Scheduler) -> None:
    """A finished request caches everything committed, tokens behind the stop included."""
    engine.req_type = _UncutReq


@mutant(
    "lock-leaked",
    source="sglang 0.5.23 release_kv_cache",
    killed_by=("protected-size-is-the-locked-paths",),
    needs=Capability.RADIX,
)
def lock_leaked(engine: Scheduler) -> None:
    """Release forgets the request's lock on its tree path."""
    unlock = engine.tree_cache.unlock

    def keep_lock(req: Req) -> None:
        if req.finished():
            req.lock = None
        else:
            unlock(req)

    engine.tree_cache.unlock = keep_lock  # type: ignore[method-assign]


@mutant(
    "unigram-tree-keys",
    source="sglang #10846, #11231",
    killed_by=("cached-draft-kv-is-true", "draft-kv-is-true"),
    needs=Capability.DRAFT_KV | Capability.RADIX,
)
def unigram_tree_keys(engine: Scheduler) -> None:
    """The tree keys single tokens although a draft cell depends on the token after its own."""
    engine.tree_cache.is_eagle = False
