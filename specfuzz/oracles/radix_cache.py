"""Rules of the prefix tree: what it holds is true, owned by it alone, and no longer than what a request may cache."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Evict, Idle, Mix, Prefill, Settle
from specfuzz.core.lemmas import owned_len
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import CachedPath, PoolView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import limits
from specfuzz.oracles.shares import shares

HOLDS = Verdict.HOLDS
TREE = Capability.RADIX | Capability.TREE_VIEW


@oracle(
    "tree-and-rows-are-disjoint",
    formula="no tree page lies behind the protected prefix of a request",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.POOL,
    needs=TREE,
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.checkpoint",
    twin="prefix-hit",
)
def tree_and_rows_are_disjoint(step: Step, pool: PoolView) -> Finding:
    """After an insert, the row names the tree's slots and the request's duplicates are free."""
    found = shares(step, pool)
    if found.tree is None:
        return Verdict.UNKNOWN
    if not found.tree or not found.holders:
        return None
    if found.clean:
        return HOLDS
    for rid, pages in found.private.items():
        if both := sorted(pages & found.tree):
            protected = step.after.reqs[rid].cache_protected_len
            return Clash(
                f"private({rid}) & tree = {both} == []",
                f"the row of {rid} holds the pages {both} behind its protected prefix of {protected}",
                "the tree caches slots of the same pages",
                rid=rid,
            )
    return HOLDS


@oracle(
    "protected-prefix-is-cached",
    formula="slots[0:cache_protected_len) of every row are slots of the tree",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.POOL,
    needs=TREE,
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.evict; sglang #34870",
    twin="prefix-hit",
)
def protected_prefix_is_cached(step: Step, pool: PoolView) -> Finding:
    """What a request has left to the tree stays there as long as it reads it, so eviction spares locked paths."""
    found = shares(step, pool)
    if found.tree_slots is None:
        return Verdict.UNKNOWN
    if found.tree_slots.issuperset(found.locked):
        return HOLDS if found.locked else None
    for req in found.holders:
        gone = set(req.slots[: req.cache_protected_len]) - found.tree_slots
        if gone:
            return Clash(
                f"slots({req.rid})[0:{req.cache_protected_len}) in the tree, except {sorted(gone)}",
                f"{req.rid} counts [0, {req.cache_protected_len}) of its row as the tree's",
                f"the tree holds no slot of {sorted(gone)}",
                rid=req.rid,
            )
    return HOLDS


@oracle(
    "protected-size-is-the-locked-paths",
    formula="protected == distinct slots on the protected prefixes of the requests that hold a row",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.POOL,
    needs=TREE,
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.inc_lock_ref, dec_lock_ref",
    twin="prefix-hit",
)
def protected_size_is_the_locked_paths(step: Step, pool: PoolView) -> Finding:
    """Locks and unlocks balance: a lost lock allows eviction under a reader, a leaked one forbids it for ever."""
    locked = shares(step, pool).locked
    if len(locked) == pool.protected:
        return HOLDS
    return Clash(
        f"protected {pool.protected} == {len(locked)}",
        f"the tree counts {pool.protected} locked tokens",
        f"the rows of the requests rest on {len(locked)} tree slots",
    )


@oracle(
    "protected-len-is-whole-pages",
    formula="cache_protected_len % page_size == 0",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.REQUEST,
    needs=Capability.RADIX | Capability.PAGED,
    on=(Prefill, Mix, Settle, Idle, Evict),
    changed_only=True,
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.checkpoint; sglang #34870",
    twin="prefix-hit",
)
def protected_len_is_whole_pages(step: Step, req: ReqView) -> Finding:
    """The tree owns pages, never parts of them."""
    if req.req_pool_idx is None:
        return None
    rest = req.cache_protected_len % limits(step).page_size
    if not rest:
        return HOLDS
    return Clash(
        f"{req.cache_protected_len} % {step.config.page_size} = {rest} == 0",
        f"the tree owns [0, {req.cache_protected_len}) of the row of {req.rid}",
        f"a page has {step.config.page_size} tokens",
    )


@oracle(
    "cached-within-owned",
    formula="each path is a prefix of a request's text, not longer than min(committed, prompt + finished_len) of it",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.POOL,
    needs=TREE,
    source="sglang 0.5.23 managers/schedule_batch Req.owned_kv_len; sglang #22897, #24590",
    twin="finish-inside-a-run",
)
def cached_within_owned(step: Step, pool: PoolView) -> Finding:
    """Nothing is cached that no request may vouch for: no token past a stop, none without a committed KV."""
    if pool.cached is None:
        return Verdict.UNKNOWN
    ends = _extend_ends(step, shares(step, pool).holders)
    if pool.cached is step.before.pool.cached or not pool.cached:
        return None
    vouched: set[CachedPath] = step.memo.setdefault("vouched", set())
    for path in pool.cached:
        if path in vouched:
            continue
        if not _is_vouched(step, path, ends):
            return Clash(
                f"{len(path.slots)} slots of {path.tokens} are within somebody's owned length",
                f"the tree caches a path of {len(path.slots)} slots for the tokens {path.tokens}",
                f"every request with this text owns less: {_all_owned(step, ends)}",
            )
        vouched.add(path)
    return HOLDS


def _extend_ends(step: Step, holders: list[ReqView]) -> dict[str, int]:
    """The longest settled extend of each request: what a request that is not finished may have cached."""
    ends: dict[str, int] = step.memo.setdefault("extend-ends", {})
    for req in holders:
        if req.cache_protected_len and req.cache_protected_len > ends.get(req.rid, 0):
            ends[req.rid] = req.cache_protected_len
    for known in step.ledger.settled:
        for rid in known.extended:
            before = step.before.reqs.get(rid)
            if before is not None and before.kv_committed_len > ends.get(rid, 0):
                ends[rid] = min(before.kv_committed_len, before.seqlen)
    return ends


def _owned(req: ReqView, ends: dict[str, int]) -> int:
    most = ends.get(req.rid, 0)
    if req.finished_reason is not None:
        return max(most, owned_len(req.kv_committed_len, req.prompt_len, req.finished_len))
    return most


def _all_owned(step: Step, ends: dict[str, int]) -> str:
    return ", ".join(f"{rid} {_owned(req, ends)}" for rid, req in step.after.reqs.items()) or "nobody"


def _is_vouched(step: Step, path: CachedPath, ends: dict[str, int]) -> bool:
    length, count, tokens = len(path.slots), len(path.tokens), path.tokens
    for rid, req in step.after.reqs.items():
        if count > req.prompt_len + len(req.output_ids) or length > _owned(req, ends):
            continue
        text = step.ledger.requests[rid].text
        text.ensure(count)
        if text.tokens[count - 1] == tokens[-1] and tuple(text.tokens[:count]) == tokens:
            return True
    return False


@oracle(
    "evicted-pages-become-free",
    formula="evict: slots that left the tree == receipt.evicted == growth of the free list in tokens",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.RUN,
    needs=TREE,
    on=(Evict,),
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.evict; sglang #25805",
    twin="eviction",
)
def evicted_pages_become_free(step: Step) -> Finding:
    """What leaves the tree is free at once, and nothing else is."""
    before, after = step.before.pool, step.after.pool
    if before.cached is None or after.cached is None:
        return Verdict.UNKNOWN
    if not isinstance(step.event, Evict) or (not before.cached and not step.receipt.evicted):
        return None
    old = {slot for path in before.cached for slot in path.slots}
    new = {slot for path in after.cached for slot in path.slots}
    gone = len(old) - len(new)
    freed = (len(after.free_pages) - len(before.free_pages)) * after.page_size
    least = min(step.event.n, before.evictable)
    if new <= old and gone == freed == step.receipt.evicted and gone >= least:
        return HOLDS
    return Clash(
        f"{len(old)} - {len(new)} == {freed} == {step.receipt.evicted} >= {least}",
        f"eviction of {step.event.n} tokens took {gone} slots from the tree and reported {step.receipt.evicted}",
        f"the free list grew by {freed} tokens and {before.evictable} were evictable",
    )
