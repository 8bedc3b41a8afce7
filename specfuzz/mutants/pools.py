"""Planted bugs of pages, slots and the prefix tree: who owns what, and what the free lists say about it."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.mutants import mutant
from specfuzz.reference.req import Req
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.tree_node import Key, TreeNode

_TREE = Capability.RADIX | Capability.TREE_VIEW


@mutant("page-handed-out-twice", source="sglang 0.5.23 alloc_extend", killed_by=("page-has-one-owner",))
def page_handed_out_twice(engine: Scheduler) -> None:
    """A row that starts gets a page that the allocator has just given to another one."""
    allocator = engine.allocator
    alloc, last = allocator.alloc_extend, [0]

    def alloc_extend(allocated: int, end: int, last_slot: int) -> list[int] | None:
        slots = alloc(allocated, end, last_slot)
        if slots and allocated == 0:
            slots[0], last[0] = last[0] or slots[0], slots[0]
        return slots

    allocator.alloc_extend = alloc_extend  # type: ignore[method-assign]


@mutant("held-page-stays-free", source="sglang 0.5.23 alloc_extend", killed_by=("owned-pages-are-not-free",))
def held_page_stays_free(engine: Scheduler) -> None:
    """The last page of an allocation stays in the free list, at its far end."""
    allocator = engine.allocator
    alloc = allocator.alloc_extend

    def alloc_extend(allocated: int, end: int, last_slot: int) -> list[int] | None:
        slots = alloc(allocated, end, last_slot)
        if slots:
            allocator.free_pages.insert(0, slots[-1] // allocator.page_size)
        return slots

    allocator.alloc_extend = alloc_extend  # type: ignore[method-assign]


@mutant("padding-page-handed-out", source="sglang 0.5.23 allocator clear", killed_by=("padding-is-never-owned",))
def padding_page_handed_out(engine: Scheduler) -> None:
    """The free list starts with page 0, which padded rows write to."""
    engine.allocator.free_pages[-1] = 0


@mutant(
    "slots-out-of-order",
    source="sglang 0.5.23 alloc_extend",
    killed_by=("slots-keep-their-page-offset",),
    needs=Capability.PAGED,
)
def slots_out_of_order(engine: Scheduler) -> None:
    """The first two slots of an allocation change places within their page."""
    allocator = engine.allocator
    alloc = allocator.alloc_extend

    def alloc_extend(allocated: int, end: int, last_slot: int) -> list[int] | None:
        slots = alloc(allocated, end, last_slot)
        return slots and [*slots[1::-1], *slots[2:]]

    allocator.alloc_extend = alloc_extend  # type: ignore[method-assign]


@mutant(
    "row-write-cut-short",
    source="sglang 0.5.23 assign_req_to_token_pool_func",
    killed_by=("device-rows-are-host-rows", "window-follows-the-row"),
)
def row_write_cut_short(engine: Scheduler) -> None:
    """The last cell of a long row segment never gets to the device."""
    table = engine.req_to_token_pool
    write = table.write

    def write_all_but_one(segments: list[tuple[int, int, list[int]]]) -> None:
        write([(row, start, slots[:-1] if len(slots) > 2 else slots) for row, start, slots in segments])
        for row, start, slots in segments:
            table.host_rows[row][start : start + len(slots)] = slots

    table.write = write_all_but_one  # type: ignore[method-assign]


@mutant("row-lost-at-release", source="sglang 0.5.23 ReqToTokenPool.free", killed_by=("idle-pool-is-whole",))
def row_lost_at_release(engine: Scheduler) -> None:
    """A released row never gets back into the free list."""
    table = engine.req_to_token_pool
    free = table.free

    def free_and_forget(req: Req) -> None:
        free(req)
        table.free_slots.pop()

    table.free = free_and_forget  # type: ignore[method-assign]


@mutant(
    "tree-cuts-pages",
    source="sglang 0.5.23 RadixCache.checkpoint",
    killed_by=("protected-len-is-whole-pages",),
    needs=_TREE | Capability.PAGED,
)
def tree_cuts_pages(engine: Scheduler) -> None:
    """A checkpoint takes its whole length for the tree's, also the page that it has only begun."""
    tree = engine.tree_cache
    inner = tree.checkpoint

    def checkpoint(req: Req, up_to: int) -> None:
        inner(req, up_to)
        req.kv.cache_protected_len = up_to

    tree.checkpoint = checkpoint  # type: ignore[method-assign]


@mutant("tree-slots-swapped", source="sglang 0.5.23 RadixCache.insert", killed_by=("cached-kv-is-true",), needs=_TREE)
def tree_slots_swapped(engine: Scheduler) -> None:
    """The tree files the first two slots of a path under each other's tokens."""
    tree = engine.tree_cache
    insert = tree._insert
    tree._insert = lambda keys, slots: insert(keys, [*slots[1::-1], *slots[2:]])  # type: ignore[method-assign]


@mutant(
    "prefix-not-locked",
    source="sglang 0.5.23 RadixCache.lock",
    killed_by=("protected-size-is-the-locked-paths", "protected-prefix-is-cached"),
    needs=_TREE,
)
def prefix_not_locked(engine: Scheduler) -> None:
    """A request remembers its node in the tree and locks nothing, so that its prefix can be evicted under it."""

    def remember(req: Req, node: TreeNode) -> None:
        req.last_node = req.lock = node

    engine.tree_cache.lock = remember  # type: ignore[method-assign]
    engine.tree_cache.unlock = lambda req: setattr(req, "lock", None)  # type: ignore[method-assign]


@mutant(
    "cached-part-kept-private",
    source="sglang 0.5.23 RadixCache.checkpoint",
    killed_by=("tree-and-rows-are-disjoint",),
    needs=_TREE,
)
def cached_part_kept_private(engine: Scheduler) -> None:
    """After a checkpoint the request still takes what the tree has got for its own."""
    tree = engine.tree_cache
    inner = tree.checkpoint

    def checkpoint(req: Req, up_to: int) -> None:
        protected = req.kv.cache_protected_len
        inner(req, up_to)
        req.kv.cache_protected_len = protected

    tree.checkpoint = checkpoint  # type: ignore[method-assign]


@mutant(
    "evicted-pages-leaked",
    source="sglang 0.5.23 RadixCache.evict",
    killed_by=("evicted-pages-become-free",),
    needs=_TREE,
)
def evicted_pages_leaked(engine: Scheduler) -> None:
    """The last page that an eviction takes out of the tree is lost."""
    tree = engine.tree_cache
    evict = tree.evict

    def evict_and_lose(num_tokens: int) -> int:
        evicted = evict(num_tokens)
        if evicted:
            engine.allocator.free_pages.pop()
        return evicted

    tree.evict = evict_and_lose  # type: ignore[method-assign]


@mutant("evictable-size-drifts", source="sglang 0.5.23 RadixCache.evict", killed_by=("sizes-add-up",), needs=_TREE)
def evictable_size_drifts(engine: Scheduler) -> None:
    """Inserting what the tree has already counts its tokens as evictable once more."""
    tree = engine.tree_cache
    insert = tree._insert

    def insert_and_count(keys: Key, slots: list[int]) -> int:
        matched = insert(keys, slots)
        tree.evictable_size += matched
        return matched

    tree._insert = insert_and_count  # type: ignore[method-assign]
