"""Rules of the page allocator: conservation, one owner per page, whole pages; from free list, tree walk and rows."""

from __future__ import annotations

from collections import Counter

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.event import Idle, Mix, Prefill, Prepare, Settle
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import PoolView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.shares import shares

HOLDS = Verdict.HOLDS


@oracle(
    "pages-are-conserved",
    formula="free + tree + sum(private pages of requests) == num_pages",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.POOL,
    source="sglang 0.5.23 managers/scheduler_components/invariant_checker; sglang-jax #1147",
    twin="finish",
)
def pages_are_conserved(step: Step, pool: PoolView) -> Finding:
    """No page is lost and none appears."""
    found = shares(step, pool)
    if found.tree is None:
        return Verdict.UNKNOWN
    if found.total == pool.num_pages:
        return HOLDS
    private = {rid: len(pages) for rid, pages in found.private.items()}
    tree = len(found.tree)
    return Clash(
        f"{len(pool.free_pages)} + {tree} + {sum(private.values())} = {found.total} == {pool.num_pages}",
        f"{len(pool.free_pages)} pages are free, {tree} lie in the tree, requests hold {private or 'none'}",
        f"the pool has {pool.num_pages} pages: {abs(pool.num_pages - found.total)} are "
        f"{'lost' if found.total < pool.num_pages else 'counted twice'}",
    )


@oracle(
    "free-list-is-distinct",
    formula="the free list names each page once, and only pages 1..num_pages",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.POOL,
    source="sglang 0.5.23 mem_cache/allocator/paged PagedTokenToKVPoolAllocator.free; sglang-jax #982",
    twin="finish",
)
def free_list_is_distinct(step: Step, pool: PoolView) -> Finding:
    """A page that is freed twice will be handed out twice."""
    found = shares(step, pool)
    if found.clean:
        return HOLDS
    free = set(pool.free_pages)
    if len(free) == len(pool.free_pages) and all(1 <= page <= pool.num_pages for page in free):
        return HOLDS
    twice = sorted(page for page, count in Counter(pool.free_pages).items() if count > 1)
    foreign = sorted(page for page in free if not 1 <= page <= pool.num_pages)
    return Clash(
        f"{len(pool.free_pages)} entries == {len(free)} pages, foreign {foreign}",
        f"the free list has {len(pool.free_pages)} entries",
        f"the pages {twice} stand in it twice and {foreign} are none of 1..{pool.num_pages}",
    )


@oracle(
    "owned-pages-are-not-free",
    formula="no page of a request or of the tree is in the free list",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.POOL,
    source="sglang 0.5.23 managers/scheduler_components/invariant_checker; sglang #12224",
    twin="finish",
)
def owned_pages_are_not_free(step: Step, pool: PoolView) -> Finding:
    """What somebody still reads or writes can't be handed out."""
    found = shares(step, pool)
    if found.clean:
        return HOLDS
    free = set(pool.free_pages)
    for rid, pages in found.private.items():
        if both := sorted(pages & free):
            return _also_free(both, f"the row of {rid} holds them behind its protected prefix")
    if both := sorted((found.tree or set()) & free):
        return _also_free(both, "slots of these pages are cached in the prefix tree")
    return HOLDS


def _also_free(pages: list[int], who: str) -> Clash:
    return Clash(f"{pages} in the free list", f"the free list names the pages {pages}", who)


@oracle(
    "page-has-one-owner",
    formula="the pages behind the protected prefixes of two requests are disjoint, and no row names a slot twice",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.POOL,
    source="sglang 0.5.23 managers/scheduler_components/invariant_checker; sglang #33547",
    twin="two-rows-in-a-batch",
)
def page_has_one_owner(step: Step, pool: PoolView) -> Finding:
    """Two requests never write into the same page."""
    found = shares(step, pool)
    if not found.holders:
        return None
    if found.clean and pool.page_size == 1:
        return HOLDS
    owner: dict[int, str] = {}
    for rid, pages in found.private.items():
        slots = step.after.reqs[rid].slots
        if len(set(slots)) != len(slots):
            twice = sorted(slot for slot, count in Counter(slots).items() if count > 1)
            return Clash(
                f"slots({rid}) are distinct",
                f"the row of {rid} names {len(slots)} positions",
                f"the slots {twice} stand in it twice",
            )
        for page in pages:
            if page in owner:
                return Clash(
                    f"page {page} has one owner",
                    f"the row of {owner[page]} holds page {page}",
                    f"so does the row of {rid}, and both may write it",
                )
            owner[page] = rid
    return HOLDS


