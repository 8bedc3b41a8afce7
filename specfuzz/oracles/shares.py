"""Who holds which page: shares recomputed from the free list, the tree walk and the rows, once per changed pool."""

from __future__ import annotations

from specfuzz.core.oracle import Step
from specfuzz.core.snapshot import PoolView
from specfuzz.oracles.facts import limits


class Shares:
    """Who holds which page, recomputed from the free list, the tree walk and the rows.

    tree_slots, tree: cached slots and their pages (None if the tree can't be walked). holders: requests with a row.
    locked: slots of their protected prefixes. total: sum of all shares, a page counted as often as it is held. clean:
    every page 1..num_pages is held just once, which settles most pool rules at one go (a row is read at the first slot
    of each of its pages).
    """

    __slots__ = ("_page_size", "_private", "clean", "holders", "locked", "total", "tree", "tree_slots")

    def __init__(self, step: Step, pool: PoolView) -> None:
        size = self._page_size = pool.page_size
        self._private: dict[str, set[int]] | None = None
        self.tree_slots, self.tree = tree_of(step, pool)
        self.holders = [req for req in step.after.reqs.values() if req.req_pool_idx is not None]
        self.locked: set[int] = set()
        total, held = len(pool.free_pages), []
        for req in self.holders:
            protected, slots = req.cache_protected_len, req.slots
            if protected:
                self.locked.update(slots[:protected])
            pages = slots[protected:] if size == 1 else [slot // size for slot in slots[protected::size]]
            total += len(pages)
            held.append(pages)
        if self.tree is None:
            self.total, self.clean = total + (pool.evictable + pool.protected) // size, False
            return
        self.total = total = total + len(self.tree)
        # As many shares as pages and no page without one: then each page has just one.
        self.clean = total == pool.num_pages and not every_page(step, pool).difference(
            pool.free_pages, self.tree, *held
        )

    @property
    def private(self) -> dict[str, set[int]]:
        """By rid, the pages of positions [cache_protected_len, kv_allocated_len), each slot looked at."""
        if self._private is None:
            self._private = {
                req.rid: pages_of(req.slots[req.cache_protected_len :], self._page_size) for req in self.holders
            }
        return self._private


def every_page(step: Step, pool: PoolView) -> frozenset[int]:
    """The pages that the allocator may hand out: 1..num_pages."""
    known: frozenset[int] | None = step.memo.get("every-page")
    if known is None:
        known = step.memo["every-page"] = frozenset(range(1, pool.num_pages + 1))
    return known


def every_row(step: Step, pool: PoolView) -> frozenset[int]:
    """The rows that the table may hand out: 1..max_reqs."""
    known: frozenset[int] | None = step.memo.get("every-row")
    if known is None:
        known = step.memo["every-row"] = frozenset(range(1, pool.max_reqs + 1))
    return known


def tree_of(step: Step, pool: PoolView) -> tuple[set[int] | None, set[int] | None]:
    """(cached slots, their pages); kept while the tree's walk is the same."""
    if pool.cached is None:
        return (None, None) if limits(step).radix else (set(), set())
    known: tuple[object, set[int], set[int]] | None = step.memo.get("tree")
    if known is not None and known[0] is pool.cached:
        return known[1], known[2]
    slots: set[int] = set()
    for path in pool.cached:
        slots.update(path.slots)
    pages = slots if pool.page_size == 1 else pages_of(slots, pool.page_size)
    step.memo["tree"] = (pool.cached, slots, pages)
    return slots, pages


def pages_of(slots: set[int] | tuple[int, ...], page_size: int) -> set[int]:
    """The pages in which the slots lie."""
    return set(slots) if page_size == 1 else {slot // page_size for slot in slots}


def shares(step: Step, pool: PoolView) -> Shares:
    """The shares of this pool view, computed once per event."""
    known: tuple[int, Shares] | None = step.memo.get("shares")
    if known is not None and known[0] == step.index:
        return known[1]
    found = Shares(step, pool)
    step.memo["shares"] = (step.index, found)
    return found