@oracle(
    "padding-is-never-owned",
    formula="no row, no tree path and no free list names page 0 or a slot outside of the pool",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.POOL,
    source="sglang 0.5.23 mem_cache/allocator/base BaseTokenToKVPoolAllocator.clear",
    twin="prepare",
)
def padding_is_never_owned(step: Step, pool: PoolView) -> Finding:
    """Page 0 takes dummy writes, so nobody may keep anything there."""
    found = shares(step, pool)
    if found.clean:
        return HOLDS
    for who, pages in (("the tree", found.tree or set()), *found.private.items()):
        outside = sorted(page for page in pages if not 1 <= page <= pool.num_pages)
        if outside:
            return Clash(
                f"pages of {who} lie in 1..{pool.num_pages}",
                f"{who} holds the pages {outside}",
                f"the pool hands out 1..{pool.num_pages} and page 0 is padding",
            )
    return HOLDS


@oracle(
    "slots-keep-their-page-offset",
    formula="slots[p] % page_size == p % page_size, and the positions of one page share it",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.REQUEST,
    needs=Capability.PAGED,
    on=(Prefill, Mix, Prepare, Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 mem_cache/allocator/paged alloc_extend_naive; sglang #31215",
    twin="page-boundary-crossed",
)
def slots_keep_their_page_offset(step: Step, req: ReqView) -> Finding:
    """A paged row is a list of pages, cut at its length."""
    before = step.before.reqs.get(req.rid)
    if not req.slots or (before is not None and before.slots == req.slots):
        return None
    size, slots = step.config.page_size, req.slots
    old = before.slots if before is not None else ()
    done = len(old) if slots[: len(old)] == old else 0  # what was judged before, unless the row was rewritten
    for position in range(done // size * size, len(slots), size):
        first = slots[position]
        end = min(size, len(slots) - position)
        if first % size or slots[position : position + end] != tuple(range(first, first + end)):
            return Clash(
                f"slots({req.rid})[{position}:{position + end}) = {slots[position : position + end]} is one page",
                f"the row of {req.rid} names these slots from position {position} on",
                f"a page of {size} slots starts at a multiple of {size} and runs on without a gap",
            )
    return HOLDS


@oracle(
    "sizes-add-up",
    formula="available == len(free list) * page_size; evictable + protected == distinct cached slots",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.POOL,
    source="sglang 0.5.23 managers/scheduler_components/invariant_checker",
    twin="finish",
)
def sizes_add_up(step: Step, pool: PoolView) -> Finding:
    """The sizes that decide about admission and retraction describe what is there."""
    found = shares(step, pool)
    free = len(pool.free_pages) * pool.page_size
    cached = None if found.tree_slots is None else len(found.tree_slots)
    if pool.available == free and (cached is None or pool.evictable + pool.protected == cached):
        return HOLDS
    return Clash(
        f"available {pool.available} == {free}, evictable {pool.evictable} + protected {pool.protected} == {cached}",
        f"the engine reports {pool.available} available, {pool.evictable} "
        f"evictable and {pool.protected} protected tokens",
        f"its free list has {free} tokens and its tree {cached}",
    )


@oracle(
    "idle-pool-is-whole",
    formula="idle and nobody holds a row: free + tree pages == num_pages, protected == 0, every row is free",
    clock=Clock.HOST,
    owner=Owner.KV_ALLOCATOR,
    scope=Scope.RUN,
    point=Point.IDLE,
    on=(Idle,),
    source="sglang 0.5.23 managers/scheduler_components/invariant_checker",
    twin="idle-and-empty",
)
def idle_pool_is_whole(step: Step) -> Finding:
    """When every request has left, everything is free or evictable."""
    if any(req.req_pool_idx is not None for req in step.after.reqs.values()):
        return None
    pool = step.after.pool
    found = shares(step, pool)
    if found.tree is None:
        return Verdict.UNKNOWN
    total, have = pool.num_pages, len(pool.free_pages) + len(found.tree)
    if have == total and pool.protected == 0 and len(pool.free_rows) == pool.max_reqs:
        return HOLDS if step.after.reqs else None
    return Clash(
        f"{len(pool.free_pages)} + {len(found.tree)} = {have} == {total}, protected {pool.protected} == 0, "
        f"{len(pool.free_rows)} == {pool.max_reqs} free rows",
        "no request holds a row and nothing is in flight",
        f"{total - have} tokens are neither free nor evictable, {pool.protected} are locked, "
        f"{len(pool.free_rows)} of {pool.max_reqs} rows are free",
    )
